package redisprogress_test

import (
	"testing"

	"github.com/countoff/countoff/sources/progress"
)

// lostRules are of a store that forgot, and of a list that was cut.
var lostRules = rules{
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
}
