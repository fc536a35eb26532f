package redissource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// A counter counts what a client sends.
type counter struct{ n atomic.Int64 }

func (*counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// owners opens all partitions and has a Fetch wait in each. What is fetched goes to
// got, settled.
func owners(t *testing.T, s *Source, total int, got chan<- sources.Task) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var streams []sources.Stream
	for id := range partition.ID(total) {
		g := partition.Grant{ID: id, Epoch: 1}
		st, err := s.Open(ctx, g, partition.Token{Epoch: 1, Session: "s"})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, st)
		all.Go(func() {
			for {
				tasks, err := st.Fetch(ctx, 16)
				if err != nil {
					return
				}
				for _, task := range tasks {
					if err := st.Settle(ctx, sources.Settlement{Task: &task, Outcome: sources.Done, Attempt: 1}); err != nil {
						t.Error(err)
					}
					got <- task
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
		for _, st := range streams {
			if err := st.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestIdleCost(t *testing.T) {
	for _, one := range []bool{true, false} {
		for _, total := range []int{16, 256} {
			for _, delayed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d partitions, one server %v, tasks for tomorrow %v", total, one, delayed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						client := bubble(t, one)
						name := redistest.Name(t)
						s, err := New(client, name, Config{Partitions: total})
						if err != nil {
							t.Fatal(err)
						}
						var c counter
						client.AddHook(&c)
						owners(t, s, total, make(chan sources.Task, 1))
						for id := range partition.ID(total) {
							if delayed {
								client.ZAdd(t.Context(), KeysOf(name, id).Delayed, redis.Z{Score: float64(time.Now().Add(24 * time.Hour).UnixMilli()), Member: "x"})
								client.Publish(t.Context(), KeysOf(name, id).Bell, "")
							}
						}
						time.Sleep(10 * time.Second) // of the bubble: all is opened and quiet
						before := c.n.Load()
						time.Sleep(1000 * time.Second)
						if n := c.n.Load() - before; n > 1050 { // the sweep, and a look a minute at what is cancelled
							t.Errorf("%d commands in 1000 s", n)
						} else {
							t.Logf("%d commands in 1000 s", n)
						}
					})
				})
			}
		}
	}
}

// A push by a producer rings, so that its partition is looked at right away.
func TestBellWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := bubble(t, true)
		name := redistest.Name(t)
		s, err := New(client, name, Config{Partitions: 64})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan sources.Task, 100)
		owners(t, s, 64, got)
		p, err := NewProducer(t.Context(), client, name, ProducerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(context.Background())
		time.Sleep(10 * time.Second)
		for i := range 20 {
			time.Sleep(100*time.Millisecond + 7*time.Millisecond) // away from the sweeps
			pushed := time.Now()
			if _, err := p.Enqueue(t.Context(), Message{Key: fmt.Sprint("key", i), Delay: time.Duration(i%2) * 300 * time.Millisecond}); err != nil {
				t.Fatal(err)
			}
			<-got
			if took, want := time.Since(pushed), time.Duration(i%2)*300*time.Millisecond; took < want || took > want+5*time.Millisecond {
				t.Errorf("a task due in %v came after %v", want, took)
			}
		}
	})
}

// An aside is a client whose first subscription is at another server than all else, as at one that has left its cluster.
type aside struct {
	redis.UniversalClient
	other redis.UniversalClient
	subs  atomic.Int64
}

func (a *aside) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	if a.subs.Add(1) == 1 {
		return a.other.Subscribe(ctx, channels...)
	}
	return a.UniversalClient.Subscribe(ctx, channels...)
}

