package redisledger

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// eval runs a script, by its text or by its hash, and waits for the replicas that the
// configuration wants.
func (l *Ledger) eval(ctx context.Context, s *redis.Script, text bool, keys []string, args []any) ([]string, error) {
	run := s.EvalSha
	if text {
		run = s.Eval
	}
	if l.cfg.WaitReplicas == 0 || s == sameScript {
		return strs(run(ctx, l.client, keys, args...))
	}
	master, err := l.master(ctx)
	if err != nil {
		return nil, err
	}
	// WAIT speaks of the writes of its own connection: a pipeline is one.
	pipe := master.Pipeline()
	script := run(ctx, pipe, keys, args...)
	wait := pipe.Do(ctx, "wait", l.cfg.WaitReplicas, (l.cfg.Timing.CallTimeout() / 2).Milliseconds())
	_, _ = pipe.Exec(ctx) // each command has its own error
	reply, err := strs(script)
	if err != nil {
		if cluster, ok := l.client.(*redis.ClusterClient); ok && redis.HasErrorPrefix(err, "MOVED") {
			cluster.ReloadState(ctx) // nobody follows a redirection of a single node
		}
		return nil, err
	}
	have, err := wait.Int()
	if err == nil && have < l.cfg.WaitReplicas {
		err = fmt.Errorf("%d of %d replicas have it", have, l.cfg.WaitReplicas)
	}
	return reply, err
}

// master returns a client of the server that has the keys: WAIT names none by which a
// cluster would find it.
func (l *Ledger) master(ctx context.Context) (redis.UniversalClient, error) {
	if cluster, ok := l.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, l.keys[0])
	}
	return l.client, nil
}
