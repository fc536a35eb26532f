// Package prompt has calls of the Kafka client end with their context. The client's own look at it
// between two attempts, and not while a connection is made: a broker that takes one and never
// answers holds them for ten seconds, and the next broker for as long.
package prompt

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Call returns what call does, or the error of ctx when that ends first. The call, which is given up
// then, must look at ctx as well, so that it sends nothing more, and ends by itself.
func Call[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type answer struct {
		is  T
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		is, err := call()
		answered <- answer{is, err}
	}()
	select {
	case a := <-answered:
		return a.is, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// A Client is a client whose Request and Ping end with their ctx.
type Client struct{ *kgo.Client }

// Request issues a request and waits for its answer.
func (c Client) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return Call(ctx, func() (kmsg.Response, error) { return c.Client.Request(ctx, req) })
}

// Ping asks each broker once, until one answers.
func (c Client) Ping(ctx context.Context) error {
	_, err := Call(ctx, func() (struct{}, error) { return struct{}{}, c.Client.Ping(ctx) })
	return err
}
