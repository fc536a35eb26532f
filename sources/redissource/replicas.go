package redissource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
)

// A ReplicasError says that the master has carried out what it was sent, and that too few of its
// replicas said in time that they have heard of it: a fail-over may forget it. errors.Is finds
// ErrUnknown in it.
type ReplicasError struct {
	Have, Want int
	// Err is why it is not known how many have. Nil: they were counted.
	Err error
}

func (e *ReplicasError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("the master has it, and it is not known whether %d replicas have: %v", e.Want, e.Err)
	}
	return fmt.Sprintf("the master has it, but only %d of %d replicas have: a fail-over may forget it", e.Have, e.Want)
}

// Is reports whether target is ErrUnknown. Err is not unwrapped: it is of WAIT, and the push was
// carried out.
func (e *ReplicasError) Is(target error) bool { return target == ErrUnknown }

// waitReplicas is how long one WAIT takes at most. Nothing else is sent meanwhile, and no
// fail-over noticed.
const waitReplicas = time.Second

// A push is one call of push.lua, and what became of it.
type push struct {
	keys   []string
	args   []any
	answer pushAnswer
	err    error // why the answer does not count
	maybe  bool  // whatever err is, an earlier attempt of the client may have been executed
}

// A tried is a call that knows whether any of the client's attempts may have been executed. The client repeats a
// pipeline whose answer was lost, and a store that is started anew and loads refuses that: of the command only the
// refusal is left.
type tried struct {
	*redis.Cmd
	maybe bool
}

func (t *tried) SetErr(err error) {
	t.maybe = t.maybe || err == nil || !notExecuted(err)
	t.Cmd.SetErr(err)
}

// A pusher sends pushes to their servers, and has them wait for replicas.
type pusher struct {
	client   redis.UniversalClient
	replicas int           // that must have what was pushed
	patience time.Duration // for them
}

// send runs pushes, those of one server in one pipeline: by the script's hash, and once more with its
// source at servers that do not know it.
func (p *pusher) send(ctx context.Context, all []*push) {
	p.sendBy(ctx, all, false)
	unknown := slices.DeleteFunc(slices.Clone(all), func(one *push) bool { return !redis.HasErrorPrefix(one.err, "NOSCRIPT") })
	if len(unknown) > 0 {
		p.sendBy(ctx, unknown, true)
	}
}

func (p *pusher) sendBy(ctx context.Context, all []*push, source bool) {
	cluster, ok := p.client.(*redis.ClusterClient)
	if !ok || p.replicas == 0 {
		p.sendTo(ctx, p.client, all, source)
		return
	}
	// WAIT has no key by which the pipeline of a cluster would find its server.
	on := make(map[*redis.Client][]*push)
	for _, one := range all {
		master, err := cluster.MasterForKey(ctx, one.keys[0])
		if err != nil {
			one.err = err
			continue
		}
		on[master] = append(on[master], one)
	}
	for master, list := range on {
		if !p.sendTo(ctx, master, list, source) {
			cluster.ReloadState(ctx) // nobody else follows a slot that has moved, or a server that was replaced
		}
	}
}

// sendTo runs pushes on one server and WAIT behind them, on their connection. It reports whether
// all of them count.
func (p *pusher) sendTo(ctx context.Context, node redis.UniversalClient, all []*push, source bool) bool {
	pipe := node.Pipeline()
	cmds := make([]*tried, len(all))
	for i, one := range all {
		cmds[i] = &tried{Cmd: pushScript.call(ctx, source, one.keys, one.args)}
		_ = pipe.Process(ctx, cmds[i]) // which only appends it
	}
	var wait *redis.Cmd
	if p.replicas > 0 {
		wait = pipe.Do(ctx, waitFor(node, p.replicas, p.patience)...)
	}
	redisconfig.Exec(ctx, pipe)
	var few error
	if wait != nil {
		if have, err := wait.Int(); err != nil || have < p.replicas {
			few = &ReplicasError{Have: have, Want: p.replicas, Err: redisconfig.Explain(err)}
		}
	}
	ok := true
	for i, one := range all {
		one.answer, one.err = parsePush(cmds[i].Cmd)
		one.maybe = one.maybe || cmds[i].maybe
		if one.err == nil && one.answer.enqueued() {
			one.err = few
		}
		ok = ok && one.err == nil
	}
	return ok
}

// enqueued reports whether something was pushed, or is there.
func (a pushAnswer) enqueued() bool {
	return a.status == "OK" && (a.detail == "" || strings.ContainsAny(a.detail, "+="))
}

// waitFor is WAIT, for patience at most. It ends before the connection is given up, and everything sent again.
func waitFor(node redis.UniversalClient, replicas int, patience time.Duration) []any {
	if c, ok := node.(interface{ Options() *redis.Options }); ok && c.Options().ReadTimeout > 0 {
		patience = min(patience, c.Options().ReadTimeout/2)
	}
	return []any{"wait", replicas, max(1, patience.Milliseconds())} // 0 has no end
}

// supported refuses what cannot be worked with or be waited for.
func (p *pusher) supported() error {
	if err := redisconfig.Fits(p.client); err != nil {
		return fmt.Errorf("redissource: %w", err)
	}
	if p.replicas < 0 {
		return fmt.Errorf("redissource: Replicas %d: want 0 or more", p.replicas)
	}
	if p.replicas > 0 {
		if err := redisconfig.Tells(p.client); err != nil {
			return fmt.Errorf("redissource: Replicas %d: %w", p.replicas, err)
		}
	}
	return nil
}

// checks is how often a server with too few replicas is asked: one that has just begun to follow may
// answer for the first time after a second.
const checks = 3

// check says which servers refuse WAIT, or have too few replicas now. One that does not answer is
// asked again with the first push.
func (p *pusher) check(ctx context.Context) error {
	ask := func(ctx context.Context, node redis.UniversalClient, where string) error {
		wait := waitFor(node, p.replicas, p.patience)
		have, err := node.Do(ctx, wait...).Int()
		for n := 1; n < checks && err == nil && have < p.replicas; n++ {
			have, err = node.Do(ctx, wait...).Int()
		}
		switch {
		case err == nil && have < p.replicas:
			return fmt.Errorf("redissource: Replicas %d: the server%s has %d that answer: start more, or ask for fewer", p.replicas, where, have)
		case redisconfig.Refused(err):
			return fmt.Errorf("redissource: Replicas %d: WAIT is refused%s: %w", p.replicas, where, redisconfig.Explain(err))
		}
		return nil
	}
	var mu sync.Mutex
	var errs []error
	_ = redisconfig.EachMaster(ctx, p.client, func(ctx context.Context, node redis.UniversalClient, where string) error {
		err := ask(ctx, node, where)
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
		return nil
	})
	return errors.Join(errs...)
}
