package framework

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// ErrRemoved is the cause with which the context of a unit's handler ends when the unit is
// not in the list any more.
var ErrRemoved = errors.New("the unit was removed")

// A Unit is a piece of long-running work that exactly one peer of a name owns: a website
// to watch, a feed to follow, a device to talk to.
type Unit struct {
	Name  string
	Grant partition.Grant // of the partition that the unit is in
	// Token of the ownership. Give it to what you write to: it can refuse older epochs.
	Token partition.Token

	share *Share
	place *place
}

// Owned reports whether the unit is known to be this peer's at this moment. A process that was
// suspended goes on in the middle of its handlers, a moment before it finds out that their
// contexts have to end: ask before each step that could harm another owner. What is to be handed
// over is this peer's until its handler has returned; what was lost never is again.
func (u Unit) Owned() bool { return u.share != nil && u.share.ValidFor() > 0 && !u.place.lost.Load() }

// A UnitHandler does the work of a unit for as long as this peer owns it. It should return soon
// after ctx has ended, and within the cancel grace if the ownership is lost. Nobody else begins
// before it has returned, unless this peer is dead or its lease ran out. context.Cause(ctx) says
// what ended ctx:
//
//	ErrRemoved              the unit is not in the list any more
//	ErrHandedOver           another peer is to own it
//	ErrLeaving              this peer stops (it is also an ErrHandedOver)
//	transition.ErrLapsed    the ledger did not answer for too long: another may own it now
//	transition.ErrTaken     the ledger has given it to another peer
//	transition.ErrShutdown  the peer stops and has no time left
//
// If it returns an error or panics before ctx has ended, it is called again after a pause
// (UnitsConfig.Retry). If it returns nil there is nothing more to do: it is not called again
// before the unit has another owner, was removed and added again, or this peer starts anew.
type UnitHandler func(ctx context.Context, u Unit) error

// A UnitSource says which units there are.
type UnitSource interface {
	// Layout is what all peers of the name agree on: how many shares the units are
	// granted in. It is asked once at each start, and again after an error or a panic, which
	// is told as StartFailed.
	Layout(ctx context.Context) (partition.Config, error)
	// Units returns all units, in any order. Those named twice are one; what
	// partition.CheckUnit or the hash of the layout refuses is nobody's, and told as
	// UnitsTroubled. It is called by one goroutine at a time. The slice stays the source's: it is
	// read before the next call, and not changed. An error or a panic is told as UnitsTroubled,
	// and what is known goes on.
	Units(ctx context.Context) ([]string, error)
}

// A UnitsConfig says what the peers of a name work on. Source, Control and Handler must be
// given.
type UnitsConfig struct {
	Source  UnitSource
	Control Control // makes the ledger; see WithControl
	Handler UnitHandler
	// Publish is told to write the table of the name, for people and other programs: after
	// the units of this peer changed, after the list did, and, by the peer that is first,
	// with each look at the list. units are all there are, sorted; they must not be changed.
	// Default: nobody writes it.
	Publish func(ctx context.Context, units []string) error
	// Every is how often the list is looked at. Default 1 s.
	Every time.Duration
	// Retry says how long the pauses are after a handler failed; its Tries do not count.
	// A run as long as the longest pause begins with the shortest again.
	Retry  RetryPolicy
	Timing transition.Timing
	// Peer is the peer's id. The table depends on it: a peer that comes back under the
	// same id gets the same units. Default: the host's name, with the process id or the
	// beginning of the session if a live peer has that already.
	Peer   string
	Weight int // share of the work relative to the other peers; default 1; see [Units.SetWeight]
	// Tags are what the peer has, for units that ask for some (countoff require NAME UNIT=TAGS).
	// A unit asks with all others of its partition. That nobody has them is told as [Uncovered].
	Tags partition.Tags
	// Health says whether the peer is well; see [WithHealth]. An unwell peer keeps its seat and
	// hands its units to those that are well. Default: always well.
	Health func(ctx context.Context) error
	// Even shares the units out by weight as evenly as whole units go: 10 over 3 peers are 4, 3
	// and 3. In return, removing a unit may move another, and the table depends on what came
	// first. Either all peers of a name set it or none; Strategy must not be given with it.
	// Default: a table that depends on the peers alone, in which shares of few units are even
	// only by chance.
	Even bool
	// Strategy turns the peers into a table. Default partition.Rendezvous: the same peers and
	// units always give the same table, and when a peer comes or goes nothing moves between the
	// others.
	Strategy partition.Strategy
	Observer Observer // default: nobody listens
}

// withDefaults returns c with zero fields filled in.
func (c UnitsConfig) withDefaults() UnitsConfig {
	if c.Every == 0 {
		c.Every = time.Second
	}
	if c.Strategy == nil && !c.Even {
		c.Strategy = partition.Rendezvous{}
	}
	if partition.Absent(c.Observer) {
		c.Observer = nil
	}
	c.Retry, c.Timing = c.Retry.WithDefaults(), c.Timing.WithDefaults()
	return c
}

// Units is one peer of a name whose work is a list of units instead of tasks. A process may
// have several, of different names. All methods may be called concurrently.
type Units struct {
	name     string
	cfg      UnitsConfig
	sessions sessions[*unitsSession]
}

