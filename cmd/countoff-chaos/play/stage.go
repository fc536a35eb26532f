package play

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/countoff/countoff/cmd/countoff-chaos/checker"
	"github.com/countoff/countoff/cmd/countoff-chaos/journal"
	"github.com/countoff/countoff/cmd/countoff-chaos/peer"
	"github.com/countoff/countoff/cmd/countoff-chaos/store"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/transition/redisledger"
)

// Config of a run. All fields but Duration are needed.
type Config struct {
	Faults      int
	Duration    time.Duration // no fault begins later; 0: however long it takes
	Seed        uint64
	Kinds       []string
	Peers       int
	Partitions  int
	Concurrency int           // handlers of a peer
	Rate        int           // tasks a second
	Long        time.Duration // what one task in forty takes at most; 0: none takes long
	Lease       time.Duration
	Interval    time.Duration // of the interval indexer; 0: the ledger's rolls
	Barrier     bool          // before every roll
	Ledger      LedgerServer  // where the ledger stands; nil: beside the tasks
	Dir         string        // for journals and logs
	StoreDir    string        // for the stores' files
	Self        string        // this program, to be run again
	PeerCommand string        // as a peer
	BusyCommand string        // as a process that takes a processor
	Log         io.Writer
}

// A stage is a store, its peers, and what happens to them.
type stage struct {
	cfg    Config
	name   string
	inbox  string
	dir    string
	store  *store.Stage
	watch  *watch
	random *rand.Rand // of the director's goroutine
	began  journal.Time

	mu       sync.Mutex
	count    int
	all      []*process
	cast     []*process // those that have not ended
	faults   []checker.Fault
	losses   []checker.Loss
	troubles []string
	skipped  map[string]string
	flips    int
}

// A Result is what one stage came to.
type Result struct {
	Report  *checker.Report
	History *checker.History
	Skipped map[string]string // kinds that could not be done, and why
	Bound   time.Duration     // of a takeover
	// Stalled is for how long the store did not answer although nobody had touched
	// it, and Unplanned how often the Sentinels failed over by themselves: a slow
	// machine.
	Stalled   time.Duration
	Unplanned int
}

// Run plays on one store, and checks. trio says that the store has a replica and
// Sentinels. The error says what kept the play from going on; whether the promises
// were kept is in the report.
func Run(ctx context.Context, cfg Config, trio bool) (result Result, err error) {
	open := func(ctx context.Context, dir string) (*store.Stage, error) {
		return store.Single(ctx, dir, slices.Contains(cfg.Kinds, Clock))
	}
	s := &stage{cfg: cfg, name: "chaos", inbox: "chaos:inbox", random: rand.New(rand.NewPCG(cfg.Seed, 0)), began: journal.Now(),
		dir: filepath.Join(cfg.Dir, "single"), skipped: map[string]string{}}
	if trio {
		s.dir, open = filepath.Join(cfg.Dir, "trio"), store.Trio
	}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return result, err
	}
	if s.store, err = open(ctx, cfg.StoreDir); s.store != nil {
		defer s.store.Close()
	}
	if err != nil {
		return result, err
	}
	defer s.dismiss()

	layout := partition.Config{Total: cfg.Partitions, Units: []string{s.inbox}}
	if err := s.introduce(ctx, layout); err != nil {
		return result, err
	}
	f, err := newFeed(ctx, s.store.URL(""), s.name, s.inbox, cfg.Rate, cfg.Seed)
	if err != nil {
		return result, err
	}
	defer f.close()
	f.long = cfg.Long
	if s.watch, err = newWatch(s, layout, peer.Timing(cfg.Lease)); err != nil {
		return result, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	stopFeed := make(chan struct{})
	helpers.Go(func() { s.watch.run(ctx) })
	defer s.watch.close()
	for i := range cfg.Peers {
		if err := s.enter(fmt.Sprintf("peer-%d", i+1)); err != nil {
			return result, err
		}
	}
	s.say("%d peers, %d partitions, lease %v, takeover bound %v, seed %d", cfg.Peers, cfg.Partitions, cfg.Lease, s.watch.bound(), cfg.Seed)
	if !s.healthy(ctx, 30*time.Second) {
		return result, errors.New("the first peers do not come to own every partition")
	}
	fed := make(chan error, 1)
	helpers.Go(func() {
		err := f.run(ctx, stopFeed)
		if err != nil {
			cancel(err)
		}
		fed <- err
	})
	s.perform(ctx)
	close(stopFeed)
	if err := <-fed; err != nil {
		return result, err
	}
	left, err := s.finale(ctx, f)
	if err != nil {
		return result, err
	}
	return s.result(f, left)
}

// introduce writes the name into the new store.
func (s *stage) introduce(ctx context.Context, layout partition.Config) error {
	client, err := redisurl.Open(s.store.URL(""))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if s.cfg.Ledger == nil {
		_, err = redisledger.Init(ctx, client, s.name, layout)
		return err
	}
	if _, err := redisconfig.Agree(ctx, client, s.name, layout); err != nil {
		return err
	}
	return s.cfg.Ledger.Init(ctx, s.name, layout)
}

