package framework_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
)

// sharers are peers that share rows without a source.
type sharers struct {
	t      *testing.T
	layout partition.Config
	ledger *memledger.Ledger
	all    sync.WaitGroup

	mu   sync.Mutex
	busy map[string]string // by row: who works on it
	done map[string]int    // by row
}

func newSharers(t *testing.T, partitions int) *sharers {
	layout := partition.Config{Total: partitions}
	return &sharers{
		t: t, layout: layout, ledger: memledger.New(layout, transition.Timing{}, memledger.Options{}),
		busy: map[string]string{}, done: map[string]int{},
	}
}

func (s *sharers) cfg(peer string) framework.ShareConfig {
	return framework.ShareConfig{Ledger: s.ledger, Partitions: s.layout, Peer: peer}
}

// start returns a peer that runs until stop is called.
func (s *sharers) start(peer string) (share *framework.Share, stop context.CancelFunc) {
	s.t.Helper()
	share, err := framework.NewShare("rows", s.cfg(peer))
	if err != nil {
		s.t.Fatal(err)
	}
	run, stop := context.WithCancel(context.Background())
	s.all.Go(func() {
		if err := share.Run(run); err != nil {
			s.t.Errorf("%s: %v", peer, err)
		}
	})
	return share, stop
}

// run is a peer that polls rows until ctx ends.
func (s *sharers) run(ctx context.Context, peer string, rows int) {
	s.t.Helper()
	share, stop := s.start(peer)
	s.all.Go(func() {
		defer stop()
		for ctx.Err() == nil {
			for row := range rows {
				if a, ok := share.Admit(ctx, fmt.Sprint(row)); ok {
					s.work(a, peer, fmt.Sprint(row))
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

func (s *sharers) work(a *framework.Admission, peer, row string) {
	defer a.Release()
	s.mu.Lock()
	if other := s.busy[row]; other != "" {
		s.t.Errorf("%s and %s work on row %s at once", peer, other, row)
	}
	s.busy[row] = peer
	s.mu.Unlock()
	select {
	case <-time.After(20 * time.Millisecond):
	case <-a.Context().Done():
	}
	time.Sleep(10 * time.Millisecond) // what must be put in order
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[row] = ""
	s.done[row]++
}

// Peers come and go: each row is worked on all the time, and by one of them at a time.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharers(t, 8)
		const rows = 20
		ann, stopAnn := context.WithCancel(t.Context())
		bob, stopBob := context.WithCancel(t.Context())
		s.run(ann, "ann", rows)
		time.Sleep(30 * time.Second)
		s.run(bob, "bob", rows)
		time.Sleep(30 * time.Second)
		stopAnn()
		time.Sleep(30 * time.Second)
		s.mu.Lock()
		for row := range rows {
			if n := s.done[fmt.Sprint(row)]; n < 20 {
				t.Errorf("row %d was worked on %d times", row, n)
			}
		}
		s.mu.Unlock()
		stopBob()
		s.all.Wait()
	})
}

// What is admitted ends when it is to be another's, and is waited for.
func TestAnAdmissionEndsBeforeItsPartitionMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharers(t, 1)
		patience, over := context.WithTimeout(t.Context(), time.Hour)
		defer over()
		ann, err := framework.NewShare("rows", s.cfg("ann"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ann.Run(ctx) }()
		a, err := ann.Await(patience, "row")
		if err != nil {
			t.Fatal(err)
		}
		bob, err := framework.NewShare("rows", s.cfg("bob"))
		if err != nil {
			t.Fatal(err)
		}
		bobs, stopBob := context.WithCancel(t.Context())
		bobEnded := make(chan error, 1)
		go func() { bobEnded <- bob.Run(bobs) }()
		time.Sleep(20 * time.Second)
		if a.Context().Err() != nil || bob.Has("row") {
			t.Error("the partition moved although nobody left")
		}
		other, ok := ann.Admit(t.Context(), "row")
		if !ok {
			t.Fatal("not admitted a second time")
		}
		other.Release()
		other.Release() // is not that of a
		stop()
		<-a.Context().Done()
		waited := make(chan time.Time, 1)
		go func() {
			time.Sleep(time.Second / 2)
			if _, err := ann.Await(patience, "row"); !errors.Is(err, framework.ErrStopped) {
				t.Errorf("who waited for it was told %v", err)
			}
			waited <- time.Now()
		}()
		if cause := context.Cause(a.Context()); !errors.Is(cause, framework.ErrHandedOver) {
			t.Errorf("it ended because of %v", cause)
		}
		time.Sleep(5 * time.Second)
		if bob.Has("row") {
			t.Error("bob has it, and ann has not released it")
		}
		if _, ok := ann.Admit(t.Context(), "row"); ok {
			t.Error("it is admitted again while it is handed over")
		}
		a.Release()
		released := time.Now()
		b, err := bob.Await(patience, "row")
		if err != nil || b.Token.Epoch <= a.Token.Epoch {
			t.Errorf("bob was given %+v, %v, after %v", b, err, a.Token)
		}
		if took := time.Since(released); took > 100*time.Millisecond {
			t.Errorf("bob was told after %v", took)
		}
		b.Release()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if late := (<-waited).Sub(released); late > 100*time.Millisecond {
			t.Errorf("who waited was told %v after the end", late)
		}
		if _, err := ann.Await(patience, "row"); !errors.Is(err, framework.ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
		stopBob()
		if err := <-bobEnded; err != nil {
			t.Error(err)
		}
	})
}

// An admission that is never released keeps its partition until the lease runs out, and
// Run says so.
func TestAnAdmissionThatIsNotReleasedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharers(t, 1)
		share, err := framework.NewShare("rows", s.cfg("ann"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- share.Run(ctx) }()
		a, err := share.Await(t.Context(), "row")
		if err != nil {
			t.Fatal(err)
		}
		stop()
		asked := time.Now()
		err = <-ended
		if _, ok := errors.AsType[*transition.StuckError](err); !ok {
			t.Errorf("run returned %v", err)
		}
		times := transition.Timing{}.WithDefaults()
		if took := time.Since(asked); took > times.Shutdown+times.CancelGrace+time.Second {
			t.Errorf("it was waited for for %v", took)
		}
		a.Release()
	})
}

