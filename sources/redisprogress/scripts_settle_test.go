package redisprogress_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/redisprogress"
)

// settleRules are of what is settled, lifted, delayed and dead.
var settleRules = rules{
	"a base is absolute": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		for range 2 { // the second one is repeated, or late
			s.admitted(tok, 2, func(r *progress.Request) { r.Seen = 0 })
		}
		s.admitted(tok, 1, nil) // an earlier one, late
		if st := s.State(); st.Base != 2 || !slices.Equal(st.Pending, []string{"t2", "t3"}) {
			t.Errorf("base %d, left %v", st.Base, st.Pending)
		}
		s.admitted(tok, 3, nil)
		if st := s.State(); st.Base != 3 || !slices.Equal(st.Pending, []string{"t3"}) {
			t.Errorf("base %d, left %v", st.Base, st.Pending)
		}
	},
	"nothing becomes of a task twice": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.admitted(tok, 0, done(1))
		for _, o := range []progress.Outcome{progress.Retry, progress.Requeue, progress.Dead} {
			s.admitted(tok, 0, other(1, o, 1))
		}
		s.admitted(tok, 2, nil)
		for _, o := range []progress.Outcome{progress.Retry, progress.Requeue, progress.Dead} {
			s.admitted(tok, 2, other(0, o, 1))
		}
		s.admitted(tok, 2, done(1, 4, 9)) // one is below the base, two are beyond the list
		if st := s.State(); len(st.Delayed)+len(st.Dead)+st.Tries+len(st.Done) != 0 {
			t.Errorf("left: %+v", st)
		}
	},
	"effects come before the trim": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.admitted(tok, 1, other(0, progress.Dead, 1))
		s.admitted(tok, 2, other(1, progress.Requeue, 1))
		if st := s.State(); len(st.Dead) != 1 || len(st.Delayed) != 1 {
			t.Errorf("left: %+v", st)
		}
	},
	"the try number only rises": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.admitted(tok, 0, other(0, progress.Retry, 2))
		s.admitted(tok, 0, other(0, progress.Retry, 1))
		if o := s.Open(token(2)); o.Tried[0].Tries != 2 {
			t.Errorf("tried %+v", o.Tried)
		}
	},
	"a retry stays in its place": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.admitted(tok, 0, other(0, progress.Retry, 1))
		if st := s.State(); len(st.Pending) != 4 || len(st.Delayed)+len(st.Done) != 0 {
			t.Errorf("left: %+v", st)
		}
	},
	"what is lifted is carried along": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.admitted(tok, 2, func(r *progress.Request) { r.Lift, r.Done = []int64{0}, []int64{1} })
		if st := s.State(); len(st.Lifted) != 1 || st.Lifted[0].Element != "t0" || len(st.Done) != 0 {
			t.Errorf("left: %+v", st)
		}
	},
	"what is finished is not lifted": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.admitted(tok, 0, done(1))
		s.admitted(tok, 2, lift(0, 1)) // left before 1 ended, and is late
		if st := s.State(); len(st.Lifted) != 1 || st.Lifted[0].Position != 0 {
			t.Errorf("lifted: %+v", st.Lifted)
		}
	},
	"a late lift is void": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.admitted(tok, 2, nil)
		s.admitted(tok, 3, lift(0, 2))
		if st := s.State(); len(st.Lifted) != 1 || st.Lifted[0].Position != 2 || st.Lifted[0].Element != "t2" {
			t.Errorf("lifted: %+v", st.Lifted)
		}
	},
	"what is lifted can be settled": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.admitted(tok, 2, lift(0, 1))
		s.admitted(tok, 2, done(0))
		s.admitted(tok, 2, other(1, progress.Retry, 1))
		s.admitted(tok, 2, other(1, progress.Dead, 2))
		if st := s.State(); len(st.Lifted)+st.Tries+len(st.Done) != 0 || len(st.Dead) != 1 {
			t.Errorf("left: %+v", st)
		}
	},
	"the done set only grows, until the base passes it": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.admitted(tok, 0, done(1))
		s.admitted(tok, 0, done(3))
		if o := s.Open(token(2)); !slices.Equal(o.Done, []int64{1, 3}) {
			t.Errorf("done %v", o.Done)
		}
		s.admitted(token(2), 2, done(0))
		if o := s.Open(token(3)); !slices.Equal(o.Done, []int64{3}) {
			t.Errorf("done %v", o.Done)
		}
	},
	"what is requeued ahead of the base is there once": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		for range 2 {
			s.admitted(tok, 0, other(2, progress.Requeue, 1))
		}
		if st := s.State(); len(st.Delayed) != 1 || len(st.Done) != 1 {
			t.Errorf("left: %+v", st)
		}
	},
	"what is done at the new base stays done": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.admitted(tok, 0, done(2))
		s.admitted(tok, 2, nil)
		if o := s.Open(token(2)); !slices.Equal(o.Done, []int64{2}) {
			t.Errorf("done %v, want 2", o.Done)
		}
	},
	"what the base does not pass is not lifted": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.admitted(tok, 2, lift(0, 1, 2))
		if st := s.State(); len(st.Lifted) != 2 {
			t.Errorf("lifted %+v, and 2 is in the list too", st.Lifted)
		}
	},
	"a retry keeps the crashes and the first error": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.must(s.client.HSet(s.ctx, s.keys.Tries, "0", "1 2 0 the first").Err())
		s.admitted(tok, 0, other(0, progress.Retry, 2))
		o, err := s.log(token(2)).Open(s.ctx, 0)
		s.must(err)
		if got := o.Tried[0]; got.Tries != 2 || got.Crashes != 2 || got.FirstError != "the first" {
			t.Errorf("tried %+v", got)
		}
	},
	"a retry acquits nobody else": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.admitted(tok, 0, alone(0, 0))
		s.admitted(tok, 0, other(1, progress.Retry, 1)) // late, of what ran before
		if a := s.fence("a"); a != "0" {
			t.Errorf("alone %q, want 0", a)
		}
	},
	"an end releases the lock of its task and no other": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		tag := strings.TrimSuffix(s.keys.Fence, ":fence")
		for i, end := range []func(*progress.Request){done(0), other(1, progress.Dead, 1), done(2), other(3, progress.Dead, 1)} {
			key, holds := tag+":unique", "mine"
			if i >= 2 {
				holds = "another's"
			}
			s.must(s.client.Set(s.ctx, key, holds, 0).Err())
			r := &progress.Request{Seen: s.seen, Read: 4, Gate: 4, Alone: progress.None}
			end(r)
			pipe := s.client.Pipeline()
			s.log(tok).Settle(s.ctx, pipe, r, make([]redisprogress.Content, len(r.Others)),
				[]redisprogress.Lock{{Position: int64(i), Key: key, Value: "mine"}}, true)
			_, err := pipe.Exec(s.ctx)
			s.must(err)
			if stands := s.client.Exists(s.ctx, key).Val() == 1; stands != (i >= 2) {
				t.Errorf("%d ended, and the lock, which was %s, stands: %v", i, holds, stands)
			}
		}
	},
	"the letter is not repeated where the tries are something else": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.must(s.client.Set(s.ctx, s.keys.Tries, "no hash", 0).Err())
		r := &progress.Request{Seen: s.seen, Read: 4, Gate: 4, Alone: progress.None}
		other(1, progress.Dead, 1)(r)
		for range 2 {
			pipe := s.client.Pipeline()
			s.log(tok).Settle(s.ctx, pipe, r, make([]redisprogress.Content, 1), nil, true)
			if _, err := pipe.Exec(s.ctx); err == nil {
				t.Error("it was settled")
			}
		}
		if n := s.client.LLen(s.ctx, s.keys.Dead).Val(); n != 0 {
			t.Errorf("%d letters of a task that is open", n)
		}
	},
	"a task is not requeued again and again where the tries are something else": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.must(s.client.Set(s.ctx, s.keys.Tries, "no hash", 0).Err())
		r := &progress.Request{Seen: s.seen, Read: 4, Gate: 4, Alone: progress.None}
		other(1, progress.Requeue, 1)(r)
		pipe := s.client.Pipeline()
		s.log(tok).Settle(s.ctx, pipe, r, []redisprogress.Content{{Body: []byte("body")}}, nil, true)
		if _, err := pipe.Exec(s.ctx); err == nil {
			t.Error("it was settled")
		}
		if n := s.client.ZCard(s.ctx, s.keys.Delayed).Val(); n != 0 {
			t.Errorf("%d delayed, of a task that is open", n)
		}
	},
	"the list is not cut where what is done is something else": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.must(s.client.Set(s.ctx, s.keys.Done, "no set", 0).Err())
		r := &progress.Request{Seen: s.seen, Read: 1, Base: 1, Gate: 1, Alone: progress.None} // t0 has ended, the others were not read
		for range 3 {
			pipe := s.client.Pipeline()
			s.log(tok).Settle(s.ctx, pipe, r, nil, nil, true)
			if _, err := pipe.Exec(s.ctx); err == nil {
				t.Error("it was settled")
			}
		}
		if left := s.client.LRange(s.ctx, s.keys.Pending, 0, -1).Val(); len(left) != 4 {
			t.Errorf("%v are left of four tasks", left)
		}
		s.must(s.client.Del(s.ctx, s.keys.Done).Err())
		if a := s.Settle(tok, r, nil); a.Status != progress.Admitted || a.Base != 1 {
			t.Errorf("mended, it is answered %+v", a)
		}
		if left := s.client.LRange(s.ctx, s.keys.Pending, 0, -1).Val(); !slices.Equal(left, []string{"t1", "t2", "t3"}) {
			t.Errorf("%v are left", left)
		}
	},
	"the letter is not repeated where the lock is something else": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		lock := strings.TrimSuffix(s.keys.Fence, ":fence") + ":unique:x"
		s.must(s.client.RPush(s.ctx, lock, "no lock").Err())
		r := &progress.Request{Seen: s.seen, Read: 4, Gate: 4, Alone: progress.None}
		other(1, progress.Dead, 1)(r)
		for range 2 {
			s.reply(tok, r, make([]redisprogress.Content, 1), []redisprogress.Lock{{Position: 1, Key: lock, Value: "mine"}})
		}
		if n := s.client.LLen(s.ctx, s.keys.Dead).Val(); n != 1 || s.client.Exists(s.ctx, lock).Val() != 1 {
			t.Errorf("%d letters, want 1", n)
		}
	},
	"who reads to the end is rung for, who does not is not": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.admitted(tok, 0, func(r *progress.Request) { r.Read, r.Fetch = 0, 4 })
		if w := s.fence("w"); w != "" {
			t.Errorf("waits: %q, and got all it asked for", w)
		}
		s.admitted(tok, 0, func(r *progress.Request) { r.Read, r.Fetch = 0, 5 })
		if w := s.fence("w"); w != "1" {
			t.Errorf("waits: %q, and the list was too short", w)
		}
		tok = s.owner(2)
		if w := s.fence("w"); w != "" {
			t.Errorf("waits: %q, of an owner that has read nothing", w)
		}
		s.admitted(tok, 0, func(r *progress.Request) { r.Read, r.Fetch = 0, 5 })
		s.Close(tok)
		if w := s.fence("w"); w != "" {
			t.Errorf("waits: %q, and its owner has closed", w)
		}
	},
	"who waits, or requeued, is told when the next delayed task is due": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		r := &progress.Request{Seen: s.seen, Fetch: 5, Alone: progress.None}
		if a := s.reply(tok, r, nil, nil); !a.Asked || a.Due >= 0 || a.End != 4 {
			t.Errorf("nothing is delayed, and who waits at 4 is told %+v", a)
		}
		in := func(a redisprogress.Reply) bool {
			return a.Asked && a.Due > 30*time.Second && a.Due <= time.Minute
		}
		r = &progress.Request{Seen: s.seen, Read: 4, Alone: progress.None}
		other(0, progress.Requeue, 1)(r)
		if a := s.reply(tok, r, []redisprogress.Content{{Body: []byte("t0"), Delay: time.Minute}}, nil); !in(a) {
			t.Errorf("who requeued is told %+v, want a minute", a)
		}
		r = &progress.Request{Seen: s.seen, Fetch: 5, Alone: progress.None}
		if a := s.reply(tok, r, nil, nil); !in(a) {
			t.Errorf("who waits is told %+v, want a minute", a)
		}
		r.Fetch = 4
		if a := s.reply(tok, r, nil, nil); a.Asked {
			t.Errorf("who got all it asked for is told %+v", a)
		}
	},
	"one settlement has everything to say": func(t *testing.T, s *scripts) {
		for _, e := range []string{"t4", "t5", "t6", "t7"} {
			s.Push(e)
		}
		tok := s.owner(1)
		r := &progress.Request{Seen: s.seen, Read: 8, Gate: 8, Alone: progress.None, Done: []int64{6, 7}}
		content := make([]redisprogress.Content, 6)
		for i, o := range []progress.Outcome{
			progress.Dead, progress.Retry, progress.Requeue, progress.Dead, progress.Retry, progress.Requeue,
		} {
			r.Others = append(r.Others, progress.Verdict{Position: int64(i), Outcome: o, Attempt: i})
			content[i] = redisprogress.Content{
				Body: fmt.Append(nil, "body ", i), Error: fmt.Sprint("error ", i), Delay: time.Duration(i) * time.Hour,
			}
		}
		tag := strings.TrimSuffix(s.keys.Fence, ":fence")
		var locks []redisprogress.Lock
		for _, pos := range []int64{3, 6, 7} {
			k := redisprogress.Lock{Position: pos, Key: fmt.Sprint(tag, ":unique:", pos), Value: fmt.Sprint("of ", pos)}
			s.must(s.client.Set(s.ctx, k.Key, k.Value, 0).Err())
			locks = append(locks, k)
		}
		if a := s.reply(tok, r, content, locks); a.Status != progress.Admitted || a.End != 8 || a.Due < time.Hour {
			t.Fatalf("answered %+v", a)
		}
		for _, k := range locks {
			if s.client.Exists(s.ctx, k.Key).Val() != 0 {
				t.Errorf("the lock of %d stands", k.Position)
			}
		}
		st := s.State()
		if !slices.Equal(st.Delayed, []string{"body 2", "body 5"}) || !slices.Equal(st.Dead, []string{"body 0", "body 3"}) ||
			!slices.Equal(st.Done, []int64{0, 2, 3, 5, 6, 7}) {
			t.Errorf("delayed %q, dead %q, done %v", st.Delayed, st.Dead, st.Done)
		}
		o, err := s.log(token(2)).Open(s.ctx, 0)
		s.must(err)
		for _, i := range []int64{1, 4} {
			got, wait := o.Tried[i], time.Until(o.Tried[i].NotBefore)
			if got.Tries != int(i) || got.FirstError != fmt.Sprint("error ", i) || wait.Round(time.Hour) != time.Duration(i)*time.Hour {
				t.Errorf("%d: %+v", i, got)
			}
		}
	},
	"where the log is elsewhere its letters are, too": func(t *testing.T, s *scripts) {
		s.store = newStore(t, s.client, false)
		tok := s.owner(1)
		s.admitted(tok, 0, other(0, progress.Dead, 1))
		if st := s.State(); !slices.Equal(st.Done, []int64{0}) {
			t.Errorf("done %v", st.Done)
		}
	},
	"what was lifted is found in its order": func(t *testing.T, s *scripts) {
		s.store = newStore(t, s.client, false)
		tok := s.owner(1)
		var all []int64
		for pos := range int64(64) {
			all = append(all, pos)
		}
		s.admitted(tok, 64, lift(all...))
		var found []int64
		for _, l := range s.Open(token(2)).Lifted {
			found = append(found, l.Position)
		}
		if !slices.Equal(found, all) {
			t.Errorf("found %v", found)
		}
	},
	"a delayed task is moved once, when its time has come": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		now := time.Now()
		for e, at := range map[string]time.Time{"due": now.Add(-time.Minute), "later": now.Add(time.Minute)} {
			s.must(s.client.ZAdd(s.ctx, s.keys.Delayed, redis.Z{Score: float64(at.UnixMilli()), Member: e}).Err())
		}
		for _, want := range []int{1, 0} {
			pipe := s.client.Pipeline()
			cmd := s.log(tok).Move(s.ctx, pipe, 10, true)
			pipe.Exec(s.ctx) // the command has the error
			moved, next, err := redisprogress.Moved(cmd)
			s.must(err)
			if moved != want || next <= 30*time.Second || next > 2*time.Minute {
				t.Errorf("moved %d, the next one in %v; want %d, and a minute", moved, next, want)
			}
		}
		if st := s.State(); !slices.Equal(st.Pending, []string{"t0", "t1", "t2", "t3", "due"}) || !slices.Equal(st.Delayed, []string{"later"}) {
			t.Errorf("pending %v, delayed %v", st.Pending, st.Delayed)
		}
	},
	"of large delayed tasks a few are moved at once, the earliest first": func(t *testing.T, s *scripts) {
		tok, large := s.owner(1), strings.Repeat("x", 300<<10)
		at := time.Now().Add(-time.Minute).UnixMilli()
		for i := range 6 {
			s.must(s.client.ZAdd(s.ctx, s.keys.Delayed, redis.Z{Score: float64(at + int64(i)), Member: strconv.Itoa(6-i) + large}).Err())
		}
		for _, want := range []struct {
			moved int
			next  time.Duration
		}{{4, 0}, {2, -time.Millisecond}} { // a megabyte, and what is left
			pipe := s.client.Pipeline()
			cmd := s.log(tok).Move(s.ctx, pipe, 10, true)
			pipe.Exec(s.ctx) // the command has the error
			if moved, next, err := redisprogress.Moved(cmd); err != nil || moved != want.moved || next != want.next {
				t.Errorf("moved %d, the next one in %v (%v); want %+v", moved, next, err, want)
			}
		}
		var order []string
		for _, e := range s.State().Pending {
			order = append(order, e[:1])
		}
		if got := strings.Join(order[4:], ""); got != "654321" {
			t.Errorf("they stand in the order %s, want 654321", got)
		}
	},
	"of small delayed tasks as many are moved at once as was asked for": func(t *testing.T, s *scripts) {
		tok, at := s.owner(1), float64(time.Now().Add(-time.Minute).UnixMilli())
		for _, e := range []string{"t4", "t5", "t6"} {
			s.must(s.client.ZAdd(s.ctx, s.keys.Delayed, redis.Z{Score: at, Member: e}).Err())
		}
		for _, want := range []struct {
			moved int
			next  time.Duration
		}{{2, 0}, {1, -time.Millisecond}} {
			pipe := s.client.Pipeline()
			cmd := s.log(tok).Move(s.ctx, pipe, 2, true)
			pipe.Exec(s.ctx) // the command has the error
			if moved, next, err := redisprogress.Moved(cmd); err != nil || moved != want.moved || next != want.next {
				t.Errorf("moved %d, the next one in %v (%v); want %+v", moved, next, err, want)
			}
		}
	},
	"an open says when the next delayed task is due": func(t *testing.T, s *scripts) {
		at := float64(time.Now().Add(time.Minute).UnixMilli())
		s.must(s.client.ZAdd(s.ctx, s.keys.Delayed, redis.Z{Score: at, Member: "t9"}).Err())
		o, err := s.log(token(1)).Open(s.ctx, 0)
		s.must(err)
		if o.Due <= 30*time.Second || o.Due > 2*time.Minute {
			t.Errorf("due in %v, want a minute", o.Due)
		}
	},
	"a delayed task is in the list before it leaves the set": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.admitted(tok, 1, other(0, progress.Requeue, 1))
		s.spoilt(s.keys.Pending, func(ctx context.Context, pipe redis.Pipeliner) {
			s.log(tok).Move(ctx, pipe, 10, true)
		})
		if st := s.client.ZCard(s.ctx, s.keys.Delayed).Val(); st != 1 {
			t.Errorf("%d are delayed, want the one that could not be moved", st)
		}
	},
	"a dead letter is written before its task ends": func(t *testing.T, s *scripts) {
		tok := s.owner(1)
		s.spoilt(s.keys.Dead, func(ctx context.Context, pipe redis.Pipeliner) {
			r := &progress.Request{Seen: s.seen, Read: 4, Gate: 4, Alone: progress.None}
			other(1, progress.Dead, 1)(r)
			letters := []redisprogress.Content{{Body: []byte("letter")}}
			s.log(tok).Settle(ctx, pipe, r, letters, nil, true)
		})
		if st := s.State(); len(st.Done) != 0 {
			t.Errorf("done %v, and no letter of it", st.Done)
		}
	},
}

// spoilt has key hold something else while a script runs that has to fail.
func (s *scripts) spoilt(key string, script func(context.Context, redis.Pipeliner)) {
	s.t.Helper()
	backup := key + ":backup"
	had := s.client.Exists(s.ctx, key).Val() == 1
	if had {
		s.must(s.client.Rename(s.ctx, key, backup).Err())
	}
	s.must(s.client.Set(s.ctx, key, "not ours", 0).Err())
	pipe := s.client.Pipeline()
	script(s.ctx, pipe)
	if _, err := pipe.Exec(s.ctx); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		s.t.Fatalf("the script ended with %v", err)
	}
	s.must(s.client.Del(s.ctx, key).Err())
	if had {
		s.must(s.client.Rename(s.ctx, backup, key).Err())
	}
}
