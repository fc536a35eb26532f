package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/progress"
)

// send does the round trip. Its error says that nothing is known of it, or that a part
// of it was not executed.
func (s *stream) send(ctx context.Context, t *trip) error {
	if t.most > 0 && s.source.modest.Load() {
		if err := s.fit(ctx, t); err != nil {
			return err
		}
	}
	pipe := s.source.client.Pipeline()
	number := strconv.FormatInt(t.number, 10)
	t.natives, t.single, t.taken = t.natives[:0], t.single[:0], nil
	s.sendSettle(ctx, pipe, t, number)
	if t.most > 0 {
		s.sendFetch(ctx, pipe, t, number)
	}
	redisconfig.Exec(ctx, pipe)
	if err := t.head.Err(); err != nil {
		return err
	}
	for _, cmd := range t.natives {
		// What asynq does not find was settled by an earlier attempt. What the fence
		// refuses is told by the head.
		if err := cmd.Err(); err != nil && !refused(err) && !strings.Contains(err.Error(), "NOT FOUND") {
			return err
		}
	}
	if err := s.takenErr(t); err != nil {
		return err
	}
	return s.sendTried(ctx, t)
}

func (s *stream) takenErr(t *trip) error {
	for _, cmd := range t.single {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !refused(err) {
			return err
		}
	}
	if t.taken == nil {
		return nil
	}
	return t.taken.Err()
}

// verdicts are the arguments of settle.lua, by what they say.
type verdicts struct {
	done, locked, kept, retries, requeues, dead []any
	locks, keptLocks                            []string
	natives                                     []*native
}

// tries is how often a task was tried, as settle.lua is told it.
func (c *content) tries(n int) string {
	if c.quiet {
		return "-" + progress.Runs(n, c.waits)
	}
	return progress.Runs(n, c.waits)
}

// sendSettle sends the head of a trip and what asynq says of tasks itself.
func (s *stream) sendSettle(ctx context.Context, pipe redis.Pipeliner, t *trip, number string) {
	var v verdicts
	s.Mu.Lock()
	for i := range t.request.Others {
		o := &t.request.Others[i]
		it, c := s.items[o.Position], &t.content[i]
		switch {
		case it == nil:
		case c.native != nil:
			v.natives = append(v.natives, c.native)
		case o.Outcome == progress.Retry:
			v.retries = append(v.retries, it.id, c.tries(o.Attempt), c.delay.Milliseconds(), c.reason, c.message)
		case o.Outcome == progress.Requeue:
			v.requeues = append(v.requeues, it.id, c.tries(o.Attempt), c.delay.Milliseconds(), c.reason, c.message)
		case o.Outcome == progress.Dead:
			v.dead = append(v.dead, it.id, c.message)
		}
	}
	for _, pos := range t.request.Done {
		it := s.items[pos]
		if it == nil {
			continue
		}
		c := it.end
		switch {
		case c.native != nil:
			v.natives = append(v.natives, c.native)
		case c.keep > 0:
			v.kept = append(v.kept, it.id, c.message, c.keep, flag(c.lock != ""))
			if c.lock != "" {
				v.keptLocks = append(v.keptLocks, c.lock)
			}
		case c.lock != "":
			v.locked, v.locks = append(v.locked, it.id), append(v.locks, c.lock)
		default:
			v.done = append(v.done, it.id)
		}
	}
	alone := ""
	if it := s.items[t.request.Alone]; it != nil { // nil of progress.None, too
		alone = fmt.Sprintf("%d %s", t.request.AloneTries, it.id)
	}
	s.Mu.Unlock()

	now := time.Now()
	today, k := day(now), &s.keys
	names := append([]string{
		k.fence, k.pending, k.active, k.lease, k.retry, k.archived, k.completed, k.tries, k.suspects,
		k.processed + today, k.failed + today, k.processed, k.failed,
	}, slices.Concat(v.locks, v.keptLocks)...)
	args := append(make([]any, 0, 8+len(v.done)+len(v.locked)+len(v.kept)+len(v.retries)+len(v.requeues)+len(v.dead)),
		s.fence, number, t.request.Seen, k.task, alone, flag(t.extend), now.Add(countersLive).Unix(), v.counts())
	for _, more := range [][]any{v.done, v.locked, v.kept, v.retries, v.requeues, v.dead} {
		args = append(args, more...)
	}
	// What runs next is in the head, and the end of what ran may be among the natives behind it:
	// if the pipeline is cut between them the store knows the next one as alone while nothing
	// runs. The one that ran has ended, and stays a suspect until that is said.
	t.head = settleScript.send(ctx, pipe, names, args, t.source)
	for _, n := range v.natives {
		t.natives = append(t.natives, n.send(ctx, pipe, s.keys, s.fence, number, n.id(), t.source))
	}
}

// counts says how many of each kind there are; nothing if there are none.
func (v *verdicts) counts() string {
	n := [...]int{len(v.done), len(v.locked), len(v.kept) / 4, len(v.retries) / 5, len(v.requeues) / 5, len(v.dead) / 2}
	if n == [6]int{} {
		return ""
	}
	return fmt.Sprintf("%d %d %d %d %d %d", n[0], n[1], n[2], n[3], n[4], n[5])
}

func flag(set bool) string {
	if set {
		return "1"
	}
	return "0"
}

// fetchBytes is about the most bytes of messages that one trip takes: while Redis writes
// a larger answer, and the peer reads it, both are silent for everybody else.
const fetchBytes = 1 << 20

// sendFetch sends what takes tasks.
func (s *stream) sendFetch(ctx context.Context, pipe redis.Pipeliner, t *trip, number string) {
	k, most := &s.keys, t.most
	if s.source.modest.Load() {
		most = 0 // only what a lost reply has left behind, and what is due
	}
	t.taken = fetchScript.send(ctx, pipe,
		[]string{k.fence, k.pending, k.active, k.lease, k.paused, k.scheduled, k.retry, k.completed, k.tries, k.groups},
		[]any{s.fence, number, most, t.known, k.task, flag(t.forward), k.group, fetchBytes}, t.source)
	if most < t.most {
		s.sendDequeue(ctx, pipe, t, number)
	}
}