// An admission's context ends with the one that Admit was given, and when it is released; who comes
// with one that has ended is given nothing to release.
func TestWhatEndsAnAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharers(t, 1)
		share, stop := s.start("ann")
		a, err := share.Await(t.Context(), "row")
		if err != nil {
			t.Fatal(err)
		}
		a.Release()
		if cause := context.Cause(a.Context()); !errors.Is(cause, context.Canceled) {
			t.Errorf("after the release its context ends with %v", cause)
		}

		why := errors.New("out of time")
		ctx, end := context.WithCancelCause(t.Context())
		a, ok := share.Admit(ctx, "row")
		if !ok || a.Context().Err() != nil {
			t.Fatalf("admitted %t", ok)
		}
		end(why)
		if cause := context.Cause(a.Context()); cause != why {
			t.Errorf("with the context that it was given it ends with %v", cause)
		}
		a.Release()
		if a, ok := share.Admit(ctx, "row"); ok {
			t.Error("admitted with a context that has ended")
			a.Release()
		}
		if _, err := share.Await(ctx, "row"); !errors.Is(err, context.Canceled) {
			t.Errorf("waited for with a context that has ended: %v", err)
		}
		stop()
		s.all.Wait()
	})
}

// A partition may stay for months: nothing stays with it of what was released.
func TestAReleasedAdmissionLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharers(t, 1)
		share, stop := s.start("ann")
		a, err := share.Await(t.Context(), "row")
		if err != nil {
			t.Fatal(err)
		}
		a.Release()
		held := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapObjects
		}
		before := held()
		const n = 5000
		for range n {
			if a, ok := share.Admit(t.Context(), "row"); ok {
				a.Release()
			}
		}
		if after := held(); after > before+n {
			t.Errorf("%d admissions left %d objects", n, after-before)
		}
		stop()
		s.all.Wait()
	})
}

