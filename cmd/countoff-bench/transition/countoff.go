package transition

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/kafkasource"
	"github.com/countoff/countoff/sources/kafkasource/kafkaprogress"
	"github.com/countoff/countoff/sources/redisprogress"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

// countoff is a consumer as an application has it, with its defaults but for the lease.
func countoff(tag, what string, inKafka bool) contestant {
	return contestant{
		tag: tag, what: what,
		ready: func(ctx context.Context, p peer) error {
			client := redis.NewClient(&redis.Options{Addr: p.store})
			defer client.Close()
			_, err := redisledger.Init(ctx, client, p.name, partition.Config{Total: partitions, Hash: partition.Murmur2})
			return err
		},
		run: func(ctx context.Context, p peer, handle func(Begun)) error {
			client := redis.NewClient(&redis.Options{Addr: p.store})
			defer client.Close()
			var store kafkasource.Store
			store, err := redisprogress.NewStore(client, p.name)
			if inKafka {
				kept, failed := kafkaprogress.NewStore(p.name, kafkaprogress.Config{Topic: p.topic, Options: p.options()})
				if failed == nil {
					defer func() { _ = kept.Disconnect() }() // the process ends
				}
				store, err = kept, failed
			}
			if err != nil {
				return err
			}
			source, err := kafkasource.New(p.name, store, kafkasource.Config{Topic: p.topic, Options: p.options(), Check: lease / 2})
			if err != nil {
				return err
			}
			defer source.Close()
			timing := transition.Timing{Lease: lease}
			consumer, err := framework.New(p.name, source, framework.HandlerFunc(func(_ context.Context, t *framework.Task) error {
				handle(Begun{Partition: int32(t.Grant.ID), Offset: int64(t.Receipt), Key: t.Key, Born: t.Born.Time()})
				return nil
			}), framework.WithConfig(framework.Config{Concurrency: partitions, Timing: timing, PodGrace: time.Minute}), framework.WithPeer(p.id, 1),
				framework.WithControl(func(layout partition.Config) (transition.Ledger, partition.Indexer, error) {
					ledger, err := redisledger.New(client, p.name, redisledger.Config{Config: layout, Timing: timing, Grows: true})
					return ledger, nil, err
				}))
			if err != nil {
				return err
			}
			if err := consumer.Start(ctx); err != nil {
				return err
			}
			<-ctx.Done()
			if err := consumer.Stop(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		},
	}
}
