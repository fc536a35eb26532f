package asynqsource

import (
	"context"
	_ "embed" // the scripts are files
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
)

var (
	//go:embed scripts/plan.lua
	planSource string
	//go:embed scripts/route.lua
	routeSource string

	planScript  = newScript(planSource)
	routeScript = newScript(routeSource)
)

const (
	// routeBatch is how many tasks an ingress routes at once.
	routeBatch = 256
	// forceAfter is how long a server of a cluster may refuse tasks because it is full. It
	// gets them all the same then: the ingress may be what fills the store.
	forceAfter = 5 * time.Second
)

// A router is one ownership of an ingress: an ordinary queue whose tasks its owner moves
// into the queues of the partitions, by key, in order, each once. It is a stream whose
// tasks are done when they are pushed.
//
// A move has three steps: the plan, under the fence; a push for each partition; done,
// under the fence, which takes the plan away in the same script. If the owner dies
// between them, the next one finds the tasks and the plan, and pushes what the marks of
// the partitions do not know yet.
type router struct {
	*stream
	total  int
	batch  []sources.Task // taken and not done
	count  int64          // of the numbers of plans, the greatest that this owner was told
	marked bool           // no mark is of a greater epoch than this owner's
	unique bool           // locks are kept for the task's own end: there is one server
	full   time.Time      // since when pushes are refused because their server is full; zero: they are not
}

// A move is where a task goes.
type move struct {
	task   *sources.Task
	number string
}

func newRouter(s *stream, total int) *router {
	_, cluster := s.source.client.(*redis.ClusterClient)
	return &router{stream: s, total: total, unique: !cluster}
}

// Fetch moves tasks. It returns only with an error: a unit has no tasks of its own.
func (r *router) Fetch(ctx context.Context, _ int) ([]sources.Task, error) {
	for {
		if err := r.underMarks(ctx); err != nil {
			return nil, r.Fail("fetch", err)
		}
		if len(r.batch) == 0 {
			tasks, err := r.stream.Fetch(ctx, routeBatch)
			if err != nil {
				return nil, err
			}
			r.batch = tasks
		}
		plan, err := r.plan(ctx)
		if err == nil {
			err = r.push(ctx, plan)
		}
		if err != nil {
			return nil, r.Fail("fetch", err)
		}
		done := make([]sources.Settlement, len(r.batch))
		for i, t := range r.batch {
			done[i] = sources.Settlement{Task: &t, Outcome: sources.Done, Attempt: t.Attempt}
		}
		if err := r.stream.Settle(ctx, done...); err != nil {
			return nil, err
		}
		r.batch = nil
	}
}

// underMarks sees to it, before anything is planned, that no mark is of a greater epoch than
// this owner's, as it is where epochs began anew and the partitions have not forgotten: what
// he plans would be taken for a repetition, by the owners after him as well.
func (r *router) underMarks(ctx context.Context) error {
	if r.marked {
		return nil
	}
	pipe := r.source.client.Pipeline()
	pipe.HDel(ctx, marksOf(r.source.queue(0)), "") // what shares a pipeline with a write is read at the master
	marks := make([]*redis.StringCmd, r.total)
	for id := range marks {
		marks[id] = pipe.HGet(ctx, marksOf(r.source.queue(partition.ID(id))), r.queue)
	}
	redisconfig.Exec(ctx, pipe)
	for _, mark := range marks {
		text, err := mark.Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return err
		}
		e, _, _ := strings.Cut(text, "-")
		epoch, err := strconv.ParseUint(e, 10, 64)
		if err != nil {
			return errReply
		}
		if partition.Epoch(epoch) > r.token.Epoch {
			return r.fenced(epoch)
		}
	}
	r.marked = true
	return nil
}

// marksOf is where a queue keeps up to which number each ingress has pushed into it.
func marksOf(queue string) string { return "{" + queue + "}:marks" }

// fenced is that an owner of that epoch has routed before this one: one of a greater epoch
// settles it.
func (r *router) fenced(epoch uint64) error {
	return &sources.FencedError{Grant: r.Grant, Stored: partition.Epoch(epoch)}
}

