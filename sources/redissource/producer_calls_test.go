package redissource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// Only what did not leave this process was never sent. What a broken connection says may be of a push that
// was executed: given another position it would be doubled.
func TestNeverSent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{fmt.Errorf("push: %w", &net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}), true},
		{redis.ErrPoolTimeout, true},
		{redis.ErrPoolExhausted, true},
		{redis.ErrClosed, true},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, false},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, false},
		{io.EOF, false},
		{context.DeadlineExceeded, false},
	} {
		if got := neverSent(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// Never earlier than was asked for: the store counts milliseconds.
func TestSpecialRoundsUp(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_700_000_000_000)
	for _, c := range []struct {
		m    Message
		want int64
	}{
		{Message{At: at}, at.UnixMilli()}, {Message{At: at.Add(1)}, at.UnixMilli() + 1}, {Message{At: at.Add(time.Millisecond - 1)}, at.UnixMilli() + 1},
		{Message{Delay: time.Millisecond}, 1}, {Message{Delay: 1}, 1}, {Message{Delay: time.Millisecond + 1}, 2},
	} {
		if s := specialOf(&c.m, &envelope{}); s.ms != c.want {
			t.Errorf("at %v, a delay of %v: %d, want %d", c.m.At, c.m.Delay, s.ms, c.want)
		}
	}
}

// A batch is repeated for those who still wait, also with messages whose own time has ended: what comes for these changes
// nothing, and counts for no other message of their call.
func TestWhatWasToldStays(t *testing.T) {
	t.Parallel()
	c := &call{items: make([]item, 2), results: make([]Result, 2), left: 2, done: make(chan struct{})}
	a, b := &c.items[0], &c.items[1]
	b.n = 1
	c.finish(a, false, ErrUnknown)
	c.finish(a, true, nil)
	select {
	case <-c.done:
		t.Error("it has ended before all were told")
	default:
	}
	c.finish(b, false, nil)
	<-c.done
	if results, err := c.answer(); !errors.Is(results[0].Err, ErrUnknown) || results[0].Duplicate || results[1].Err != nil || !errors.Is(err, ErrUnknown) {
		t.Errorf("%+v: %v", results, err)
	}
}

// Calls that overlap travel together.
func TestCallsTravelTogether(t *testing.T) {
	bothWays(t, func(t *testing.T, client redis.UniversalClient) {
		name := redistest.Name(t)
		total := 4
		if _, ok := client.(*redis.ClusterClient); ok {
			total = 1 // calls for partitions of one node travel together: more might be on several
		}
		p := newProducer(t, client, name, ProducerConfig{Partitions: total})
		if _, err := p.Enqueue(t.Context(), Message{Key: "the store learns the script"}); err != nil {
			t.Fatal(err)
		}
		hold := newHold()
		free := sync.OnceFunc(func() { close(hold.free) })
		defer free() // also if the test fails: the producer's end waits for it
		client.AddHook(hold)
		var wg sync.WaitGroup
		const callers = 50
		enqueue := func(i int) {
			defer wg.Done()
			if _, err := p.Enqueue(t.Context(), Message{ID: fmt.Sprint(i), Key: fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		}
		wg.Add(1)
		go enqueue(0)
		<-hold.held // the first pipeline is under way
		wg.Add(callers)
		for i := range callers {
			go enqueue(i + 1)
		}
		eventually(t, func() bool { return waitingIn(p) == callers })
		free()
		wg.Wait()
		if n := hold.pipelines.Load(); n != 2 {
			t.Errorf("%d pipelines for 1 + %d calls, want 2", n, callers)
		}
		n := 0
		for id := range partition.ID(total) {
			n += len(logOf(t, client, name, id))
		}
		if n != callers+2 {
			t.Errorf("%d tasks, want %d", n, callers+2)
		}
	})
}

// waitingIn returns how many messages wait in the lanes of p.
func waitingIn(p *Producer) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, l := range p.lanes {
		l.mu.Lock()
		for _, q := range l.tracks {
			n += len(q.waiting)
		}
		l.mu.Unlock()
	}
	return n
}

// A caller that goes while its message waits takes it along; one whose message is
// under way is told that nobody knows.
func TestEnqueueEndsWithItsContext(t *testing.T) {
	bothWays(t, func(t *testing.T, client redis.UniversalClient) {
		name := redistest.Name(t)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
		hold := newHold()
		client.AddHook(hold)
		ctx, cancel := context.WithCancel(t.Context())
		type answer struct {
			results []Result
			err     error
		}
		enqueue := func(id string) chan answer {
			ch := make(chan answer, 1)
			go func() {
				r, err := p.Enqueue(ctx, Message{ID: id})
				ch <- answer{r, err}
			}()
			return ch
		}
		sent := enqueue("sent")
		<-hold.held
		waiting := enqueue("waiting")
		eventually(t, func() bool { return waitingIn(p) == 1 })
		cancel()
		if a := <-sent; !errors.Is(a.results[0].Err, ErrUnknown) || !errors.Is(a.err, context.Canceled) {
			t.Errorf("under way: %+v", a)
		}
		if a := <-waiting; errors.Is(a.err, ErrUnknown) || !errors.Is(a.results[0].Err, context.Canceled) {
			t.Errorf("waiting: %+v", a)
		}
		close(hold.free)
		if _, err := p.Enqueue(t.Context(), Message{ID: "next"}); err != nil {
			t.Fatal(err)
		}
		if ids := idsOf(logOf(t, client, name, 0)); !slices.Equal(ids, []string{"sent", "next"}) {
			t.Errorf("log %v", ids)
		}
	})
}

func TestCloseWaitsAndRefuses(t *testing.T) {
	bothWays(t, func(t *testing.T, client redis.UniversalClient) {
		name := redistest.Name(t)
		p, err := NewProducer(t.Context(), client, name, ProducerConfig{Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		hold := newHold()
		client.AddHook(hold)
		errs := make(chan error, 2)
		enqueue := func() {
			_, err := p.Enqueue(t.Context(), Message{})
			errs <- err
		}
		go enqueue()
		<-hold.held
		go enqueue()
		eventually(t, func() bool { return waitingIn(p) == 1 })
		closed := make(chan error)
		go func() { closed <- p.Close(context.Background()) }()
		eventually(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.closed })
		if _, err := p.Enqueue(t.Context(), Message{}); !errors.Is(err, sources.ErrClosed) || !strings.Contains(err.Error(), "the producer of "+name) {
			t.Errorf("after Close: %v", err)
		}
		select {
		case <-closed:
			t.Error("Close did not wait")
		default:
		}
		close(hold.free)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if n := len(logOf(t, client, name, 0)); n != 2 {
			t.Errorf("%d tasks, want 2", n)
		}
	})
}

// Whatever the network does, each message of a call that succeeded is in its
// partition's log exactly once, each that failed at most once, and never one that
// was said not to be enqueued; messages of a key keep their order.
func TestEnqueueOnceWhateverTheNetworkDoes(t *testing.T) {
	const total, callers, calls = 3, 4, 15
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			client, name := redistest.New(t), redistest.Name(t)
			if seed%2 == 1 {
				client = redistest.Single(t, client)
			}
			p := newProducer(t, client, name, ProducerConfig{Partitions: total})
			f := newFaults(seed, 0.3)
			client.AddHook(f)
			var mu sync.Mutex
			outcome := map[string]error{}
			var wg sync.WaitGroup
			for caller := range callers {
				wg.Go(func() {
					for n := range calls {
						messages := make([]Message, 1+n%3)
						for i := range messages {
							messages[i] = Message{ID: fmt.Sprintf("%d-%03d-%d", caller, n, i), Key: fmt.Sprint(caller)}
						}
						results, _ := p.Enqueue(t.Context(), messages...)
						mu.Lock()
						for _, r := range results {
							outcome[r.ID] = r.Err
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			f.calm()
			if f.n == 0 {
				t.Error("no faults were made")
			}
			found := map[string]int{}
			for id := range partition.ID(total) {
				last := map[string]string{}
				for _, e := range logOf(t, client, name, id) {
					found[e.id]++
					if partition.Of(e.key, total) != id {
						t.Errorf("%s is in partition %v", e.id, id)
					}
					if e.id <= last[e.key] {
						t.Errorf("%s comes after %s", e.id, last[e.key])
					}
					last[e.key] = e.id
				}
			}
			for id, err := range outcome {
				n := found[id]
				switch {
				case err == nil && n != 1:
					t.Errorf("%s was enqueued and is there %d times", id, n)
				case errors.Is(err, ErrUnknown) && n > 1, err != nil && !errors.Is(err, ErrUnknown) && n > 0:
					t.Errorf("%s is there %d times after: %v", id, n, err)
				}
			}
			if len(outcome) != callers*30 {
				t.Errorf("%d outcomes", len(outcome))
			}
		})
	}
}

// The answers of a repeated push are those of the first.
func TestLostAnswerIsRepeated(t *testing.T) {
	bothWays(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, name := t.Context(), redistest.Name(t)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 1, MaxBacklog: 2})
		lose := &loseOnce{}
		client.AddHook(lose)
		u := Message{ID: "u", Unique: true}
		results, err := p.Enqueue(ctx, u, u, Message{}, Message{})
		if !errors.Is(err, ErrBacklog) || results[0].Duplicate || results[0].Err != nil || !results[1].Duplicate ||
			results[2].Err != nil || !errors.Is(results[3].Err, ErrBacklog) || lose.lost.Load() != 1 {
			t.Errorf("%+v, %v, %d lost", results, err, lose.lost.Load())
		}
		if n := len(logOf(t, client, name, 0)); n != 2 {
			t.Errorf("%d tasks, want 2", n)
		}
	})
}

// A lostThenSlow executes the first pipeline and loses its answer, when during has been called; the next one takes so long
// that nobody waits for anything any more.
type lostThenSlow struct {
	during func()
	slow   time.Duration
	n      int
}

func (*lostThenSlow) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*lostThenSlow) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (l *lostThenSlow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err != nil {
			return err
		}
		switch l.n++; l.n {
		case 1:
			l.during()
			for _, c := range cmds {
				c.SetErr(errNetwork)
			}
			return errNetwork
		case 2:
			time.Sleep(l.slow)
		}
		return nil
	}
}

// What may have been enqueued is not repeated once its time is over, though its turn comes only then, behind a request
// that took long or in a process that was stopped: the partition no longer remembers what was pushed.
func TestNothingIsRepeatedAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := bubble(t, false)
		p, err := NewProducer(t.Context(), client, "n", ProducerConfig{Partitions: 2})
		if err != nil {
			t.Fatal(err)
		}
		slow := &lostThenSlow{slow: 2 * markLife}
		var other sync.WaitGroup
		slow.during = func() {
			other.Go(func() {
				if _, err := p.Enqueue(t.Context(), Message{}); !errors.Is(err, ErrUnknown) {
					t.Errorf("of what took long: %v", err)
				}
			})
			synctest.Wait()
		}
		client.AddHook(slow)
		if _, err := p.Enqueue(t.Context(), Message{}); !errors.Is(err, ErrUnknown) || !errors.Is(err, errNetwork) {
			t.Errorf("of what was lost: %v", err)
		}
		other.Wait()
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for id := range partition.ID(2) {
			if n := len(logOf(t, client, "n", id)); n != 1 {
				t.Errorf("partition %v has %d tasks, want 1", id, n)
			}
		}
	})
}
