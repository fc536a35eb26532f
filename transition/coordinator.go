package transition

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// glance is how often the clock is looked at, at least, while anything runs. Timers
// stand still while the machine is suspended; the lease does not.
const glance = 250 * time.Millisecond

// Config describes a peer to a Coordinator. Ledger and Tenant must be given.
type Config struct {
	Ledger Ledger
	Tenant Tenant
	// Config is that of the name. Zero fields get their defaults; it must be what
	// Ledger was made with.
	Config partition.Config
	Timing Timing
	// Peer is the peer's id, for people, and to get an index back after a restart.
	// Default: the session.
	Peer string
	// Yield makes the peer take another id, Peer with "-" and the beginning of the session, if
	// somebody else lives under Peer once it has joined. Default: it keeps Peer, whoever has it.
	Yield bool
	// Weight is the peer's share of the work relative to the others. Default 1.
	Weight int
	// Tags are what the peer has, for partitions that ask for some: see partition.Assign.
	Tags partition.Tags
	// Unwell begins as a peer that is not well, until the first Report that it is.
	Unwell bool
	// Session of this run. Default: a new one. It must never be used again.
	Session partition.Session
	// Strategy shares out the partitions when this peer seals a roll. Default
	// partition.Sticky, and with Barrier partition.Modulo. All peers of a name should have
	// the same, and each tells its own to the others. With an Indexer it is only told,
	// where it is given and the Indexer does not say by itself how it shares out.
	Strategy partition.Strategy
	// Barrier makes every new roll stop everybody: each peer drains all it has, and works
	// on under the new roll only when all have stopped that worked under an older one. So
	// all peers use the same table at any moment, at the price that the slowest handler
	// of all stops the work of all. Whose a partition is does not rest on it. It is
	// for all peers of a name alike: who differs from those that live is refused with
	// partition.ErrConfig. It cannot be had with an Indexer, whose views have no common
	// number. Default: partitions are handed over one by one, and what does not move
	// never pauses.
	Barrier bool
	// Indexer says which partitions this peer should have. Default: the rolls of the
	// ledger. Another one knows nothing of its peers but how many they are: with it Weight,
	// Tags, Unwell and Barrier are refused, and what asks for tags is asked for by nobody. One
	// that is a fmt.Stringer says how it shares out, as in "interval 5s, modulo", and that is told
	// to the others in the place of the Strategy: peers that differ leave partitions to nobody.
	Indexer partition.Indexer
	// Observer is told what happens, in order and from one goroutine at a time. It
	// must be fast and must not call Run. Optional.
	Observer func(Event)
	// Clock measures the lease. Default NewClock.
	Clock Clock
}

// Causes of an abort, beside those that the tenant named itself.
var (
	// ErrLapsed means that the lease may have run out: the ledger has not answered
	// for too long.
	ErrLapsed = errors.New("the lease may have run out")
	// ErrTaken means that the ledger has given the partition to another peer.
	ErrTaken = errors.New("the ledger does not list the grant any more")
	// ErrShutdown means that the peer leaves and has no time left to drain.
	ErrShutdown = errors.New("the peer leaves at once")
)

// A StuckError says that a peer left although handlers, or calls of the source, had not
// returned. Their grants were not given up: the lease has to run out.
type StuckError struct{ Grants []partition.Grant }

func (e *StuckError) Error() string {
	return fmt.Sprintf("handlers, or calls of the source, have not returned for %s: nobody gets the partitions before the lease runs out", some(e.Grants))
}

// An UnheardError says that a peer left without an answer of the ledger: whether it has taken
// the grants back is not known. If it has not, their lease has to run out.
type UnheardError struct{ Grants []partition.Grant }

func (e *UnheardError) Error() string {
	return fmt.Sprintf("the ledger has not answered that it took %s back: nobody may get them before the lease runs out, and what was done last may be done again", some(e.Grants))
}

// some names the first of grants, and how many they are.
func some(grants []partition.Grant) string {
	const few = 8
	if len(grants) <= few {
		return fmt.Sprint(grants)
	}
	return fmt.Sprintf("%v and %d more partitions", grants[:few], len(grants)-few)
}

