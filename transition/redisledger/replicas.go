package redisledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition/machine"
)

// A fewError says that too few replicas have what a script has done.
type fewError struct{ have, want int }

func (e *fewError) Error() string { return fmt.Sprintf("%d of %d replicas have it", e.have, e.want) }

// few reports whether a script was carried out and answered, but not heard of by enough
// replicas.
func few(err error) bool {
	var e *fewError
	return errors.As(err, &e)
}

// renewed returns what counts of the answer a to r where too few replicas have heard of r.
// The lease is renewed: a fail-over forgets that whether they had or not, and opens a grace
// instead. What the sender works on was shown to it before. Whatever else the master has
// done meanwhile may be forgotten, so nothing is told of it: no grant is gained, none is
// taken back or asked for, no roll is there or due, and no barrier opens.
func renewed(r machine.Request, a machine.Answer) machine.Answer {
	holds := make(map[partition.Grant]bool, len(r.Hold))
	for _, g := range r.Hold {
		holds[g] = true
	}
	var mine []machine.Held
	for _, h := range a.Mine {
		if holds[h.Grant] {
			mine = append(mine, machine.Held{Grant: h.Grant})
		}
	}
	for _, g := range r.Release {
		mine = append(mine, machine.Held{Grant: g})
	}
	slices.SortFunc(mine, func(a, b machine.Held) int { return cmp.Compare(a.Grant.ID, b.Grant.ID) })
	a.Mine, a.Line = mine, nil
	a.Sealing, a.Due = false, 0
	a.Behind = max(a.Behind, 1)
	return a
}

// eval runs a script, by its text or by its hash, and waits for the replicas that the
// configuration wants. It returns a reply also if there are too few of them; see few.
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
	wait := pipe.Do(ctx, "wait", l.cfg.WaitReplicas, l.patience(master).Milliseconds())
	redisconfig.Exec(ctx, pipe)
	reply, err := strs(script)
	cluster, _ := l.client.(*redis.ClusterClient)
	switch {
	case err == nil:
	case cluster != nil && redis.HasErrorPrefix(err, "ASK"):
		// The slot is moving, and its keys are where no pipeline of a single node follows.
		if reply, err = strs(run(ctx, cluster, keys, args...)); err == nil {
			err = &fewError{0, l.cfg.WaitReplicas}
		}
		return reply, err
	case cluster != nil && redis.HasErrorPrefix(err, "MOVED"):
		cluster.ReloadState(ctx) // nobody follows a redirection of a single node
		return nil, err
	default:
		return nil, err
	}
	have, err := wait.Int()
	if err == nil && have < l.cfg.WaitReplicas {
		err = &fewError{have, l.cfg.WaitReplicas}
	}
	return reply, err
}

// patience is how long WAIT may take: half of the time of the call, and half of what master's
// connections wait for an answer. One that they break off says nothing of the lease.
func (l *Ledger) patience(master redis.UniversalClient) time.Duration {
	most := l.cfg.Timing.CallTimeout()
	if c, ok := master.(interface{ Options() *redis.Options }); ok && c.Options().ReadTimeout > 0 {
		most = min(most, c.Options().ReadTimeout)
	}
	return max(most/2, time.Millisecond) // 0 has no end
}

// master returns a client of the server that has the keys: WAIT names none by which a
// cluster would find it.
func (l *Ledger) master(ctx context.Context) (redis.UniversalClient, error) {
	if cluster, ok := l.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, l.keys[0])
	}
	return l.client, nil
}
