package transition

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// What a ledger and a peer say to each other. See package machine.
type (
	Request = machine.Request
	Answer  = machine.Answer
	Roll    = machine.Roll
	Census  = machine.Census
)

// A Ledger is the store's record of who holds which partition under which epoch,
// and of the sessions' leases.
//
// Each call is one atomic step and safe to repeat; an answer says all, so that a
// lost or late one is repaired by the next. All methods may be called
// concurrently.
type Ledger interface {
	// Sync tells the ledger everything about its sender and returns everything
	// that is the sender's. It returns an error that wraps partition.ErrConfig if
	// the name is in use with another configuration, and ErrUnsure if it may be. With an
	// error that wraps ErrRenewed the answer counts all the same.
	Sync(ctx context.Context, r Request) (Answer, error)
	// Seal stores next, whose Version is that of the roll it replaces; the ledger
	// gives it its number. It returns ErrStale if another roll was sealed since,
	// in grace, or while anybody is behind the newest roll (see Answer.Behind).
	// One that is refused counts for the ledger's clock like any other call: it is not rolled back whole.
	Seal(ctx context.Context, next Roll) error
	// Census reads everything: for the sealer and for people.
	Census(ctx context.Context) (Census, error)
	// Hints calls hint whenever something may have changed for session: a roll, a
	// waiter, a grant. It blocks until ctx ends. Hints may be lost, repeated or
	// made up: they only save time.
	Hints(ctx context.Context, session partition.Session, hint func()) error
}

// A Historian is a Ledger that keeps the last of what happened, for people and tools.
type Historian interface {
	// History returns the last entries, at most limit of them, oldest first. It changes
	// nothing. A limit below 1 is an error.
	History(ctx context.Context, limit int) (machine.History, error)
}

// A ConfigReader is a Ledger that tells what the peers of its name agree on for less than a
// census: a peer with another indexer asks for it once in a lease.
type ConfigReader interface {
	// ReadConfig returns the Config of a census. It changes nothing.
	ReadConfig(ctx context.Context) (partition.Config, error)
}

// ReadConfig returns what the peers of the name of l agree on, by a census if l is no
// [ConfigReader].
func ReadConfig(ctx context.Context, l Ledger) (partition.Config, error) {
	if r, ok := l.(ConfigReader); ok {
		return r.ReadConfig(ctx)
	}
	census, err := l.Census(ctx)
	return census.Config, err
}

// A Pauser is a Ledger whose name can be paused.
type Pauser interface {
	// Pause says that nobody is to work under the name, and since when and why: each peer drains
	// what it has once it hears of it, and nobody is granted anything. It stands with the name,
	// whoever comes and goes, until the zero Pause resumes the name. Of two the first counts. It
	// returns an error if nobody has made the name yet.
	Pause(ctx context.Context, p partition.Pause) error
}

// A Drainer is a Ledger that can take out one peer.
type Drainer interface {
	// Drain says that the peer d.Peer is to have nothing, and since when and why: the next roll shares out
	// what it has among the others, it hands that over once they ask for it, and keeps its session
	// and its index. What nobody else may have it keeps. It stands with the name and goes by the id
	// of the peer, whoever comes and goes, until Recall. Of two the first counts. It returns an error if nobody
	// has made the name yet, and one that wraps partition.ErrDrains if too many are drained.
	Drain(ctx context.Context, d partition.Drain) error
	// Recall ends the drain of the peer with that id, if there is one.
	Recall(ctx context.Context, peer string) error
}

// A Timed is a Ledger that knows the times of the peer that it was made for. It keeps the peer's lease
// for as long as they say: a peer that believes in another lease works on what the ledger has given away.
type Timed interface {
	// Times returns them, defaults filled in.
	Times() Timing
}

// ErrTimes means that a ledger was made for another lease than its peer has.
var ErrTimes = errors.New("give both the same Timing")

// CheckTimes returns an error that wraps ErrTimes if l is Timed and was made for another lease
// than that of t.
func CheckTimes(l Ledger, t Timing) error {
	timed, ok := l.(Timed)
	if !ok {
		return nil
	}
	keeps, want := timed.Times().Lease, t.WithDefaults().Lease
	if keeps == 0 || keeps == want {
		return nil
	}
	return fmt.Errorf("transition: the ledger was made for a lease of %v, and the peer has one of %v: %w", keeps, want, ErrTimes)
}

