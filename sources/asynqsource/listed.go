package asynqsource

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/sources/asynqsource/queuestat"
)

// Peers whose handlers are the framework's run no server of asynq. They list themselves as one: else
// asynq's tools would show nobody, and a peer of another name would work on the same queues unseen.

const (
	// listEvery is how often a server says of itself that it lives, as asynq's do.
	listEvery = 5 * time.Second
	// listedFor is how long it is believed.
	listedFor = 2 * listEvery
	// listTime is how long it takes at most to be listed, and to be listed no more.
	listTime = time.Second
)

// list lists the peer among the servers of asynq, with all queues, until ctx ends.
func (s *Source) list(ctx context.Context, total int) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host" // as asynq says
	}
	id := rand.Text()
	key := fmt.Sprintf("%s:{%s:%d:%s}", queuestat.AllServers, host, os.Getpid(), id)
	info := serverInfo(host, os.Getpid(), id, append(s.queues(total), s.mark), time.Now())
	// A call that is ended because the peer closes may have come through, and is waited for: but not for long,
	// since who closes waits for it.
	call := func(do func(context.Context, redis.Pipeliner)) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTime)
		defer cancel()
		_, err := s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			do(ctx, pipe)
			return nil
		})
		return err // a store that is away or full is noticed elsewhere
	}
	tick := time.NewTicker(listEvery)
	defer tick.Stop()
	for {
		err := call(func(ctx context.Context, pipe redis.Pipeliner) {
			pipe.ZAdd(ctx, queuestat.AllServers, redis.Z{Score: float64(time.Now().Add(listedFor).Unix()), Member: key})
			pipe.Set(ctx, key, info, listedFor)
		})
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		if err == nil { // else the store does not answer: what it has lapses
			_ = call(func(ctx context.Context, pipe redis.Pipeliner) {
				pipe.ZRem(ctx, queuestat.AllServers, key)
				pipe.Del(ctx, key)
			})
		}
		return
	}
}

// serverInfo is an encoded ServerInfo (internal/proto/asynq.proto of asynq). How many handlers run at once
// is the consumer's, and not said.
func serverInfo(host string, pid int, id string, queues []string, since time.Time) []byte {
	info := appendText(nil, 1, host)
	info = appendNumber(info, 2, uint64(pid))
	info = appendText(info, 3, id)
	for _, q := range queues {
		info = appendText(info, 5, string(appendNumber(appendText(nil, 1, q), 2, 1)))
	}
	info = appendText(info, 7, "active")
	started := appendNumber(appendNumber(nil, 1, uint64(since.Unix())), 2, uint64(since.Nanosecond()))
	return appendText(info, 8, string(started))
}
