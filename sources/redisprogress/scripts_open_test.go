package redisprogress_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/redisprogress"
)

// What earlier owners left counts only if the fence still stands when it was read.
func TestOpenIsOvertaken(t *testing.T) {
	s := newScripts(t)
	s.owner(1)
	s.must(s.client.ZAdd(s.ctx, s.keys.Done, redis.Z{Score: 2, Member: "2"}).Err()) // without anything nothing is read
	overtaken := false
	s.client.AddHook(before(func() {
		if !overtaken {
			overtaken = true
			s.owner(3)
			s.admitted(token(3), 4, nil)
		}
	}))
	_, err := s.log(token(2)).Open(s.ctx, 0)
	if fenced, ok := errors.AsType[*sources.FencedError](err); !ok || fenced.Stored != 3 {
		t.Errorf("an open that was overtaken while it read: %v", err)
	}
}

// A store that lost the fence while its owner read is no older owner's: it forgot.
func TestOpenIsForgotten(t *testing.T) {
	for name, lose := range map[string]func(s *scripts) error{
		"the fence": func(s *scripts) error { return s.client.Del(s.ctx, s.keys.Fence).Err() },
		"a write":   func(s *scripts) error { return s.client.HIncrBy(s.ctx, s.keys.Fence, "n", -1).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripts(t)
			s.owner(1)
			s.must(s.client.HSet(s.ctx, s.keys.Tries, "1", "1 0 0 why").Err())
			s.client.AddHook(before(func() { s.must(lose(s)) }))
			if _, err := s.log(token(2)).Open(s.ctx, 0); !errors.Is(err, sources.ErrForgot) {
				t.Errorf("lost while it was read: %v", err)
			}
		})
	}
}

// One script says that nothing is left. Whatever is left, of one kind alone, is read.
func TestOpenReadsWhatIsLeftAndNothingElse(t *testing.T) {
	read := false
	s := newScripts(t)
	s.client.AddHook(before(func() { read = true }))
	open := func(e partition.Epoch) redisprogress.Opened {
		t.Helper()
		read = false
		o, err := s.log(token(e)).Open(s.ctx, 0)
		s.must(err)
		return o
	}
	if o := open(1); read || len(o.Done)+len(o.Lifted)+len(o.Tried) != 0 {
		t.Errorf("nothing is left: read %v, found %+v", read, o)
	}
	s.must(s.client.ZAdd(s.ctx, s.keys.Done, redis.Z{Score: 2, Member: "2"}).Err())
	if o := open(2); len(o.Done) != 1 || fmt.Sprint(o.Writes) != s.fence("n") {
		t.Errorf("a position is done: found %+v after %s writes", o, s.fence("n"))
	}
	s.must(s.client.Del(s.ctx, s.keys.Done).Err())
	s.must(s.client.HSet(s.ctx, s.keys.Tries, "1", "3 0 0 why").Err())
	if o := open(3); o.Tried[1].Tries != 3 {
		t.Errorf("a position was tried: found %+v", o)
	}
	s.must(s.client.Del(s.ctx, s.keys.Tries).Err())
	s.must(s.client.HSet(s.ctx, s.keys.Lifted, "0", "t0").Err())
	if o := open(4); len(o.Lifted) != 1 {
		t.Errorf("a position was lifted: found %+v", o)
	}
}

// However much was lifted, no reply holds more of it than arrives in the time.
func TestOpenReadsLargeTasksInParts(t *testing.T) {
	const most = 16 << 20
	s := newScripts(t)
	s.owner(1)
	sizes := []int{5 << 20, 5 << 20, 5 << 20, 5 << 20, most + 1, 1}
	for i, size := range sizes {
		s.must(s.client.HSet(s.ctx, s.keys.Lifted, fmt.Sprint(i-len(sizes)), make([]byte, size)).Err())
	}
	read := 0
	s.client.AddHook(after(func(cmds []redis.Cmder) {
		for _, cmd := range cmds {
			if cmd, ok := cmd.(*redis.SliceCmd); ok {
				bytes := 0
				for _, v := range cmd.Val() {
					text, _ := v.(string)
					bytes += len(text)
				}
				if read++; bytes > most && len(cmd.Val()) > 1 {
					t.Errorf("%d tasks of %d bytes in one reply", len(cmd.Val()), bytes)
				}
			}
		}
	}))
	o, err := s.log(token(2)).Open(s.ctx, 0)
	s.must(err)
	if read < 3 || len(o.Lifted) != len(sizes) {
		t.Fatalf("%d lifted in %d reads, want %d", len(o.Lifted), read, len(sizes))
	}
	for i, l := range o.Lifted {
		if l.Position != int64(i-len(sizes)) || len(l.Envelope) != sizes[i] {
			t.Errorf("position %d has %d bytes", l.Position, len(l.Envelope))
		}
	}
	// An owner that comes between two of the reads has all of them count for nothing.
	overtaken := false
	s.client.AddHook(after(func(cmds []redis.Cmder) {
		if cmds[0].Name() == "hmget" && !overtaken {
			overtaken = true
			s.owner(9)
		}
	}))
	_, err = s.log(token(3)).Open(s.ctx, 0)
	if fenced, ok := errors.AsType[*sources.FencedError](err); !ok || fenced.Stored != 9 {
		t.Errorf("an open that was overtaken between two reads: %v", err)
	}
}

