package machine

import (
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
)

// HistoryKept is how many entries a ledger keeps.
const HistoryKept = 2000

// HistoryGrants is how many grants one entry names at most; more take several entries.
const HistoryGrants = 64

// A Change is what an [Entry] tells of.
type Change string

// The changes.
const (
	Granted   Change = "granted"   // Session got grants that were nobody's
	Took      Change = "took"      // Session got grants that Other, whose lease ran out, had left behind
	HeldAgain Change = "held"      // Session said again what it holds; Other was the owner on record
	Handed    Change = "handed"    // Other gave grants up, and Session, who had asked for them, got them
	GivenUp   Change = "released"  // Session gave grants up, and nobody had asked for them
	Asked     Change = "asked"     // Session asked for grants of Other's
	Came      Change = "joined"    // Session is known from here on
	Leaves    Change = "leaving"   // Session hands over what it has
	Went      Change = "gone"      // Session works on nothing any more
	Expired   Change = "expired"   // Session said nothing for Silent: what it held is free
	RollMade  Change = "sealed"    // the roll Version, of Replicas peers
	Made      Change = "made"      // the name, in a store that is known to be new
	Forgot    Change = "forgot"    // the store had no memory of the name, or half of one: a grace begins
	Restarted Change = "restarted" // the store is another run: a grace begins
	Rests     Change = "paused"    // nobody is to work under the name
	GoesOn    Change = "resumed"   // the pause is over
	Dismissal Change = "drained"   // Peer is to have nothing
	Recall    Change = "recalled"  // Peer is to have its share again
)

// An Entry is one step of a ledger's history.
type Entry struct {
	At      time.Time     // by the store's wall clock, to the millisecond; it may jump
	Clock   time.Duration // by the clock that leases are counted on; it never jumps
	What    Change
	Session partition.Session
	Peer    string // the peer of Session, or the one that was drained or recalled
	Other   partition.Session
	// OtherPeer is the peer of Other.
	OtherPeer string
	Grants    []Passed
	Silent    time.Duration
	Version   uint64
	Replicas  int
}

// A Passed is a grant that an [Entry] tells of.
type Passed struct {
	Grant  partition.Grant
	Former partition.Epoch // under which Other had it; 0: nobody had, or the same
}

// A History is what is left of the past of a name, oldest first.
type History []Entry

// Apart returns h for people, to whom peers are their ids: sessions that had one at the same time
// have "#" and their beginning after it, as in [Census.Apart]. So has one that crashed and came
// back under its id before its lease was over.
func (h History) Apart() History {
	present, shared := make(map[partition.Session]string), make(map[partition.Session]string) // their ids
	for _, e := range h {
		switch {
		case e.What == Forgot, e.What == Made:
			clear(present)
		case e.What == Went, e.What == Expired:
			delete(present, e.Session)
		case e.What == GivenUp: // also noted of one that has just gone, by the same call
		case e.Session != "" && present[e.Session] != e.Peer:
			for other, peer := range present {
				if peer == e.Peer && other != e.Session {
					shared[other], shared[e.Session] = peer, peer
				}
			}
			present[e.Session] = e.Peer
		}
	}
	h = slices.Clone(h)
	for i := range h {
		e := &h[i]
		if e.Peer != "" && shared[e.Session] == e.Peer {
			e.Peer = apart(e.Peer, e.Session)
		}
		if e.OtherPeer != "" && shared[e.Other] == e.OtherPeer {
			e.OtherPeer = apart(e.OtherPeer, e.Other)
		}
	}
	return h
}

// A Move is what happened to one partition in one [Entry].
type Move struct {
	Entry // with Grants cut to the one of the partition
	Grant partition.Grant
	// Waited is, of a grant that was handed over, how long its new owner had to wait
	// since it asked: the hint, the drain of the former owner and two calls.
	Waited time.Duration
	// Pause is how long nobody can have worked on the partition at most: of one that
	// was taken, since the last word of its dead owner; of one that was granted after a
	// release, since that.
	Pause time.Duration
	// Paused says, of a grant that was given up, that the name was paused.
	Paused bool
}

