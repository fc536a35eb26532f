package redissource

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
)

// A Stat is how much of each kind a partition holds. It is read without the fence:
// for people and observers, not for decisions.
type Stat struct {
	ID partition.ID
	// Fence is the token that may fetch and settle now; zero while nobody may.
	Fence partition.Token
	// Epoch is the newest that was ever installed.
	Epoch partition.Epoch
	// Pending tasks wait in the log, and InFlight ones may have been started: the
	// owner has raised its start gate over them, somewhat ahead of its handlers.
	// Together they are all that is open.
	Pending, InFlight int
	Delayed           int // scheduled, or waiting for a retry that gave up its place
	Dead              int // dead letters
	// Elsewhere says that the log is no list in Redis: what is open is counted here, and cannot be read.
	Elsewhere bool
	// Err is why nothing else is known of the partition: a node of a cluster does not answer,
	// or another program has written one of its keys.
	Err error
}

// Stats reads what the partitions ids of name hold, in one round trip: six small
// reads a partition, none of which grows with its length. Each partition is a
// moment of its own; one that cannot be read says so in its Err. If none can, that
// is an error. Nodes of a cluster have half of the time of ctx to answer.
func Stats(ctx context.Context, client redis.UniversalClient, name string, ids []partition.ID) ([]Stat, error) {
	keys := eachKey(name, ids, func(k Keys) string { return k.Fence })
	asked := redisconfig.EachNode(ctx, client, keys, func(pipe redis.Pipeliner, i int) {
		k := KeysOf(name, ids[i])
		pipe.HMGet(ctx, k.Fence, "t", "e", "b", "h", "x")
		pipe.LLen(ctx, k.Pending)
		pipe.ZCard(ctx, k.Done)
		pipe.HLen(ctx, k.Lifted)
		pipe.ZCard(ctx, k.Delayed)
		pipe.LLen(ctx, k.Dead)
	})
	out, unread := make([]Stat, len(ids)), 0
	for i, cmds := range asked {
		var err error
		if out[i], err = stat(ids[i], cmds); err != nil {
			out[i] = Stat{ID: ids[i], Err: redisconfig.Explain(err)}
			unread++
		}
	}
	if unread > 0 && unread == len(ids) {
		return nil, fmt.Errorf("redissource: stats of %s: %w", name, out[unread-1].Err)
	}
	return out, nil
}

func stat(id partition.ID, cmds []redis.Cmder) (Stat, error) {
	s := Stat{ID: id}
	fence, err := cmds[0].(*redis.SliceCmd).Result()
	if err != nil {
		return s, err
	}
	token, _ := fence[0].(string)
	if token != "" {
		if s.Fence, err = partition.ParseToken(token); err != nil {
			return s, err
		}
	}
	var numbers [4]int64
	for i, field := range fence[1:] {
		if numbers[i], err = number(field); err != nil {
			return s, err
		}
	}
	epoch, base, gate, end := numbers[0], numbers[1], numbers[2], numbers[3]
	s.Epoch = partition.Epoch(epoch)
	var n [5]int
	for i, cmd := range cmds[1:] {
		count, err := cmd.(*redis.IntCmd).Result()
		if err != nil {
			return s, err
		}
		n[i] = int(count)
	}
	length, done, lifted := n[0], n[1], n[2]
	_, s.Elsewhere = fence[4].(string)
	length = max(length, int(end-base)) // end: of a log that is no list
	s.Delayed, s.Dead = n[3], n[4]
	open := max(0, length-done) + lifted
	if token != "" {
		// Finished positions behind the base are below the gate.
		s.InFlight = min(open, max(0, min(int(gate-base), length)-done)+lifted)
	}
	s.Pending = open - s.InFlight
	return s, nil
}

// number reads a field of a hash that may be missing.
func number(field any) (int64, error) {
	text, _ := field.(string)
	if text == "" {
		return 0, nil
	}
	return strconv.ParseInt(text, 10, 64)
}
