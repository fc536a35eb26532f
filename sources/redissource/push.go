package redissource

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
)

//go:embed bell.lua
var bellSource string

//go:embed push.lua
var pushSource string

var pushScript = newScript(bellSource + pushSource)

// A script is a Lua script that travels by its digest.
type script struct {
	*redis.Script
	source string
}

func newScript(source string) script { return script{redis.NewScript(source), source} }

// queue appends a call to a pipeline.
func (s script) queue(ctx context.Context, pipe redis.Pipeliner, source bool, keys []string, args []any) *redis.Cmd {
	cmd := s.call(ctx, source, keys, args)
	_ = pipe.Process(ctx, cmd) // which only appends it
	return cmd
}

// call is a call for a pipeline, by the digest or, for a store that has forgotten it, with the
// source. A pipeline cannot fall back by itself: its other commands have run by then.
func (s script) call(ctx context.Context, source bool, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	if source {
		all = append(all, "eval", s.source, len(keys))
	} else {
		all = append(all, "evalsha", s.Hash(), len(keys))
	}
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// A pushHead is what push.lua is told of a whole batch.
type pushHead struct {
	era         int64
	first, last int64
	positions   string        // '' = each from first to last
	life        time.Duration // of the mark, whole seconds; 0: for ever
	backlog     int
	total       int
	force       bool
	each        bool // five arguments for each message
}

// A pushTarget is what push.lua is told of one log: count messages are for it.
type pushTarget struct {
	keys  *Keys
	count int
}

// arguments returns the keys, and the arguments but for the messages, with room for
// them.
func (h pushHead) arguments(mark string, targets []pushTarget, messages int) (keys []string, args []any) {
	force, form, size, width := "", "", 1, 2
	if h.force {
		force = "1"
	}
	if h.each {
		form, size, width = "each", 5, 4
	}
	keys = append(make([]string, 0, 1+width*len(targets)), mark)
	args = append(make([]any, 0, 10+len(targets)+size*messages), h.era, h.first, h.last, h.positions,
		int64(h.life/time.Second), h.backlog, h.total, force, form, len(targets))
	for _, t := range targets {
		keys = append(keys, t.keys.Pending, t.keys.Fence)
		if h.each {
			keys = append(keys, t.keys.Delayed, t.keys.Dead)
		}
		args = append(args, t.count)
	}
	return keys, args
}

// A pushAnswer is what push.lua answers.
type pushAnswer struct{ status, detail string }

func parsePush(cmd *redis.Cmd) (pushAnswer, error) {
	s, err := cmd.StringSlice()
	if err != nil {
		return pushAnswer{}, err
	}
	if len(s) != 2 {
		return pushAnswer{}, fmt.Errorf("redissource: push: answer %q", s)
	}
	return pushAnswer{s[0], s[1]}, nil
}

// errWrongType is the letter 'w'.
var errWrongType = redisconfig.Explain(errors.New(
	"WRONGTYPE a key of the partition (its log, its fence, its delayed tasks or its dead letters) holds something else"))

// neverSent reports whether err is of a request that did not leave this process.
func neverSent(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}
