package intervalindexer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
)

// A Config says how peers count themselves. All peers of a name must use the same: those of
// different intervals do not count each other, and by different strategies some partitions are
// nobody's.
type Config struct {
	// Interval is how often a peer is counted. A join or a crash shows after three
	// of them. Default 5 s, at least 10 ms and at most a day.
	Interval time.Duration
	// Partitions is what the wishes are made of.
	Partitions partition.Config
	// Strategy turns an index and a number of replicas into a wish. It is given
	// members that have nothing but an index, and no table that was in force, since
	// peers share none: so Rendezvous or Jump move less than Modulo on a change, and
	// Sticky does not. One that panics, or gives a partition to nobody, ends Index with
	// an error. Default partition.Modulo.
	Strategy partition.Strategy
	// Arrival gives indexes by order of arrival in each interval, instead of
	// keeping them.
	Arrival bool
	// Hasty adopts a count at once, instead of when it is seen twice.
	Hasty bool
}

const (
	leastInterval = 10 * time.Millisecond // leaves room for the calls of a turn and the peers' clocks
	mostInterval  = 24 * time.Hour        // times are reckoned in multiples of it
)

// WithDefaults returns c with zero fields filled in.
func (c Config) WithDefaults() Config {
	if c.Interval == 0 {
		c.Interval = 5 * time.Second
	}
	c.Partitions = c.Partitions.WithDefaults()
	if c.Strategy == nil {
		c.Strategy = partition.Modulo{}
	}
	return c
}

// Validate says all that is wrong with c, after defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	if c.Interval < leastInterval || c.Interval > mostInterval {
		errs = append(errs, fmt.Errorf("intervalindexer: interval %v: want %v to %v", c.Interval, leastInterval, mostInterval))
	}
	return errors.Join(append(errs, c.Partitions.Validate())...)
}

// An Indexer counts the peers of a name by intervals. Each call of Index is a peer.
type Indexer struct {
	counter Counter
	name    string
	config  Config
	skew    func(most time.Duration) time.Duration
	missed  func(number uint64, err error)
	now     func() time.Time // the wall clock, which tests set
}

var _ partition.Indexer = (*Indexer)(nil)

// An Option replaces a collaborator of an [Indexer].
type Option func(*Indexer)

// WithSkew chooses where in its intervals a peer has its turns: above 0 and at most
// most, once for each call of Index. Default, and for nil: at random.
func WithSkew(choose func(most time.Duration) time.Duration) Option {
	return func(x *Indexer) {
		if choose != nil {
			x.skew = choose
		}
	}
}

// WithMissed has missed called, from the goroutine of the turns, for each turn in which
// the peer was not or not surely counted, with its interval. What passes while the process
// stands still has no turns of its own. It must not block.
func WithMissed(missed func(number uint64, err error)) Option {
	return func(x *Indexer) {
		if missed != nil {
			x.missed = missed
		}
	}
}

