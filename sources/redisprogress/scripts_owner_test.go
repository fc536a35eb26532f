package redisprogress_test

import (
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/progress"
)

// ownerRules are of who may speak, and of what runs while it does.
var ownerRules = rules{
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
}
