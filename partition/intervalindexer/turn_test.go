package intervalindexer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// play plays the turn of the interval 9 against a store, until the question fail, if
// any, gets no answer. It returns what was asked: "+9" is an Incr of the interval's
// counter, "9:2" a Get of that of an index.
func play(t *turn, store map[string]int64, fail string) (asked []string) {
	for {
		q, more := t.ask()
		if !more {
			return asked
		}
		keys := []string{fmt.Sprint(q.number)}
		if !q.whole {
			keys = nil
			for i := q.first; i <= q.last; i++ {
				keys = append(keys, fmt.Sprintf("%d:%d", q.number, i))
			}
		}
		what := strings.Join(keys, " ")
		if q.incr {
			what = "+" + what
		}
		asked = append(asked, what)
		if what == fail {
			t.failed()
			return asked
		}
		values := make([]int64, len(keys))
		for i, k := range keys {
			if q.incr {
				store[k]++
			}
			values[i] = store[k]
		}
		t.got(values)
	}
}

func TestTurn(t *testing.T) {
	for _, c := range []struct {
		name        string
		had, prefer int
		arrival     bool
		bound       int
		store       map[string]int64
		fail        string
		asks        string
		index       int
	}{
		{"by arrival", 0, 0, true, 0, map[string]int64{"9": 4, "8": 7}, "", "+9, 8", 4},
		{"keeps its index with three questions", 2, 2, false, 0, map[string]int64{"8": 3}, "", "+9, 8, +9:2", 2},
		{"the first ever", none, none, false, 0, nil, "", "+9, 8, +9:0", 0},
		{"the third of those that start together", none, none, false, 0, map[string]int64{"9": 2, "9:0": 1, "9:1": 1}, "",
			"+9, 8, +9:2", 2},
		{"a newcomer finds no hole and comes after all", none, none, false, 0,
			map[string]int64{"8": 2, "8:0": 1, "8:1": 1}, "", "+9, 8, 8:0 8:1, +9:2", 2},
		{"the second newcomer, after the first", none, none, false, 0,
			map[string]int64{"8": 2, "8:0": 1, "8:1": 1, "9:2": 1}, "", "+9, 8, 8:0 8:1, +9:2, +9:3", 3},
		{"a newcomer takes the hole of one that is gone", none, none, false, 0,
			map[string]int64{"8": 2, "8:0": 1, "8:2": 1}, "", "+9, 8, 8:0 8:1, +9:1", 1},
		{"of two holes the second, when the first was taken", none, none, false, 0,
			map[string]int64{"8": 3, "8:1": 1, "9:0": 1}, "", "+9, 8, 8:0 8:1 8:2, +9:0, +9:2", 2},
		{"after a pause its own hole first", none, 2, false, 0,
			map[string]int64{"8": 4, "8:1": 1, "8:3": 1}, "", "+9, 8, 8:0 8:1 8:2 8:3, +9:2", 2},
		{"after a pause its own before the holes of others, where the count was seen once", none, 2, false, 3,
			map[string]int64{"8": 1, "8:1": 1}, "", "+9, 8, 8:0 8:1 8:2, +9:2", 2},
		{"after a pause its own, but somebody has it", none, 2, false, 3,
			map[string]int64{"8": 1, "8:2": 1}, "", "+9, 8, 8:0 8:1 8:2, +9:0", 0},
		{"after a pause the hole of another, where the count was seen twice", none, 2, false, 3,
			map[string]int64{"8": 2, "8:1": 1, "8:3": 1}, "", "+9, 8, 8:0 8:1, +9:0", 0},
		{"after a failure of the store its own", none, 1, false, 0,
			map[string]int64{"9": 2, "9:0": 1, "9:2": 1}, "", "+9, 8, +9:1", 1},
		{"after a failure of the store its own, but somebody was faster", none, 1, false, 0,
			map[string]int64{"9": 2, "9:1": 1}, "", "+9, 8, +9:1, +9:2", 2},
		{"after a failure of the store no answer: nothing", none, 1, false, 0, nil, "+9:1", "+9, 8, +9:1", none},
		{"the highest fills the hole", 2, 2, false, 0,
			map[string]int64{"8": 2, "8:1": 1, "8:2": 1}, "", "+9, 8, 8:0 8:1, +9:0", 0},
		{"too high for a count that was seen once: stays", 2, 2, false, 3,
			map[string]int64{"8": 1, "8:2": 1}, "", "+9, 8, +9:2", 2},
		{"too high for a count that was seen once, and somebody was faster", 2, 2, false, 3,
			map[string]int64{"8": 1, "8:0": 1, "9:2": 1}, "", "+9, 8, +9:2, 8:0, +9:1", 1},
		{"too high for a count that was seen twice: fills the hole", 2, 2, false, 3,
			map[string]int64{"8": 2, "8:1": 1, "8:2": 1}, "", "+9, 8, 8:0 8:1, +9:0", 0},
		{"too high, but no hole: stays", 2, 2, false, 0,
			map[string]int64{"8": 2, "8:0": 1, "8:1": 2, "8:2": 1}, "", "+9, 8, 8:0 8:1, +9:2", 2},
		{"too high, no hole, and not its own any more", 2, 2, false, 0,
			map[string]int64{"8": 2, "8:0": 1, "8:1": 2, "8:2": 1, "9:2": 1}, "", "+9, 8, 8:0 8:1, +9:2, +9:2, +9:3", 3},
		{"somebody was faster: what is left", 0, 0, false, 0,
			map[string]int64{"8": 2, "8:0": 1, "8:1": 1, "9:0": 1}, "", "+9, 8, +9:0, 8:0 8:1, +9:2", 2},
		{"no answer to the count: nothing", 2, 2, false, 0, map[string]int64{"8": 3}, "+9", "+9", none},
		{"no answer to the closed count: nothing", 2, 2, false, 0, map[string]int64{"8": 3}, "8", "+9, 8", none},
		{"no answer to the index it had: it is its own", 2, 2, false, 0, map[string]int64{"8": 3}, "+9:2", "+9, 8, +9:2", 2},
		{"no answer to a hole: nothing", none, none, false, 0,
			map[string]int64{"8": 2, "8:0": 1, "8:2": 1}, "+9:1", "+9, 8, 8:0 8:1, +9:1", none},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := map[string]int64{}
			maps.Copy(store, c.store)
			turn := &turn{number: 9, had: c.had, prefer: c.prefer, memory: !c.arrival, bound: c.bound, seen: 2, index: none}
			asked := strings.Join(play(turn, store, c.fail), ", ")
			if asked != c.asks || turn.index != c.index {
				t.Errorf("asks %s and has %d, want %s and %d", asked, turn.index, c.asks, c.index)
			}
		})
	}
}