// The server at which a peer listens leaves the cluster and goes on: it answers, and no bell comes from there any more.
// Without bells a task waits for its turn of the sweep, a second for each partition.
func TestBellsComeFromWhereProducersRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &aside{UniversalClient: bubble(t, false), other: bubble(t, true)}
		name := redistest.Name(t)
		s, err := New(client, name, Config{Partitions: 64})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan sources.Task, 100)
		owners(t, s, 64, got)
		p, err := NewProducer(t.Context(), client, name, ProducerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(context.Background())
		time.Sleep(3 * listenFor)
		for i := range 20 {
			pushed := time.Now()
			if _, err := p.Enqueue(t.Context(), Message{Key: fmt.Sprint("key", i)}); err != nil {
				t.Fatal(err)
			}
			<-got
			if took := time.Since(pushed); took > 5*time.Millisecond {
				t.Errorf("a task came after %v", took)
			}
			time.Sleep(107 * time.Millisecond) // away from the sweeps
		}
		subs := client.subs.Load()
		time.Sleep(20 * listenFor) // nobody rings
		if n := client.subs.Load(); n != subs {
			t.Errorf("%d more subscriptions while the one that hears was silent", n-subs)
		}
	})
}

// Owners that hold as much as they may have no list to be swept, and nobody rings: the server is asked for a sign of life.
func TestSilenceIsNoLostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := bubble(t, false)
		alone := &aside{UniversalClient: client, other: client}
		s, err := New(alone, redistest.Name(t), Config{Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		st, err := s.Open(t.Context(), partition.Grant{Epoch: 1}, partition.Token{Epoch: 1, Session: "s"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * listenFor) // nobody fetches
		if n := alone.subs.Load(); n != 1 {
			t.Errorf("%d subscriptions, want the one that stands", n)
		}
		if err := st.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The store's clock is set forward while an owner that has nothing else to do waits for a delayed task: it comes by
// the clock that is, and not after the time that was left by the one before. Here the task's instant is set back
// instead, which is the same to both.
func TestAClockThatIsSetForwardMakesDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := bubble(t, true)
		name := redistest.Name(t)
		s, err := New(client, name, Config{Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan sources.Task, 1)
		owners(t, s, 1, got)
		p, err := NewProducer(t.Context(), client, name, ProducerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(context.Background())
		time.Sleep(5 * time.Second) // the sweep has asked before anything is delayed
		if _, err := p.Enqueue(t.Context(), Message{Delay: 30 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		delayed := KeysOf(name, 0).Delayed
		all := client.ZRange(t.Context(), delayed, 0, -1).Val()
		if len(all) != 1 {
			t.Fatalf("%d tasks are delayed", len(all))
		}
		client.ZAdd(t.Context(), delayed, redis.Z{Score: float64(time.Now().UnixMilli()), Member: all[0]})
		set := time.Now()
		<-got
		if took := time.Since(set); took > sweepEvery+10*time.Millisecond {
			t.Errorf("it came %v after it was due", took)
		}
	})
}

// What nobody rang for is found by the sweep: on one server within a second, on a
// cluster when its turn comes.
func TestSweepFinds(t *testing.T) {
	for _, one := range []bool{true, false} {
		t.Run(fmt.Sprintf("one server %v", one), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const total = 8
				client := bubble(t, one)
				name := redistest.Name(t)
				s, err := New(client, name, Config{Partitions: total})
				if err != nil {
					t.Fatal(err)
				}
				got := make(chan sources.Task, 100)
				owners(t, s, total, got)
				time.Sleep(10 * time.Second)
				worst := time.Second
				if !one {
					worst = total * time.Second
				}
				for id := range partition.ID(total) {
					pushed := time.Now()
					e := envelope{id: fmt.Sprint(id)}
					if err := client.RPush(t.Context(), KeysOf(name, id).Pending, appendEnvelope(nil, &e)).Err(); err != nil {
						t.Fatal(err)
					}
					<-got
					if took := time.Since(pushed); took > worst {
						t.Errorf("found after %v", took)
					}
				}
			})
		})
	}
}

// A fail-over loses the end of a task that was lifted. The list is as long as its
// owner knows it, nobody pushes, and on a cluster not even a connection has to break:
// an owner that waits learns of it by the number of writes.
func TestSweepFindsThatTheStoreForgot(t *testing.T) {
	for _, one := range []bool{true, false} {
		t.Run(fmt.Sprintf("one server %v", one), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, bubble(t, one), Config{Window: 1})
				w.push("a", "b")
				s := w.open()
				a := w.fetch(s, 1, "a")
				w.done(s, w.fetch(s, 1, "b")...)
				if n := w.client.HLen(t.Context(), w.keys.Lifted).Val(); n != 1 {
					t.Fatalf("%d are lifted, want a", n)
				}
				restore, err := snapshot(t.Context(), w.client, w.keys)
				if err != nil {
					t.Fatal(err)
				}
				w.done(s, a...)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				told := make(chan error, 1)
				go func() {
					_, err := s.Fetch(ctx, 1)
					told <- err
				}()
				synctest.Wait()
				if err := restore(ctx); err != nil {
					t.Fatal(err)
				}
				if err := <-told; !errors.Is(err, sources.ErrForgot) {
					t.Fatalf("an owner that waits was told %v", err)
				}
				w.fetch(w.open(), 1, "a")
			})
		})
	}
}

