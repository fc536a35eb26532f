package logstream

import (
	"slices"
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

// What is buried is told of once, all at once, and not before the store has answered: until
// then the next owner may be the one who buries it.
func TestBuriedIsToldOnceItIsAnswered(t *testing.T) {
	g := partition.Grant{ID: 3, Epoch: 7}
	s := New(nil, g, progress.New(progress.Config{}, progress.Opened{}), new(Permit))
	var told []sources.Buried
	tell := func(b sources.Buried) { told = append(told, b) }
	bury := func(pos int64, reason string) {
		s.Log.Add(pos, 0)
		s.Bury(s.Log.Settle(pos, progress.Dead, 0), sources.Buried{Position: pos, Reason: reason})
	}
	answer := func(upto uint64) {
		var r progress.Request
		s.Log.Compose(0, false, upto, &r)
		s.Log.Apply(&r, progress.Answer{Status: progress.Admitted, Writes: s.Log.Seen() + 1})
	}
	for pos, reason := range []string{"a", "b", "c"} {
		bury(int64(pos), reason)
	}
	s.TellBuried(tell)
	if len(told) > 0 {
		t.Fatalf("before the store has answered it told of %+v", told)
	}
	answer(2)
	s.TellBuried(tell)
	s.TellBuried(tell)
	if want := []sources.Buried{{Grant: g, Tasks: 2, Reason: "a"}}; !slices.Equal(told, want) {
		t.Fatalf("it told of %+v, want %+v", told, want)
	}
	answer(3)
	s.TellBuried(nil)
	s.TellBuried(tell)
	if len(told) > 1 {
		t.Errorf("what nobody was to be told of is told later: %+v", told)
	}
}
