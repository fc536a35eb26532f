package framework

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/transition"
)

// A Consumer is one peer of a task processing: a name, a source, a handler and a
// configuration. A process may have several, of different names. All methods may
// be called concurrently.
type Consumer struct {
	name     string
	source   sources.Source
	handler  Handler
	cfg      Config
	control  Control
	ledger   transition.Ledger // if it is there already
	survey   Survey
	observer Observer
	peer     string // empty: the host's name
	health   func(context.Context) error
	tagged   []string // the tags as WithTags was told them
	tags     partition.Tags
	strategy partition.Strategy
	barrier  bool

	warnings []string
	sessions sessions[*session]
}

// An Option replaces or adds a collaborator of a [Consumer].
type Option func(*Consumer)

// WithConfig sets the numbers. Default: the zero Config.
func WithConfig(cfg Config) Option { return func(c *Consumer) { c.cfg = cfg } }

// A Control makes what a peer counts off with, once the source has told its layout:
// the ledger of the name, and who tells the peer which partitions it should have;
// a nil indexer stands for the ledger's rolls. It is called at each start and must not
// call a store: what it fails with does not pass by itself, and ends the consumer.
type Control func(layout partition.Config) (transition.Ledger, partition.Indexer, error)

// WithControl sets the control. It, or WithLedger, is required.
func WithControl(control Control) Option {
	return func(c *Consumer) { c.control, c.ledger = control, nil }
}

// WithLedger is WithControl for a ledger that is there already, with the ledger's
// rolls as the indexer.
func WithLedger(l transition.Ledger) Option {
	if partition.Absent(l) {
		return WithControl(nil)
	}
	return func(c *Consumer) {
		c.control = func(partition.Config) (transition.Ledger, partition.Indexer, error) { return l, nil, nil }
		c.ledger = l
	}
}

// WithObserver adds an observer. Several are called in the order in which they were added; a nil
// one, or a nil pointer, is left out. Default: nobody listens, and events cost nothing.
func WithObserver(o Observer) Option {
	return func(c *Consumer) {
		switch {
		case partition.Absent(o):
		case c.observer == nil:
			c.observer = o
		default:
			c.observer = Observers{c.observer, o}
		}
	}
}

// WithPeer sets the peer's id and its weight. The id is a name for people that is kept over
// restarts; [partition.CheckPeer] says what may be one. Where it is empty, and by default, it is
// the name of the host, with the process id or the beginning of the session added if a live peer
// has that name already; a peer that was killed counts as live until its lease is over. The
// weight is the peer's share of the work relative to the other peers: at least 1, which is the
// default.
func WithPeer(id string, weight int) Option {
	return func(c *Consumer) { c.peer, c.sessions.weight = id, weight }
}

// WithTags sets what the peer has, as in "gpu". Partitions and units that ask for tags
// (redisledger.Require, `countoff require`) are shared out among the peers that have all of them.
// Each argument is one tag; empty ones are ignored. Default: none; such a peer gets only what
// asks for nothing.
func WithTags(tags ...string) Option {
	return func(c *Consumer) { c.tagged = tags }
}

// WithHealth lets the peer say whether it is well. check is called about once a beat (a fifth of
// the lease), never twice at a time in a run, and has a beat to return: nil says that the peer is
// well, any error that it is not. A panic counts as an error, and so does a check that is late;
// the next one waits for it. Changes are told as [Checked], and [Consumer.Ready] says what is
// wrong. Stop waits for a check for the cancel grace and then leaves it behind. A peer begins
// unwell and is well with the first nil. After that it counts as unwell once check has failed for
// one and a half beats, and as well again once it has not failed for a lease, so that a check
// that flaps moves nothing around.
//
// An unwell peer keeps its session and its index, claims nothing, and hands what it has over to
// peers that are well. Where no peer is well, each goes on with what it has and what nobody has
// waits; both are told as [Uncovered]. So check what this process lacks and others have, such as
// room on a disk: if all peers lack it, moving work between them helps nobody.
//
// Several checks must all return nil, in the time of one. A nil check is left out. Default: a
// peer is always well.
//
// It needs the ledger's rolls as the indexer, since others do not ask who is well. If the control
// returns another indexer, the consumer ends with an error that names everything that cannot be
// had with it: a health check, a weight above 1, tags and a barrier.
func WithHealth(check func(context.Context) error) Option {
	return func(c *Consumer) {
		switch others := c.health; {
		case check == nil:
		case others == nil:
			c.health = check
		default:
			c.health = func(ctx context.Context) error { return errors.Join(others(ctx), check(ctx)) }
		}
	}
}

