package play

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-chaos/checker"
	"github.com/countoff/countoff/cmd/countoff-chaos/journal"
	"github.com/countoff/countoff/cmd/countoff-chaos/peer"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources/redissource"
)

// A feed enqueues tasks and remembers what was acknowledged.
type feed struct {
	client   redis.UniversalClient
	raw      redis.UniversalClient // repeats nothing by itself
	producer *redissource.Producer
	name     string
	inbox    string
	rate     int // a second, over both ways
	random   *rand.Rand
	// long is how long one task in forty takes at most, and at least a third of; 0: none
	// does. A handler that ends soon ends before its lease does: nobody sees then whether
	// the peer would have ended it.
	long time.Duration

	mu     sync.Mutex
	pushes []checker.Push
	seq    map[string]int
	count  int
}

const (
	keys      = 48 // of the producer
	inboxKeys = 12
	tick      = 20 * time.Millisecond
	slowest   = 500 * time.Millisecond // handler, if it is cancelled in its last moment
)

func newFeed(ctx context.Context, url, name, inbox string, rate int, seed uint64) (*feed, error) {
	client, err := redisurl.Open(url)
	if err != nil {
		return nil, err
	}
	raw, err := redisurl.Open(url + join(url) + "max_retries=-1")
	if err != nil {
		return nil, err
	}
	producer, err := redissource.NewProducer(ctx, client, name, redissource.ProducerConfig{Timeout: 10 * time.Minute})
	if err != nil {
		return nil, err
	}
	return &feed{
		client: client, raw: raw, producer: producer, name: name, inbox: inbox, rate: rate,
		random: rand.New(rand.NewPCG(seed, 1)), seq: map[string]int{},
	}, nil
}

// run enqueues until stop is closed. Pushes that are under way then are waited for, as
// long as ctx lives.
func (f *feed) run(ctx context.Context, stop <-chan struct{}) error {
	var ways sync.WaitGroup
	var errs [2]error
	ways.Go(func() {
		errs[0] = f.every(ctx, stop, f.rate*3/4, f.enqueue)
	})
	ways.Go(func() { errs[1] = f.every(ctx, stop, f.rate/4, f.push) })
	ways.Wait()
	return errors.Join(errs[0], errs[1], f.producer.Close(ctx))
}

// every calls send with how many tasks are due.
func (f *feed) every(ctx context.Context, stop <-chan struct{}, rate int, send func(context.Context, int) error) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	due := 0.0
	for {
		select {
		case <-stop:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		due += float64(rate) * tick.Seconds()
		if n := int(due); n > 0 {
			due -= float64(n)
			if err := send(ctx, n); err != nil {
				return err
			}
		}
	}
}

// make makes one task and notes it.
func (f *feed) make(way byte) (peer.Task, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	t := peer.Task{ID: fmt.Sprintf("%c%09d", way, f.count), MS: 2 + f.random.IntN(28)}
	switch {
	case way == 'i':
		t.Key = fmt.Sprintf("b%d", f.random.IntN(inboxKeys))
	case f.random.IntN(10) > 0:
		t.Key = fmt.Sprintf("k%d", f.random.IntN(keys))
	}
	if f.random.IntN(20) == 0 {
		t.MS = 100 + f.random.IntN(300)
	}
	if f.long > 0 && f.random.IntN(40) == 0 {
		t.MS = int((f.long/3 + time.Duration(f.random.Int64N(int64(f.long*2/3)))).Milliseconds())
	}
	if f.random.IntN(10) == 0 {
		t.Late = f.random.IntN(80)
	}
	if f.random.IntN(60) == 0 {
		t.Fail = 1
	}
	t.Dead = f.random.IntN(300) == 0
	if t.Key != "" {
		f.seq[t.Key]++
		t.Seq = f.seq[t.Key]
	}
	f.pushes = append(f.pushes, checker.Push{Task: t.ID, Key: t.Key, Seq: t.Seq, Sent: journal.Now(), Dead: t.Dead})
	return t, len(f.pushes) - 1
}

func (f *feed) acked(at []int) {
	now := journal.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range at {
		f.pushes[i].Acked = now
	}
}

// refused notes what was not enqueued, by the producer's word.
func (f *feed) refused(at []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range at {
		f.pushes[i].Refused = true
	}
}

// enqueue enqueues n tasks by the producer. A full store refuses them at once.
func (f *feed) enqueue(ctx context.Context, n int) error {
	messages, at := make([]redissource.Message, n), make([]int, n)
	for i := range n {
		t, place := f.make('p')
		line, err := json.Marshal(t)
		if err != nil {
			return err
		}
		at[i] = place
		messages[i] = redissource.Message{ID: t.ID, Key: t.Key, Payload: line}
	}
	results, err := f.producer.Enqueue(ctx, messages...)
	if results == nil {
		return err
	}
	var done, refused []int
	for i, r := range results {
		switch {
		case r.Err == nil:
			done = append(done, at[i])
		case !errors.Is(r.Err, redissource.ErrUnknown):
			refused = append(refused, at[i])
		}
	}
	f.acked(done)
	f.refused(refused)
	return nil
}

// push pushes n lines into the inbox, as a program would that knows nothing of us.
// What fails is unknown, and not repeated.
func (f *feed) push(ctx context.Context, n int) error {
	for range n {
		t, place := f.make('i')
		line, err := json.Marshal(t)
		if err != nil {
			return err
		}
		if f.raw.LPush(ctx, f.inbox, line).Err() == nil {
			f.acked([]int{place})
		}
	}
	return nil
}

func (f *feed) close() {
	_ = f.client.Close()
	_ = f.raw.Close()
}

// all returns what was sent.
func (f *feed) all() []checker.Push {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pushes
}

// join is what comes before one more parameter of a URL.
func join(url string) string {
	if strings.Contains(url, "?") {
		return "&"
	}
	return "/?"
}
