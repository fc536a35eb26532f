package etcdledger

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/countoff/countoff/partition"
)

// Hints implements transition.Ledger. It watches the roll, the configuration and the grants, and watches again
// when a watch is lost, or etcd was replaced: etcd's client goes on where it was, at a
// revision that one which was set back may not reach for days. It returns before ctx ends only if etcd refuses the watch, which no
// retry would help.
func (l *Ledger) Hints(ctx context.Context, session partition.Session, hint func()) error {
	if err := checkSession(session); err != nil {
		return err
	}
	const first = 50 * time.Millisecond
	wait, through := first, ctx
	for {
		heard, err := l.listen(through, session, hint)
		if errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrAuthFailed) {
			return l.explain("hints", err)
		}
		if slices.Contains(dated, err) {
			through = alone(ctx)
		}
		if heard {
			wait = first
		}
		// A random part of the wait, so that a fleet does not come back in one moment.
		t := time.NewTimer(rand.N(wait))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		wait = min(2*wait, l.cfg.Timing.Beat())
	}
}

// listen hears one watch until it fails or ctx ends, and reports whether it ever stood.
func (l *Ledger) listen(ctx context.Context, session partition.Session, hint func()) (heard bool, err error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx)) // a member that is cut off says so
	defer cancel()
	replaced := l.memory.untilReplaced()
	configs := l.client.Watch(ctx, l.prefix+configKey, clientv3.WithCreatedNotify()) // a pause, and what partitions ask for
	rolls := l.client.Watch(ctx, l.prefix+rollKey, clientv3.WithCreatedNotify())
	grants := l.client.Watch(ctx, l.prefix+transitionKey, clientv3.WithCreatedNotify())
	mine := "" // what the grants said of session last
	for {
		var resp clientv3.WatchResponse
		var open bool
		select {
		case <-replaced:
			return heard, nil
		case resp, open = <-rolls:
		case resp, open = <-configs:
		case resp, open = <-grants:
			for _, e := range resp.Events {
				if line := lineOf(string(e.Kv.Value), session); line != mine {
					mine = line
					hint()
				}
			}
			resp.Events = nil
		}
		if len(resp.Events) > 0 || resp.Created {
			// What happened before the watch is not heard of: its beginning is a hint.
			heard = true
			hint()
		}
		if err := resp.Err(); err != nil || !open {
			return heard, reason(err)
		}
	}
}

// dated is what a watch hears that has joined a stream which was opened too long ago: its token has ended, users or roles were
// changed since, or there was no user yet.
var dated = []error{rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrUserEmpty}

// alone returns a context whose watches share no stream with others: etcd's client gives one to all of the same metadata, and
// etcd knows who somebody is by the token that the stream was opened with. Once that has ended, a watch which joins it is refused.
// It is for who was refused: where all watches of a stream end while etcd is away, that stays until another watch joins it, or
// the client is closed.
func alone(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "countoff-watch", strconv.FormatUint(rand.Uint64(), 16))
}

// reason returns the error that etcd's client makes of any answer but that to a watch: there it leaves the words in which
// etcd refuses a user as they are.
func reason(err error) error {
	for _, refused := range append(dated, rpctypes.ErrPermissionDenied) {
		if err != nil && strings.HasSuffix(err.Error(), refused.Error()) {
			return refused
		}
	}
	return err
}
