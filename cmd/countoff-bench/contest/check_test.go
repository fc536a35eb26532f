package contest

import (
	"strings"
	"testing"

	"github.com/countoff/countoff/partition/redistest"
)

// Every Check passes what is whole, and tells what is not.
func TestChecks(t *testing.T) {
	const base = "hset {bench:0}:fence t  e 3 b 4|hset {bench:1}:fence t  e 3 b 2"
	const queues = "set asynq:{a}:processed 4|set asynq:{b}:processed 2|set asynq:{a}:processed:2026-11-23 4"
	const group = "xadd topic 1-0 a b|xadd topic 2-0 a b|xgroup create topic group 0|xreadgroup group group c streams topic >"
	for _, c := range []struct {
		check Check
		tasks int
		store string // what it holds: commands with | between
		want  string // in the error; empty: none
	}{
		{settled(2), 6, base, ""},
		{settled(2), 7, base, "of 7 tasks 6 are settled"},
		{settled(2), 5, base, "of 5 tasks 6 are settled"},
		{settled(2), 6, base + "|hset {bench:1}:fence t 3:x", "partition 1 was not given back by 3:x"},
		{settled(2), 6, base + "|rpush {bench:1}:pending x", "the list {bench:1}:pending is left"},
		{settled(2), 6, base + "|zadd {bench:0}:done 5 5", "the zset {bench:0}:done is left"},
		{settled(2), 6, base + "|hset {bench:0}:lifted 1 x", "the hash {bench:0}:lifted is left"},
		{settled(2), 6, base + "|hset {bench:0}:tries 1 x", "the hash {bench:0}:tries is left"},
		{settled(2), 6, base + "|zadd {bench:0}:delayed 1 x", "the zset {bench:0}:delayed is left"},
		{settled(2), 6, base + "|rpush {bench:0}:dead x", "the list {bench:0}:dead is left"},
		{settledQueues("a", "b"), 6, queues, ""},
		{settledQueues("a", "b"), 7, queues, "of 7 tasks 6 are processed"},
		{settledQueues("a", "b"), 6, queues + "|set asynq:{b}:failed 1", "asynq:{b}:failed is left"},
		{settledQueues("a", "b"), 6, queues + "|rpush asynq:{b}:active x", "asynq:{b}:active is left"},
		{settledQueues("a", "b"), 6, queues + "|zadd asynq:{b}:completed 1 x", "asynq:{b}:completed is left"},
		{settledQueues("a", "b"), 6, queues + "|hset asynq:{a}:t:x msg m", "asynq:{a}:t:x is left"},
		{acknowledged("topic"), 2, group + "|xack topic group 1-0 2-0", ""},
		{acknowledged("topic"), 2, group + "|xack topic group 1-0", "of 2 tasks"},
		{acknowledged("topic"), 2, group + "|xack topic group 1-0 2-0|xadd topic 3-0 a b", "of 2 tasks 3 are in the stream"},
		{acknowledged("topic"), 3, group + "|xack topic group 1-0 2-0|xadd topic 3-0 a b", "up to [{3-0"},
		{emptied("a", "b"), 6, "", ""},
		{emptied("a", "b"), 6, "rpush b x", "the list b is left"},
		{stored("a", "b"), 3, "rpush a x y|rpush b x", ""},
		{stored("a", "b"), 3, "rpush a x", "3 tasks were enqueued, 1 are there"},
	} {
		t.Run(c.store, func(t *testing.T) {
			_, mini := redistest.Mini(t)
			client := redistest.Single(t, mini)
			for command := range strings.SplitSeq(c.store, "|") {
				var args []any
				for word := range strings.SplitSeq(command, " ") {
					args = append(args, word)
				}
				if c.store != "" {
					if err := client.Do(t.Context(), args...).Err(); err != nil {
						t.Fatalf("%q: %v", command, err)
					}
				}
			}
			err := c.check(t.Context(), client, c.tasks)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