// A Coordinator takes part in a name for one peer. One goroutine, that of Run,
// waits, steps the machine and carries out its effects. The other methods may be
// called concurrently, before, during and after Run.
type Coordinator struct {
	cfg     Config
	machine *machine.Machine
	mailbox *mailbox
	filter  partition.Filter
	view    atomic.Pointer[partition.View]
	// validUntil is the instant up to which the lease is valid; 0: it is not.
	validUntil atomic.Int64
	ran        atomic.Bool
	resting    atomic.Bool   // the clock is not looked at before there is something to do
	sealing    sync.Mutex    // held while a roll is made and stored
	sharing    chan struct{} // holds one while the strategy works
	claims     bool          // false: a member for the index alone
	strategy   string        // told to the other peers

	// The rest belongs to the goroutine of Run.
	calls   sync.WaitGroup
	began   time.Time
	stopped time.Time
	joined  bool
	over    bool
	grants  map[partition.ID]*holding
	// released has when the grants were drained that the ledger still shows.
	released map[partition.Grant]time.Time
	stuck    []partition.Grant
	unheard  []partition.Grant
	err      error
}

// holding is what the coordinator remembers of a grant.
type holding struct {
	grant partition.Grant
	since time.Time // of its end
	ends  bool      // it is drained or aborted
}

// onlyRolls says what of cfg cannot be had with an Indexer: all that peers must know of one
// another, since views say nothing of the others but how many they are.
func (cfg Config) onlyRolls() (errs []error) {
	refuse := func(what string) { errs = append(errs, rollsError("transition: "+what)) }
	if cfg.Barrier {
		refuse("a barrier needs the ledger's rolls: the views of another indexer have no number that all peers reach")
	}
	if cfg.Weight > 1 {
		refuse(fmt.Sprintf("weight %d needs the ledger's rolls: another indexer counts every peer once; leave it out, or run more peers where there is more room", cfg.Weight))
	}
	if cfg.Tags != "" {
		refuse(fmt.Sprintf("tags %v need the ledger's rolls: another indexer does not know who has which; leave them out, and give what asks for them a name of its own", cfg.Tags))
	}
	if cfg.Unwell {
		refuse("a health check needs the ledger's rolls: another indexer does not ask who is well; leave it out, and stop a peer that is not")
	}
	return errs
}

// NewCoordinator returns a coordinator that has not begun. It returns everything
// that is wrong with cfg at once.
func NewCoordinator(cfg Config) (*Coordinator, error) {
	return newCoordinator(cfg, true)
}

