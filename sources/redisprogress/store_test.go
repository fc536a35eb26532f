package redisprogress_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/redisprogress"
)

// A log that lies elsewhere begins where its first owner says, and nowhere else later.
func TestOpenBegins(t *testing.T) {
	ctx, name := t.Context(), redistest.Name(t)
	s, err := redisprogress.NewStore(redistest.New(t), name)
	if err != nil {
		t.Fatal(err)
	}
	for e := range partition.Epoch(2) {
		e++
		f, err := s.Open(ctx, partition.Grant{ID: 7, Epoch: e}, partition.Token{Epoch: e, Session: "a"}, 10*int64(e))
		if err != nil || f.Base != 10 {
			t.Errorf("epoch %d begins at %d, want 10 (%v)", e, f.Base, err)
		}
	}
}

// A reset moves the base of a log that lies elsewhere; what was known of positions that
// come again is forgotten, the rest is not. A late one changes nothing.
func TestReset(t *testing.T) {
	for _, c := range []struct {
		name   string
		base   int64
		life   string
		lifted []int64
	}{
		{"forward", 5, "one", []int64{1}},
		{"where it is", 3, "one", []int64{1}},
		{"back", 0, "one", nil},
		{"another life", 5, "two", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, name := t.Context(), redistest.Name(t)
			s, err := redisprogress.NewStore(redistest.New(t), name)
			if err != nil {
				t.Fatal(err)
			}
			g, tok := partition.Grant{ID: 7, Epoch: 1}, partition.Token{Epoch: 1, Session: "a"}
			if begun, err := s.Begun(ctx, 7); err != nil || begun {
				t.Fatalf("begun: %v, %v", begun, err)
			}
			f, err := s.Open(ctx, g, tok, 0)
			if err != nil || f.Base != 0 || f.Life != "" {
				t.Fatalf("open: %+v, %v", f, err)
			}
			writes, err := s.Reset(ctx, g, tok, f.Writes, 0, "one")
			if err != nil {
				t.Fatal(err)
			}
			retry := func(pos int64) progress.Verdict {
				return progress.Verdict{Position: pos, Outcome: progress.Retry, Attempt: 1}
			}
			_, err = s.Settle(ctx, g, tok, &progress.Request{
				Seen: writes, Read: 9, Base: 3, Gate: 9, Alone: progress.None, Lift: []int64{1}, Done: []int64{4, 6, 8},
				Others: []progress.Verdict{retry(1), retry(3), retry(7)},
			}, make([]progress.Content, 3))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(ctx, g, tok); err != nil {
				t.Fatal(err)
			}
			g.Epoch, tok = 2, partition.Token{Epoch: 2, Session: "b"}
			if f, err = s.Open(ctx, g, tok, 0); err != nil || f.Base != 3 || f.Life != "one" || !slices.Equal(f.Lifted, []int64{1}) {
				t.Fatalf("open: %+v, %v", f, err)
			}
			seen := f.Writes
			for range 2 { // said again it changes nothing
				if writes, err = s.Reset(ctx, g, tok, seen, c.base, c.life); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Settle(ctx, g, tok, &progress.Request{
				Seen: writes, Read: 20, Base: 12, Gate: 20, Alone: progress.None, Done: []int64{15},
			}, nil); err != nil {
				t.Fatal(err)
			}
			// One that comes late is told, and wipes nothing out.
			if _, err := s.Reset(ctx, g, tok, seen, c.base, c.life); err == nil || errors.Is(err, sources.ErrFenced) {
				t.Errorf("a late reset: %v", err)
			}
			old := partition.Token{Epoch: 1, Session: "a"}
			if _, err := s.Reset(ctx, partition.Grant{ID: 7, Epoch: 1}, old, 0, 0, "old"); !errors.Is(err, sources.ErrFenced) {
				t.Errorf("a reset by the owner before: %v", err)
			}
			if err := s.Close(ctx, g, tok); err != nil {
				t.Fatal(err)
			}
			g.Epoch, tok = 3, partition.Token{Epoch: 3, Session: "c"}
			f, err = s.Open(ctx, g, tok, 0)
			if err != nil {
				t.Fatal(err)
			}
			if f.Base != 12 || f.Life != c.life || !slices.Equal(f.Done, []int64{15}) || !slices.Equal(f.Lifted, c.lifted) {
				t.Errorf("found %+v, want base 12, life %s, done 15, lifted %v", f, c.life, c.lifted)
			}
		})
	}
}
