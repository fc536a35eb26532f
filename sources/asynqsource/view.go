package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
)

// A view is the client that the asynq.Server of an [Engine] gets. asynq takes its client
// as an interface, so that what it does to a queue can be answered here:
//
//   - its dequeue is answered with the next task that Handle has brought;
//   - what it says of a task goes to Handle, and into the store with the next trip of
//     the task's stream;
//   - everything else it does to a queue that is open here is done under the fence;
//   - of queues that are not, it hears that there is nothing to do.
//
// What touches no queue (the list of servers, subscriptions) passes.
type view struct {
	redis.UniversalClient
	source *Source
	engine *Engine
	apart  redis.UniversalClient // hears of cancelled tasks
}

// newView returns the view of e, and what frees it.
func (s *Source) newView(e *Engine) (v *view, free func()) {
	apart, free := s.apart()
	return &view{UniversalClient: s.client, source: s, engine: e, apart: apart}, free
}

// apart returns a client of the same servers, and what closes it: the caller's, where its kind is not known.
func (s *Source) apart() (client redis.UniversalClient, leave func()) {
	switch c := s.client.(type) {
	case interface{ Options() *redis.Options }:
		own := redis.NewClient(single(c.Options()))
		return own, func() { own.Close() }
	case *redis.ClusterClient:
		o := *c.Options()
		o.MinIdleConns = 0
		// It asks only while it is cut off, when the node that it listened to may be dead, and another in its place.
		o.ClusterStateReloadInterval = time.Second
		own := redis.NewClusterClient(&o)
		return own, func() { own.Close() }
	}
	return s.client, func() {}
}

// Subscribe listens by a client that nobody else closes: where the one under it is closed, asynq takes the end of what
// it hears for a message, and ends the process.
func (v *view) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return v.apart.Subscribe(ctx, channels...)
}

var (
	errClosing  = errors.New("asynqsource: the engine stops")
	errForeign  = errors.New("asynqsource: the queue is not open here")
	errFinished = errors.New("asynqsource: nothing is known of such a run")
)

// EvalSha runs a script that was seen before; of others it says that the server does not
// know them, which brings their source.
func (v *view) EvalSha(ctx context.Context, sha string, names []string, args ...any) *redis.Cmd {
	if !ofQueue(names) {
		return v.UniversalClient.EvalSha(ctx, sha, names, args...)
	}
	s := v.source.library.get(sha)
	if s == nil {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(noScriptError{})
		return cmd
	}
	return v.run(ctx, s, names, args)
}

// Eval runs a script and keeps its source.
func (v *view) Eval(ctx context.Context, source string, names []string, args ...any) *redis.Cmd {
	if !ofQueue(names) {
		return v.UniversalClient.Eval(ctx, source, names, args...)
	}
	return v.run(ctx, v.source.library.learn(source), names, args)
}

func ofQueue(names []string) bool {
	for _, name := range names {
		if _, _, ok := queueOf(name); ok {
			return true
		}
	}
	return false
}

func (v *view) run(ctx context.Context, s *script, names []string, args []any) *redis.Cmd {
	k, queue := kindOf(names)
	cmd := redis.NewCmd(ctx)
	n := &native{kind: k, script: s, keys: names, args: args}
	switch {
	case k == kindDequeue:
		if v.source.library.take() == nil {
			v.source.library.takes(s)
		}
		raw, err := v.engine.next()
		cmd.SetVal(raw)
		cmd.SetErr(err)
	case k.settles():
		cmd.SetVal("OK")
		v.engine.settle(queue, n)
	case k == kindForward: // the stream does it
		cmd.SetVal(int64(0))
	case k == kindExpired: // the next owner has what one that died had
		cmd.SetVal([]any{})
	default:
		stream := v.source.of(queue)
		if stream == nil || k == kindTakeSet && !stream.takeSet(setOf(k, names)) {
			cmd.SetVal(int64(0))
			return cmd
		}
		if k == kindOldSets {
			n.script, n.keys, n.args = regroupScript, []string{stream.keys.sets, stream.keys.groups}, append([]any{stream.keys.group}, args...)
		}
		cmd = v.fenced(ctx, stream, n)
		if k.tends() && refused(cmd.Err()) { // before the stream has noticed it; asynq would log an error
			cmd.SetErr(nil)
			cmd.SetVal(int64(0))
		}
		if took, _ := cmd.Int(); k == kindEndSet || k == kindTakeSet && took == 0 {
			stream.endSet(setOf(k, names))
		}
	}
	return cmd
}

