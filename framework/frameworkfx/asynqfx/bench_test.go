package asynqfx_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/asynqsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

// A load is a benchmark's tasks: n of them, over the first hot of P queues.
type load struct {
	client redis.UniversalClient
	name   string
	queues int
	hot    int
	n      int
}

// fill writes the tasks as asynq's client does, in batches: a message is taken from one
// that asynq has encoded, its id is its last field but the payload's, so each is
// enqueued by asynq once and then copied under other ids by appending the field.
func (l load) fill(b *testing.B) {
	b.Helper()
	ctx := b.Context()
	client := asynq.NewClientFromRedisClient(l.client)
	payload := make([]byte, 200)
	for q := range l.hot {
		queue := asynqsource.QueueOf(l.name, partition.ID(q))
		info, err := client.Enqueue(asynq.NewTask("bench", payload), asynq.Queue(queue))
		if err != nil {
			b.Fatal(err)
		}
		prefix := "asynq:{" + queue + "}:"
		message, err := l.client.HGet(ctx, prefix+"t:"+info.ID, "msg").Result()
		if err != nil {
			b.Fatal(err)
		}
		for i := 1; i < l.n/l.hot; {
			pipe := l.client.Pipeline()
			for range 1000 {
				if i++; i > l.n/l.hot {
					break
				}
				id := fmt.Sprintf("%s-%d", info.ID, i)
				again := append([]byte(message), 3<<3|2, byte(len(id)))
				pipe.HSet(ctx, prefix+"t:"+id, "msg", append(again, id...), "state", "pending", "pending_since", time.Now().UnixNano())
				pipe.LPush(ctx, prefix+"pending", id)
			}
			if _, err := pipe.Exec(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// cpu is the processor time a process has used: this one's, or the server's.
func (l load) cpu(b *testing.B) (client, server time.Duration) {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	info := l.client.InfoMap(b.Context(), "cpu").Val()["CPU"]
	var sys, user float64
	fmt.Sscan(info["used_cpu_sys"], &sys)
	fmt.Sscan(info["used_cpu_user"], &user)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), time.Duration((sys + user) * float64(time.Second))
}

// A result is what a run cost.
type result struct {
	perSecond      float64
	client, server float64 // us a task
}

// measure runs l.n tasks with a consumer that says hit for each, and reports from the
// first of them to the last settlement that has reached Redis.
func (l load) measure(b *testing.B, start func(hit func()) (stop func())) result {
	b.Helper()
	l.fill(b)
	var n atomic.Int64
	first, done := make(chan struct{}), make(chan struct{})
	want := int64(l.n / l.hot * l.hot)
	stop := start(func() {
		switch n.Add(1) {
		case 1:
			close(first)
		case want:
			close(done)
		}
	})
	<-first
	c0, s0 := l.cpu(b)
	began := time.Now()
	<-done
	for q := range l.hot {
		for {
			left, err := l.client.LLen(b.Context(), "asynq:{"+asynqsource.QueueOf(l.name, partition.ID(q))+"}:active").Result()
			if err != nil {
				b.Fatal(err)
			}
			if left == 0 {
				break
			}
		}
	}
	took := time.Since(began)
	c1, s1 := l.cpu(b)
	stop()
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(want) }
	return result{float64(want) / took.Seconds(), per(c1 - c0), per(s1 - s0)}
}

// plain is an asynq.Server as its documentation has it.
func (l load) plain(b *testing.B, concurrency int) result {
	return l.measure(b, func(hit func()) func() {
		queues := make(map[string]int)
		for q := range l.queues {
			queues[asynqsource.QueueOf(l.name, partition.ID(q))] = 1
		}
		cfg := quiet
		cfg.Queues, cfg.Concurrency = queues, concurrency
		server := asynq.NewServerFromRedisClient(l.client, cfg)
		if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { hit(); return nil })); err != nil {
			b.Fatal(err)
		}
		return server.Shutdown
	})
}

// ours is the same handler with countoff.
func (l load) ours(b *testing.B, concurrency int) result {
	if _, err := redisledger.Init(b.Context(), l.client, l.name, partition.Config{Total: l.queues}); err != nil {
		b.Fatal(err)
	}
	src, err := asynqsource.New(l.client, l.name, asynqsource.Config{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := src.Layout(b.Context()); err != nil {
		b.Fatal(err)
	}
	ledger, err := redisledger.New(l.client, l.name, redisledger.Config{Config: partition.Config{Total: l.queues}, Timing: quick.Timing})
	if err != nil {
		b.Fatal(err)
	}
	return l.measure(b, func(hit func()) func() {
		engine, err := src.Handler(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { hit(); return nil }), quiet)
		if err != nil {
			b.Fatal(err)
		}
		consumer, err := framework.New(l.name, src, engine, framework.WithLedger(ledger), framework.WithPeer("bench", 1),
			framework.WithConfig(framework.Config{Concurrency: concurrency, Timing: transition.Timing{Settle: quick.Timing.Settle, Lease: quick.Timing.Lease}}))
		if err != nil {
			b.Fatal(err)
		}
		if err := consumer.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		return func() {
			if err := consumer.Stop(context.Background()); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkBesidePlainAsynq runs the same tasks through a plain asynq.Server and through
// countoff, one after the other, each round anew. The goals are those of the design: 5
// times as many, 15 times where all tasks are in one of 16 queues, a third of Redis's
// processor time.
func BenchmarkBesidePlainAsynq(b *testing.B) {
	for _, c := range []struct {
		queues, hot, concurrency, n int
		goal                        float64
	}{{16, 16, 10, 30_000, 5}, {16, 16, 100, 30_000, 5}, {16, 1, 10, 10_000, 15}} {
		b.Run(fmt.Sprintf("queues=%d,hot=%d,c=%d", c.queues, c.hot, c.concurrency), func(b *testing.B) {
			client := redistest.Server(b).Client()
			var plain, ours result
			add := func(sum *result, r result) {
				sum.perSecond += r.perSecond / float64(b.N)
				sum.client += r.client / float64(b.N)
				sum.server += r.server / float64(b.N)
			}
			for range b.N {
				add(&plain, load{client, redistest.Name(b), c.queues, c.hot, c.n}.plain(b, c.concurrency))
				add(&ours, load{client, redistest.Name(b), c.queues, c.hot, c.n}.ours(b, c.concurrency))
			}
			verdict := 0.0
			if ours.perSecond >= c.goal*plain.perSecond && ours.server <= plain.server/3 {
				verdict = 1
			}
			b.ReportMetric(plain.perSecond, "plain/s")
			b.ReportMetric(ours.perSecond, "ours/s")
			b.ReportMetric(ours.perSecond/plain.perSecond, "times")
			b.ReportMetric(plain.client, "plain-client-us")
			b.ReportMetric(plain.server, "plain-redis-us")
			b.ReportMetric(ours.server, "redis-us")
			b.ReportMetric(ours.client, "client-us")
			b.ReportMetric(verdict, fmt.Sprintf("ok(≥%gx,redis≤1/3)", c.goal))
		})
	}
}
