package ledgertest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
)

// hung is a ledger of which one kind of calls does not return, whatever its context does, until it is released.
type hung struct {
	transition.Ledger
	what    string
	release chan struct{}
}

func (h hung) call(what string) {
	if h.what == what {
		<-h.release
	}
}

func (h hung) Sync(ctx context.Context, r machine.Request) (machine.Answer, error) {
	h.call("Sync")
	return h.Ledger.Sync(ctx, r)
}

func (h hung) Seal(ctx context.Context, next machine.Roll) error {
	h.call("Seal")
	return h.Ledger.Seal(ctx, next)
}

func (h hung) Census(ctx context.Context) (machine.Census, error) {
	h.call("Census")
	return h.Ledger.Census(ctx)
}

func (h hung) Hints(ctx context.Context, session partition.Session, hint func()) error {
	err := h.Ledger.Hints(ctx, session, hint)
	h.call("Hints")
	return err
}

type hangs struct {
	Harness
	hung
}

func (h hangs) Ledger(cfg partition.Config, timing transition.Timing) transition.Ledger {
	h.hung.Ledger = memledger.New(cfg, timing, memledger.Options{})
	return h.hung
}

func (hangs) Can() Abilities { return Abilities{Jump: true, Fresh: true} }

// A recorder keeps how a clause failed.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	if r.failure == "" {
		r.failure = fmt.Sprintf(format, args...)
	}
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// Of what does not return the first clause that calls it tells, in its words.
func TestWhatHangsIsTold(t *testing.T) {
	t.Parallel()
	for call, check := range map[string]func(*table){
		"Sync of a": func(tb *table) { tb.peer("a").join() },
		"Seal":      func(tb *table) { tb.tick() },
		"Census":    func(tb *table) { tb.census() },
		"Hints":     hintClauses[len(hintClauses)-1].check,
	} {
		t.Run(call, func(t *testing.T) {
			r := new(recorder)
			synctest.Test(t, func(t *testing.T) {
				r.TB = t
				release := make(chan struct{})
				defer close(release)
				name, _, _ := strings.Cut(call, " ")
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					check(newTable(r, hangs{hung: hung{what: name, release: release}}))
				}()
				<-ended
			})
			if !strings.Contains(r.failure, call) || !strings.Contains(r.failure, "has not returned") {
				t.Errorf("it says %q", r.failure)
			}
		})
	}
}

// What ends a call ends its clause, so that go test names it.
func TestAPanicIsOfItsClause(t *testing.T) {
	t.Parallel()
	defer func() {
		if why := recover(); !strings.Contains(fmt.Sprint(why), "Seal: broken") {
			t.Errorf("it panicked with %v", why)
		}
	}()
	_, err := await(t, "Seal", func() (struct{}, error) { panic("broken") })
	t.Errorf("it returned %v", err)
}