func TestPeer(t *testing.T) {
	type event struct {
		number uint64
		// A turn: the closed count it read and the index it got; or so many missed.
		closed, index int
		missed        uint64
		want          string // what is told, if anything
	}
	for _, c := range []struct {
		name   string
		hasty  bool
		events []event
	}{
		{"a count is adopted when seen twice, with the index of the same interval", false, []event{
			{5, 2, 2, 0, ""}, {6, 3, 0, 0, ""}, {7, 3, 1, 0, "0 of 3"}, {8, 3, 1, 0, "1 of 3"}, {9, 3, 1, 0, ""},
			{10, 4, 1, 0, ""}, {11, 4, 1, 0, "1 of 4"}}},
		{"a count seen once changes nothing", false, []event{
			{5, 0, 0, 0, ""}, {6, 1, 0, 0, ""}, {7, 1, 0, 0, "0 of 1"}, {8, 2, 0, 0, ""}, {9, 1, 0, 0, ""}, {10, 2, 0, 0, ""}, {11, 1, 0, 0, ""}}},
		{"hasty: at once", true, []event{
			{5, 2, 2, 0, ""}, {6, 3, 2, 0, "2 of 3"}, {7, 4, 2, 0, "2 of 4"}, {8, 3, 2, 0, "2 of 3"}}},
		{"a place lost once is nothing, lost twice it is taken back", false, []event{
			{5, 0, 0, 0, ""}, {6, 2, 0, 0, ""}, {7, 2, 2, 0, "0 of 2"}, {8, 2, 0, 0, ""}, {9, 2, 2, 0, ""},
			{10, 2, 2, 0, ""}, {11, 2, 2, 0, "-1 of 2"}, {12, 2, 0, 0, ""}, {13, 2, 0, 0, "0 of 2"}}},
		{"one interval missed is nothing, two are the end of a membership", false, []event{
			{5, 0, 0, 0, ""}, {6, 1, 0, 0, ""}, {7, 1, 0, 0, "0 of 1"}, {8, 0, 0, 1, ""}, {9, 1, 0, 0, ""}, {10, 1, 0, 0, ""},
			{11, 0, 0, 1, ""}, {12, 0, 0, 1, "-1 of 1"}, {13, 0, 0, 1, ""}, {14, 0, 0, 0, ""}, {15, 1, 0, 0, "0 of 1"}}},
		{"a long pause is many at once", false, []event{
			{5, 0, 0, 0, ""}, {6, 1, 0, 0, ""}, {7, 1, 0, 0, "0 of 1"}, {8, 0, 0, 50, "-1 of 1"}}},
		{"hasty: one missed is enough", true, []event{
			{5, 0, 0, 0, ""}, {6, 1, 0, 0, "0 of 1"}, {7, 0, 0, 1, "-1 of 1"}}},
		{"hasty: a place lost once is taken back", true, []event{
			{5, 0, 0, 0, ""}, {6, 1, 0, 0, "0 of 1"}, {7, 1, 1, 0, ""}, {8, 1, 1, 0, "-1 of 1"}}},
		{"who was no member has nothing to take back", false, []event{
			{5, 0, 0, 9, ""}, {14, 3, 3, 0, ""}, {15, 3, 3, 0, ""}, {16, 3, 3, 0, ""}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(true, !c.hasty)
			for _, e := range c.events {
				var now pair
				var news bool
				if e.missed > 0 {
					now, news = p.miss(e.missed)
				} else {
					now, news = p.end(&turn{number: e.number, closed: e.closed, index: e.index})
				}
				got := ""
				if news {
					got = fmt.Sprintf("%d of %d", now.index, now.replicas)
				}
				if got != e.want {
					t.Errorf("interval %d: told %q, want %q", e.number, got, e.want)
				}
			}
		})
	}
}

// The index a turn begins with is that of the interval just before; an older one is
// preferred among the holes, no more.
func TestPeerRemembersOneInterval(t *testing.T) {
	p := newPeer(true, true)
	p.end(&turn{number: 5, closed: 4, index: 3})
	if turn := p.begin(6); turn.had != 3 || turn.prefer != 3 || turn.bound != 0 || turn.seen != 4 {
		t.Errorf("the next turn: %+v", turn)
	}
	if turn := p.begin(7); turn.had != none || turn.prefer != 3 {
		t.Errorf("a turn after a pause: %+v", turn)
	}
	if turn := newPeer(true, true).begin(1); turn.had != none || turn.prefer != none {
		t.Errorf("the first turn ever: %+v", turn)
	}
	hasty := newPeer(true, false)
	hasty.end(&turn{number: 5, closed: 4, index: 3})
	if turn := hasty.begin(6); turn.had != 3 || turn.bound != 0 || turn.seen != none {
		t.Errorf("the next turn of who adopts a count at once: %+v", turn)
	}
	if !slices.Equal(play(newPeer(false, true).begin(9), map[string]int64{}, ""), []string{"+9", "8"}) {
		t.Error("a peer without memory asks for an index")
	}
}
