package logstream

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The permit is one seat's at a time, in the order in which they asked; who gives it up, or
// the wish for it, does not get it.
func TestPermit(t *testing.T) {
	var p Permit
	seats := []*seat{p.newSeat(), p.newSeat(), p.newSeat(), p.newSeat()}
	for i, s := range seats {
		if got := p.ask(s); got != (i == 0) {
			t.Errorf("seat %d has the permit: %t", i, got)
		}
	}
	granted := func() (who []int) {
		for i, s := range seats {
			select {
			case <-s.granted():
				who = append(who, i)
			default:
			}
		}
		return who
	}
	seats[2].leave() // before its turn
	for _, want := range []int{1, 3} {
		for i, s := range seats {
			if p.holder == s {
				seats[i].leave()
				break
			}
		}
		if who := granted(); len(who) != 1 || who[0] != want || !p.ask(seats[want]) {
			t.Errorf("granted to %v, want %d", who, want)
		}
	}
	seats[3].leave()
	seats[3].leave()
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