// A share runs once: who runs it again is told, and the first run is left alone.
func TestAShareRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		share, err := framework.NewShare("rows", newSharers(t, 1).cfg("ann"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- share.Run(ctx) }()
		synctest.Wait()
		if err := share.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "once") {
			t.Errorf("a second run beside the first: %v", err)
		}
		a, err := share.Await(t.Context(), "row")
		if err != nil {
			t.Fatalf("the first run was ended by the second: %v", err)
		}
		a.Release()
		if v := share.View(); v.Index != 0 || v.Replicas != 1 {
			t.Errorf("it runs with the view %+v", v)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if v := share.View(); v.Version != 0 || v.Index != -1 || v.Replicas != 0 || v.Wish != nil {
			t.Errorf("ended, it has the view %+v: another peer may have the index", v)
		}
		if err := share.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "once") {
			t.Errorf("a second run after the first: %v", err)
		}
	})
}

// A key that the hash has no place for is waited for in vain, and nobody waits.
func TestAwaitOfAKeyThatIsNobodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		layout := partition.Config{Total: 4, Hash: partition.ByID}
		cfg := framework.ShareConfig{Ledger: memledger.New(layout, transition.Timing{}, memledger.Options{}), Partitions: layout}
		share, err := framework.NewShare("rows", cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := share.Await(ctx, "row"); err == nil || !strings.Contains(err.Error(), `"row"`) {
			t.Errorf("it was waited for: %v", err)
		}

		layout.Total = 1
		cfg = framework.ShareConfig{Ledger: memledger.New(layout, transition.Timing{}, memledger.Options{}), Partitions: layout}
		runs := 0
		if err := framework.Single(ctx, "backup", cfg, func(context.Context, partition.Token) error {
			runs++
			stop()
			return nil
		}, nil); err != nil || runs != 1 {
			t.Errorf("one job: %v, after %d runs", err, runs)
		}
	})
}

// Who waits for what is another's sleeps until it is served here: a peer has as many who wait as
// there are units in the whole name.
func TestWaitingForWhatIsAnothersCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		layout := partition.Config{Total: 4}
		share, err := framework.NewShare("sites", framework.ShareConfig{Ledger: memledger.New(layout, transition.Timing{}, memledger.Options{}), Partitions: layout})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		for i := range 100 {
			go func() { _, _ = share.Await(ctx, fmt.Sprint(i)) }()
		}
		synctest.Wait()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		time.Sleep(time.Hour)
		runtime.ReadMemStats(&after)
		if n := after.Mallocs - before.Mallocs; n > 10_000 {
			t.Errorf("100 who wait for an hour allocate %d times", n)
		}
		stop()
	})
}

// A hearing ledger keeps the first word of its peer.
type hearing struct {
	transition.Ledger
	first atomic.Pointer[machine.Request]
	last  atomic.Pointer[machine.Request]
}

func (l *hearing) Sync(ctx context.Context, r machine.Request) (machine.Answer, error) {
	l.first.CompareAndSwap(nil, &r)
	l.last.Store(&r)
	return l.Ledger.Sync(ctx, r)
}

