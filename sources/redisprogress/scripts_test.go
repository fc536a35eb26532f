package redisprogress_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/redisprogress"
)

// scripts is a log of four tasks at 0 to 3, and what an owner says to it.
type scripts struct {
	*store
	seen int64 // writes, as the last open said
}

func newScripts(t *testing.T) *scripts {
	s := &scripts{store: newStore(t, redistest.New(t), true)}
	for _, e := range []string{"t0", "t1", "t2", "t3"} {
		s.Push(e)
	}
	return s
}

func token(e partition.Epoch) partition.Token { return partition.Token{Epoch: e, Session: "s"} }

func (s *scripts) owner(e partition.Epoch) partition.Token {
	s.t.Helper()
	o := s.Open(token(e))
	if o.Refused {
		s.t.Fatalf("epoch %d is refused", e)
	}
	s.seen = o.Writes
	return token(e)
}

// says sends a request of an owner that has read all, and works on all.
func (s *scripts) says(tok partition.Token, base int64, edit func(*progress.Request)) progress.Answer {
	s.t.Helper()
	r := &progress.Request{Seen: s.seen, Read: 4, Base: base, Gate: 4, Alone: progress.None}
	if edit != nil {
		edit(r)
	}
	content := make([]string, len(r.Others))
	for i := range content {
		content[i] = "body"
	}
	return s.Settle(tok, r, content)
}

func (s *scripts) admitted(tok partition.Token, base int64, edit func(*progress.Request)) {
	s.t.Helper()
	if a := s.says(tok, base, edit); a.Status != progress.Admitted {
		s.t.Fatalf("a settlement is answered with %d", a.Status)
	}
}

func (s *scripts) fence(field string) string {
	s.t.Helper()
	v, err := s.client.HGet(s.ctx, s.keys.Fence, field).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatal(err)
	}
	return v
}

func done(positions ...int64) func(*progress.Request) {
	return func(r *progress.Request) { r.Done = positions }
}

func other(pos int64, o progress.Outcome, attempt int) func(*progress.Request) {
	return func(r *progress.Request) {
		r.Others = []progress.Verdict{{Position: pos, Outcome: o, Attempt: attempt}}
	}
}

func lift(positions ...int64) func(*progress.Request) {
	return func(r *progress.Request) { r.Lift = positions }
}

func alone(pos int64, tries int) func(*progress.Request) {
	return func(r *progress.Request) { r.Alone, r.AloneTries = pos, tries }
}

// reply is what the store says to r, in full.
func (s *scripts) reply(tok partition.Token, r *progress.Request, content []redisprogress.Content, locks []redisprogress.Lock) redisprogress.Reply {
	s.t.Helper()
	l := s.log(tok)
	pipe := s.client.Pipeline()
	cmd := l.Settle(s.ctx, pipe, r, content, locks, true)
	pipe.Exec(s.ctx) // the command has the error
	a, err := l.Answer(cmd)
	s.must(err)
	return a
}

