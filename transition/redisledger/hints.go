package redisledger

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
)

// Hints implements transition.Ledger. It subscribes on a connection of its own and
// connects again when that is lost. It returns before ctx ends only if the server
// refuses the subscription, which no retry would help.
func (l *Ledger) Hints(ctx context.Context, session partition.Session, hint func()) error {
	if err := checkSession(session); err != nil {
		return err
	}
	const first = 50 * time.Millisecond
	pause := first
	for {
		heard, err := l.listen(ctx, session, hint)
		if redis.IsPermissionError(err) || redis.IsAuthError(err) {
			return l.explain(ctx, "hints", err)
		}
		if heard {
			pause = first
		}
		// A random part of the pause, so that a fleet does not come back in one moment.
		wait := time.NewTimer(rand.N(pause))
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case <-wait.C:
		}
		pause = min(2*pause, l.cfg.Timing.Beat())
	}
}

// listen hears one subscription until it fails or ctx ends, and reports whether it
// ever stood.
func (l *Ledger) listen(ctx context.Context, session partition.Session, hint func()) (heard bool, err error) {
	ps := l.client.Subscribe(ctx)
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { // ends a receive that waits
		defer close(closed)
		_ = ps.Close()
	})
	defer func() {
		if stop() {
			_ = ps.Close()
		} else {
			<-closed
		}
	}()
	if err := ps.Subscribe(ctx, events(l.name), eventsOf(l.name, session)); err != nil {
		return false, err
	}
	asked := false
	for {
		msg, err := ps.ReceiveTimeout(ctx, l.cfg.Timing.Lease)
		var late net.Error
		switch {
		case errors.As(err, &late) && late.Timeout() && !asked:
			// Silence is what an idle name sounds like, and a dead connection too.
			if err := ps.Ping(ctx); err != nil {
				return heard, err
			}
			asked = true
			continue
		case err != nil:
			return heard, err
		}
		asked = false
		if _, pong := msg.(*redis.Pong); !pong {
			// A subscription is a hint as well: what was published before it is lost.
			heard = true
			hint()
		}
	}
}
