package intervalindexer

import "slices"

// A turn is what a peer asks of the store in one interval. It is pure: ask says
// what to ask next, and got is told the answer, until ask has nothing more.
//
//	count -> closed -> keep -> holes -> take … -> keep -> beyond … -> (done)
//
// Most turns end after the first keep: three questions. The second is for one whose
// index is too high and who finds no hole.
type turn struct {
	number uint64 // the interval's
	had    int    // index in the interval before, or none
	prefer int    // index had at last, maybe long ago, or none
	memory bool   // keep it
	// The count that indexes had to be below so far, and the one that replaces it
	// when this turn reads it again: a peer that missed one interval must find its
	// index when it is back, not the highest in its place.
	bound, seen int

	step   step
	came   int  // how many came to this interval so far, with us
	closed int  // how many came to the one before
	try    int  // index that is asked for in keep, take and beyond
	looked bool // for holes
	holes  []int
	index  int // the outcome
}

// none is the index of who has none.
const none = -1

type step uint8

const (
	stepCount  step = iota // be counted
	stepClosed             // how many were counted in the interval before
	stepKeep               // ask for the index of the interval before
	stepHoles              // which indexes had nobody in the interval before
	stepTake               // ask for one of them
	stepBeyond             // ask for one after all of them
	stepDone
)

// A question is one call of the counter: Incr of one counter, or Get of several.
type question struct {
	incr   bool
	number uint64
	// The counters: that of the whole interval, or those of the indexes first to
	// last.
	whole       bool
	first, last int
}

// ask returns the next question, or false when the turn is over.
func (t *turn) ask() (question, bool) {
	switch t.step {
	case stepCount:
		return question{incr: true, number: t.number, whole: true}, true
	case stepClosed:
		return question{number: t.number - 1, whole: true}, true
	case stepHoles:
		return question{number: t.number - 1, first: 0, last: t.last()}, true
	case stepKeep, stepTake, stepBeyond:
		return question{incr: true, number: t.number, first: t.try, last: t.try}, true
	}
	return question{}, false
}

// got takes the answer to the last question: one value for each counter asked for.
func (t *turn) got(values []int64) {
	switch t.step {
	case stepCount:
		t.came = int(values[0])
		t.step = stepClosed
	case stepClosed:
		t.closed = int(values[0])
		t.start()
	case stepHoles:
		for i, v := range values {
			switch {
			case v != 0:
			case i == t.prefer: // it was ours before a pause: whoever else paused has another
				t.holes = slices.Insert(t.holes, 0, i)
			case i < t.closed:
				t.holes = append(t.holes, i)
			}
		}
		t.next()
	case stepKeep:
		if values[0] == 1 {
			t.end(t.try)
			return
		}
		// Somebody was faster, or our own call was repeated: nobody can tell.
		t.prefer = none
		if t.looked {
			t.next()
		} else {
			t.look()
		}
	case stepTake, stepBeyond:
		if values[0] == 1 {
			t.end(t.try)
			return
		}
		t.try++
		t.next()
	}
}

// failed is told that the last question got no answer in time. It reports whether the
// turn is over all the same. It is if the peer was counted and asked for the index it
// had just before: that is its own then, because others ask only for those that nobody had.
// Forgetting it would leave it to nobody where the call was carried out.
func (t *turn) failed() bool {
	if t.step != stepKeep || t.had == none {
		return false
	}
	t.end(t.try)
	return true
}

// start is where the turn knows how many there were.
func (t *turn) start() {
	switch {
	case !t.memory:
		t.end(t.came - 1)
	case t.had != none && (t.had < t.closed || t.closed != t.seen && t.had < t.bound):
		t.step, t.try = stepKeep, t.had
	default:
		t.look()
	}
}

// look begins the search for an index below the count of the interval before.
func (t *turn) look() {
	t.looked = true
	if t.closed == 0 {
		t.next()
		return
	}
	t.step = stepHoles
}

// next goes on to the next hole, and when there is none to what lies beyond.
func (t *turn) next() {
	switch {
	case len(t.holes) > 0:
		t.step, t.try, t.holes = stepTake, t.holes[0], t.holes[1:]
	case t.step != stepBeyond && t.prefer >= t.closed:
		// Too high an index and no hole, or nobody was there, as after a failure of
		// the store: better to have it again than to take part in the newcomers'
		// race. If that fails, join them.
		t.step, t.try = stepKeep, t.prefer
	case t.step != stepBeyond:
		// Newcomers that start together each find another came: no race.
		t.step, t.try = stepBeyond, max(t.closed, t.came-1)
	}
}

// last is the highest index that is looked at for holes. Who comes back and has seen this count once asks
// first for the index it had, as who was there does: that of a low count, as where the store was away and only some
// came back to it in the interval before, are the places of others.
func (t *turn) last() int {
	if t.closed != t.seen && t.prefer < t.bound {
		return max(t.prefer, t.closed-1)
	}
	return t.closed - 1
}

func (t *turn) end(index int) {
	t.step, t.index = stepDone, index
}
