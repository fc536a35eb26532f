package redissource

import (
	"context"
	_ "embed" // the script is a file
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
)

var (
	//go:embed fences.lua
	fencesSource string
	fencesScript = redis.NewScript(fencesSource)
)

// A Fenced says who may fetch and settle in a partition.
type Fenced struct {
	ID    partition.ID
	Fence partition.Token // zero while nobody may
	// Log says that its log is not empty.
	Log bool
}

// Fences reads who may fetch and settle in the partitions ids of name: less than
// [Stats], for whoever looks often. On one node it is one request whatever their
// number, on a cluster one pipeline of two requests a partition. Ids of units are
// left out.
func Fences(ctx context.Context, client redis.UniversalClient, name string, ids []partition.ID) ([]Fenced, error) {
	var out []Fenced
	var keys []string
	for _, id := range ids {
		if id < partition.FirstUnit {
			k := KeysOf(name, id)
			out, keys = append(out, Fenced{ID: id}), append(keys, k.Fence, k.Pending)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	tokens, lengths := make([]string, len(out)), make([]bool, len(out))
	var err error
	if _, single := client.(*redis.Client); single {
		err = fencesOfNode(ctx, client, keys, tokens, lengths)
	} else {
		err = fencesOfCluster(ctx, client, keys, tokens, lengths)
	}
	for i := range out {
		if err != nil {
			break
		}
		out[i].Log = lengths[i]
		if tokens[i] != "" {
			out[i].Fence, err = partition.ParseToken(tokens[i])
		}
	}
	if err != nil {
		return nil, fmt.Errorf("redissource: fences of %s: %w", name, err)
	}
	return out, nil
}

func fencesOfNode(ctx context.Context, client redis.UniversalClient, keys, tokens []string, waits []bool) error {
	reply, err := fencesScript.Run(ctx, client, keys).StringSlice()
	if err == nil && len(reply) != len(keys) {
		err = errors.New("the script's answer is too short")
	}
	for i := range tokens {
		if err == nil {
			tokens[i], waits[i] = reply[2*i], reply[2*i+1] != "0"
		}
	}
	return err
}

func fencesOfCluster(ctx context.Context, client redis.UniversalClient, keys, tokens []string, waits []bool) error {
	pipe := client.Pipeline()
	fence, log := make([]*redis.StringCmd, len(tokens)), make([]*redis.IntCmd, len(tokens))
	for i := range tokens {
		fence[i], log[i] = pipe.HGet(ctx, keys[2*i], "t"), pipe.LLen(ctx, keys[2*i+1])
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	for i := range tokens {
		tokens[i], waits[i] = fence[i].Val(), log[i].Val() > 0
	}
	return nil
}
