package redisurl

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	allSlots      = 16384
	wholePatience = 5 * time.Second        // for a node that knows of all slots
	wholePause    = 200 * time.Millisecond // as go-redis makes it after an answer that it believes
)

// A whole keeps the client of a cluster from believing a node that is not of it any more (CLUSTER RESET, as after redis-cli
// --cluster del-node), or not yet: it answers, and knows of no slots, or of some. Of a slot that it knows nothing of, go-redis
// sends each command of a pipeline to a node of its choice. Those that come to the right one are executed at once, and the
// others later, redirected: what was to be read before something is settled is read after it.
type whole struct {
	mu    sync.Mutex
	was   bool      // all slots were served
	since time.Time // no node has told of all slots any more; zero: the last one did
}

// listen has node believed no more than the others.
func (w *whole) listen(node *redis.Client) { node.AddHook(&asked{whole: w, addr: node.Options().Addr}) }

// believes returns why the node at addr, which tells of so many slots, is not believed, and another is to be asked.
func (w *whole) believes(addr string, slots int, now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case slots == 0:
		return fmt.Errorf("%s knows of no slots: it is in no cluster, or nobody there has any yet", addr)
	case slots == allSlots:
		w.was, w.since = true, time.Time{}
		return nil
	case !w.was: // nor may the others know more
		return nil
	case w.since.IsZero():
		w.since = now
	}
	if now.Sub(w.since) < wholePatience {
		return fmt.Errorf("%s knows of %d slots of %d: it may not be in the cluster yet", addr, slots, allSlots)
	}
	return nil
}

// An asked is a node whose whole hears what it tells of the slots. One that is not believed is not asked again for a
// moment: go-redis makes no pause then, and asks all with every call.
type asked struct {
	whole *whole
	addr  string
	last  atomic.Pointer[disbelief]
}

type disbelief struct {
	why error
	at  time.Time
}

func (*asked) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *asked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		told, ok := cmd.(*redis.ClusterSlotsCmd)
		if !ok {
			return next(ctx, cmd)
		}
		if last := a.last.Load(); last != nil && time.Since(last.at) < wholePause {
			cmd.SetErr(last.why)
			return last.why
		}
		if err := next(ctx, cmd); err != nil {
			return err
		}
		slots := 0
		for _, s := range told.Val() {
			if len(s.Nodes) > 0 {
				slots += s.End - s.Start + 1
			}
		}
		now := time.Now()
		if err := a.whole.believes(a.addr, slots, now); err != nil {
			a.last.Store(&disbelief{err, now})
			cmd.SetErr(err)
			return err
		}
		return nil
	}
}

func (*asked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