// NewUnits returns a peer that has not begun. It lists all that is wrong at once, which includes
// a stop that takes longer than the platform waits ([GraceVariable]). It calls nobody.
func NewUnits(name string, cfg UnitsConfig) (*Units, error) {
	cfg = cfg.withDefaults()
	_, wrong := partition.ParseTags(string(cfg.Tags))
	errs := []error{partition.CheckName(name), peerFault(cfg.Peer), wrong, cfg.Retry.Validate(), cfg.Timing.Validate()}
	if partition.Absent(cfg.Source) {
		errs, cfg.Source = append(errs, errors.New("framework: no source of units")), nil
	}
	errs = append(errs, partition.SameName(name, "source", cfg.Source))
	if cfg.Control == nil {
		errs = append(errs, errors.New("framework: no ledger: UnitsConfig.Control is missing"))
	}
	if cfg.Handler == nil {
		errs = append(errs, errors.New("framework: no handler"))
	}
	if cfg.Every < 0 {
		errs = append(errs, fmt.Errorf("framework: Every %v: the list is looked at that often: must not be negative", cfg.Every))
	}
	if cfg.Even && cfg.Strategy != nil {
		errs = append(errs, fmt.Errorf("framework: units are shared out evenly or by %s: choose one", cfg.Strategy.Name()))
	}
	if cfg.Weight < 0 {
		errs = append(errs, fmt.Errorf("framework: weight %d: want at least 1", cfg.Weight))
	}
	grace, _, err := podGrace(os.Getenv(GraceVariable))
	u := &Units{name: name, cfg: cfg}
	u.sessions.weight = cmp.Or(cfg.Weight, 1)
	u.sessions.whose, u.sessions.next = fmt.Sprintf("units %q", name), func() *unitsSession { return newUnitsSession(u) }
	if stop := u.StopTimeout(); err == nil && grace > 0 && stop > grace {
		err = fmt.Errorf("framework: a stop takes %v (the shutdown %v, the cancel grace %v and %v) and is longer than the pod grace %v: "+
			"the platform would kill the process while it hands over", stop, cfg.Timing.Shutdown, cfg.Timing.CancelGrace, stopMargin, grace)
	}
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, named(u.sessions.whose, err)
	}
	return u, nil
}

// Name returns the name that the peers share.
func (u *Units) Name() string { return u.name }

// SetWeight changes the peer's share of the units relative to the other peers, to at least 1: see
// UnitsConfig.Weight. It holds for the current run and the next ones. The others hear of it at once,
// but of at most one change in a lease: of several the last counts. With another indexer than the
// ledger's rolls every peer counts once, and a weight above 1 is an error: of SetWeight if the
// indexer is known by then, else of the next run.
func (u *Units) SetWeight(weight int) error { return u.sessions.setWeight(weight) }

// StopTimeout is how long an orderly stop may take.
func (u *Units) StopTimeout() time.Duration {
	return u.cfg.Timing.Shutdown + u.cfg.Timing.CancelGrace + stopMargin
}

// CancelGrace is how long a handler may take to return once its context has ended.
func (u *Units) CancelGrace() time.Duration { return u.cfg.Timing.CancelGrace }

// Start begins to take part. It waits for no store; ctx bounds the wait for the end of an
// earlier run that is being stopped or could not go on. If it has ended nothing begins; its error
// is the only one that Start returns. A peer that runs already is left alone.
func (u *Units) Start(ctx context.Context) error { return u.sessions.start(ctx) }

// Stop hands over what this peer has and leaves. The context of a handler ends as soon as another
// peer waits for its unit, at the latest after a settle time and two beats (5 s by default), or
// half the shutdown if that is less. If ctx ends first the stop is hard: all contexts end at
// once, and what has not returned within the cancel grace is free when the lease ends.
//
// Stop returns after the last handler, so that no handler may call it, with an error if not
// everything was handed over. A peer that does not run is left alone; [Units.Err] says why it has
// ended by itself.
func (u *Units) Stop(ctx context.Context) error { return u.sessions.stop(ctx) }

// Run starts the peer, waits until ctx ends or the peer cannot go on, and stops it. It
// returns why it could not go on, and what Stop returned. A ctx that has ended before
// anything started is an orderly stop as well; see [Consumer.Run].
func (u *Units) Run(ctx context.Context) error {
	return u.sessions.run(ctx, func() error {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), u.StopTimeout())
		defer cancel()
		return u.Stop(within)
	})
}

// Done is closed when nothing of the current run is left; [Units.Err] says why it ended by
// itself. Before the first Start it is nil.
func (u *Units) Done() <-chan struct{} { return u.sessions.ended() }

// Err returns why the peer could not go on, with its name, once it has ended. It is nil before
// that, and after a run that was stopped.
func (u *Units) Err() error { return u.sessions.failure() }

// View returns the newest view: this peer's index and how many replicas there are. Its
// Version is 0, and its Index -1, before the first and where nothing runs. It says nothing of
// the lease: once ValidFor is 0 another peer may have the index.
func (u *Units) View() partition.View {
	if co, _ := u.sessions.part(); co != nil {
		return co.View()
	}
	return partition.View{Index: -1}
}

// ValidFor returns for how long this peer can rely on owning what it owns if the ledger does not
// answer any more; 0: the lease may have run out, or nothing runs.
func (u *Units) ValidFor() time.Duration {
	if co, _ := u.sessions.part(); co != nil {
		return co.ValidFor()
	}
	return 0
}

// Owned returns the units that are this peer's now, sorted by name.
func (u *Units) Owned() []Unit {
	s, ok := u.sessions.now()
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Unit
	for _, k := range s.keepers {
		if k.owned != nil && k.owned.Owned() {
			all = append(all, *k.owned)
		}
	}
	slices.SortFunc(all, func(a, b Unit) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Ready returns nil if the peer is a member, its lease stands, it is well (see
// UnitsConfig.Health) and it has read the list; otherwise it says what is missing.
func (u *Units) Ready() error { return u.sessions.ready() }

func (u *Units) runs() life { return &u.sessions }

// delay is the pause after the tries-th failure in a row.
func (u *Units) delay(tries int) time.Duration { return u.cfg.Retry.Delay(tries, rand.Float64()) }
