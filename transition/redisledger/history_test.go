package redisledger_test

import (
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// What a history says is compared with the reference's in TestSameAsReference. Here is
// what the reference does not have: the bound, the deployment, a quiet store.

func TestHistoryIsBounded(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	makeName(t, client, name, partition.Config{Total: 200})
	old := make([]any, 3*machine.HistoryKept)
	for i := range old {
		old[i] = "1\t1\tgone\told\tpeer\t\t\t\t"
	}
	if err := client.LPush(t.Context(), "{"+name+"}:history", old...).Err(); err != nil {
		t.Fatal(err)
	}
	l := newLedger(t, client, name, redisledger.Config{Config: partition.Config{Total: 200}})
	said(t, l, transition.Request{Session: "aa", Peer: "a\tb", State: machine.Live, Claim: partition.Config{Total: 200}.WithDefaults().IDs()})
	h, err := l.History(t.Context(), 2*machine.HistoryKept)
	if err != nil {
		t.Fatal(err)
	}
	if len(h) != machine.HistoryKept {
		t.Errorf("%d entries are kept, want %d", len(h), machine.HistoryKept)
	}
	last := h[len(h)-1]
	if last.What != machine.Granted || last.Peer != "a b" || len(last.Grants) != 200%machine.HistoryGrants {
		t.Errorf("the last entry is %+v", last)
	}
	if most := len(h[len(h)-2].Grants); most != machine.HistoryGrants {
		t.Errorf("an entry has %d grants, want %d", most, machine.HistoryGrants)
	}
}

func TestQuietSyncWritesNoHistory(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	makeName(t, client, name, partition.Config{Total: 4})
	l := newLedger(t, client, name, redisledger.Config{Config: partition.Config{Total: 4}})
	r := transition.Request{Session: "aa", Peer: "a", State: machine.Live, Claim: []partition.ID{0}}
	r.Hold, r.Claim = []partition.Grant{said(t, l, r).Mine[0].Grant}, nil
	said(t, l, r)
	before := history(t, l)
	for range 3 {
		said(t, l, r)
	}
	if got := history(t, l); len(got) != len(before) {
		t.Errorf("nothing changed, and the history says %+v", got[len(before):])
	}
}

// A quiet Sync that finds a lease over has the full one reap it, which tells.
func TestExpiredIsTold(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{Total: 4})
	l := newLedger(t, s.client, s.name, redisledger.Config{Config: partition.Config{Total: 4}, Timing: someTiming})
	said(t, l, transition.Request{Session: "dead", Peer: "d", State: machine.Live, Claim: []partition.ID{1}})
	r := transition.Request{Session: "aa", Peer: "a", State: machine.Live}
	for range 8 { // 1.5 s each, all quiet from the second on
		said(t, l, r)
		s.Advance(1500 * time.Millisecond)
	}
	said(t, l, r)
	last := history(t, l)
	e := last[len(last)-1]
	if e.What != machine.Expired || e.Session != "dead" || e.Silent < someTiming.Lease || e.Silent > someTiming.Lease+2*time.Second {
		t.Errorf("the last entry is %+v", e)
	}
	for field := range s.client.HGetAll(t.Context(), "{"+s.name+"}:peers").Val() {
		if strings.HasPrefix(field, "dead") {
			t.Errorf("%s is kept of who expired", field)
		}
	}
	r.Claim = []partition.ID{1}
	said(t, l, r)
	moves := history(t, l).Moves(1)
	took := moves[len(moves)-1]
	if took.What != machine.Took || took.Other != "dead" || took.OtherPeer != "d" || took.Pause < someTiming.Lease {
		t.Errorf("taken over: %+v", took)
	}
}

func TestCensusHasTheTerms(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	makeName(t, client, name, partition.Config{Total: 4})
	timing := transition.Timing{Lease: 3 * time.Second, Drain: 7 * time.Second}
	l := newLedger(t, client, name, redisledger.Config{Config: partition.Config{Total: 4}, Timing: timing, Deployment: "a b"})
	said(t, l, transition.Request{Session: "aa", Peer: "a", State: machine.Live})
	c, err := l.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := timing.Terms("a b")
	if got := c.Sessions[0].Terms; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if transition.TimingOf(want).Takeover() != timing.WithDefaults().Takeover() {
		t.Errorf("the bound is lost on the way")
	}
}

func TestRefusedLeavesATrace(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	makeName(t, client, name, partition.Config{Total: 4})
	other := newLedger(t, client, name, redisledger.Config{Config: partition.Config{Total: 5}})
	if _, err := other.Sync(t.Context(), transition.Request{Session: "bb", Peer: "b", State: machine.Live}); err == nil {
		t.Fatal("another number of partitions was accepted")
	}
	l := newLedger(t, client, name, redisledger.Config{Config: partition.Config{Total: 4}})
	c, err := l.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Refused) != 1 || !strings.Contains(c.Refused[0].What, "has partitions 4, this peer wants 5") || c.Refused[0].Ago < 0 || c.Refused[0].Ago > time.Minute {
		t.Errorf("refused: %+v", c.Refused)
	}
	if err := redisledger.Destroy(t.Context(), client, name); err != nil {
		t.Fatal(err)
	}
	if left := redistest.Keys(t, client, "{"+name+"}*"); len(left) > 0 {
		t.Errorf("destroy left %v", left)
	}
}

func said(t *testing.T, l *redisledger.Ledger, r transition.Request) transition.Answer {
	t.Helper()
	a, err := l.Sync(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func history(t *testing.T, l *redisledger.Ledger) machine.History {
	t.Helper()
	h, err := l.History(t.Context(), machine.HistoryKept)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