// What a share is told of its peer is what the ledger hears, and a peer with a health check is not well
// before it has passed; it is asked once a beat.
func TestAShareIsThePeerItWasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharers(t, 1)
		ledger := &hearing{Ledger: s.ledger}
		cfg := s.cfg("ann")
		cfg.Ledger, cfg.Weight, cfg.Tags, cfg.Barrier = ledger, 3, "gpu", true
		var asked, told, coordinated atomic.Int32
		cfg.Health = func(context.Context) error { asked.Add(1); return nil }
		cfg.Observer = framework.ObserverFunc(func(e framework.Event) {
			if e, ok := e.(framework.Checked); ok && e.Consumer == "rows" && e.Err == nil {
				told.Add(1)
			}
			if e, ok := e.(framework.Coordinated); ok && e.Consumer == "rows" && e.Event != nil {
				coordinated.Add(1)
			}
		})
		share, err := framework.NewShare("rows", cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		s.all.Go(func() {
			if err := share.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		const beats = 20
		time.Sleep(beats * transition.Timing{}.WithDefaults().Beat())
		a, ok := share.Admit(t.Context(), "row")
		if !ok {
			t.Fatal("a peer that is well has nothing")
		}
		a.Release()
		r := ledger.first.Load()
		if want := (partition.Token{Epoch: a.Grant.Epoch, Session: r.Session}); a.Token != want || a.Grant.Epoch == 0 {
			t.Errorf("admitted under %+v of %+v, want %+v", a.Token, a.Grant, want)
		}
		share.SetWeight(5)
		if r.Peer != "ann" || r.Weight != 3 || r.Tags != "gpu" || !r.Barrier || !r.Unwell || r.Strategy != (partition.Modulo{}).Name() {
			t.Errorf("the ledger heard first: %+v", *r)
		}
		if n := asked.Load(); n < beats-2 || n > beats+2 {
			t.Errorf("asked how it is %d times in %d beats", n, beats)
		}
		if n := told.Load(); n != 1 {
			t.Errorf("told %d times that it is well", n)
		}
		time.Sleep(2 * transition.Timing{}.WithDefaults().Beat())
		if n := ledger.last.Load().Weight; n != 5 {
			t.Errorf("the ledger hears of a weight of %d, want 5", n)
		}
		stop()
		s.all.Wait()
		if coordinated.Load() == 0 {
			t.Error("the observer hears of no change")
		}
		if n := asked.Load(); n > beats+5 {
			t.Errorf("asked on after the end, %d times", n)
		}
	})
}

// An indexer says what is a share's, and not the rolls of its ledger.
func TestAShareOfAnIndexer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharers(t, 1)
		cfg := s.cfg("ann")
		cfg.Indexer = noIndexer{}
		share, err := framework.NewShare("rows", cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		s.all.Go(func() {
			if err := share.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(20 * time.Second)
		if a, ok := share.Admit(t.Context(), "row"); ok {
			t.Error("admitted, and the indexer has said nothing")
			a.Release()
		}
		stop()
		s.all.Wait()
	})
}

// Work that ends since its peer stops is told so.
func TestAnAdmissionSaysThatItsPeerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharers(t, 1)
		ann, stop := s.start("ann")
		a, err := ann.Await(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		stop()
		<-a.Context().Done()
		if cause := context.Cause(a.Context()); !errors.Is(cause, framework.ErrLeaving) {
			t.Errorf("it ended with %v, want that the peer stops", cause)
		}
		a.Release()
		s.all.Wait()
	})
}

// A share that is told no layout has the default one.
func TestAShareOfTheDefaultLayout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharers(t, 0)
		ann, stop := s.start("ann")
		a, err := ann.Await(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		if want, err := partition.XXHash64.Of("key", 256); err != nil || a.Grant.ID != want {
			t.Errorf("the key is of partition %d, want %d of 256 (%v)", a.Grant.ID, want, err)
		}
		a.Release()
		stop()
		s.all.Wait()
	})
}

func TestShareSaysAllThatIsWrong(t *testing.T) {
	_, err := framework.NewShare("a b", framework.ShareConfig{Partitions: partition.Config{Total: -1}})
	for _, want := range []string{`name "a b"`, "no ledger", "-1 partitions"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not said: %v", want, err)
		}
	}
	for line := range strings.Lines(err.Error()) {
		if !strings.HasPrefix(line, `share "a b": `) {
			t.Errorf("%q does not say whose it is", line)
		}
	}
}

