package redissource_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/sources/redissource"
)

// A service enqueues mails. Those of one recipient are sent in their order, and the welcome only once.
func ExampleProducer() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	// Package redisurl makes a client of a URL.
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer client.Close()

	ctx := context.Background()
	producer, err := redissource.NewProducer(ctx, client, "mail-sender", redissource.ProducerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	welcome := redissource.Message{ID: "welcome-ann", Type: "welcome", Key: "ann@example.com", Payload: []byte(`{"lang":"en"}`), Unique: true}
	results, err := producer.Enqueue(ctx, welcome, welcome,
		redissource.Message{Type: "tips", Key: "ann@example.com", Delay: 24 * time.Hour})
	if errors.Is(err, redissource.ErrUnknown) {
		fmt.Println("it may have been enqueued, or may still be")
	}
	for _, r := range results {
		fmt.Println(r.Partition, r.Duplicate, r.Err)
	}
	if err := producer.Close(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 7 false <nil>
	// 7 true <nil>
	// 7 false <nil>
}