func newCoordinator(cfg Config, claims bool) (*Coordinator, error) {
	var errs []error
	if partition.Absent(cfg.Ledger) {
		cfg.Ledger = nil
		errs = append(errs, errors.New("transition: no ledger"))
	}
	errs = append(errs, CheckTimes(cfg.Ledger, cfg.Timing))
	if cfg.Tenant == nil && claims {
		errs = append(errs, errors.New("transition: no tenant"))
	}
	cfg.Config = cfg.Config.WithDefaults()
	tags, wrong := partition.ParseTags(string(cfg.Tags)) // what cannot be read back would stop the sealing of rolls
	cfg.Tags = tags
	errs = append(errs, cfg.Config.Validate(), cfg.Timing.Validate(), wrong)
	if cfg.Indexer != nil {
		errs = append(errs, cfg.onlyRolls()...)
	}
	if cfg.Peer != "" {
		errs = append(errs, partition.CheckPeer(cfg.Peer))
	}
	if cfg.Weight < 0 {
		errs = append(errs, fmt.Errorf("transition: weight %d: must not be negative", cfg.Weight))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg.Timing = cfg.Timing.WithDefaults()
	if cfg.Session == "" {
		cfg.Session = NewSession()
	}
	if cfg.Peer == "" {
		cfg.Peer = string(cfg.Session)
	}
	counts, says := cfg.Indexer.(fmt.Stringer)
	tells := cfg.Indexer == nil || cfg.Strategy != nil // the default seals rolls that nobody goes by
	if cfg.Strategy == nil {
		cfg.Strategy = partition.Sticky{}
		if cfg.Barrier {
			cfg.Strategy = partition.Modulo{}
		}
	}
	strategy := ""
	switch {
	case says:
		strategy = counts.String()
	case tells:
		strategy = cfg.Strategy.Name()
	}
	if cfg.Clock == nil {
		cfg.Clock = NewClock()
	}
	if cfg.Observer == nil {
		cfg.Observer = func(Event) {}
	}
	return &Coordinator{
		cfg:      cfg,
		claims:   claims,
		strategy: strategy,
		mailbox:  newMailbox(),
		sharing:  make(chan struct{}, 1),
		grants:   make(map[partition.ID]*holding),
		released: make(map[partition.Grant]time.Time),
	}, nil
}

// Session returns the session of this run.
func (c *Coordinator) Session() partition.Session { return c.cfg.Session }

// Filter says which partitions are this peer's to work on: those it serves. It
// follows the grants before the tenant is told.
func (c *Coordinator) Filter() *partition.Filter { return &c.filter }

// Valid reports whether the lease stands at now, which is what time.Now has just
// returned. It is to be asked before each start of a handler.
func (c *Coordinator) Valid(now time.Time) bool {
	return int64(c.cfg.Clock(now)) < c.validUntil.Load()
}

// View returns the newest view; its Version is 0, and its Index -1, before the first and once Run
// has returned. It says nothing of the lease: with a ValidFor of 0 another peer may have the index.
func (c *Coordinator) View() partition.View {
	if v := c.view.Load(); v != nil {
		return *v
	}
	return partition.View{Index: -1}
}

// ValidFor returns what is left of the time for which the lease is known to stand; 0: it
// does not.
func (c *Coordinator) ValidFor() time.Duration {
	return max(time.Duration(c.validUntil.Load())-c.cfg.Clock(time.Now()), 0)
}

// Fenced reports that the data of g refused this peer because it has seen the
// greater epoch stored. The partition is aborted and asked for again with a greater
// number.
func (c *Coordinator) Fenced(g partition.Grant, stored partition.Epoch) {
	c.mailbox.put(mail{
		event: machine.Lost{Grant: g, Stored: stored},
		cause: fmt.Errorf("%v was refused: epoch %v stands at the data", g, stored),
	})
}

// Lost reports that the data of g is lost for this peer, for cause: it refused
// without a number, or forgot. The partition is aborted and asked for again.
func (c *Coordinator) Lost(g partition.Grant, cause error) {
	c.mailbox.put(mail{event: machine.Lost{Grant: g}, cause: cause})
}

// Attend says that a tenant which was idle has let something run, see [Idler]. It may be
// called before every start, and costs nothing if the coordinator attends already.
func (c *Coordinator) Attend() {
	if c.resting.Load() && c.resting.CompareAndSwap(true, false) {
		c.mailbox.put(mail{event: machine.Ticked{}})
	}
}

// SetWeight changes the peer's share of the work relative to the others, to at least 1.
// Others hear of it with the next Sync, and of one change in a lease at most: of several
// the last counts. Strategies that know no weights, and other indexers than the ledger's
// rolls, do not ask for it.
func (c *Coordinator) SetWeight(weight int) {
	c.mailbox.put(mail{event: machine.Weigh{Weight: weight}})
}

// Report says how the peer is; it is to be called about once in a beat. The peer counts as
// unwell once reports have said so for one and a half beats, and as well once they have
// for five beats, which is a lease; the first time at once. Who is unwell keeps its session
// and its index, claims nothing, and hands over what a peer that is well waits for.
func (c *Coordinator) Report(well bool) { c.mailbox.put(mail{event: machine.Health{Well: well}}) }

// Stop asks the peer to leave: its partitions drain, are handed over, and Run
// returns. Before Run it makes Run return at once.
func (c *Coordinator) Stop() { c.mailbox.put(mail{event: machine.Stop{}}) }

// Run takes part until a Stop is carried out, or until ctx ends: then handlers are
// cancelled and what returns within the cancel grace is given up. Nothing of the
// coordinator runs when it returns, and no more calls of the tenant come.
//
// It returns nil after the peer has left, a *StuckError if handlers have not
// returned, an *UnheardError if the ledger did not answer its last word, an error
// that wraps partition.ErrConfig if the name is in use with another configuration,
// or the reason why the indexer cannot go on. It can be called once.
func (c *Coordinator) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return errors.New("transition: a coordinator runs once")
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer c.calls.Wait()
	defer cancel()
	c.began = time.Now()
	c.machine = machine.New(c.machineConfig(), c.now())
	c.calls.Go(func() { c.listen(inner) })
	if c.cfg.Indexer != nil {
		c.calls.Go(func() { c.index(inner) })
	}
	c.loop(ctx, inner)
	c.validUntil.Store(0)
	c.view.Store(nil)
	switch {
	case c.err != nil:
		return c.err
	case len(c.stuck) > 0:
		return &StuckError{Grants: c.stuck}
	case len(c.unheard) > 0:
		return &UnheardError{Grants: c.unheard}
	}
	return nil
}

