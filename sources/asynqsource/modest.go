package asynqsource

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Where the self-test finds that our own scripts do not fit this version of asynq, the
// source is modest: it takes tasks with asynq's own script, one by one in a pipeline,
// and says that they are done with asynq's own as well. That relies on much less of
// asynq: see doc.go.

// fitsScript says how many of the next tasks weigh about ARGV[3] bytes, at least one. They are at the
// right end of pending, where only their owner takes some off. Where that is no list, or the messages are
// elsewhere, as in a version of asynq that nobody knows yet, it says what is wanted.
var fitsScript = newScript(`
local ids, bytes = redis.pcall('LRANGE', KEYS[1], -ARGV[2], -1), tonumber(ARGV[3])
if ids.err then return tonumber(ARGV[2]) end
for i = #ids, 1, -1 do
  if bytes <= 0 then return #ids - i end
  local weight = redis.pcall('HSTRLEN', ARGV[1] .. ids[i], 'msg')
  if type(weight) == 'number' then bytes = bytes - weight end
end
return math.max(#ids, 1)`)

// fit takes no more than what weighs about fetchBytes, as fetch.lua does.
func (s *stream) fit(ctx context.Context, t *trip) (err error) {
	t.most, err = fitsScript.Run(ctx, s.source.client, []string{s.keys.pending}, s.keys.task, t.most, fetchBytes).Int()
	return err
}

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

// triedScript says of each of some tasks what the third word of fetch.lua says.
var triedScript = newScript(`
local t, out = redis.call('TIME'), {}
local ms = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
for i = 2, #ARGV do
  local tries = redis.call('HGET', KEYS[1], ARGV[i])
  if tries and redis.call('HEXISTS', ARGV[1] .. ARGV[i], 'tried') == 0 then
    redis.call('HDEL', KEYS[1], ARGV[i])
    tries = false
  end
  out[i - 1] = tries and ' ' .. ms .. ' ' .. tries or ''
end
return out`)

// sendTried asks what is known of the tasks that asynq's script brought.
func (s *stream) sendTried(ctx context.Context, t *trip) (err error) {
	ids := []any{s.keys.task}
	for _, cmd := range t.single {
		if raw, err := cmd.Text(); err == nil {
			m, _ := parseMessage(raw) // without an id where it cannot be read
			ids = append(ids, m.id)
		}
	}
	if len(ids) > 1 {
		t.pasts, err = triedScript.Run(ctx, s.source.client, []string{s.keys.tries}, ids...).StringSlice()
	}
	return err
}

// applyDequeued takes in what asynq's script brought, and returns how many there were.
// The caller holds the lock.
func (s *stream) applyDequeued(t *trip, now time.Time) (took int, err error) {
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
		p, err := parsePast(t.pasts[took-1], now)
		if err != nil {
			return took, fmt.Errorf("%s of %q: %w", s.keys.tries, m.id, err)
		}
		s.take(m.id, raw, p)
	}
	return took, nil
}
