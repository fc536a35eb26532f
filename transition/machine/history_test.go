package machine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// past returns a history in which the partition 3 goes through everything that can
// happen to it.
func past() machine.History {
	at := func(s float64) machine.Entry {
		d := time.Duration(s * float64(time.Second))
		return machine.Entry{At: time.Unix(1000, 0).Add(d), Clock: d}
	}
	of := func(e machine.Entry, what machine.Change, session, other string, epoch, former partition.Epoch) machine.Entry {
		e.What, e.Session, e.Other = what, partition.Session(session), partition.Session(other)
		e.Peer, e.OtherPeer = "peer "+session, "peer "+other
		if epoch > 0 {
			e.Grants = []machine.Passed{
				{Grant: partition.Grant{ID: 9, Epoch: epoch + 50}},
				{Grant: partition.Grant{ID: 3, Epoch: epoch}, Former: former},
			}
		}
		return e
	}
	silent := func(e machine.Entry, d time.Duration) machine.Entry {
		e.Silent = d
		return e
	}
	return machine.History{
		of(at(0), machine.Made, "", "", 0, 0),
		of(at(1), machine.Granted, "a", "", 5, 0),
		of(at(2), machine.Asked, "b", "a", 5, 0),
		of(at(2.2), machine.Asked, "c", "a", 5, 0),
		of(at(2.5), machine.Asked, "b", "a", 5, 0), // again: another had asked meanwhile
		of(at(4), machine.Handed, "b", "a", 6, 5),
		silent(of(at(20), machine.Expired, "b", "", 0, 0), 11*time.Second),
		of(at(21), machine.Took, "a", "b", 7, 6),
		of(at(30), machine.GivenUp, "a", "", 7, 0),
		of(at(33), machine.Granted, "c", "", 8, 0),
		of(at(40), machine.Forgot, "", "", 0, 0),
		of(at(41), machine.HeldAgain, "c", "", 8, 0),
		of(at(42), machine.Asked, "a", "c", 8, 0),
		of(at(42.5), machine.Asked, "d", "c", 8, 0),
		of(at(43), machine.Handed, "d", "c", 9, 8), // who asked last got it
		of(at(50), machine.Asked, "a", "d", 9, 0),
		of(at(51), machine.Handed, "a", "d", 10, 9),
		of(at(60), machine.GivenUp, "a", "", 10, 0),
		of(at(61), machine.Forgot, "", "", 0, 0),
		of(at(70), machine.Granted, "b", "", 11, 0),
		of(at(72), machine.GivenUp, "b", "", 11, 0),
		of(at(73), machine.Granted, "c", "", 12, 0),
		of(at(80), machine.Granted, "a", "", 13, 0), // what was between is not told of
	}
}

func TestWhoseItWas(t *testing.T) {
	for _, c := range []struct {
		at    float64
		known bool
		who   partition.Session
		epoch partition.Epoch
		how   machine.Change
		dead  bool
	}{
		{-1, false, "", 0, "", false},
		{0.5, true, "", 0, machine.Made, false},
		{1, true, "a", 5, machine.Granted, false},
		{3, true, "a", 5, machine.Granted, false},
		{4, true, "b", 6, machine.Handed, false},
		{20.5, true, "b", 6, machine.Handed, true},
		{22, true, "a", 7, machine.Took, false},
		{31, true, "", 0, machine.GivenUp, false},
		{34, true, "c", 8, machine.Granted, false},
		{40.5, false, "", 0, machine.Forgot, false},
		{41.5, true, "c", 8, machine.HeldAgain, false},
	} {
		got := past().At(3, time.Unix(1000, 0).Add(time.Duration(c.at*float64(time.Second))))
		if got.Known != c.known || got.Session != c.who || got.Grant.Epoch != c.epoch || got.How != c.how || got.Dead != c.dead {
			t.Errorf("at %v: %+v", c.at, got)
		}
	}
	if got := past().At(4, time.Unix(2000, 0)); got.Known {
		t.Errorf("of a partition that the history does not name after the store forgot: %+v", got)
	}
}

// A clock that was ahead stamps what happens with times that are still to come. What the ledger did after it was put
// right comes behind that, so it has happened.
func TestWhoseItWasWhileTheClockWasAhead(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	of := func(id partition.ID, e partition.Epoch) []machine.Passed {
		return []machine.Passed{{Grant: partition.Grant{ID: id, Epoch: e}}}
	}
	h := machine.History{
		{At: at(0), What: machine.Granted, Session: "a", Grants: of(3, 1)},
		{At: at(7200), What: machine.Handed, Session: "b", Other: "a", Grants: of(3, 2)},
		{At: at(10), What: machine.Granted, Session: "a", Grants: of(4, 3)}, // the clock is right again
		{At: at(20), What: machine.Granted, Session: "a", Grants: of(5, 4)},
	}
	for s, want := range map[int]partition.Session{0: "a", 9: "a", 10: "b", 30: "b", 8000: "b"} {
		if got := h.At(3, at(s)); got.Session != want {
			t.Errorf("at %d: %+v, want %s", s, got, want)
		}
	}
}

// A history that begins in the middle still knows from whom somebody asked.
func TestHistoryThatWasCut(t *testing.T) {
	h := past()[2:]
	if got := h.At(3, time.Unix(1003, 0)); !got.Known || got.Session != "a" || got.Grant.Epoch != 5 {
		t.Errorf("%+v", got)
	}
	if got := h.At(3, time.Unix(1001, 0)); got.Known {
		t.Errorf("before its beginning: %+v", got)
	}
}

