package logstream

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/sources/progress"
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
	pause := first
	for range 20 {
		if pause, _ = trouble.Next(now, false); pause > 2*lastPause {
			t.Errorf("a pause of %v", pause)
		}
	}
	if pause < lastPause/2 {
		t.Errorf("after many failures it is asked again in %v", pause)
	}
	if _, tell := trouble.Next(now.Add(patience), false); !tell || trouble.Lasted(now.Add(patience)) != patience {
		t.Error("a trouble that lasts is not told")
	}
}

// A seat has the permit while its log wants it and its stream is not over, says once that it
// has come, and stands in the queue once, however often it asks.
func TestSeat(t *testing.T) {
	now := time.Now()
	accused := func() *progress.Log {
		log := suspect()
		log.Accused(0)
		if log.Hand(now, 1, nil); !log.WantsPermit() {
			t.Fatal("a task that is accused wants no permit")
		}
		return log
	}
	calm := progress.New(progress.Config{}, progress.Opened{})
	var p Permit
	a, b, c := p.newSeat(), p.newSeat(), p.newSeat()
	logA, logB := accused(), accused()
	look := func(what string, s *seat, log *progress.Log, over, want bool) {
		t.Helper()
		if came := s.look(log, over); came != want {
			t.Errorf("%s: the permit has just come: %t", what, came)
		}
	}
	look("over before it asked", c, accused(), true, false)
	look("the first", a, logA, false, true)
	look("the first again", a, logA, false, false)
	look("the second", b, logB, false, false)
	look("the second again", b, logB, false, false)
	if len(p.queue) != 1 {
		t.Errorf("%d in the queue, want the second once", len(p.queue))
	}
	look("the first is over", a, logA, true, false)
	look("the second's turn", b, logB, false, true)
	logB.Hand(now, 1, nil)
	if logB.Need() != progress.NeedRoundTrip {
		t.Error("its log does not know of the permit")
	}
	look("the second wants it no more", b, calm, false, false)
	if p.holder != nil || len(p.queue) > 0 {
		t.Error("the permit is not free")
	}
}

// What is kept of an error ends between two characters: it is shown to people, and sent as
// text.
func TestShortErrors(t *testing.T) {
	most := strings.Repeat("x", maxError-1)
	for reason, want := range map[string]string{"no": "no", most + "yz": most + "y", most + "é": most} {
		if got := Short(reason); got != want {
			t.Errorf("of %d bytes it keeps %d, want %d: …%q", len(reason), len(got), len(want), got[max(0, len(got)-3):])
		}
	}
}

// A key has one hash, be it text or bytes, and to know it takes no memory.
func TestKeyHash(t *testing.T) {
	text := strings.Repeat("customer", 20)
	bytes := []byte(text)
	if KeyHash("") != 0 || KeyHash([]byte(nil)) != 0 || KeyHash(text) != KeyHash(bytes) || KeyHash(text) == KeyHash(text[1:]) {
		t.Error("no key is not 0, or a key has not got one hash")
	}
	if n := testing.AllocsPerRun(100, func() { hashed = KeyHash(text) + KeyHash(bytes) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

var hashed uint64
