package framework_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// A moody peer is as well as its switch says.
type moody struct {
	*framework.Consumer
	fleet  *fleet
	peer   string
	unwell atomic.Bool
}

var errDisk = errors.New("no room on the disk")

func (f *fleet) moody(peer string, opts ...framework.Option) *moody {
	f.t.Helper()
	m := &moody{fleet: f, peer: peer}
	m.start(append(opts, framework.WithHealth(func(context.Context) error {
		if m.unwell.Load() {
			return errDisk
		}
		return nil
	}))...)
	return m
}

// A peer that has not been well yet gets nothing, and is not ready: a deploy would go on to stop
// those that work.
func TestNotReadyBeforeTheFirstCheckHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		b := f.moody("ben")
		defer func() { _ = b.Stop(context.Background()) }()
		time.Sleep(20 * time.Second)
		well := make(chan struct{})
		a := f.checked("ann", func(ctx context.Context) error {
			select {
			case <-well:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		defer func() { _ = a.Stop(context.Background()) }()
		for range 300 {
			time.Sleep(10 * time.Millisecond)
			if a.Ready() == nil {
				t.Fatalf("ready before any check has passed, with %+v", a.View())
			}
		}
		close(well)
		until(t, 30*time.Second, func() bool { return a.served() == 2 && a.Ready() == nil })
	})
}

// checked is a peer whose health is what check says.
func (f *fleet) checked(peer string, check func(context.Context) error) *moody {
	f.t.Helper()
	m := &moody{fleet: f, peer: peer}
	m.start(framework.WithHealth(check))
	return m
}

func (m *moody) start(opts ...framework.Option) {
	f := m.fleet
	f.t.Helper()
	m.Consumer = f.consumer(m.peer, f.handler(m.peer, 0), opts...)
	if err := m.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func (m *moody) served() (n int) {
	for _, l := range m.Lanes() {
		if l.State == "serving" {
			n++
		}
	}
	return n
}

// checks is what was told of its checks.
func (m *moody) checks() (told []error) {
	for _, e := range eventsOf[framework.Checked](m.fleet, m.peer) {
		told = append(told, e.Err)
	}
	return told
}

func (m *moody) stop() {
	m.fleet.t.Helper()
	if err := m.Stop(context.Background()); err != nil {
		m.fleet.t.Error(err)
	}
}

func (f *fleet) seat(peer string) machine.Seat {
	f.t.Helper()
	census, err := f.ledger.Census(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, s := range census.Sessions {
		if s.Peer == peer {
			return s
		}
	}
	return machine.Seat{}
}

// A weight is changed while peers work: the share follows, to one partition.
func TestWeightChangesWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 60)
		a, b, c := f.moody("a"), f.moody("b", framework.WithPeer("b", 2)), f.moody("c")
		until(t, time.Minute, func() bool { return a.served() == 15 && b.served() == 30 && c.served() == 15 })
		if err := a.SetWeight(3); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, func() bool { return a.served() == 30 && b.served() == 20 && c.served() == 10 })
		if err := a.SetWeight(0); err == nil {
			t.Error("a weight of 0 is taken")
		}
		// It keeps the weight when it starts again.
		a.stop()
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, func() bool { return a.served() == 30 && b.served() == 20 && c.served() == 10 })
		// Of one that does not run the weight is that of its next run.
		a.stop()
		if err := a.SetWeight(2); err != nil {
			t.Fatal(err)
		}
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, func() bool { return a.served() == 24 && b.served() == 24 && c.served() == 12 })
		a.stop()
		b.stop()
		c.stop()
	})
}

// named does something in the moment in which a run makes its coordinator, who asks the
// strategy for its name.
type named struct {
	partition.Strategy
	during func()
}

func (n *named) Name() string {
	if during := n.during; during != nil {
		n.during = nil
		during()
	}
	return n.Strategy.Name()
}

// A weight that changes while there is nobody to tell yet is told as soon as there is.
func TestWeightChangesWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 60)
		strategy := &named{Strategy: partition.Sticky{}}
		a := f.consumer("a", f.handler("a", 0), framework.WithStrategy(strategy))
		strategy.during = func() {
			if err := a.SetWeight(3); err != nil {
				t.Error(err)
			}
		}
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, func() bool { return f.seat("a").Weight == 3 })
		if err := a.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A stop that finds nobody to tell yet ends the run before it takes part.
func TestStopWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		strategy := &named{Strategy: partition.Sticky{}}
		a := f.consumer("a", f.handler("a", 0), framework.WithStrategy(strategy))
		stopped := make(chan error, 1)
		strategy.during = func() {
			go func() { stopped <- a.Stop(context.Background()) }()
			synctest.Wait() // it waits for the end of the run now
		}
		began := time.Now()
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-stopped; err != nil || time.Since(began) > 0 {
			t.Errorf("stopped after %v: %v", time.Since(began), err)
		}
		if s := f.seat("a"); s.Session != "" {
			t.Errorf("it took part: %+v", s)
		}
	})
}

// Who is unwell keeps its session and index, gives its partitions away without losing a
// task, and gets a share back when it is well.
func TestUnwellPeerKeepsItsSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 16)
		a, b := f.moody("a"), f.moody("b")
		until(t, time.Minute, func() bool { return a.served() == 8 && b.served() == 8 })
		want := f.push(200, 40)
		seat, index := f.seat("a"), a.View().Index
		a.unwell.Store(true)
		until(t, 10*time.Second, func() bool { return a.served() == 0 && b.served() == 16 })
		if s := f.seat("a"); s.Session != seat.Session || !s.Unwell || s.State != machine.Live || a.View().Index != index {
			t.Errorf("it was %+v with index %d, and is %+v with index %d", seat, index, s, a.View().Index)
		}
		if err := a.Ready(); err == nil || !strings.Contains(err.Error(), errDisk.Error()) {
			t.Errorf("it is unwell and ready: %v", err)
		}
		a.unwell.Store(false)
		until(t, 20*time.Second, func() bool { return a.served() == 8 && b.served() == 8 && a.Ready() == nil })
		until(t, time.Minute, func() bool { return f.open() == 0 })
		f.checkOnceInOrder(want)
		for _, peer := range []string{"a", "b"} {
			if lost := eventsOf[framework.Lost](f, peer); len(lost) > 0 {
				t.Errorf("%s lost %d partitions", peer, len(lost))
			}
		}
		told := a.checks()
		if len(told) != 3 || told[0] != nil || !errors.Is(told[1], errDisk) || told[2] != nil {
			t.Errorf("the checks told %v", told)
		}
		a.stop()
		b.stop()
	})
}

// A check that flips every three seconds moves a share once at most, and nothing back and forth.
func TestFlippingHealthMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 16)
		a, b := f.moody("a"), f.moody("b")
		until(t, time.Minute, func() bool { return a.served() == 8 && b.served() == 8 })
		drained := func() int {
			return len(eventsOf[framework.Drained](f, "a")) + len(eventsOf[framework.Drained](f, "b"))
		}
		before := drained()
		for range 100 {
			a.unwell.Store(!a.unwell.Load())
			time.Sleep(3 * time.Second)
		}
		if moved := drained() - before; moved > 8 {
			t.Errorf("%d partitions moved in 100 flips", moved)
		}
		a.stop()
		b.stop()
	})
}

// Where nobody is well each works on what it has; what a dead one had waits, and is told.
func TestNobodyIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 16)
		cut := &cutLedger{Ledger: f.ledger}
		a, b := f.moody("a"), f.moody("b", framework.WithLedger(cut))
		until(t, time.Minute, func() bool { return a.served() == 8 && b.served() == 8 })
		a.unwell.Store(true)
		b.unwell.Store(true)
		time.Sleep(time.Minute)
		if a.served() != 8 || b.served() != 8 {
			t.Errorf("they serve %d and %d", a.served(), b.served())
		}
		cut.off.Store(true)
		time.Sleep(30 * time.Second)
		if a.served() != 8 {
			t.Errorf("a is unwell, and serves %d", a.served())
		}
		a.unwell.Store(false)
		until(t, time.Minute, func() bool { return a.served() == 16 })
		cut.off.Store(false)
		a.stop()
		b.stop()
	})
}

