// Package prompt makes calls of the Kafka client end with their context. The client itself looks at it
// between two attempts, but not while a connection is made: a broker that accepts one and never
// answers holds a call for ten seconds, and the next broker for as long.
package prompt

import (
	"context"
	"slices"
	"time"

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

// A Client is a client whose Request and Ping end with their ctx. Nor does one broker that hangs, or whose
// machine is gone, hold up what any of them can answer: the client waits twenty seconds for it, which is more
// time than a start has.
type Client struct{ *kgo.Client }

// headStart is how long a broker is waited for before the next one is asked as well.
const headStart = 500 * time.Millisecond

// Request issues a request and waits for its answer.
func (c Client) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	metadata, asksAny := req.(*kmsg.MetadataRequest)
	if !asksAny {
		return Call(ctx, func() (kmsg.Response, error) { return c.Client.Request(ctx, req) })
	}
	ask := func(ctx context.Context) (kmsg.Response, error) { // the client asks another one each time
		again := *metadata
		return c.Client.Request(ctx, &again)
	}
	return first(ctx, slices.Repeat([]asking{ask}, len(c.DiscoveredBrokers())+len(c.SeedBrokers())))
}

// Ping asks each broker once, until one answers.
func (c Client) Ping(ctx context.Context) error {
	brokers := func() kmsg.Request {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{} // none
		return req
	}
	var asks []asking
	known := c.DiscoveredBrokers()
	for _, b := range slices.Concat(known, c.SeedBrokers()) {
		asks = append(asks, func(ctx context.Context) (kmsg.Response, error) { return b.Request(ctx, brokers()) })
	}
	_, err := first(ctx, asks)
	if err == nil && len(known) == 0 {
		_, err = c.Request(ctx, brokers()) // from which the client learns which there are
	}
	return err
}

// asking asks for an answer.
type asking func(ctx context.Context) (kmsg.Response, error)

// first returns the first answer to asks, else the error of the last of them, or that of ctx. Each is begun when the
// one before has failed, or is not answered within headStart.
func first(ctx context.Context, asks []asking) (kmsg.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the others are given up
	type answer struct {
		is  kmsg.Response
		err error
	}
	answers := make(chan answer, len(asks))
	next := time.NewTimer(0)
	defer next.Stop()
	for begun, open := 0, len(asks); ; {
		select {
		case <-next.C:
			if begun < len(asks) {
				ask := asks[begun]
				begun++
				go func() {
					is, err := ask(ctx)
					answers <- answer{is, err}
				}()
				next.Reset(headStart)
			}
		case a := <-answers:
			if open--; a.err == nil || open == 0 {
				return a.is, a.err
			}
			next.Reset(0)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