// Moves returns what happened to partition id, oldest first. Sessions that ended while
// they had it are moves too, and so is that the name was made anew.
func (h History) Moves(id partition.ID) []Move {
	var moves []Move
	var owner partition.Session
	type ask struct {
		at    time.Duration // since when it waits
		rolls int           // that were sealed when it asked last
	}
	asked := make(map[partition.Session]ask) // since the last change of owner
	var waiter partition.Session             // who asked last
	rolls := 0
	var free time.Duration // since; negative: unknown
	known, paused := false, false
	for i, e := range h {
		m := Move{Entry: e}
		m.Grants = nil
		if e.What == Expired && e.Session == owner && owner != "" {
			free, known = e.Clock-e.Silent, true
			moves = append(moves, m)
			continue
		}
		if e.What == Forgot {
			owner, known, paused = "", false, false
			moves = append(moves, m)
			continue
		}
		if e.What == Made {
			owner, known, paused = "", false, false
			if i > 0 { // anew, after its keys were deleted
				moves = append(moves, m)
			}
			continue
		}
		if e.What == Rests || e.What == GoesOn {
			paused = e.What == Rests
			continue
		}
		if e.What == RollMade {
			rolls++
			continue
		}
		p, ok := e.passed(id)
		if !ok {
			continue
		}
		m.Grants, m.Grant = []Passed{p}, p.Grant
		switch e.What {
		case Asked:
			a, again := asked[e.Session]
			if !again || waiter == e.Session || rolls > a.rolls+1 { // it did not wait, or would not ask; or a roll was without it
				a.at = e.Clock
			}
			asked[e.Session] = ask{a.at, rolls}
			owner, waiter = e.Other, e.Session
		case GivenUp:
			owner, free, known = "", e.Clock, true
			m.Paused = paused
		case Granted, Took, HeldAgain, Handed:
			if a, ok := asked[e.Session]; ok && e.What == Handed {
				m.Waited = e.Clock - a.at
			}
			if known && (e.What == Granted || e.What == Took) {
				m.Pause = e.Clock - free
			}
			owner, known = e.Session, false
			clear(asked)
		}
		moves = append(moves, m)
	}
	return moves
}

func (e Entry) passed(id partition.ID) (Passed, bool) {
	for _, p := range e.Grants {
		if p.Grant.ID == id {
			return p, true
		}
	}
	return Passed{}, false
}

// A Tenure says whose a partition was at a moment, as the ledger knew it.
type Tenure struct {
	// Known is false if the history does not reach back far enough, or the ledger had
	// forgotten and the owner had not said again what it holds.
	Known   bool
	Grant   partition.Grant   // epoch 0: nobody's
	Session partition.Session // "": nobody's
	Peer    string
	Since   time.Time // of the ownership, or of nobody's
	How     Change    // how it came about
	From    string    // peer id of the former owner, if How tells of one
	// Dead says that the owner's lease had run out: nobody worked on it.
	Dead bool
}

// At says whose partition id was at the instant at. Entries count in their order: if the
// store's wall clock jumped back, the later one of two that claim the same moment, and what came before
// one of that moment has happened, also if the clock was ahead then.
func (h History) At(id partition.ID, at time.Time) Tenure {
	var t Tenure
	last := len(h) - 1
	for last >= 0 && h[last].At.After(at) {
		last--
	}
	for _, m := range h[:last+1].Moves(id) {
		switch m.What {
		case Asked:
			if !t.Known { // it says at least whose it was
				t = Tenure{Known: true, Grant: m.Grant, Session: m.Other, Peer: m.OtherPeer, Since: m.At, How: Asked}
			}
		case GivenUp:
			t = Tenure{Known: true, Since: m.At, How: GivenUp, From: m.Peer}
		case Expired:
			t.Dead = true
		case Forgot:
			t = Tenure{Since: m.At, How: Forgot}
		case Made:
			t = Tenure{Known: true, Since: m.At, How: Made}
		default:
			t = Tenure{Known: true, Grant: m.Grant, Session: m.Session, Peer: m.Peer, Since: m.At, How: m.What, From: m.OtherPeer}
		}
	}
	if !t.Known && t.How == "" && len(h) > 0 && h[0].What == Made && !h[0].At.After(at) {
		t = Tenure{Known: true, Since: h[0].At, How: Made} // the whole history is there: nobody has had it
	}
	return t
}