// fenced runs a script under the token of a stream, now.
func (v *view) fenced(ctx context.Context, s *stream, n *native) *redis.Cmd {
	cmd := n.send(ctx, v.UniversalClient, s.keys, s.fence, "", "", false)
	if forgotten(cmd.Err()) {
		cmd = n.send(ctx, v.UniversalClient, s.keys, s.fence, "", "", true)
	}
	return cmd
}

// Two of asynq's plain commands write to a queue. They are scripts here, to be fenced.
var (
	extendScript = newScript(before + `
local n = 0
for i = 1, #ARGV, 2 do n = n + redis.call('ZADD', KEYS[1], 'XX', ARGV[i], ARGV[i + 1]) end
return n` + after)
	// A result that comes late must not bring back the hash of a task that is gone.
	resultScript = newScript(before + `
if redis.call('EXISTS', KEYS[1]) == 0 then return redis.error_reply('NOT FOUND') end
return redis.call('HSET', KEYS[1], unpack(ARGV))` + after)
)

// ZAddXX extends the leases of those tasks that run here under the token that stands.
func (v *view) ZAddXX(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	queue, _, ok := queueOf(key)
	if !ok {
		return v.UniversalClient.ZAddXX(ctx, key, members...)
	}
	cmd := redis.NewIntCmd(ctx)
	stream := v.source.of(queue)
	var args []any
	for _, z := range members {
		r := v.engine.find(queue, fmt.Sprint(z.Member))
		if r == nil { // it is over, and asynq does not know it yet
			continue
		}
		if r.stream == stream {
			args = append(args, z.Score, z.Member)
		} else {
			cmd.SetErr(errForeign)
		}
	}
	if len(args) == 0 {
		return cmd
	}
	done := v.fenced(ctx, stream, &native{script: extendScript, keys: []string{key}, args: args})
	cmd.SetErr(done.Err())
	return cmd
}

// resultEvery is how often it is tried to write a result for which a slot of a cluster is in the way.
const resultEvery = 100 * time.Millisecond

// HSet writes the result of a task, under the token of its run.
func (v *view) HSet(ctx context.Context, key string, values ...any) *redis.IntCmd {
	queue, rest, ok := queueOf(key)
	if !ok {
		return v.UniversalClient.HSet(ctx, key, values...)
	}
	cmd := redis.NewIntCmd(ctx)
	id := rest[min(len("t:"), len(rest)):]
	r, over := v.engine.called(queue, id)
	if r == nil {
		cmd.SetErr(errFinished)
		return cmd
	}
	for {
		cmd.SetErr(v.fenced(ctx, r.stream, &native{script: resultScript, keys: []string{key}, args: values}).Err())
		// While a slot of a cluster moves no script gets through, but asynq's own command would.
		if !redis.HasErrorPrefix(cmd.Err(), "TRYAGAIN") {
			return cmd
		}
		select {
		case <-time.After(resultEvery):
		case <-over:
			return cmd
		}
	}
}

// SMembers lists the groups of a queue, if it is open here.
func (v *view) SMembers(ctx context.Context, key string) *redis.StringSliceCmd {
	if queue, _, ok := queueOf(key); ok && v.source.of(queue) == nil {
		return redis.NewStringSliceCmd(ctx)
	}
	return v.UniversalClient.SMembers(ctx, key)
}

type contextKey struct{}

// Grant returns the grant under which the handler runs that ctx was given to.
func Grant(ctx context.Context) (partition.Grant, bool) {
	r, ok := ctx.Value(contextKey{}).(*run)
	if !ok {
		return partition.Grant{}, false
	}
	return r.task.Grant, true
}

// Token returns the fence under which the handler runs that ctx was given to: give it
// to what the handler writes to, so that it can refuse smaller epochs.
func Token(ctx context.Context) (partition.Token, bool) {
	r, ok := ctx.Value(contextKey{}).(*run)
	if !ok {
		return partition.Token{}, false
	}
	return r.task.Token, true
}
