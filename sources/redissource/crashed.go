package redissource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/redisprogress"
)

// buryCrashed makes dead letters of the tasks that ended their peers too often, and
// takes them out of o. Opening has just counted the last crash.
func (s *Source) buryCrashed(ctx context.Context, g partition.Grant, keys Keys, log *redisprogress.Log, o *redisprogress.Opened) error {
	for pos, tried := range o.Tried {
		if tried.Crashes == 0 {
			continue
		}
		element, err := s.element(ctx, keys, o, pos)
		if errors.Is(err, redis.Nil) {
			continue // it was cut off the list
		}
		if err != nil {
			return err
		}
		e, err := parseEnvelope(element)
		crashes := e.crashes + tried.Crashes
		if err != nil || crashes < s.cfg.CrashLimit {
			continue
		}
		reason := fmt.Errorf("its peer died %d times while it ran alone", crashes)
		r := progress.Request{
			Seen: o.Writes, Read: o.Base, Base: o.Base, Alone: progress.None,
			Others: []progress.Verdict{{Position: pos, Outcome: progress.Dead}},
		}
		content := []redisprogress.Content{{Body: buryUnread(pos, element, tried, reason, false, time.Now())}}
		var locks []redisprogress.Lock
		if e.unique {
			locks = append(locks, lockOf(pos, keys, &e))
		}
		pipe := s.client.Pipeline()
		cmd := log.Settle(ctx, pipe, &r, content, locks, true)
		redisconfig.Exec(ctx, pipe)
		reply, err := log.Answer(cmd)
		if err != nil {
			return err
		}
		if reply.Status != progress.Admitted {
			return sources.ErrFenced
		}
		o.Writes = reply.Writes
		o.Ended(pos)
		if s.cfg.Buried != nil {
			s.cfg.Buried(sources.Buried{Grant: g, Tasks: 1, ID: e.id, Position: pos, Reason: reason.Error()})
		}
	}
	return nil
}

// element returns the bytes at an open position.
func (s *Source) element(ctx context.Context, keys Keys, o *redisprogress.Opened, pos int64) (string, error) {
	i := slices.IndexFunc(o.Lifted, func(l redisprogress.Lifted) bool { return l.Position == pos })
	if i >= 0 {
		return o.Lifted[i].Envelope, nil
	}
	if pos < o.Base {
		return "", redis.Nil
	}
	var element *redis.StringCmd
	if err := readMaster(ctx, s.client, keys.Fence, func(pipe redis.Pipeliner) { element = pipe.LIndex(ctx, keys.Pending, pos-o.Base) }); err != nil {
		return "", err
	}
	return element.Result()
}
