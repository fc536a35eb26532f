// Package queuestat reads what stands in Redis about the queues of an asynqsource.Source,
// for tools and observers. It links nothing of asynq.
package queuestat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
)

// Field is where the configuration of a name says that its partitions are queues of asynq:
// their names, one a line, or nothing where they are name:0 .. name:P-1.
const Field = "queues"

// A Queues is the queues of a name.
type Queues struct {
	name  string
	named []string // nil: by number
}

// Read returns the queues of name, and whether its partitions are queues of asynq at all.
func Read(ctx context.Context, client redis.UniversalClient, name string) (q Queues, ok bool, err error) {
	text, err := client.HGet(ctx, redisconfig.Key(name), Field).Result()
	if errors.Is(err, redis.Nil) {
		return q, false, nil
	}
	if err != nil {
		return q, false, fmt.Errorf("queuestat: read %s: %w", redisconfig.Key(name), redisconfig.Explain(err))
	}
	q.name = name
	if text != "" {
		q.named = strings.Split(text, "\n")
	}
	return q, true, nil
}

// Named reports whether the queues have names of their own: then it is not the hash of a
// key that says where a task is.
func (q Queues) Named() bool { return len(q.named) > 0 }

// Of is the queue of a partition; empty if there is none.
func (q Queues) Of(id partition.ID) string {
	switch {
	case len(q.named) == 0:
		return q.name + ":" + id.String()
	case id >= 0 && int(id) < len(q.named):
		return q.named[id]
	}
	return ""
}

// Names are the queues of all partitions, of which there are total where they go by number.
func (q Queues) Names(total int) []string {
	if q.Named() {
		return slices.Clone(q.named)
	}
	names := make([]string, total)
	for id := range names {
		names[id] = q.Of(partition.ID(id))
	}
	return names
}

// All is the key of the set in which asynq lists the queues that tasks were put into.
const All = "asynq:queues"

// Pending is the key of the list of tasks that wait in a queue.
func Pending(queue string) string { return prefix(queue) + "pending" }

func prefix(queue string) string { return "asynq:{" + queue + "}:" }

// A Pause is one of asynq's own: nobody takes a task from the queue while it lasts.
type Pause struct {
	Queue string
	Since time.Time // zero: it does not say
}

// Paused are those of queues that asynq pauses, in their order. Of a queue on a node that does not
// answer nothing is known.
func Paused(ctx context.Context, client redis.UniversalClient, queues []string) (all []Pause) {
	keys := make([]string, len(queues))
	for i, queue := range queues {
		keys[i] = prefix(queue) + "paused"
	}
	asked := redisconfig.EachNode(ctx, client, keys, func(pipe redis.Pipeliner, i int) { pipe.Get(ctx, keys[i]) })
	for i, cmds := range asked {
		text, err := cmds[0].(*redis.StringCmd).Result()
		if err != nil {
			continue
		}
		p := Pause{Queue: queues[i]}
		if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
			p.Since = time.Unix(seconds, 0)
		}
		all = append(all, p)
	}
	return all
}

// Traces are those of queues that show that tasks were put into them, whether asynq lists them or not, and
// those that show nothing. Of a queue on a node that does not answer nothing is known: it is in neither.
func Traces(ctx context.Context, client redis.UniversalClient, queues []string) (some, none []string) {
	first := make([]string, len(queues))
	for i, queue := range queues {
		first[i] = Pending(queue)
	}
	asked := redisconfig.EachNode(ctx, client, first, func(pipe redis.Pipeliner, i int) {
		var keys []string
		for _, end := range [...]string{"pending", "active", "scheduled", "retry", "archived", "completed", "groups", "processed"} {
			keys = append(keys, prefix(queues[i])+end)
		}
		pipe.Exists(ctx, keys...)
	})
	for i, cmds := range asked {
		n, err := cmds[0].(*redis.IntCmd).Result()
		switch {
		case err != nil:
		case n > 0:
			some = append(some, queues[i])
		default:
			none = append(none, queues[i])
		}
	}
	return some, none
}

// ofKey says what the keys of a queue are: asynq's, and those that stand beside them.
var ofKey = []struct{ begin, end, kind string }{
	{"asynq:", "pending", "list"}, {"asynq:", "active", "list"},
	{"asynq:", "lease", "zset"}, {"asynq:", "scheduled", "zset"}, {"asynq:", "retry", "zset"},
	{"asynq:", "archived", "zset"}, {"asynq:", "completed", "zset"},
	{"asynq:", "aggregation_sets", "zset"}, {"asynq:", "groups", "set"},
	{"", "fence", "hash"}, {"", "tries", "hash"}, {"", "suspects", "set"},
}

// Overwritten says of each key of queues that holds something else than it should what it is.
func Overwritten(ctx context.Context, client redis.UniversalClient, queues []string) (wrong []string, err error) {
	if len(queues) == 0 {
		return nil, nil
	}
	pipe := client.Pipeline()
	for _, queue := range queues {
		for _, k := range ofKey {
			pipe.Type(ctx, k.begin+"{"+queue+"}:"+k.end)
		}
	}
	cmds, err := pipe.Exec(ctx)
	if err != nil {
		return nil, fmt.Errorf("queuestat: types of keys: %w", err)
	}
	for i, cmd := range cmds {
		k := ofKey[i%len(ofKey)]
		if is := cmd.(*redis.StatusCmd).Val(); is != k.kind && is != "none" {
			wrong = append(wrong, fmt.Sprintf("%s is a %s and no %s", cmd.Args()[1], is, k.kind))
		}
	}
	return wrong, nil
}