// A Laid is a Ledger that knows the partitions it was made for. It grants those, and by no others are
// keys to be looked up: of two peers with two layouts both may take a key for their own, and what is in
// the layout of the peer alone is nobody's.
type Laid interface {
	// Layout returns them, defaults filled in; no partitions at all if they are not known.
	Layout() partition.Config
}

// ErrLayout means that a ledger was made for other partitions than its peer has.
var ErrLayout = errors.New("give both the same partitions, hash and units")

// CheckLayout returns an error that wraps ErrLayout if l is Laid and was made for other partitions,
// another hash or other units than those of c.
func CheckLayout(l Ledger, c partition.Config) error {
	laid, ok := l.(Laid)
	if !ok || partition.Absent(l) {
		return nil
	}
	has, want := laid.Layout(), c.WithDefaults()
	if has.Total == 0 || has.Total == want.Total && has.Hash == want.Hash && slices.Equal(has.Units, want.Units) {
		return nil
	}
	say := func(c partition.Config) string {
		return fmt.Sprintf("%d partitions by %s and units %q", c.Total, c.Hash, c.Units)
	}
	return fmt.Errorf("transition: the ledger was made for %s, and the peer has %s: %w", say(has), say(want), ErrLayout)
}

// ErrRolls means that a peer was told something beside an Indexer that others can know by the
// ledger's rolls alone: a weight, tags, that it may be unwell, a barrier.
var ErrRolls = errors.New("only the ledger's rolls have it")

// A rollsError is an ErrRolls that says what it is about.
type rollsError string

func (e rollsError) Error() string { return string(e) }

// Is makes errors.Is(err, ErrRolls) true.
func (e rollsError) Is(target error) bool { return target == ErrRolls }

// ErrStale means that a roll was not stored, because another one was sealed since
// it was read, because the ledger is in grace, or because a barrier is closed.
var ErrStale = errors.New("another roll was sealed since, the ledger is in grace, or a barrier is closed")

// ErrUnsure means that the peers of a name went from roll to roll in another way than the caller wants
// (see Config.Barrier), and that the store, which was restarted or has forgotten, does not know whether
// any is left: those that are say so within the grace.
var ErrUnsure = errors.New("whether any of them is left is known when the grace is over")

// ErrRenewed means that the lease was renewed and that nothing else counts of what was
// asked, because the store could still forget it: the answer lists what of the sender's
// work is its own as before and what it gives up, and no grant, waiter or roll is new.
var ErrRenewed = errors.New("the lease is renewed, and nothing else counts")

// A Tenant works on what is granted. The coordinator calls it from one goroutine;
// no call may block.
type Tenant interface {
	// Serve says that g may be worked on from now on.
	Serve(g partition.Grant)
	// Drain asks to start nothing new of g, let running handlers end and settle
	// what ended. When the drain time is over (Timing.Drain, when the peer leaves
	// Timing.Shutdown at most) the tenant ends the contexts of those that still
	// run. drained is called once, from any goroutine, when nothing of g runs, is
	// buffered or unsettled and its stream is closed.
	Drain(g partition.Grant, drained func())
	// Abort takes g away at once, also from a drain: cancel its handlers with
	// cause, drop what is buffered, send nothing more under its token. drained is
	// called once, when its handlers have returned; it replaces the one of Drain.
	// An Abort that crosses the drained of a Drain finds nothing to do and calls
	// its own.
	Abort(g partition.Grant, cause error, drained func())
}

// An Idler is a Tenant that says when nothing of it runs. Meanwhile the coordinator does
// not look four times a second whether the machine was suspended: there is nothing to
// end then, and what starts asks [Coordinator.Valid], which counts suspend.
type Idler interface {
	Tenant
	// Idle reports whether nothing runs that an Abort would end. Who lets something run
	// calls [Coordinator.Attend] after it has made Idle false. It may be called from any
	// goroutine and must not block.
	Idle() bool
}
