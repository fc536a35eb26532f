package contest

import (
	"context"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-bench/meter"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/sources/redissource"
)

// pushes pushes one task after the other, each some time after the one before was
// handled, and returns how long they took from before the push to the handler.
func pushes(ctx context.Context, r *Run, pause time.Duration, handled <-chan time.Time, push func(i int) error) (report.Measures, error) {
	took := make([]time.Duration, 0, r.Meter.Tasks())
	for i := range r.Meter.Tasks() {
		began := time.Now()
		if err := push(i); err != nil {
			return nil, err
		}
		select {
		case at := <-handled:
			took = append(took, at.Sub(began))
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		time.Sleep(pause)
	}
	return percentiles(took), nil
}

// percentiles sorts what tasks took.
func percentiles(took []time.Duration) report.Measures {
	slices.Sort(took)
	return report.Measures{
		report.P50: milliseconds(took[len(took)/2]),
		report.P99: milliseconds(took[min(len(took)-1, len(took)*99/100)]),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func countoffLatency() Contestant {
	c := countoffConfig{concurrency: 10}.withDefaults()
	return c.latency("countoff-latency", "countoff, 16 partitions, idle: push to handler", func(ctx context.Context, client *redis.Client) (push func(i int) error, end func(), err error) {
		if err := initName(ctx, client, c.partitions); err != nil {
			return nil, nil, err
		}
		p, err := redissource.NewProducer(ctx, client, countoffName, redissource.ProducerConfig{})
		if err != nil {
			return nil, nil, err
		}
		return func(i int) error {
			_, err := p.Enqueue(ctx, messages(i, i+1, true)...)
			return err
		}, func() { _ = p.Close(ctx) }, nil
	})
}

// inboxLatency is countoffLatency for programs that know nothing of countoff: they push to a
// plain list, whose owner moves what comes to the partitions.
func inboxLatency() Contestant {
	c := countoffConfig{concurrency: 10, inbox: true}.withDefaults()
	return c.latency("countoff-latency-inbox", "countoff, idle: LPUSH to a plain list, to handler", func(ctx context.Context, client *redis.Client) (push func(i int) error, end func(), err error) {
		if err := initName(ctx, client, c.partitions, inboxList); err != nil {
			return nil, nil, err
		}
		return func(i int) error { return client.LPush(ctx, inboxList, meter.Payload(i)).Err() }, func() {}, nil
	})
}

// latency has one task after the other pushed to an idle peer, by what start returns.
func (c countoffConfig) latency(tag, what string,
	start func(ctx context.Context, client *redis.Client) (push func(i int) error, end func(), err error),
) Contestant {
	return Contestant{
		Tag: tag, What: what, Kind: Latency, Tasks: 1000, Quick: 300,
		Check: settled(c.partitions),
		Run: func(ctx context.Context, r *Run) (measures report.Measures, err error) {
			client := r.Client()
			defer client.Close()
			push, end, err := start(ctx, client)
			if err != nil {
				return nil, err
			}
			defer end()
			handled := make(chan time.Time, 1)
			handler := func(_ context.Context, t *framework.Task) error {
				now := time.Now()
				r.Meter.Saw(t.Payload)
				handled <- now
				return nil
			}
			err = c.serve(ctx, client, handler, func() (err error) {
				time.Sleep(time.Second) // until all partitions are served
				if measures, err = pushes(ctx, r, 5*time.Millisecond, handled, push); err != nil {
					return err
				}
				return r.Wait(ctx)
			})
			return measures, err
		},
	}
}

// brpopLatency is the loop that a plain list is read with where tasks may be lost: what
// was popped is gone if its reader dies.
func brpopLatency() Contestant {
	return Contestant{
		Tag: "brpop-latency", What: "go-redis, idle: LPUSH, whoever waits by BRPOP: no safety", Kind: Latency, Tasks: 1000, Quick: 300,
		Check: emptied(rawList),
		Run: func(ctx context.Context, r *Run) (report.Measures, error) {
			client := r.Client()
			defer client.Close()
			handled := make(chan time.Time, 1)
			go func() {
				for {
					s, err := client.BRPop(ctx, 0, rawList).Result()
					if err != nil {
						return // the run waits in vain, and says so
					}
					now := time.Now()
					r.Meter.SawString(s[1])
					handled <- now
				}
			}()
			measures, err := pushes(ctx, r, 5*time.Millisecond, handled, func(i int) error {
				return client.LPush(ctx, rawList, meter.Payload(i)).Err()
			})
			if err != nil {
				return nil, err
			}
			return measures, r.Wait(ctx)
		},
	}
}

// bellLatency is what the machine allows: two round trips one after the other with a
// message between them, as countoff has, and nothing else.
func bellLatency() Contestant {
	const bell = "bell"
	return Contestant{
		Tag: "bell-latency", What: "go-redis, idle: RPUSH and PUBLISH, whoever hears it LPOPs: no safety", Kind: Latency, Tasks: 1000, Quick: 300,
		Check: emptied(rawList),
		Run: func(ctx context.Context, r *Run) (report.Measures, error) {
			client := r.Client()
			defer client.Close()
			ps := client.Subscribe(ctx, bell)
			defer ps.Close()
			if _, err := ps.Receive(ctx); err != nil { // the subscription
				return nil, err
			}
			handled := make(chan time.Time, 1)
			go func() {
				for {
					if _, err := ps.ReceiveMessage(ctx); err != nil {
						return
					}
					s, err := client.LPop(ctx, rawList).Result()
					if err != nil {
						return // the run waits in vain, and says so
					}
					now := time.Now()
					r.Meter.SawString(s)
					handled <- now
				}
			}()
			measures, err := pushes(ctx, r, 5*time.Millisecond, handled, func(i int) error {
				_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
					pipe.RPush(ctx, rawList, meter.Payload(i))
					pipe.Publish(ctx, bell, "")
					return nil
				})
				return err
			})
			if err != nil {
				return nil, err
			}
			return measures, r.Wait(ctx)
		},
	}
}

func asynqLatency() Contestant {
	return Contestant{
		Tag: "asynq-latency", What: "asynq v0.26, idle: enqueue to handler", Kind: Latency, Tasks: 16, Quick: 6,
		Check: settledQueues(asynqQueue),
		Run: func(ctx context.Context, r *Run) (measures report.Measures, err error) {
			opt := asynq.RedisClientOpt{Addr: r.Addr}
			client := asynq.NewClient(opt)
			defer client.Close()
			handled := make(chan time.Time, 1)
			handler := func(_ context.Context, t *asynq.Task) error {
				now := time.Now()
				r.Meter.Saw(t.Payload())
				handled <- now
				return nil
			}
			err = asynqServe(ctx, opt, 10, handler, func() (err error) {
				measures, err = pushes(ctx, r, 5*time.Millisecond, handled, func(i int) error {
					_, err := client.EnqueueContext(ctx, asynq.NewTask(asynqType, meter.Payload(i)))
					return err
				})
				if err != nil {
					return err
				}
				return r.Wait(ctx)
			})
			return measures, err
		},
	}
}