// TestScripts takes the rules of docs/protocol.md one by one: each breaks here alone.
func TestScripts(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *scripts){
		"a settlement under another token is refused": func(t *testing.T, s *scripts) {
			old := s.owner(1)
			s.owner(2)
			if a := s.says(old, 2, done(0, 1)); a.Status != progress.Stale || len(s.State().Pending) != 4 {
				t.Errorf("answered %d, %d are left", a.Status, len(s.State().Pending))
			}
		},
		"a token is compared whole": func(t *testing.T, s *scripts) {
			s.owner(1)
			other := partition.Token{Epoch: 1, Session: "other"}
			if a := s.says(other, 2, nil); a.Status != progress.Stale {
				t.Errorf("a settlement of another session is answered with %d", a.Status)
			}
			if o := s.Open(other); !o.Refused {
				t.Error("another session opens the same epoch")
			}
		},
		"a smaller epoch is refused": func(t *testing.T, s *scripts) {
			s.owner(2)
			if o := s.Open(token(1)); !o.Refused {
				t.Error("epoch 1 is opened after 2")
			}
		},
		"a second open of the same token changes nothing": func(t *testing.T, s *scripts) {
			s.owner(1)
			s.admitted(token(1), 0, nil)
			s.owner(2) // all of them are suspects
			s.admitted(token(2), 0, alone(0, 0))
			if o := s.Open(token(2)); o.Refused || len(o.Tried) > 0 || s.fence("a") != "0" {
				t.Errorf("opened again: %+v, alone %q", o, s.fence("a"))
			}
		},
		"a store that knows fewer writes than it answered forgot": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			if a := s.says(tok, 4, func(r *progress.Request) { r.Seen++ }); a.Status != progress.Forgot || len(s.State().Pending) != 4 {
				t.Errorf("answered %d, %d are left", a.Status, len(s.State().Pending))
			}
		},
		"a list that ends before what was read was cut": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			if a := s.says(tok, 4, func(r *progress.Request) { r.Read = 5 }); a.Status != progress.Forgot || len(s.State().Pending) != 4 {
				t.Errorf("answered %d, %d are left", a.Status, len(s.State().Pending))
			}
		},
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
		"positions are never used again": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			s.admitted(tok, 0, func(r *progress.Request) { r.Done = []int64{2} })
			s.must(s.client.Del(s.ctx, s.keys.Fence).Err())
			if o := s.Open(token(1)); o.Base != 3 || len(o.Done) != 0 {
				t.Errorf("base %d, done %v, after 2 was done in an older life", o.Base, o.Done)
			}
		},
		"a list that was cut is counted from beyond what was known": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			s.admitted(tok, 0, other(3, progress.Retry, 1))
			s.must(s.client.LTrim(s.ctx, s.keys.Pending, 0, 0).Err())
			if o := s.Open(token(2)); o.Base != 4 || len(o.Tried) != 0 {
				t.Errorf("base %d, tried %v, after the list was cut at 1", o.Base, o.Tried)
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
		"what was tried counts as known where the list was cut": func(t *testing.T, s *scripts) {
			s.owner(1)
			s.must(s.client.HSet(s.ctx, s.keys.Tries, "6", "1 0 0 why").Err())
			if o := s.Open(token(2)); o.Base != 7 {
				t.Errorf("base %d, and 6 was tried", o.Base)
			}
		},
		"what was lifted keeps its tries where the list was cut": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			s.admitted(tok, 2, lift(0, 1))
			s.admitted(tok, 2, other(0, progress.Retry, 2))
			s.must(s.client.Del(s.ctx, s.keys.Pending).Err())
			if o := s.Open(token(2)); o.Base != 4 || o.Tried[0].Tries != 2 || len(o.Lifted) != 2 {
				t.Errorf("base %d, lifted %v, tried %v", o.Base, o.Lifted, o.Tried)
			}
		},
		"what ran alone and was cut away is not charged": func(t *testing.T, s *scripts) {
			s.admitted(s.owner(1), 0, alone(3, 0))
			s.must(s.client.LTrim(s.ctx, s.keys.Pending, 0, 0).Err())
			if o := s.Open(token(2)); o.Base != 4 || len(o.Tried) != 0 {
				t.Errorf("base %d, tried %v", o.Base, o.Tried)
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
		"what was started counts as known where the list was cut": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			s.admitted(tok, 0, nil) // the gate is 4
			s.must(s.client.Del(s.ctx, s.keys.Pending).Err())
			if o := s.Open(token(2)); o.Base != 4 {
				t.Errorf("base %d: what is pushed next has a position that was started before", o.Base)
			}
		},
		"what was lifted counts as known where the fence is lost": func(t *testing.T, s *scripts) {
			s.must(s.client.HSet(s.ctx, s.keys.Lifted, "7", "t7").Err())
			if o := s.Open(token(1)); o.Base != 8 {
				t.Errorf("base %d, and 7 is open beside the log", o.Base)
			}
		},
		"every open and every settlement is a write": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			for n := range int64(3) {
				if a := s.says(tok, 0, nil); a.Writes != s.seen+n+1 {
					t.Fatalf("settlement %d after write %d is write %d", n+1, s.seen, a.Writes)
				}
			}
			if o := s.Open(token(2)); o.Writes != s.seen+4 {
				t.Errorf("an open after write %d is write %d", s.seen+3, o.Writes)
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
		"what ran alone is charged where it was lifted": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			s.admitted(tok, 2, func(r *progress.Request) { r.Lift, r.Alone = []int64{0, 1}, 0 })
			if o := s.Open(token(2)); o.Tried[0].Crashes != 1 || o.Suspects != 0 {
				t.Errorf("tried %v, suspects below %d", o.Tried, o.Suspects)
			}
		},
		"what ran alone is charged where the log is elsewhere": func(t *testing.T, s *scripts) {
			s.store = newStore(t, s.client, false)
			tok := s.owner(1)
			s.admitted(tok, 0, func(r *progress.Request) { r.Gate, r.Alone = 2, 0 })
			if o := s.Open(token(2)); o.Tried[0].Crashes != 1 || o.Suspects != 0 {
				t.Errorf("tried %v, suspects below %d", o.Tried, o.Suspects)
			}
		},
		"a suspect stays one until it has run": func(t *testing.T, s *scripts) {
			s.admitted(s.owner(1), 0, nil)
			s.Close(s.owner(2)) // it ran none of them
			s.admitted(s.owner(3), 0, func(r *progress.Request) { r.Gate = 1 })
			if o := s.Open(token(4)); o.Suspects != 4 {
				t.Errorf("suspects below %d, want 4", o.Suspects)
			}
		},
		"what was started is a suspect, and not charged": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			s.admitted(tok, 0, func(r *progress.Request) { r.Gate = 2 })
			if o := s.Open(token(2)); o.Suspects != 2 || len(o.Tried) != 0 {
				t.Errorf("suspects below %d, tried %v", o.Suspects, o.Tried)
			}
			if o := s.Open(token(3)); o.Suspects != 2 || len(o.Tried) != 0 {
				t.Errorf("after another crash: suspects below %d, tried %v", o.Suspects, o.Tried)
			}
		},
		"what ran alone is charged, and nothing else": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			s.admitted(tok, 0, func(r *progress.Request) { r.Gate, r.Alone = 2, 0 })
			o := s.Open(token(2))
			if o.Tried[0].Crashes != 1 || len(o.Tried) != 1 || o.Suspects != 0 || s.fence("a") != "" {
				t.Errorf("tried %v, suspects below %d, alone %q", o.Tried, o.Suspects, s.fence("a"))
			}
			if o := s.Open(token(3)); o.Tried[0].Crashes != 1 {
				t.Errorf("charged again: %v", o.Tried)
			}
		},
		"the end of what ran alone acquits it": func(t *testing.T, s *scripts) {
			for e, end := range []func(*progress.Request){
				done(0), other(1, progress.Requeue, 1), other(2, progress.Dead, 1), other(3, progress.Retry, 1),
			} {
				tok := s.owner(partition.Epoch(e + 1))
				s.admitted(tok, 0, alone(int64(e), 0))
				s.admitted(tok, 0, end)
				if a := s.fence("a"); a != "" {
					t.Errorf("alone %q after its end", a)
				}
			}
			if o := s.Open(token(9)); o.Tried[3].Crashes != 0 || len(o.Tried) != 1 {
				t.Errorf("tried %v", o.Tried)
			}
		},
		"a late word of what runs alone is void after its end": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			s.admitted(tok, 0, done(0))
			s.admitted(tok, 0, alone(0, 0))
			if a := s.fence("a"); a != "" {
				t.Errorf("alone %q, which was done", a)
			}
			s.admitted(tok, 0, other(1, progress.Retry, 1))
			s.admitted(tok, 0, alone(1, 0))
			if a := s.fence("a"); a != "" {
				t.Errorf("alone %q: that was its try before", a)
			}
			s.admitted(tok, 0, alone(1, 1))
			s.admitted(tok, 0, other(1, progress.Retry, 1)) // late
			if a := s.fence("a"); a != "1" {
				t.Errorf("alone %q after a late retry, want 1", a)
			}
		},
		"closing acquits all, and later words are refused": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			s.admitted(tok, 0, alone(0, 0))
			s.Close(tok)
			if a := s.says(tok, 4, alone(0, 0)); a.Status != progress.Stale {
				t.Errorf("a settlement after the close is answered with %d", a.Status)
			}
			if o := s.Open(token(2)); len(o.Tried) != 0 || o.Suspects != 0 {
				t.Errorf("after a close: %+v", o)
			}
			if o := s.Open(token(3)); o.Suspects != 0 {
				t.Errorf("suspects below %d after an owner that started nothing", o.Suspects)
			}
		},
		"closing acquits what was lifted": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			s.admitted(tok, 2, lift(0, 1))
			s.Close(tok)
			if o := s.Open(token(2)); o.Suspects > 0 || len(o.Lifted) != 2 {
				t.Errorf("after a close: suspects below %d, lifted %v", o.Suspects, o.Lifted)
			}
		},
		"a close of another's changes nothing": func(t *testing.T, s *scripts) {
			old := s.owner(1)
			tok := s.owner(2)
			s.Close(old)
			s.admitted(tok, 1, nil)
		},
		"an epoch that was closed is over": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			s.Close(tok)
			if o := s.Open(tok); !o.Refused {
				t.Error("a late open takes what its owner has closed")
			}
		},
		"the gate rises, and never lies past the end of the list": func(t *testing.T, s *scripts) {
			tok := s.owner(1)
			s.admitted(tok, 0, func(r *progress.Request) { r.Gate = 100 })
			if h := s.fence("h"); h != "4" {
				t.Errorf("the gate is %s, want 4", h)
			}
			s.admitted(tok, 0, func(r *progress.Request) { r.Gate = 1 }) // late
			if h := s.fence("h"); h != "4" {
				t.Errorf("the gate falls to %s", h)
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
	} {
		t.Run(name, func(t *testing.T) { test(t, newScripts(t)) })
	}
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
