package redisconfig

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// FromMaster reads keys of one slot where they are written; read puts the commands. A client of
// a cluster may be told to read from replicas (ReadOnly, RouteByLatency), which lag, and begin
// with nothing: what is decided by the answer would be decided by what was. A transaction is
// the master's, and needs no right to write. With other clients each command has its own error,
// and this returns none.
func FromMaster(ctx context.Context, client redis.Cmdable, read func(redis.Cmdable)) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok || !cluster.Options().ReadOnly {
		read(client)
		return nil
	}
	cmds, err := cluster.TxPipelined(ctx, func(p redis.Pipeliner) error {
		read(p)
		return nil
	})
	if err != nil {
		return Why(cmds, err)
	}
	return nil
}
