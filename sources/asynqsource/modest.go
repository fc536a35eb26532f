package asynqsource

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Where the self-test finds that our own scripts do not fit this version of asynq, the
// source is modest: it takes tasks with asynq's own script, one by one in a pipeline,
// and says that they are done with asynq's own as well. That relies on much less of
// asynq: see doc.go.

// sendDequeue sends asynq's own script as often as tasks are wanted.
func (s *stream) sendDequeue(ctx context.Context, pipe redis.Pipeliner, t *trip, number string) {
	k := &s.keys
	n := native{
		kind: kindDequeue, script: s.source.library.take(),
		keys: []string{k.pending, k.paused, k.active, k.lease},
		args: []any{time.Now().Add(30 * time.Second).Unix(), k.task},
	}
	for range t.most {
		t.single = append(t.single, n.send(ctx, pipe, s.keys, s.fence, number, "", t.source))
	}
}

// applyDequeued takes in what asynq's script brought, and returns how many there were.
// The caller holds the lock.
func (s *stream) applyDequeued(t *trip) int {
	took := 0
	for _, cmd := range t.single {
		raw, err := cmd.Text()
		if err != nil { // nil: the queue is empty
			continue
		}
		took++
		m, err := parseMessage(raw)
		if err != nil {
			continue // it stays active, and the next trip brings it as one that got lost
		}
		s.take(m.id, raw, 0)
	}
	return took
}
