package command

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// memStore is a store in memory for one name. Each peer has a way of its own to the ledger.
type memStore struct {
	Store
	way *way
}

func (s memStore) Ledger(context.Context, string, transition.Timing) (transition.Ledger, partition.Config, error) {
	return s.way, partition.Config{Total: 8}, nil
}
func (memStore) Reach(context.Context) error { return nil }
func (memStore) Close() error                { return nil }

// A way to a ledger can be cut.
type way struct {
	transition.Ledger
	mu  sync.Mutex
	err error
}

func (w *way) cut(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

func (w *way) Sync(ctx context.Context, r transition.Request) (transition.Answer, error) {
	w.mu.Lock()
	err := w.err
	w.mu.Unlock()
	if err != nil {
		return transition.Answer{}, err
	}
	return w.Ledger.Sync(ctx, r)
}

var errCut = errors.New("connection\x1b refused")

// A counter runs countoff index in a bubble.
type counter struct {
	way        way
	out, notes output
	ended      chan error
}

func newCounter(ledger transition.Ledger) *counter {
	return &counter{way: way{Ledger: ledger}, ended: make(chan error, 1)}
}

func (c *counter) start(ctx context.Context, line string) *counter {
	cmd := Root(Stores{"mem": func(string) (Store, error) { return memStore{way: &c.way}, nil }})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(strings.Fields(line + " --ledger mem://"))
	cmd.SetOut(&c.out)
	cmd.SetErr(&c.notes)
	go func() { c.ended <- cmd.ExecuteContext(ctx) }()
	return c
}

func newMemLedger() transition.Ledger {
	return memledger.New(partition.Config{Total: 8}, transition.Timing{}, memledger.Options{})
}

// pass lets the time of the bubble pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Two count off, and each hears of the other. The lease is long: on a slow machine a place is not lost
// in between, and what is said of a call that took long is no place.
func TestIndex(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init jobs --partitions 8")
	places := func(out string) string {
		lines := slices.DeleteFunc(strings.SplitAfter(out, "\n"), func(line string) bool { return strings.HasPrefix(line, "countoff index: ") })
		return strings.Join(lines, "")
	}
	const timing = "--lease 60s"
	ctx, stop := context.WithCancel(t.Context())
	var first output
	done := make(chan error, 1)
	go func() { done <- s.start(ctx, &first, "index jobs --follow --id first "+timing) }()
	wait(t, func() bool { return places(first.String()) == "0 1\n" })
	if out := s.run("index jobs --id second " + timing); places(out) != "1 2\n" {
		t.Errorf("the second heard %q", out)
	}
	wait(t, func() bool { return places(first.String()) == "0 1\n0 2\n0 1\n" })
	stop()
	if err := <-done; err != nil {
		t.Errorf("told to stop: %v", err)
	}
}

// Who is cut off says that it has no place before another gets it, and what it has when it is back. It
// tells of each outage once.
func TestIndexWithoutAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ledger := newMemLedger()
		a := newCounter(ledger).start(ctx, "index n --follow --id a")
		pass(3 * time.Second)
		b := newCounter(ledger).start(ctx, "index n --follow --id b")
		pass(5 * time.Second)
		if a.out.String() != "0 1\n0 2\n" || b.out.String() != "1 2\n" {
			t.Fatalf("a says %q, b %q", a.out.String(), b.out.String())
		}
		a.way.cut(errCut)
		for range 60 {
			pass(time.Second / 2)
			if strings.HasSuffix(b.out.String(), "0 1\n") && !strings.HasSuffix(a.out.String(), "-1 0\n") {
				t.Fatalf("b has the index 0 by now, and a says %q", a.out.String())
			}
		}
		if a.out.String() != "0 1\n0 2\n-1 0\n" || b.out.String() != "1 2\n0 1\n" {
			t.Errorf("cut off a says %q, b %q", a.out.String(), b.out.String())
		}
		if said := a.notes.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "connection\ufffd refused") {
			t.Errorf("of its outage it says %q", said)
		}
		a.way.cut(nil)
		pass(5 * time.Second)
		if a.out.String() != "0 1\n0 2\n-1 0\n1 2\n" || b.out.String() != "1 2\n0 1\n0 2\n" {
			t.Errorf("back a says %q, b %q", a.out.String(), b.out.String())
		}
		a.way.cut(errCut)
		pass(2 * time.Second)
		if n := strings.Count(a.notes.String(), "\n"); n != 2 {
			t.Errorf("of two outages it says %d times: %q", n, a.notes.String())
		}
		stop()
		if err := errors.Join(<-a.ended, <-b.ended); err != nil {
			t.Error(err)
		}
	})
}

// The lease may be over, and nobody has noticed: the place is the same as before, by the same roll.
func TestIndexIsBackInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		a := newCounter(newMemLedger()).start(ctx, "index n --follow --id a")
		pass(3 * time.Second)
		a.way.cut(errCut)
		pass(9 * time.Second)
		if got := a.out.String(); got != "0 1\n-1 0\n" {
			t.Errorf("cut off it says %q", got)
		}
		a.way.cut(nil)
		pass(3 * time.Second)
		if got := a.out.String(); got != "0 1\n-1 0\n0 1\n" {
			t.Errorf("back it says %q", got)
		}
		stop()
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
	})
}

// Who wants its place once does not wait for ever for a ledger that does not answer, and says why.
func TestIndexGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCounter(newMemLedger())
		a.way.cut(errCut)
		began := time.Now()
		err := <-a.start(t.Context(), "index n --timeout 20s").ended
		if took := time.Since(began); codeOf(err) != exit.Unreachable || !errors.Is(err, errCut) || took < 20*time.Second || took > 25*time.Second {
			t.Errorf("after %v it ends with code %d: %v", took, codeOf(err), err)
		}
		if a.out.String() != "" || strings.Count(a.notes.String(), "\n") != 1 {
			t.Errorf("it prints %q, and says %q", a.out.String(), a.notes.String())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		a := newCounter(newMemLedger())
		a.way.cut(errCut)
		a.start(t.Context(), "index n")
		pass(9 * time.Second)
		a.way.cut(nil)
		if err := <-a.ended; err != nil || a.out.String() != "0 1\n" {
			t.Errorf("answered late it prints %q: %v", a.out.String(), err)
		}
	})
}

// Who counts off in a ledger that the peers of the name do not have would be told that nobody shares the work, and from then
// on the name looks as if it had its peers there.
func TestIndexBesideALedgerElsewhere(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	letters(t, s, nil, nil)
	if said := s.fails(exit.Failed, "index n --lease 3s"); !strings.Contains(said, "who takes part is not known") {
		t.Errorf("it says %q", said)
	}
}
