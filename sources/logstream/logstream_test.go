package logstream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The permit is one seat's at a time, in the order in which they asked; who gives it up, or
// the wish for it, does not get it.
func TestPermit(t *testing.T) {
	var p Permit
	seats := []*Seat{p.NewSeat(), p.NewSeat(), p.NewSeat(), p.NewSeat()}
	for i, s := range seats {
		if got := p.ask(s); got != (i == 0) {
			t.Errorf("seat %d has the permit: %t", i, got)
		}
	}
	granted := func() (who []int) {
		for i, s := range seats {
			select {
			case <-s.Granted():
				who = append(who, i)
			default:
			}
		}
		return who
	}
	seats[2].Leave() // before its turn
	for _, want := range []int{1, 3} {
		for i, s := range seats {
			if p.holder == s {
				seats[i].Leave()
				break
			}
		}
		if who := granted(); len(who) != 1 || who[0] != want || !p.ask(seats[want]) {
			t.Errorf("granted to %v, want %d", who, want)
		}
	}
	seats[3].Leave()
	seats[3].Leave()
	if p.holder != nil || len(p.queue) > 0 || !p.ask(seats[2]) {
		t.Error("a permit that nobody wants is not free")
	}
}

// Pauses grow; who waits is told once the trouble has lasted, or does not pass by itself.
func TestTrouble(t *testing.T) {
	var trouble Trouble
	now := time.Now()
	if d := trouble.Lasted(now); d != 0 {
		t.Errorf("none has lasted %v", d)
	}
	first, tell := trouble.Next(now, false)
	if tell || first < firstPause/2 || first > 2*firstPause {
		t.Errorf("first: %v, %t", first, tell)
	}
	if _, tell := trouble.Next(now, true); !tell {
		t.Error("a refusal is not told at once")
	}
	for range 20 {
		if pause, _ := trouble.Next(now, false); pause > 2*lastPause {
			t.Errorf("a pause of %v", pause)
		}
	}
	if _, tell := trouble.Next(now.Add(patience), false); !tell || trouble.Lasted(now.Add(patience)) != patience {
		t.Error("a trouble that lasts is not told")
	}
}

func TestCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Callers
		var p Permit
		seat := p.NewSeat()
		f := NewFetch(7)
		wait := func(ctx context.Context, again time.Time) chan error {
			c.Fetch = f
			done := make(chan error, 1)
			go func() { done <- f.Wait(ctx, again, seat, func() { c.Forget(f) }) }()
			synctest.Wait()
			return done
		}
		// An answer, an error, its time, the end of its context.
		done := wait(t.Context(), time.Time{})
		c.Answered(0)
		if err := <-done; err != nil || c.Fetch != nil {
			t.Errorf("answered: %v", err)
		}
		no := errors.New("no")
		done = wait(t.Context(), time.Now().Add(time.Hour))
		first, second := c.Settle(1), c.Settle(2)
		c.Answered(1)
		if err := errors.Join(<-done, <-first); err != nil {
			t.Errorf("answered: %v", err)
		}
		done = wait(t.Context(), time.Time{})
		c.Tell(func(op string) error { return errors.Join(no, errors.New(op)) })
		for op, err := range map[string]error{"fetch": <-done, "settle": <-second} {
			if !errors.Is(err, no) || err.Error() != "no\n"+op {
				t.Errorf("%s was told %v", op, err)
			}
		}
		began := time.Now()
		if err := <-wait(t.Context(), began.Add(time.Minute)); err != nil || time.Since(began) != time.Minute {
			t.Errorf("its time: %v after %v", err, time.Since(began))
		}
		// It is still among the callers: what is said now it finds when it looks again.
		c.TellFetch(no)
		if told, err := f.Told(); !told || !errors.Is(err, no) {
			t.Errorf("told %v, %t", err, told)
		}
		if told, _ := f.Told(); told {
			t.Error("told twice")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done = wait(ctx, time.Time{})
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || c.Fetch != nil {
			t.Errorf("its context: %v", err)
		}
	})
}