// A Stat is what one queue holds.
type Stat struct {
	ID partition.ID
	// Fence is the token that may fetch and settle now; zero while nobody may.
	Fence partition.Token
	// Pending tasks wait. Active ones are in the hands of the owner: they run, wait for
	// their turn in it, or for their retry.
	Pending, Active int
	Delayed         int // scheduled, retried later by asynq, or in a group
	Archived        int
	// Err is why nothing else is known of the queue: a node of a cluster does not answer, or
	// another program has written one of its keys.
	Err error
}

// last is the cursor behind the last group, and that before the first one.
const last = "0"

// countGroups counts the tasks that wait in some groups of a queue, from a cursor on, and first in the sets that were taken out of
// groups. It returns the next cursor. All of a million groups would hold up the store for seconds.
const countGroups = `local n, some = 0, redis.call('SSCAN', KEYS[1], ARGV[2], 'COUNT', 1000)
for _, group in ipairs(some[2]) do n = n + redis.call('ZCARD', ARGV[1] .. 'g:' .. group) end
if ARGV[2] == '0' then
  for _, set in ipairs(redis.call('ZRANGE', ARGV[1] .. 'aggregation_sets', 0, -1)) do n = n + redis.call('ZCARD', set) end
end
return {n, some[1]}`

// Stats reads what the partitions ids hold, in one round trip, and one more for each further thousand groups of a queue. Each partition is a moment
// of its own; one that cannot be read says so in its Err. If none can, that is an error.
// Nodes of a cluster have half of the time of ctx to answer.
func (q Queues) Stats(ctx context.Context, client redis.UniversalClient, ids []partition.ID) ([]Stat, error) {
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = Pending(q.Of(id))
	}
	asked := redisconfig.EachNode(ctx, client, keys, func(pipe redis.Pipeliner, i int) {
		queue := q.Of(ids[i])
		of := prefix(queue)
		pipe.HGet(ctx, "{"+queue+"}:fence", "t")
		pipe.LLen(ctx, keys[i])
		pipe.LLen(ctx, of+"active")
		pipe.ZCard(ctx, of+"scheduled")
		pipe.ZCard(ctx, of+"retry")
		pipe.ZCard(ctx, of+"archived")
		pipe.EvalRO(ctx, countGroups, []string{of + "groups"}, of, last)
	})
	out, unread, cursors := make([]Stat, len(ids)), 0, make(map[int]string)
	note := func(i int, cursor string, err error) {
		if delete(cursors, i); cursor != last {
			cursors[i] = cursor
		}
		if err != nil {
			out[i] = Stat{ID: ids[i], Err: redisconfig.Explain(err)}
			unread++
		}
	}
	for i, cmds := range asked {
		s, cursor, err := stat(ids[i], cmds)
		out[i] = s
		note(i, cursor, err)
	}
	for len(cursors) > 0 {
		more := slices.Sorted(maps.Keys(cursors))
		of := make([]string, len(more))
		for j, i := range more {
			of[j] = prefix(q.Of(ids[i]))
			keys[j] = of[j] + "groups"
		}
		asked := redisconfig.EachNode(ctx, client, keys[:len(more)], func(pipe redis.Pipeliner, j int) {
			pipe.EvalRO(ctx, countGroups, []string{keys[j]}, of[j], cursors[more[j]])
		})
		for j, cmds := range asked {
			n, cursor, err := grouped(cmds[0])
			out[more[j]].Delayed += n
			note(more[j], cursor, err)
		}
	}
	if unread > 0 && unread == len(ids) {
		return nil, fmt.Errorf("queuestat: queues of %s: %w", q.name, out[unread-1].Err)
	}
	return out, nil
}

// Delayed is how many tasks of each of queues wait for their time or in a group; 0 also where that cannot be read, or not
// in half of the time of ctx.
func Delayed(ctx context.Context, client redis.UniversalClient, queues []string) []int {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	ids, out := make([]partition.ID, len(queues)), make([]int, len(queues))
	for i := range ids {
		ids[i] = partition.ID(i)
	}
	stats, err := Queues{named: queues}.Stats(ctx, client, ids)
	if err != nil { // none can be read
		return out
	}
	for i, s := range stats {
		out[i] = s.Delayed
	}
	return out
}

// grouped is what countGroups says: how many tasks, and the next cursor; last: there is none.
func grouped(cmd redis.Cmder) (n int, cursor string, err error) {
	said, err := cmd.(*redis.Cmd).Slice()
	if err != nil {
		return 0, last, err
	}
	if len(said) == 2 {
		count, counted := said[0].(int64)
		cursor, ok := said[1].(string)
		if counted && ok {
			return int(count), cursor, nil
		}
	}
	return 0, last, fmt.Errorf("queuestat: the store says %v of groups", said)
}

// stat is what the answers say of a partition, and from which cursor on its groups are not counted yet; last: all are.
func stat(id partition.ID, cmds []redis.Cmder) (s Stat, cursor string, err error) {
	s = Stat{ID: id}
	token, err := cmds[0].(*redis.StringCmd).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return s, last, err
	}
	if token != "" {
		if s.Fence, err = partition.ParseToken(token); err != nil {
			return s, last, err
		}
	}
	var n [5]int
	for i, cmd := range cmds[1:6] {
		count, err := cmd.(*redis.IntCmd).Result()
		if err != nil {
			return s, last, err
		}
		n[i] = int(count)
	}
	inGroups, cursor, err := grouped(cmds[6])
	if err != nil {
		return s, last, err
	}
	s.Pending, s.Active, s.Delayed, s.Archived = n[0], n[1], n[2]+n[3]+inGroups, n[4]
	return s, cursor, nil
}
