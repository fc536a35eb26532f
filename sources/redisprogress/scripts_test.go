package redisprogress_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
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

// Rules are those of docs/protocol.md, by what they say.
type rules map[string]func(*testing.T, *scripts)

// TestScripts takes the rules of docs/protocol.md one by one: each breaks here alone.
func TestScripts(t *testing.T) {
	for _, rules := range []rules{ownerRules, settleRules, lostRules} {
		for name, test := range rules {
			t.Run(name, func(t *testing.T) { test(t, newScripts(t)) })
		}
	}
}
