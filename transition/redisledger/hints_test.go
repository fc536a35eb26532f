package redisledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// listen returns a channel on which hints for s arrive, until the test ends. The first
// one has come: the subscription stands.
func listen(t *testing.T, l *redisledger.Ledger, s partition.Session) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	hints, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() { ended <- l.Hints(ctx, s, func() { hints <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("hints ended with %v", err)
		}
	})
	for range 2 { // one for each channel
		expect(t, hints)
	}
	return hints
}

func expect(t *testing.T, hints <-chan struct{}) {
	t.Helper()
	select {
	case <-hints:
	case <-time.After(20 * time.Second):
		t.Fatal("no hint")
	}
}

// A hint wakes whom it concerns and nobody else: a hand-over of two must not cost a
// request of everybody.
func TestHintsConcernTheirReceiver(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	l := newLedger(t, s.client, s.name, redisledger.Config{})
	a, b := settled(t, l, session(1), 1), settled(t, l, session(2))
	settled(t, l, session(3))
	toA, toB, toC := listen(t, l, session(1)), listen(t, l, session(2)), listen(t, l, session(3))
	none := func(what string, hints ...<-chan struct{}) {
		t.Helper()
		for _, h := range hints {
			if len(h) > 0 {
				t.Errorf("%s: a hint to somebody else", what)
				<-h
			}
		}
	}

	b.Claim = []partition.ID{1, 2}
	mustSync(t, l, b)
	expect(t, toA)
	none("a waiter", toB, toC)
	mustSync(t, l, b) // asks again: nothing new
	a.Release, a.Hold = a.Hold, nil
	mustSync(t, l, a)
	expect(t, toB)
	none("a hand-over", toA, toC)
	if err := l.Seal(t.Context(), machine.Roll{}); err != nil {
		t.Fatal(err)
	}
	all := func() {
		t.Helper()
		for _, h := range []<-chan struct{}{toA, toB, toC} {
			expect(t, h)
		}
	}
	all()
	if err := redisledger.Require(t.Context(), s.client, s.name, []partition.Requirement{{First: 0, Last: 1, Tags: "gpu"}}); err != nil {
		t.Fatal(err)
	}
	all()
	if err := l.Grow(t.Context(), partition.DefaultTotal+1); err != nil {
		t.Fatal(err)
	}
	all()
}

func TestHintsComeBack(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	name := redistest.Name(t)
	l := newLedger(t, server.Client(), name, redisledger.Config{Timing: transition.Timing{Lease: 2200 * time.Millisecond}})
	hints := listen(t, l, session(1))
	channel := "{" + name + "}:events:" + string(session(1))
	for _, c := range []struct {
		what string
		cut  func()
	}{
		{"the connection was cut", func() {
			if err := server.Client().Do(t.Context(), "client", "kill", "type", "pubsub").Err(); err != nil {
				t.Fatal(err)
			}
		}},
		{"the server was restarted", func() { server.Restart(true) }},
		{"the server stopped answering", func() {
			server.Pause()
			time.AfterFunc(5*time.Second, server.Resume) // longer than two leases: given up
		}},
	} {
		c.cut()
		expect(t, hints) // what was published meanwhile is lost, so that this is one
		until(t, "a hint after "+c.what, func() bool {
			if err := server.Client().Publish(t.Context(), channel, "1").Err(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-hints:
				return true
			default:
				return false
			}
		})
	}
}