// plan says where each task of the batch goes.
func (r *router) plan(ctx context.Context) (map[partition.ID][]move, error) {
	layout, err := r.source.Layout(ctx)
	if err != nil {
		return nil, err
	}
	args := make([]any, 0, 4+2*len(r.batch))
	r.Mu.Lock()
	args = append(args, r.fence, r.seen, r.count, r.keys.task)
	r.Mu.Unlock()
	for i, t := range r.batch {
		id := partition.OfID(uint64(t.Receipt), r.total)
		if t.Key != "" {
			if id, err = layout.Hash.Of(t.Key, r.total); err != nil {
				id = partition.Of(t.Key, r.total) // a key that is no number: somewhere it must go
			}
		}
		args = append(args, r.batch[i].ID, int(id))
	}
	reply, err := planScript.Run(ctx, r.source.client, []string{r.keys.fence, r.keys.tries}, args...).StringSlice()
	if err != nil {
		return nil, err
	}
	switch len(reply) {
	case 0:
		return nil, sources.ErrFenced
	case 1:
		return nil, sources.ErrForgot
	case 3: // an odd number, which no plan has
		epoch, err := strconv.ParseUint(reply[1], 10, 64)
		if err != nil {
			return nil, errReply
		}
		return nil, r.fenced(epoch)
	case 2 * len(r.batch):
	default:
		return nil, errReply
	}
	plan := make(map[partition.ID][]move)
	for i := range r.batch {
		p, err := strconv.ParseInt(reply[2*i+1], 10, 32)
		if err != nil {
			return nil, errReply
		}
		plan[partition.ID(p)] = append(plan[partition.ID(p)], move{&r.batch[i], reply[2*i]})
		if epoch, count, _ := strings.Cut(reply[2*i], "-"); epoch == r.token.Epoch.String() {
			n, err := strconv.ParseInt(count, 10, 64)
			if err != nil {
				return nil, errReply
			}
			r.count = max(r.count, n)
		}
	}
	return plan, nil
}

// push pushes the tasks of the batch into their queues.
func (r *router) push(ctx context.Context, plan map[partition.ID][]move) error {
	for _, source := range [...]bool{false, true} {
		pipe := r.source.client.Pipeline()
		for id, moves := range plan {
			queue := r.source.queue(id)
			k := keysOf(queue)
			args := []any{r.queue, k.task, r.force(), r.token.Epoch.String()}
			for _, m := range moves {
				raw, lock, ok := r.holds(int64(m.task.Receipt))
				if !ok {
					return sources.ErrClosed
				}
				other := m.task.ID + "-" + m.number
				args = append(args, m.number, m.task.ID, r.message(raw, queue, m.task.Key), other, appendText(nil, fieldID, other), lock)
			}
			routeScript.send(ctx, pipe, []string{k.pending, marksOf(queue)}, args, source)
			pipe.SAdd(ctx, queuestat.All, queue)
		}
		cmds := redisconfig.Exec(ctx, pipe)
		err := r.pushed(cmds)
		if !forgotten(err) {
			return err
		}
	}
	return nil
}

// force says whether to push although the store is full.
func (r *router) force() string {
	return flag(r.unique || !r.full.IsZero() && time.Since(r.full) >= forceAfter)
}

// pushed returns the first error of what push has sent, and notes whether a push was refused for
// lack of room. That a queue is listed may wait until there is room: it is said again.
func (r *router) pushed(cmds []redis.Cmder) (err error) {
	full := false
	for _, cmd := range cmds {
		oom := redis.IsOOMError(cmd.Err())
		if oom && cmd.Name() == "sadd" {
			continue
		}
		full = full || oom
		if err == nil {
			err = cmd.Err()
		}
		if routed, ok := cmd.(*redis.Cmd); ok && err == nil {
			if answer, _ := routed.Slice(); number(answer, 0) < 0 {
				// A greater epoch than that settles it, whoever has pushed.
				err = r.fenced(uint64(number(answer, 1)))
			}
		}
	}
	switch {
	case !full:
		r.full = time.Time{}
	case r.full.IsZero():
		r.full = time.Now()
	}
	return err
}

// holds returns the message of a task of the batch, and the lock that it keeps where it goes;
// empty: it has none, or it ends here.
func (r *router) holds(pos int64) (raw, lock string, ok bool) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	it := r.items[pos]
	if it == nil || r.Ended() {
		return "", "", false
	}
	if r.unique {
		lock = it.uniqueKey
	}
	return it.raw, lock, true
}

// message is raw for another queue. A lock of a unique task stays what it is until the
// task is done; on a cluster the queues are apart and it ends here.
func (r *router) message(raw, queue, key string) []byte {
	b := appendText([]byte(raw), fieldQueue, queue)
	if key != "" {
		b = appendHeader(b, HeaderKey, key)
	}
	if !r.unique {
		b = appendText(b, fieldUniqueKey, "")
	}
	return b
}

// openRouter opens a unit.
func (s *Source) openRouter(ctx context.Context, g partition.Grant, tok partition.Token, layout partition.Config) (sources.Stream, error) {
	queue := layout.Unit(g.ID)
	if queue == "" {
		return nil, fmt.Errorf("%s has no unit %v", s.name, g.ID)
	}
	o, err := s.install(ctx, keysOf(queue), g, tok)
	if err != nil {
		return nil, err
	}
	o.suspects = nil // no handler runs with what an ingress has: there is nobody to suspect
	st := newStream(s, g, tok, queue, o)
	r := newRouter(st, layout.Total)
	st.Mu.Lock()
	st.keepLocks = r.unique
	st.Mu.Unlock()
	return r, s.start(ctx, st, layout)
}