// A key that holds something else than a log's is told as such, and hides none of the others.
func TestSweepTellsEach(t *testing.T) {
	ctx, client, name := t.Context(), redistest.Single(t, redistest.New(t)), redistest.Name(t)
	var lists, fences []string
	for id := range partition.ID(4) {
		k := KeysOf(name, id)
		lists, fences = append(lists, k.Pending), append(fences, k.Fence)
	}
	client.Set(ctx, lists[0], "no list", 0)
	client.Set(ctx, fences[0], "no hash", 0)
	client.RPush(ctx, lists[1], "a", "b")
	client.HSet(ctx, fences[1], "n", 5)
	client.HSet(ctx, fences[2], "n", 6) // and there is none of the last
	got, err := sweepScript.Run(ctx, client, append(lists, fences...), len(lists), "").Text()
	if want := "-1 0 2 5 0 6 0 0 0"; err != nil || got != want {
		t.Errorf("told %q, %v, want %q", got, err, want)
	}
	due, later, wrong := KeysOf(name, 1).Delayed, KeysOf(name, 2).Delayed, lists[0] // a text
	client.ZAdd(ctx, due, redis.Z{Score: 1, Member: "x"})
	client.ZAdd(ctx, later, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: "x"})
	got, err = sweepScript.Run(ctx, client, append(append(lists, fences...), wrong, due, later), len(lists), trial, 4, 2, 3).Text()
	if want := "-1 0 -1 5 0 6 0 0 1"; err != nil || got != want {
		t.Errorf("with what is delayed: told %q, %v, want %q", got, err, want)
	}
}

// The owner of partitions in which there is nothing to do is told that their node does not answer: where
// the ledger is on another one nothing else would say so.
func TestWhoWaitsIsToldThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	for _, one := range []bool{true, false} {
		t.Run(fmt.Sprintf("one server %v", one), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var away atomic.Bool
				var client redis.UniversalClient = bubbleOver(t, func(c net.Conn) net.Conn { return awayConn{c, &away} })
				if !one {
					client = redistest.Careful(client.(*redis.Client))
				}
				s, err := New(client, "n", Config{Partitions: 1})
				if err != nil {
					t.Fatal(err)
				}
				st, err := s.Open(t.Context(), partition.Grant{Epoch: 1}, partition.Token{Epoch: 1, Session: "s"})
				if err != nil {
					t.Fatal(err)
				}
				told := make(chan error, 1)
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				go func() {
					_, err := st.Fetch(ctx, 1)
					told <- err
				}()
				time.Sleep(5 * time.Second)
				away.Store(true)
				if err := <-told; err == nil || ctx.Err() != nil {
					t.Errorf("a minute long nothing was told: %v", err)
				}
				away.Store(false)
				if err := st.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// An awayConn is one to a server that is away at times.
type awayConn struct {
	net.Conn
	away *atomic.Bool
}

func (c awayConn) Write(b []byte) (int, error) {
	if c.away.Load() {
		return 0, errors.New("the server is away")
	}
	return c.Conn.Write(b)
}