// WithBarrier makes every change among the peers stop all of them: each drains everything it has
// and works on under the new table only when all have stopped (see transition.Config.Barrier). It
// is for work that must never be under two tables at once, or for the simplest table there is:
// partition id belongs to the peer with index id % replicas. Either all peers of a name use it or
// none. It needs the ledger's rolls as the indexer. Default: partitions are handed over one by
// one.
func WithBarrier() Option { return func(c *Consumer) { c.barrier = true } }

// WithStrategy sets how the partitions are shared out over the peers; all peers should use the
// same. Default: partition.Sticky, or with a barrier partition.Modulo.
func WithStrategy(s partition.Strategy) Option { return func(c *Consumer) { c.strategy = s } }

// New makes a consumer that has h handle the tasks which source has under name. Its error lists
// all that is wrong at once: a bad name, a missing source, handler or ledger, numbers out of
// range, budgets that do not fit, a ledger that was made for another lease, a source or ledger of another name. New calls nobody;
// Start does.
func New(name string, source sources.Source, h Handler, opts ...Option) (*Consumer, error) {
	c := &Consumer{name: name, source: source, handler: h}
	c.sessions.weight = 1
	c.sessions.whose, c.sessions.next = fmt.Sprintf("consumer %q", name), func() *session { return newSession(c) }
	errs := []error{partition.CheckName(name)}
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("framework: an option is nil"))
			continue
		}
		o(c)
	}
	if partition.Absent(source) {
		errs, source = append(errs, errors.New("framework: no source")), nil
	}
	if missing(h) {
		errs = append(errs, errors.New("framework: no handler"))
	}
	if c.control == nil {
		errs = append(errs, errors.New("framework: no ledger: see WithLedger and WithControl"))
	}
	errs = append(errs, c.tag(), peerFault(c.peer))
	if w := c.sessions.weight; w < 1 {
		errs = append(errs, fmt.Errorf("framework: weight %d: want at least 1", w))
	}
	if c.cfg.PodGrace == 0 {
		grace, warning, err := podGrace(os.Getenv(GraceVariable))
		c.cfg.PodGrace = grace
		errs = append(errs, err)
		if warning != "" {
			c.warnings = append(c.warnings, warning)
		}
	}
	errs = append(errs, c.cfg.Validate(), transition.CheckTimes(c.ledger, c.cfg.Timing),
		partition.SameName(name, "source", source), partition.SameName(name, "ledger", c.ledger))
	if err := errors.Join(errs...); err != nil {
		return nil, named(c.sessions.whose, err)
	}
	c.cfg = c.cfg.WithDefaults()
	if cut := c.cfg.cut(); cut != "" {
		c.warnings = append(c.warnings, cut)
	}
	return c, nil
}

// tag takes in what WithTags was told.
func (c *Consumer) tag() error {
	var errs []error
	for _, tag := range c.tagged {
		one, err := partition.ParseTags(tag)
		if err == nil && strings.Contains(string(one), " ") { // the peer would be eligible for what asks for either
			err = fmt.Errorf("framework: tag %q: want one tag in each argument of WithTags", tag)
		}
		errs = append(errs, err)
	}
	all, err := partition.ParseTags(strings.Join(c.tagged, ","))
	if err == nil {
		c.tags = all
	}
	return errors.Join(errs...)
}

// named says of each of the joined errors whose it is.
func named(whose string, err error) error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(several.Unwrap()...).Error() {
		return fmt.Errorf("%s: %w", whose, err) // one error, though it may wrap two
	}
	var all []error
	for _, e := range several.Unwrap() {
		all = append(all, named(whose, e))
	}
	return errors.Join(all...)
}

// Name returns the consumer's name.
func (c *Consumer) Name() string { return c.name }

// Config returns the consumer's numbers, defaults filled in.
func (c *Consumer) Config() Config { return c.cfg }

// SetWeight changes the peer's share of the work relative to the other peers, to at least 1: see
// [WithPeer]. It holds for the current run and the next ones. The others hear of it at once, but
// of at most one change in a lease: of several the last counts. With another indexer than the
// ledger's rolls every peer counts once, and a weight above 1 is an error: of SetWeight if the
// indexer is known by then, else of the next run.
func (c *Consumer) SetWeight(weight int) error { return c.sessions.setWeight(weight) }