func (c *Coordinator) machineConfig() machine.Config {
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(c.cfg.Session)) // never fails
	return machine.Config{
		Session:      c.cfg.Session,
		Peer:         c.cfg.Peer,
		Weight:       c.cfg.Weight,
		Tags:         c.cfg.Tags,
		Unwell:       c.cfg.Unwell,
		Times:        c.cfg.Timing.Times(),
		Viewed:       c.cfg.Indexer != nil,
		ClaimNothing: !c.claims,
		Barrier:      c.cfg.Barrier,
		Strategy:     c.strategy,
		Seed:         seed.Sum64(),
	}
}

// loop is the coordinator's life: wait, step, carry out.
func (c *Coordinator) loop(ctx, inner context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	ended := ctx.Done()
	for _, m := range c.mailbox.take() { // before the first tick: who was stopped already asks nothing
		c.handle(inner, m)
	}
	for !c.over {
		ticked := false
		select {
		case <-ended:
			ended = nil
			c.handle(inner, mail{event: machine.Stop{Now: true}})
		case <-c.mailbox.bell:
			for _, m := range c.mailbox.take() {
				c.handle(inner, m)
			}
		case <-timer.C:
			ticked = true
			c.handle(inner, mail{event: machine.Ticked{}})
		}
		if at, ok := c.machine.Wake(); ok {
			timer.Reset(min(at.Sub(c.now()), c.looksWithin(ticked)))
		}
	}
}

// looksWithin returns how long the clock need not be looked at: for ever after a tick that finds
// the tenant idle, as Attend ends that, else a glance. Only ticks ask the tenant, so that one with
// a little to do now and then does not go to rest, and is not woken, more than once in a glance.
// resting is set before the tenant is asked. If it begins something just then, either it says that
// it is not idle, or its Attend finds resting set.
func (c *Coordinator) looksWithin(ticked bool) time.Duration {
	tenant, ok := c.cfg.Tenant.(Idler)
	if !ok || !ticked && !c.resting.Load() {
		return glance
	}
	c.resting.Store(true)
	if tenant.Idle() {
		return math.MaxInt64
	}
	c.resting.Store(false)
	return glance
}

// handle carries one thing that happened through the machine.
func (c *Coordinator) handle(inner context.Context, m mail) {
	if c.over {
		return
	}
	for _, e := range m.report {
		c.cfg.Observer(e)
	}
	switch ev := m.event.(type) {
	case machine.Stop:
		if c.stopped.IsZero() {
			c.stopped = time.Now()
		}
	case machine.Synced:
		if !c.joined {
			c.joined = true
			c.cfg.Observer(Joined{Session: c.cfg.Session, Peer: c.cfg.Peer, Took: time.Since(c.began)})
			if c.cfg.Yield {
				c.calls.Go(func() { c.yield(inner) })
			}
		}
	case machine.Drained:
		c.drained(ev.Grant)
	}
	if m.fatal != nil && c.err == nil {
		c.err = m.fatal
	}
	c.carryOut(inner, c.machine.Step(c.now(), m.event), m.cause)
	// A name with another configuration has no ear for a last word.
	if errors.Is(c.err, partition.ErrConfig) && len(c.grants) == 0 {
		c.over = true
	}
}

func (c *Coordinator) now() machine.Instant { return machine.Instant(c.cfg.Clock(time.Now())) }