// perform does the faults.
func (s *stage) perform(ctx context.Context) {
	several := max(1, min(10, s.cfg.Peers*2/3))
	if s.store.HasReplica() {
		several = 2 // so that most of it is what only this store can do
	}
	left := s.cfg.Faults
	for _, b := range plan(s.random, s.cfg.Faults, several, s.cfg.Kinds) {
		if ctx.Err() != nil || s.cfg.Duration > 0 && time.Duration(journal.Now()-s.began) > s.cfg.Duration {
			s.say("the time is over, %d faults were not done", left)
			return
		}
		var done sync.WaitGroup
		for _, kind := range b {
			do := s.fault(kind)
			done.Go(func() { do(ctx) })
			pause(time.Duration(s.random.IntN(200))*time.Millisecond, ctx.Done())
		}
		done.Wait()
		left -= len(b)
		if !s.healthy(ctx, 3*s.watch.bound()+s.watch.timing.Grace()) {
			s.say("not every partition has an owner again")
		}
		pause(time.Duration(s.random.IntN(300))*time.Millisecond, ctx.Done())
	}
}

// finale lets everything heal, waits until the store is empty and sends the peers home.
func (s *stage) finale(ctx context.Context, f *feed) (checker.Store, error) {
	if err := s.store.CatchUp(); err != nil {
		return checker.Store{}, err
	}
	s.say("no more faults and no more tasks; waiting for the last")
	end := time.Now().Add(90 * time.Second)
	empty := 0
	for time.Now().Before(end) && ctx.Err() == nil && empty < 3 {
		left, err := s.holds(ctx, f.client)
		if err == nil && len(left.Open) == 0 {
			empty++
		} else {
			empty = 0
		}
		pause(200*time.Millisecond, ctx.Done())
	}
	pause(2*sample, ctx.Done()) // the watch may not have seen the last fault
	s.healthy(ctx, 3*s.watch.bound()+s.watch.timing.Grace())
	s.watch.close() // from here on there need not be owners
	var wg sync.WaitGroup
	for _, p := range s.playing() {
		wg.Go(func() {
			if err := p.leave(); err != nil {
				s.trouble("%v", err)
			}
		})
	}
	wg.Wait()
	left, err := s.holds(ctx, f.client)
	if len(left.Open) > 0 {
		s.say("%d tasks are left over", len(left.Open))
	}
	return left, errors.Join(err, context.Cause(ctx))
}

// result reads the journals and checks.
func (s *stage) result(f *feed, left checker.Store) (Result, error) {
	s.mu.Lock()
	faults := slices.Clone(s.faults)
	s.mu.Unlock()
	gaps := s.watch.all(faults)
	if err := s.unplanned(); err != nil {
		return Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &checker.History{
		Pushes: f.all(), Losses: s.losses, Left: left, Gaps: gaps, Faults: faults, Troubles: s.troubles,
		Margin: s.watch.timing.Margin(), Patience: s.cfg.Lease,
	}
	for _, p := range s.all {
		x := checker.Process{Name: p.name, Killed: p.killed, Frozen: p.frozen, Struck: slices.Concat(p.struck, s.watch.outages)}
		if err := journal.Read(p.journal, func(r journal.Record) { x.Records = append(x.Records, r) }); err != nil && !errors.Is(err, os.ErrNotExist) {
			return Result{}, err
		}
		h.Processes = append(h.Processes, x)
	}
	return Result{Report: checker.Check(h), History: h, Skipped: s.skipped, Bound: s.watch.bound(), Stalled: s.watch.stalled(), Unplanned: s.flips}, nil
}

// dismiss ends whoever still runs.
func (s *stage) dismiss() {
	for _, p := range s.playing() {
		p.kill("end")
	}
}

// playing returns the processes that have not ended.
func (s *stage) playing() []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.cast)
}

// healthy waits until every partition has an owner that can work.
func (s *stage) healthy(ctx context.Context, most time.Duration) bool {
	for end := time.Now().Add(most); time.Now().Before(end) && ctx.Err() == nil; {
		if s.watch.ok() {
			return true
		}
		pause(sample, ctx.Done())
	}
	return s.watch.ok()
}

// say tells people what happens, and when.
func (s *stage) say(format string, args ...any) {
	now := journal.Now()
	fmt.Fprintf(s.cfg.Log, "%8.2fs  %.3f  %s\n", (now - s.began).Seconds(), now.Seconds(), fmt.Sprintf(format, args...))
}

// trouble notes what must not happen.
func (s *stage) trouble(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	s.say("TROUBLE: %s", what)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.troubles = append(s.troubles, what)
}

// during is the kind of the fault that began last before t.
func (s *stage) during(t journal.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := "none"
	for _, f := range s.faults {
		if f.From <= t {
			kind = f.Kind
		}
	}
	return kind
}