// A share has the times it was told, and they must be the ledger's.
func TestAShareOfOtherTimesIsRefused(t *testing.T) {
	timing := transition.Timing{Lease: 7 * time.Second}
	ledger := memledger.New(partition.Config{Total: 8}, timing, memledger.Options{})
	cfg := framework.ShareConfig{Ledger: ledger, Partitions: partition.Config{Total: 8}, Timing: timing}
	if _, err := framework.NewShare("rows", cfg); err != nil {
		t.Error(err)
	}
	cfg.Timing = transition.Timing{}
	if _, err := framework.NewShare("rows", cfg); !errors.Is(err, transition.ErrTimes) {
		t.Errorf("with a lease of 10 s at a ledger with one of 7 s: %v", err)
	}
}

// Of two peers with two layouts both would take a key for their own, or none.
func TestAShareOfAnotherLayoutIsRefused(t *testing.T) {
	ledger := memledger.New(partition.Config{Total: 8, Units: []string{"a"}}, transition.Timing{}, memledger.Options{})
	for want, layout := range map[string]partition.Config{
		"":                                     {Total: 8, Units: []string{"a"}},
		"the peer has 256":                     {Units: []string{"a"}},
		"the peer has 8 partitions by murmur2": {Total: 8, Units: []string{"a"}, Hash: partition.Murmur2},
		"units [\"b\"]":                        {Total: 8, Units: []string{"b"}},
	} {
		_, err := framework.NewShare("invoices", framework.ShareConfig{Ledger: ledger, Partitions: layout})
		if want == "" && err != nil || want != "" && (!errors.Is(err, transition.ErrLayout) || !strings.Contains(err.Error(), want)) {
			t.Errorf("a share with %+v at a ledger for 8 partitions and the unit a: %v, want %q", layout, err, want)
		}
	}
}

// A job's partition is there whatever the ledger was made for: the default is 256.
func TestSingleWithTheDefaultLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		ledger := memledger.New(partition.Config{}, transition.Timing{}, memledger.Options{})
		ran := false
		err := framework.Single(ctx, "backup", framework.ShareConfig{Ledger: ledger}, func(context.Context, partition.Token) error {
			ran = true
			stop()
			return nil
		}, nil)
		if err != nil || !ran {
			t.Errorf("the job ran: %v, and %v", ran, err)
		}
	})
}

// One peer runs the job; when it leaves, or fails, it goes on, once at a time.
func TestSingle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharers(t, 1)
		var mu sync.Mutex
		running, runs := "", []string{}
		var told []error // by the observer
		peer := func(ctx context.Context, name string, d time.Duration) {
			s.all.Go(func() {
				err := framework.Single(ctx, "backup", s.cfg(name), func(ctx context.Context, tok partition.Token) error {
					mu.Lock()
					if running != "" {
						t.Errorf("%s and %s run at once", name, running)
					}
					running = name
					runs = append(runs, fmt.Sprint(name, " ", tok.Epoch > 0))
					mu.Unlock()
					defer func() {
						mu.Lock()
						running = ""
						mu.Unlock()
					}()
					select {
					case <-ctx.Done():
						return nil
					case <-time.After(d):
						panic("out of disk")
					}
				}, func(err error) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, err)
				})
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		first, leave := context.WithCancel(t.Context())
		second, stop := context.WithCancel(t.Context())
		peer(first, "ann", 15*time.Second) // fails now and then
		time.Sleep(20 * time.Second)
		peer(second, "bob", time.Hour)
		time.Sleep(20 * time.Second)
		leave()
		time.Sleep(20 * time.Second)
		mu.Lock()
		if running != "bob" || len(runs) < 3 || runs[1] != "ann true" || runs[len(runs)-1] != "bob true" {
			t.Errorf("%s runs, after %v", running, runs)
		}
		if _, ok := errors.AsType[*framework.PanicError](told[0]); !ok || told[0].Error() != "the job panicked: out of disk" {
			t.Errorf("the panic was told as %v", told[0])
		}
		mu.Unlock()
		stop()
		s.all.Wait()
		if err := framework.Single(t.Context(), "backup", framework.ShareConfig{}, nil, nil); err == nil {
			t.Error("no job is taken")
		}
	})
}
