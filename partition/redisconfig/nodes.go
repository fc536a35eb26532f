package redisconfig

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// EachNode asks each node of a cluster, all at the same time, what ask puts in a pipeline for each of
// keys that stands there; another client it asks once, for all. Returned is what was put in for each
// of keys: every command has its answer or its error. It is for who looks: a node that stands still
// answers nothing, not even that it does not, and a pipeline that goes to it and to others has no answer
// of those either once its context is over. So that of a pipeline is over when half of the time of ctx
// is, and the other half is for what comes after.
func EachNode(ctx context.Context, client redis.UniversalClient, keys []string, ask func(pipe redis.Pipeliner, i int)) [][]redis.Cmder {
	ctx, cancel := Half(ctx, client)
	defer cancel()
	asked := make([][]redis.Cmder, len(keys))
	pipes := make(map[string]redis.Pipeliner)
	for i, key := range keys {
		addr := ""
		if cluster, ok := client.(*redis.ClusterClient); ok {
			if node, err := cluster.MasterForKey(ctx, key); err == nil { // else who asks is told the same
				addr = node.Options().Addr
			}
		}
		pipe := pipes[addr]
		if pipe == nil {
			pipe = client.Pipeline()
			pipes[addr] = pipe
		}
		before := pipe.Len()
		ask(pipe, i)
		asked[i] = pipe.Cmds()[before:]
	}
	var all sync.WaitGroup
	for _, pipe := range pipes {
		all.Go(func() { Exec(ctx, pipe) })
	}
	all.Wait()
	return asked
}

// Half returns a context that is over when half of the time of ctx is, for a question to a node of a
// cluster without whose answer others can do. With another client it is ctx: there is nobody else to ask.
func Half(ctx context.Context, client redis.UniversalClient) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if _, cluster := client.(*redis.ClusterClient); !ok || !cluster {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

// errRing is why nobody works through one. (Its Subscribe panics, too, where no channel is given.)
var errRing = errors.New("a *redis.Ring sends the keys of a server that is away to another one, where the ledger, the fences and the tasks would begin anew: " +
	"give a *redis.Client, or for several servers a *redis.ClusterClient")

// ErrNoClient is what Fits says of no client at all.
var ErrNoClient = errors.New("no Redis client: package redisurl makes one")

// Fits refuses a client of a kind that cannot be worked with. It asks nobody.
func Fits(client redis.Cmdable) error {
	if client == nil {
		return ErrNoClient
	}
	if v := reflect.ValueOf(client); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("the client is a nil %T", client) // each call of it would panic
	}
	if _, ring := client.(interface{ Options() *redis.RingOptions }); ring { // or what embeds one
		return errRing
	}
	return nil
}

// Tells refuses a client that does not tell which server it asks, as a struct that embeds a redis.UniversalClient:
// what is to be said to a certain one, as WAIT, it might say to another. It asks nobody.
func Tells(client redis.UniversalClient) error {
	switch client.(type) {
	case *redis.ClusterClient, interface{ Options() *redis.Options }:
		return nil
	}
	return fmt.Errorf("a %T does not say which server it asks: give a *redis.Client or a *redis.ClusterClient", client)
}

// Shown refuses a client that hides whose it is if it is one of a cluster of several: what has to be said to each
// server, or to a certain one, would be said to any. It asks what a client of a cluster asks, and so may ask.
// A server that does not answer keeps nobody from going on, as one that is no cluster's does not.
func Shown(ctx context.Context, client redis.UniversalClient) error {
	if Tells(client) == nil {
		return nil
	}
	if err := Fits(client); err != nil {
		return err
	}
	masters := make(map[string]bool)
	for _, slots := range client.ClusterSlots(ctx).Val() {
		if len(slots.Nodes) > 0 {
			masters[slots.Nodes[0].ID+slots.Nodes[0].Addr] = true
		}
	}
	if len(masters) > 1 {
		return fmt.Errorf("a %T hides that it is a client of a cluster, whose servers cannot be asked one by one: give the *redis.ClusterClient itself", client)
	}
	return nil
}

// EachMaster calls do with each server that has keys, of a cluster with all at the same time. where is
// " at host:port" there, and empty otherwise.
func EachMaster(ctx context.Context, client redis.UniversalClient, do func(ctx context.Context, node redis.UniversalClient, where string) error) error {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			return do(ctx, master, " at "+master.Options().Addr)
		})
	}
	if err := Shown(ctx, client); err != nil {
		return err
	}
	return do(ctx, client, "")
}