// StopTimeout is how long an orderly stop may take.
func (c *Consumer) StopTimeout() time.Duration { return c.cfg.StopTimeout }

// CancelGrace is how long a handler may take to return once its context has ended.
func (c *Consumer) CancelGrace() time.Duration { return c.cfg.Timing.CancelGrace }

// Start begins to take part. It does not wait for the source or the ledger: what
// they answer, or that they do not, is told by events and by [Consumer.Ready]. ctx
// bounds only the wait for the end of an earlier run that is being stopped or could not
// go on. If it has ended nothing begins; its error is the only one that Start returns.
// A consumer that runs already is left alone. After it has ended it may be started
// again, as a new session.
func (c *Consumer) Start(ctx context.Context) error { return c.sessions.start(ctx) }

// Stop hands over what the consumer has and leaves: it fetches no more, lets the handlers end,
// settles and releases. If ctx or Config.StopTimeout ends before that is done the stop turns
// hard: the handlers' contexts end with [ErrStopped], and what was not released is free for
// others when the lease ends.
//
// In either case Stop returns after the last goroutine of the consumer, except for a health check
// that ignores its context. It returns an error if the stop was hard, a [transition.StuckError]
// if handlers or calls of the source had not returned when the peer left, or a
// [transition.UnheardError] if the ledger did not answer its last word. A handler or a source that
// ignores its context keeps Stop from returning, and so does a handler that calls Stop: it would
// wait for itself.
//
// Stop may be called several times, also at once: each call waits. Where nothing runs it does
// nothing, and returns again what the last run left behind.
func (c *Consumer) Stop(ctx context.Context) error { return c.sessions.stop(ctx) }

// Run starts the consumer, waits until ctx ends or the consumer cannot go on, and
// stops it. It returns why it could not go on, and what Stop returned. A ctx that has
// ended before anything started is an orderly stop as well: the SIGTERM of a deploy may
// come while the process still sets itself up, and is no failure of it.
func (c *Consumer) Run(ctx context.Context) error {
	return c.sessions.run(ctx, func() error { return c.Stop(context.WithoutCancel(ctx)) })
}

// Done is closed when nothing of the current run is left, whether it was stopped
// or could not go on; [Consumer.Err] says which. Before the first Start it is nil.
func (c *Consumer) Done() <-chan struct{} { return c.sessions.ended() }

// Err returns why the consumer could not go on, with its name, once it has ended. It is nil
// before that, and after a run that was stopped.
func (c *Consumer) Err() error { return c.sessions.failure() }

// View returns the newest view of the current run: the peer's place among its
// peers and what it should have. Its Version is 0, and its Index -1, before the
// first and where nothing runs. It says nothing of the lease: while the ledger does not
// answer another peer may have got the index. Ready then says so.
func (c *Consumer) View() partition.View {
	if co, _ := c.sessions.part(); co != nil {
		return co.View()
	}
	return partition.View{Index: -1}
}

// Ready returns nil if the peer is a member, its lease stands, it is well (see [WithHealth]) and
// every partition of its share is served or waited for; otherwise it says what is missing.
func (c *Consumer) Ready() error { return c.sessions.ready() }

// Observer is all observers of c as one, for what its source says by itself; nil if nobody listens.
// One that panics at that ends the current run, as at everything else.
func (c *Consumer) Observer() Observer {
	if c.observer == nil {
		return nil
	}
	return ObserverFunc(func(e Event) {
		if s, ok := c.sessions.now(); ok {
			s.observe(e)
		} else {
			observe(c.observer, e)
		}
	})
}

func (c *Consumer) runs() life { return &c.sessions }

// GraceVariable is the environment variable that tells how long the platform waits
// between SIGTERM and SIGKILL, as "30" (seconds) or "30s".
const GraceVariable = "COUNTOFF_GRACE"

// podGrace reads the value of GraceVariable.
func podGrace(value string) (grace time.Duration, warning string, err error) {
	if value == "" {
		return 0, "the pod's grace period is unknown: set " + GraceVariable + ", so that it can be checked", nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		d, err = time.ParseDuration(value + "s")
	}
	if err != nil || d <= 0 {
		return 0, "", fmt.Errorf("framework: %s=%q: want seconds or a duration, as in 30 or 30s", GraceVariable, value)
	}
	return d, "", nil
}