// New returns an Indexer of the peers of name that count on counter.
func New(counter Counter, name string, config Config, options ...Option) (*Indexer, error) {
	errs := []error{partition.CheckName(name), config.Validate()}
	if counter == nil {
		errs = append(errs, errors.New("intervalindexer: no counter"))
	}
	if slices.ContainsFunc(options, func(o Option) bool { return o == nil }) {
		errs = append(errs, errors.New("intervalindexer: an option is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	x := &Indexer{
		counter: counter,
		name:    name,
		config:  config.WithDefaults(),
		skew:    rand.N[time.Duration],
		missed:  func(uint64, error) {},
		now:     time.Now,
	}
	for _, o := range options {
		o(x)
	}
	return x, nil
}

// String says how the peers are counted and what becomes of an index, as in "interval 5s, modulo".
// Between peers for which it differs there are partitions that nobody wishes for: see
// transition.Config.Indexer.
func (x *Indexer) String() string {
	how := fmt.Sprintf("interval %v, %s", x.config.Interval, x.config.Strategy.Name())
	if x.config.Arrival {
		how += ", by arrival"
	}
	return how
}

// ErrMissed means that a peer came too late to be counted in an interval: it was
// paused, its clock was set, or the store was slow.
var ErrMissed = errors.New("intervalindexer: the interval was over")

// Index implements [partition.Indexer]. It gives up only on a strategy that breaks its
// contract: an interval in which the store cannot be reached is missed. A view that comes while emit is busy replaces
// the one that waits, so that a slow emit costs no turn.
func (x *Indexer) Index(ctx context.Context, emit func(partition.View)) error {
	views := make(chan partition.View, 1)
	var emitter sync.WaitGroup
	emitter.Go(func() {
		for v := range views {
			if ctx.Err() == nil {
				emit(v)
			}
		}
	})
	err := x.turns(ctx, func(v partition.View) {
		select {
		case <-views: // not taken yet, and old news now
		default:
		}
		views <- v // never waits: we alone send, and there is room
	})
	close(views)
	emitter.Wait()
	return err
}

// turns has one turn in each interval until ctx ends.
func (x *Indexer) turns(ctx context.Context, emit func(partition.View)) error {
	// A skew at the end of the interval would miss it now and then: leave room.
	c := clock{interval: x.config.Interval}
	most := c.interval * 8 / 10
	c.skew = min(max(x.skew(most), 1), most)

	p := newPeer(!x.config.Arrival, !x.config.Hasty)
	var version, last uint64
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		now := x.now()
		number := c.next(now, last)
		timer.Reset(c.turn(number).Sub(now))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if x.now().Before(c.turn(number)) {
			continue // the clock was set back while we waited
		}
		last = number
		if now, news := x.turn(ctx, c, p, number); news {
			// The interval that the pair is of; more if the clock was set back.
			version = max(version+1, number-1)
			v, err := x.view(version, now)
			if err != nil {
				return err
			}
			emit(v)
		}
	}
}

// turn has the turn of the interval number, or misses it.
func (x *Indexer) turn(ctx context.Context, c clock, p *peer, number uint64) (now pair, news bool) {
	t := p.begin(number)
	missed, err := c.late(x.now(), number), ErrMissed
	if missed == 0 {
		err = x.have(ctx, t, c.end(number))
		missed = max(1, c.late(x.now(), number)) // a call may have hung for long
	}
	if err != nil {
		if ctx.Err() != nil {
			return pair{}, false
		}
		x.missed(number, err)
		if !t.failed() {
			return p.miss(missed)
		}
	}
	was := p.told
	now, news = p.end(t)
	if missed > 1 { // the turn was had, and then those of whole intervals were not
		if gone, told := p.miss(missed - 1); told {
			return gone, was.index != none
		}
	}
	return now, news
}

// have asks all the questions of t, none after the interval's end.
func (x *Indexer) have(ctx context.Context, t *turn, end time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, end.Sub(x.now()))
	defer cancel()
	for {
		q, more := t.ask()
		if !more {
			return nil
		}
		values, err := x.put(ctx, q)
		if err != nil {
			return fmt.Errorf("intervalindexer: interval %d: %w", t.number, err)
		}
		t.got(values)
	}
}

// put carries a question to the counter.
func (x *Indexer) put(ctx context.Context, q question) ([]int64, error) {
	var keys []string
	if q.whole {
		keys = []string{countKey(x.name, q.number)}
	} else {
		for i := q.first; i <= q.last; i++ {
			keys = append(keys, indexKey(x.name, q.number, i))
		}
	}
	if !q.incr {
		return x.counter.Get(ctx, keys...)
	}
	v, err := x.counter.Incr(ctx, keys[0], lifetime*x.config.Interval)
	return []int64{v}, err
}

// view turns a pair into what is emitted.
func (x *Indexer) view(version uint64, p pair) (v partition.View, err error) {
	v = partition.View{Version: version, Index: p.index, Replicas: p.replicas}
	if p.index == none {
		return v, nil
	}
	members := make([]partition.Member, p.replicas)
	mates := make(map[partition.Session]bool, p.replicas)
	for i := range members {
		members[i] = partition.Member{Session: session(i), Index: i}
		mates[session(i)] = true
	}
	ids := x.config.Partitions.IDs()
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("intervalindexer: strategy %q panicked, asked about %d peers: %v", x.config.Strategy.Name(), p.replicas, why)
		}
	}()
	table := x.config.Strategy.Assign(slices.Clone(ids), members, nil)
	for _, id := range ids {
		switch owner := table[id]; {
		case owner == session(p.index):
			v.Wish = append(v.Wish, id)
		case !mates[owner]: // nobody would work on it, or say so
			return v, fmt.Errorf("intervalindexer: strategy %q gives partition %v to none of %d peers (see partition.Strategy; package strategytest finds what else it may break)",
				x.config.Strategy.Name(), id, p.replicas)
		}
	}
	return v, nil
}

// session stands in for the session of the peer of index, which nobody knows here.
func session(index int) partition.Session { return partition.Session(strconv.Itoa(index)) }