// An indexer that does not ask who is well, and knows no weights, tags and barrier, is not
// silently taken: what cannot be had with it is said at once.
func TestWhatOnlyTheRollsHave(t *testing.T) {
	counted := func(f *fleet) framework.Option {
		return framework.WithControl(func(partition.Config) (transition.Ledger, partition.Indexer, error) {
			return f.ledger, noIndexer{}, nil
		})
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		a := f.moody("a", counted(f), framework.WithPeer("a", 3), framework.WithTags("gpu"), framework.WithBarrier())
		<-a.Done()
		for _, want := range []string{"health check", "weight 3", "tags gpu", "barrier"} {
			if err := a.Err(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("it ended with %v, want it to name the %s", err, want)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		a := f.consumer("a", f.handler("a", 0), counted(f))
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := a.SetWeight(2); err == nil || !strings.Contains(err.Error(), "counts every peer once") {
			t.Errorf("a weight of 2: %v", err)
		}
		if err := a.SetWeight(1); err != nil {
			t.Errorf("a weight of 1: %v", err)
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// noIndexer never says anything.
type noIndexer struct{ partition.Indexer }

func (noIndexer) Index(ctx context.Context, _ func(partition.View)) error {
	<-ctx.Done()
	return nil
}

// A health check that panics says that the peer is unwell, and what it was that panicked.
func TestAHealthCheckThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		c := f.consumer("ann", f.handler("ann", 0), framework.WithHealth(func(context.Context) error { panic("no such disk") }))
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		told := eventsOf[framework.Checked](f, "ann")
		if len(told) != 1 || told[0].Err == nil || told[0].Err.Error() != "the health check panicked: no such disk" {
			t.Errorf("told %v", told)
		}
		if err := c.Ready(); err == nil || !strings.Contains(err.Error(), "no such disk") {
			t.Errorf("ready: %v", err)
		}
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A health check that waits for what does not answer, as a file of a server that is gone,
// and does not hear the end of its context, says that the peer is unwell.
func TestAHealthCheckThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 16)
		var hangs atomic.Bool
		release := make(chan struct{})
		a := f.checked("a", func(context.Context) error {
			if hangs.Load() {
				<-release
			}
			return nil
		})
		b := f.moody("b")
		until(t, time.Minute, func() bool { return a.served() == 8 && b.served() == 8 })
		hangs.Store(true)
		until(t, 15*time.Second, func() bool { return a.served() == 0 && b.served() == 16 })
		if err := a.Ready(); err == nil || !strings.Contains(err.Error(), "unwell: the health check has not returned in time") {
			t.Errorf("ready: %v", err)
		}
		hangs.Store(false)
		close(release)
		until(t, 20*time.Second, func() bool { return a.served() == 8 && b.served() == 8 && a.Ready() == nil })
		told := a.checks()
		if len(told) != 3 || told[0] != nil || told[1] == nil || told[2] != nil {
			t.Errorf("the checks told %v", told)
		}
		a.stop()
		b.stop()
	})
}

// A health check that does not hear the end of its context holds nothing that has to be handed
// over: a stop waits for it as long as for a handler that was cancelled, and leaves it behind.
func TestAStopLeavesAHungHealthCheckBehind(t *testing.T) {
	for what, pause := range map[string]time.Duration{"it is not late yet": 0, "it is late": 10 * time.Second} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 4)
				hangs, release := make(chan struct{}, 1), make(chan struct{})
				a := f.checked("a", func(context.Context) error {
					hangs <- struct{}{}
					<-release
					return nil
				})
				defer close(release)
				<-hangs
				time.Sleep(pause)
				stopped := make(chan error, 1)
				go func() { stopped <- a.Stop(context.Background()) }()
				select {
				case err := <-stopped:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(2 * time.Second):
					t.Error("the stop waits for the check")
				}
			})
		})
	}
}

// A health check that ends its goroutine, as testing's FailNow does, has failed, and is
// asked again.
func TestAHealthCheckThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		a := f.moody("a")
		var calls atomic.Int64
		b := f.checked("b", func(context.Context) error {
			if calls.Add(1) < 5 {
				runtime.Goexit()
			}
			return nil
		})
		time.Sleep(time.Minute)
		told := b.checks()
		if len(told) != 2 || told[0] == nil || told[1] != nil {
			t.Errorf("the checks told %v", told)
		}
		a.stop()
		b.stop()
	})
}