// An owner that could not read all of what is left has not opened: it would run again what is done, and leave what is lifted.
// Nor is it fenced.
func TestOpenFailsWhole(t *testing.T) {
	s := newScripts(t)
	s.owner(1)
	for x := range 3 {
		s.must(s.client.HSet(s.ctx, s.keys.Lifted, fmt.Sprint(x-3), make([]byte, 9<<20)).Err())
	}
	s.must(s.client.ZAdd(s.ctx, s.keys.Done, redis.Z{Score: 2, Member: "2"}).Err())
	s.must(s.client.HSet(s.ctx, s.keys.Tries, "1", "3 0 0 why").Err())
	lost, at, n := errors.New("the answer is lost"), 0, 0
	s.client.AddHook(loses(func(cmds []redis.Cmder) error {
		if cmds[0].Name() == "hello" || cmds[0].Name() == "client" {
			return nil // of a new connection
		}
		if n++; n != at {
			return nil
		}
		for _, cmd := range cmds {
			cmd.SetErr(lost)
		}
		return lost
	}))
	for at = 1; ; at++ {
		n = 0
		o, err := s.log(token(partition.Epoch(at+1))).Open(s.ctx, 0)
		if n < at {
			if s.must(err); len(o.Lifted) != 3 || len(o.Done) != 1 || len(o.Tried) != 1 {
				t.Errorf("with all answers: found %d lifted, %d done, %d tried", len(o.Lifted), len(o.Done), len(o.Tried))
			}
			break
		}
		if !errors.Is(err, lost) {
			t.Errorf("without answer %d: %v", at, err)
		}
	}
	if at < 6 {
		t.Errorf("it opened in %d requests, want 5 and more", at-1)
	}
}

// A server that was started anew knows no script: who reads what is left brings it along.
func TestOpenBringsTheScript(t *testing.T) {
	s := newScripts(t)
	s.owner(1)
	s.must(s.client.HSet(s.ctx, s.keys.Tries, "1", "3 0 0 why").Err())
	unknown := 0
	s.client.AddHook(loses(func(cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == "evalsha" && len(cmds) > 1 {
				unknown++
				return s.client.EvalSha(s.ctx, "ffffffffffffffffffffffffffffffffffffffff", nil).Err()
			}
		}
		return nil
	}))
	o, err := s.log(token(2)).Open(s.ctx, 0)
	if err != nil || unknown == 0 || o.Tried[1].Tries != 3 {
		t.Errorf("found %+v (%v), after the script was unknown %d times", o, err, unknown)
	}
}

// loses loses the answer to what it returns an error for.
type loses func(cmds []redis.Cmder) error

func (loses) DialHook(next redis.DialHook) redis.DialHook { return next }
func (l loses) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := l([]redis.Cmder{cmd}); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (l loses) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := l(cmds); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

// after runs after each pipeline.
type after func(cmds []redis.Cmder)

func (after) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (after) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (a after) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		a(cmds)
		return err
	}
}

// before runs before a pipeline that reads what earlier owners left.
type before func()

func (before) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (before) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (b before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "zrange" {
			b()
		}
		return next(ctx, cmds)
	}
}

// Where a read may come behind what it was sent before, it looks at the base itself: of another it says nothing.
func TestReadAtTheBase(t *testing.T) {
	s := newScripts(t)
	s.owner(1)
	read := func(client redis.UniversalClient, base int64, source bool) string {
		pipe := client.Pipeline()
		got := redisprogress.New(client, s.keys, partition.Grant{Epoch: 1}, token(1)).Read(s.ctx, pipe, base, base+1, 2, source)
		_, _ = pipe.Exec(s.ctx)
		return fmt.Sprintf("%v, %v", got.Val(), got.Err())
	}
	const there, nothing = "[t1 t2], <nil>", "[], redis: nil"
	for _, base := range []int64{0, 7, 1e15} {
		s.must(s.client.HSet(s.ctx, s.keys.Fence, "b", base).Err())
		for _, source := range []bool{true, false} {
			if got := read(s.client, base, source); got != there {
				t.Errorf("base %v: %s", base, got)
			}
			if got := read(s.client, base+1, source); got != nothing {
				t.Errorf("base %v, reckoned from another: %s", base, got)
			}
		}
	}
	s.must(s.client.Del(s.ctx, s.keys.Fence).Err())
	if got := read(s.client, 0, false); got != nothing {
		t.Errorf("without a fence: %s", got)
	}
	t.Run("one server", func(t *testing.T) { // what is sent to it comes in order
		if got := read(redistest.Single(t, s.client), 7, false); got != there {
			t.Error(got)
		}
	})
}
