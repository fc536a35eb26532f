package scale

import (
	"context"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

// A Footprint is what a peer takes that serves partitions in which there is nothing to
// do.
type Footprint struct {
	Partitions int
	Heap       int // bytes, after a collection
	Stacks     int // bytes
	Goroutines int
	Store      int // bytes of the keys of the partitions
}

// Idle measures a peer of its own with so many partitions in this process.
func Idle(ctx context.Context, client *redis.Client, partitions int) (f Footprint, err error) {
	before := processNow()
	layout := partition.Config{Total: partitions}
	if err := client.FlushAll(ctx).Err(); err != nil {
		return Footprint{}, err
	}
	if _, err := redisledger.Init(ctx, client, name, layout); err != nil {
		return Footprint{}, err
	}
	source, err := redissource.New(client, name, redissource.Config{})
	if err != nil {
		return Footprint{}, err
	}
	cfg := framework.Config{Timing: transition.Timing{Settle: 50 * time.Millisecond}, PodGrace: time.Minute}
	control := func(layout partition.Config) (transition.Ledger, partition.Indexer, error) {
		ledger, err := redisledger.New(client, name, redisledger.Config{Config: layout, Timing: cfg.Timing})
		return ledger, nil, err
	}
	nothing := framework.HandlerFunc(func(context.Context, *framework.Task) error { return nil })
	consumer, err := framework.New(name, source, nothing, framework.WithConfig(cfg), framework.WithControl(control), framework.WithPeer(name, 1))
	if err != nil {
		return Footprint{}, err
	}
	if err := consumer.Start(ctx); err != nil {
		return Footprint{}, err
	}
	defer func() {
		if stopped := consumer.Stop(context.WithoutCancel(ctx)); err == nil {
			err = stopped
		}
	}()
	for serving(consumer) < partitions {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return Footprint{}, ctx.Err()
		}
	}
	f = processNow()
	f.Partitions, f.Heap, f.Stacks, f.Goroutines = partitions, f.Heap-before.Heap, f.Stacks-before.Stacks, f.Goroutines-before.Goroutines
	f.Store, err = keysMemory(ctx, client, "{"+name+":*")
	return f, err
}

func serving(c *framework.Consumer) (n int) {
	for _, l := range c.Lanes() {
		if l.State == "serving" {
			n++
		}
	}
	return n
}

func processNow() Footprint {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers and pools had kept
	runtime.ReadMemStats(&m)
	return Footprint{Heap: int(m.HeapAlloc), Stacks: int(m.StackInuse), Goroutines: runtime.NumGoroutine()}
}
