package contest

import (
	"context"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-bench/meter"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
)

const watermillTopic = "topic"

// watermillDrain is ten consumers of one group.
func watermillDrain() Contestant {
	const consumers = 10
	return Contestant{
		Tag: "watermill-c10", What: "watermill-redisstream v1.4.5, 10 consumers of a group", Tasks: 50_000, Quick: 15_000,
		Check: acknowledged(watermillTopic),
		Preload: func(_ context.Context, client *redis.Client, n int) error {
			p, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, watermill.NopLogger{})
			if err != nil {
				return err
			}
			return together(50, n, func(i int) error { // not closed: that would close the client
				return p.Publish(watermillTopic, message.NewMessage(strconv.Itoa(i), meter.Payload(i)))
			})
		},
		Run: func(ctx context.Context, r *Run) (report.Measures, error) {
			client := r.Client()
			defer client.Close()
			inner, cancel := context.WithCancel(ctx)
			defer cancel()
			for i := range consumers {
				s, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
					Client: client, ConsumerGroup: "group", Consumer: strconv.Itoa(i), OldestId: "0",
				}, watermill.NopLogger{})
				if err != nil {
					return nil, err
				}
				defer s.Close()
				messages, err := s.Subscribe(inner, watermillTopic)
				if err != nil {
					return nil, err
				}
				go func() {
					for m := range messages {
						r.Meter.Saw(m.Payload)
						m.Ack()
					}
				}()
			}
			if err := r.Wait(ctx); err != nil {
				return nil, err
			}
			// A subscriber that is closed forgets the acknowledgement that it is about to send.
			late, over := context.WithTimeout(ctx, 5*time.Second)
			defer over()
			for acknowledged(watermillTopic)(late, client, r.Meter.Tasks()) != nil && pause(late, 10*time.Millisecond) == nil {
			}
			return nil, nil
		},
	}
}
