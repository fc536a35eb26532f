package framework

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// A question is what a session has to find out before it can take part.
type question struct {
	name    string
	layout  func(context.Context) (partition.Config, error) // of the source
	control Control
	peer    string        // the configured id; empty: the host's name
	within  time.Duration // the first try; after one that ran out of its time the next has twice that
	failed  func(err error, again time.Duration)
}

// longestTry is what a try to find out has at last, where each answer comes late.
const longestTry = time.Minute

// found is the answer.
type found struct {
	layout  partition.Config
	ledger  transition.Ledger
	indexer partition.Indexer
	peer    string
}

// ask finds out, as often as it takes or until a stop ends ctx, after which it may have found
// nothing. An error does not pass by itself. What panics is asked again.
func (q question) ask(ctx context.Context) (found, error) {
	var again backoff
	for {
		var f found
		try, cancel := context.WithTimeout(ctx, q.within)
		err := <-apart("the source or the control", func() (err error) {
			f, err = q.once(try)
			return err
		})
		if try.Err() != nil {
			q.within = min(2*q.within, max(q.within, longestTry))
		}
		cancel()
		_, control := errors.AsType[*controlError](err)
		switch {
		case err == nil, control, errors.Is(err, partition.ErrConfig):
			return f, err
		case ctx.Err() != nil:
			return f, nil //nolint:nilerr // a stop broke the calls off
		}
		wait := again.next()
		q.failed(err, wait)
		if !sleep(ctx, wait) {
			return f, nil
		}
	}
}

func (q question) once(ctx context.Context) (f found, err error) {
	if f.layout, err = q.layout(ctx); err != nil {
		return f, fmt.Errorf("layout of the source: %w", err)
	}
	f.layout = f.layout.WithDefaults()
	f.ledger, f.indexer, err = q.control(f.layout)
	if err == nil && f.ledger == nil {
		err = errors.New("the control returned none")
	}
	if err == nil {
		err = errors.Join(partition.SameName(q.name, "ledger", f.ledger), transition.CheckLayout(f.ledger, f.layout))
	}
	if err != nil {
		return f, &controlError{err}
	}
	if f.peer, err = peerID(ctx, q.peer, f.ledger); err != nil {
		return f, fmt.Errorf("read the ledger: %w", err)
	}
	return f, nil
}

// A controlError is what a Control failed with.
type controlError struct{ err error }

func (e *controlError) Error() string { return fmt.Sprintf("make the ledger: %v", e.err) }
func (e *controlError) Unwrap() error { return e.err }

// peerFault says what is wrong with a configured id.
func peerFault(configured string) error {
	if configured == "" {
		return nil
	}
	return partition.CheckPeer(configured)
}

// peerID is the configured id, or the host's name, told apart from that of a live peer on the
// same host. That one may choose at the same moment, or have the same process id in a container
// of its own: see transition.Config.Yield.
func peerID(ctx context.Context, configured string, l transition.Ledger) (string, error) {
	if configured != "" {
		return configured, nil
	}
	host, own := hostIDs(os.Hostname())
	census, err := l.Census(ctx)
	if err != nil {
		return "", err
	}
	for _, seat := range census.Sessions {
		if seat.Peer == host && seat.State != machine.Gone && seat.Lease > 0 {
			return own, nil
		}
	}
	return host, nil
}

// hostIDs are the ids of a peer without a configured one: the host's name, and for another on
// the same host. Systems take names that are no ids: such a peer works, and has a common one.
func hostIDs(host string, err error) (first, second string) {
	pid := fmt.Sprint("-", os.Getpid())
	if err != nil || partition.CheckPeer(host) != nil || partition.CheckPeer(host+pid) != nil {
		host = "peer"
	}
	return host, host + pid
}
