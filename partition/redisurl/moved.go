package redisurl

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/redis/go-redis/v9"
)

// A moved asks a cluster anew who has which slots when one of its nodes cannot be reached, does not
// answer, or is alone: go-redis does so once a minute, or when another node says that it has them. A dead one says
// nothing, one that the others cannot reach says CLUSTERDOWN, and calls would go to it, in vain, long after
// its replica has taken its place.
type moved struct{ cluster *redis.ClusterClient }

// lost takes in how a call or a dial ended. Many at once are one question, and for 200 ms after an answer there is none.
func (m moved) lost(ctx context.Context, err error) error {
	var network net.Error // the end of a context by its time is one
	if errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || redis.IsClusterDownError(err) {
		m.cluster.ReloadState(ctx)
	}
	return err
}

func (m moved) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		return conn, m.lost(ctx, err)
	}
}

func (m moved) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return m.lost(ctx, next(ctx, cmd)) }
}

func (m moved) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds { // err is that of the first, which may be a read: an answer, where a write is refused
			if redis.IsClusterDownError(cmd.Err()) {
				m.cluster.ReloadState(ctx)
				break
			}
		}
		return m.lost(ctx, err)
	}
}
