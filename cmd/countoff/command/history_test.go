package command

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status/past"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// An ingress list is granted beside the partitions, with a number that nobody has given it.
func TestHistoryNamesIngressLists(t *testing.T) {
	s := newShell(t)
	s.run("init lists --partitions 4 --unit orders --unit mails")
	client := s.client()
	cfg := partition.Config{Total: 4, Units: []string{"orders", "mails"}}.WithDefaults()
	ledger, err := redisledger.New(client, "lists", redisledger.Config{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Sync(t.Context(), transition.Request{Session: "aa", Peer: "worker-1", Weight: 1, State: machine.Live, Claim: cfg.IDs()}); err != nil {
		t.Fatal(err)
	}
	if got := s.run("history lists"); !strings.Contains(got, "worker-1 got 0-3 mails orders, which was nobody's") {
		t.Error(got)
	}
	if got := s.run("doctor lists"); !strings.Contains(got, ", ingress lists mails and orders;") {
		t.Error(got)
	}
}

// The clock of the store was ahead when a peer got what it has, and was set right: it has it now all the same.
func TestHistoryAfterAClockWasAhead(t *testing.T) {
	t.Parallel()
	mini, client := redistest.Mini(t)
	s := shell{t, "redis://" + mini.Addr(), ""}
	now := time.Now()
	mini.SetTime(now.Add(time.Hour))
	s.run("init n --partitions 4")
	ledger, err := redisledger.New(client, "n", redisledger.Config{Config: partition.Config{Total: 4}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Sync(t.Context(), transition.Request{Session: "aa", Peer: "worker-1", Weight: 1, State: machine.Live, Claim: []partition.ID{3}}); err != nil {
		t.Fatal(err)
	}
	mini.SetTime(now)
	if got := s.run("history n --partition 3 --at 0s"); !strings.Contains(got, ": worker-1, epoch") {
		t.Errorf("who has it now: %s", got)
	}
	if got := s.run("history n --partition 3 --at 1m"); !strings.Contains(got, "unknown") {
		t.Errorf("who had it a minute ago: %s", got)
	}
}

func TestHistoryAndExplain(t *testing.T) {
	s := newShell(t)
	s.run("init past --partitions 4")
	client := s.client()
	ledger, err := redisledger.New(client, "past", redisledger.Config{Config: partition.Config{Total: 4}})
	if err != nil {
		t.Fatal(err)
	}
	id := partition.Of("ann", 4)
	a := transition.Request{Session: "aa", Peer: "worker-1", Weight: 1, State: machine.Live, Claim: []partition.ID{id}}
	b := transition.Request{Session: "bb", Peer: "worker-2", State: machine.Live, Claim: []partition.ID{id}}
	answer, err := ledger.Sync(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	between := time.Now()
	if _, err := ledger.Sync(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	a.Claim, a.Release = nil, []partition.Grant{answer.Mine[0].Grant}
	if _, err := ledger.Sync(t.Context(), a); err != nil {
		t.Fatal(err)
	}

	all := s.run("history past")
	for _, want := range []string{"the name was made", "worker-1 joined", "worker-1 got", "worker-2 asked worker-1 for", "worker-1 handed"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in the history:\n%s", want, all)
		}
	}
	if got := s.run("history past -n 1"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "handed") {
		t.Errorf("the last line is %q", got)
	}
	if got := s.run("history past --key ann"); strings.Count(got, "\n") != 3 || strings.Contains(got, "joined") {
		t.Errorf("of one key:\n%s", got)
	}
	var then, today past.Tenure
	for flags, into := range map[string]*past.Tenure{
		"--at " + between.Add(-time.Millisecond).Format(time.RFC3339Nano): &then, "--at 0s": &today,
	} {
		if err := json.Unmarshal([]byte(s.run("history past --key ann --json "+flags)), into); err != nil {
			t.Fatal(err)
		}
	}
	if today.Owner != "worker-2" || today.From != "worker-1" || today.Epoch <= answer.Mine[0].Grant.Epoch {
		t.Errorf("today: %+v", today)
	}
	if then.Owner == "worker-2" {
		t.Errorf("then: %+v", then)
	}
	if got := s.run("history past --partition " + id.String() + " --at 0s"); !strings.Contains(got, ": worker-2, epoch") {
		t.Errorf("in words: %q", got)
	}
	s.fails(exit.Usage, "history past --at 0s")
	s.fails(exit.Usage, "history past --key ann --at yesterday")
	s.fails(exit.Usage, "history past --key ann --at=") // a variable of a script that is empty
	s.fails(exit.Usage, "history past --partition 4")

	// A name that nobody made has forgotten at its beginning, which is of no partition.
	unmade, err := redisledger.New(client, "unmade", redisledger.Config{Config: partition.Config{Total: 4}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unmade.Sync(t.Context(), transition.Request{Session: "cc", Peer: "worker-3", Weight: 1, State: machine.Live}); err != nil {
		t.Fatal(err)
	}
	s.run("history unmade --partition 3")
	s.fails(exit.Usage, "history unmade --partition 4")

	if got := s.run("explain past ann"); !strings.Contains(got, "owner      worker-2") || !strings.Contains(got, "worker-1 handed") {
		t.Errorf("explained:\n%s", got)
	}
	var e map[string]any
	if err := json.Unmarshal([]byte(s.run("explain past ann --json")), &e); err != nil || e["key"] != "ann" {
		t.Errorf("explained as JSON: %v, %v", e, err)
	}
	namesake := transition.Request{Session: "ee", Peer: "worker-1", Weight: 1, State: machine.Live}
	if _, err := ledger.Sync(t.Context(), namesake); err != nil {
		t.Fatal(err)
	}
	if got := s.run("history past"); !strings.Contains(got, "worker-1#aa handed") || !strings.Contains(got, "worker-1#ee joined") {
		t.Errorf("two of one id are not told apart:\n%s", got)
	}
}