func TestWaitsAndPauses(t *testing.T) {
	want := map[partition.Epoch][2]time.Duration{
		5:  {0, 0},
		6:  {2 * time.Second, 0},  // asked at 2, handed over at 4
		7:  {0, 12 * time.Second}, // b's last word was at 9
		8:  {0, 3 * time.Second},
		9:  {time.Second / 2, 0},
		10: {time.Second, 0}, // what a asked of c before counts no more
		11: {0, 0},           // nobody knows what was before the store forgot
		12: {0, time.Second},
		13: {0, 0},
	}
	for _, m := range past().Moves(3) {
		if m.What != machine.Handed && m.What != machine.Took && m.What != machine.Granted {
			continue
		}
		if got := [2]time.Duration{m.Waited, m.Pause}; got != want[m.Grant.Epoch] {
			t.Errorf("%v: waited and pause %v, want %v", m.Grant, got, want[m.Grant.Epoch])
		}
	}
}

// A name that was made anew has no past: what its partitions were before is no pause of theirs.
func TestANameMadeAnew(t *testing.T) {
	h := past()
	h = append(h[:9:9], machine.Entry{What: machine.Made, Clock: time.Hour}, machine.Entry{
		What: machine.Granted, Session: "c", Clock: 2 * time.Hour, Grants: []machine.Passed{{Grant: partition.Grant{ID: 3, Epoch: 8}}},
	})
	moves := h.Moves(3)
	if m := moves[len(moves)-1]; m.What != machine.Granted || m.Pause != 0 {
		t.Errorf("it says %+v", m)
	}
	made := time.Unix(1<<40, 0) // after all that was
	h[9].At, h[10].At = made, made.Add(time.Hour)
	if m := h.Moves(3); m[len(m)-2].What != machine.Made {
		t.Errorf("that it was made anew is not told: %+v", m)
	}
	for _, id := range []partition.ID{3, 7} { // one that somebody had, and one that nobody had
		if got := h.At(id, made); !got.Known || got.Session != "" || got.How != machine.Made || !got.Since.Equal(made) {
			t.Errorf("then %v is %+v", id, got)
		}
	}
}

// A ledger notes an ask where the asker did not wait already: one that asks again, with nobody between, wanted
// it no more meanwhile. If somebody else asked between them, both have waited all the time, unless a roll was
// between those under which it asked.
func TestWhoAsksAgainHasNotWaited(t *testing.T) {
	for _, c := range []struct {
		asks []string
		want time.Duration
	}{
		{[]string{"b"}, time.Minute},
		{[]string{"b", "", "", "b"}, time.Minute},
		{[]string{"b", "c", "b"}, 3 * time.Minute},
		{[]string{"b", "c", "c"}, 3 * time.Minute},
		{[]string{"b", "b", "c", "b"}, 3 * time.Minute},
		{[]string{"b", "c", "roll", "b"}, 4 * time.Minute},
		{[]string{"b", "roll", "c", "roll", "b"}, time.Minute}, // one of the rolls was without it
	} {
		at := time.Duration(0)
		h := machine.History{}
		add := func(what machine.Change, session, other string) {
			switch at += time.Minute; session {
			case "":
			case "roll":
				h = append(h, machine.Entry{Clock: at, What: machine.RollMade})
			default:
				h = append(h, machine.Entry{
					Clock: at, What: what, Session: partition.Session(session), Other: partition.Session(other),
					Grants: []machine.Passed{{Grant: partition.Grant{ID: 3, Epoch: 5}}},
				})
			}
		}
		add(machine.Granted, "a", "")
		for _, who := range c.asks {
			add(machine.Asked, who, "a")
		}
		add(machine.Handed, "b", "a")
		moves := h.Moves(3)
		if got := moves[len(moves)-1].Waited; got != c.want {
			t.Errorf("after the asks of %q it waited for %v, want %v", c.asks, got, c.want)
		}
	}
}

// Of two that have one id at the same time each is told by its session; of one that came back
// after the end of its lease nobody need be told.
func TestNamesakesInAHistory(t *testing.T) {
	of := func(what machine.Change, session, peer, other, otherPeer string) machine.Entry {
		return machine.Entry{What: what, Session: partition.Session(session), Peer: peer, Other: partition.Session(other), OtherPeer: otherPeer}
	}
	h := machine.History{
		of(machine.Came, "1111111111", "ann", "", ""),
		of(machine.Expired, "1111111111", "ann", "", ""),
		of(machine.Came, "2222222222", "ann", "", ""),
		of(machine.Took, "2222222222", "ann", "1111111111", "ann"),
		of(machine.Came, "3333333333", "ann", "", ""),
		of(machine.Asked, "3333333333", "ann", "2222222222", "ann"),
		of(machine.Granted, "3333333333", "ann-3", "", ""), // it has taken another id
		of(machine.Went, "2222222222", "ann", "", ""),
		of(machine.Came, "4444444444", "ann", "", ""),
		of(machine.Forgot, "", "", "", ""),
		of(machine.Came, "5555555555", "ann", "", ""),
		of(machine.Went, "5555555555", "ann", "", ""),
		of(machine.GivenUp, "5555555555", "ann", "", ""), // its last call
		of(machine.Came, "6666666666", "ann", "", ""),
		of(machine.Made, "", "", "", ""), // anew
		of(machine.Came, "7777777777", "ann", "", ""),
	}
	var got []string
	for _, e := range h.Apart() {
		got = append(got, strings.TrimSpace(e.Peer+" "+e.OtherPeer))
	}
	want := []string{
		"ann", "ann", "ann#22222222", "ann#22222222 ann", "ann#33333333", "ann#33333333 ann#22222222", "ann-3", "ann#22222222", "ann", "", "ann",
		"ann", "ann", "ann", "", "ann",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if h[2].Peer != "ann" {
		t.Error("the history itself was changed")
	}
}
