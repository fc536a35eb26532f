package redissource

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// eventually waits for ok.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("it did not come true within 20 s")
		}
	}
}

// A hold stops the first pipeline until free is closed, and counts all of them.
type hold struct {
	held, free chan struct{}
	once       sync.Once
	pipelines  atomic.Int64
}

func newHold() *hold { return &hold{held: make(chan struct{}), free: make(chan struct{})} }

func (*hold) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*hold) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *hold) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if name := cmds[0].Name(); name == "evalsha" || name == "eval" {
			h.pipelines.Add(1)
			h.once.Do(func() {
				close(h.held)
				<-h.free
			})
		}
		return next(ctx, cmds)
	}
}

// faults makes what a network does to requests, from a seed: some are executed and
// their answers lost, some not executed at all, some executed any time later, and
// pipelines are cut anywhere. What it returns then is what a broken connection does.
type faults struct {
	mu   sync.Mutex
	rand *rand.Rand
	rate float64    // of requests
	late []lateCmds // sent and not yet executed
	n    int        // faults made
}

type lateCmds struct {
	cmds []redis.Cmder
	next redis.ProcessPipelineHook
}

func newFaults(seed uint64, rate float64) *faults {
	return &faults{rand: rand.New(rand.NewPCG(seed, 0)), rate: rate}
}

func (*faults) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *faults) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := f.do(ctx, []redis.Cmder{cmd}, func(ctx context.Context, cmds []redis.Cmder) error {
			for _, c := range cmds {
				if err := next(ctx, c); err != nil {
					return err
				}
			}
			return nil
		})
		return err
	}
}

func (f *faults) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return f.do(ctx, cmds, next) }
}

var errNetwork = fmt.Errorf("read: %w", io.ErrUnexpectedEOF)

func (f *faults) do(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	switch cmds[0].Name() {
	case "eval", "evalsha", "lrange", "blmove":
	default: // a handshake, or the test's own look at the store
		return next(ctx, cmds)
	}
	f.mu.Lock()
	roll, cut := f.rand.Float64(), f.rand.IntN(len(cmds)+1)
	kind := f.rand.IntN(3)
	var arrived []lateCmds
	for len(f.late) > 0 && f.rand.IntN(2) == 0 {
		arrived = append(arrived, f.late[0])
		f.late = f.late[1:]
	}
	faulty := roll < f.rate
	if faulty {
		f.n++
		if kind == 2 {
			f.late = append(f.late, lateCmds{again(cmds[:cut]), next})
		}
	}
	f.mu.Unlock()
	for _, l := range arrived {
		l.run()
	}
	if !faulty {
		return next(ctx, cmds)
	}
	if kind == 0 { // executed in part or whole, the answer lost
		if done := again(cmds[:cut]); len(done) > 0 {
			_ = next(ctx, done)
		}
	}
	for _, c := range cmds {
		c.SetErr(errNetwork)
	}
	return errNetwork
}

// again returns the same requests with answers of their own.
func again(cmds []redis.Cmder) []redis.Cmder {
	out := make([]redis.Cmder, len(cmds))
	for i, c := range cmds {
		out[i] = redis.NewCmd(context.Background(), c.Args()...)
	}
	return out
}

func (l lateCmds) run() {
	if len(l.cmds) > 0 {
		_ = l.next(context.Background(), l.cmds)
	}
}

// calm ends the faults; what is late arrives.
func (f *faults) calm() {
	f.mu.Lock()
	late := f.late
	f.late, f.rate = nil, 0
	f.mu.Unlock()
	for _, l := range late {
		l.run()
	}
}

// A loseOnce loses the answer of the first pipeline whose scripts were executed.
type loseOnce struct{ lost atomic.Int64 }

func (*loseOnce) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*loseOnce) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (l *loseOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err != nil || cmds[0].Err() != nil || !l.lost.CompareAndSwap(0, 1) {
			return err
		}
		for _, c := range cmds {
			c.SetErr(errNetwork)
		}
		return errNetwork
	}
}
