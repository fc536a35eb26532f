package command

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

func TestDrain(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.fails(exit.Failed, "drain n ann")
	s.fails(exit.Failed, "recall n ann")
	s.run("init n --partitions 4")
	for _, line := range []string{"drain n", "drain", "drain n ann bob", "drain n _", "drain n ann --wait -1s", "recall n"} {
		s.fails(exit.Usage, line)
	}
	s.fails(exit.Usage, "drain n ann --why", "two\nlines")
	if said := s.fails(exit.Failed, "drain n ann"); !strings.Contains(said, "nobody takes part (--force") {
		t.Errorf("said %q", said)
	}
	cfg := partition.Config{Total: 4}
	l, err := redisledger.New(s.client(), "n", redisledger.Config{Config: cfg, Timing: transition.Timing{Lease: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	sync := func(r transition.Request) transition.Answer {
		t.Helper()
		a, err := l.Sync(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	seal := func() {
		t.Helper()
		census, err := l.Census(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if next, _, due := machine.NextRoll(census, partition.Sticky{}); due {
			if err := l.Seal(t.Context(), next); err != nil {
				t.Fatal(err)
			}
		}
	}
	ann := transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{0, 1, 3}}
	bob := transition.Request{Session: "bb", Peer: "bob", Weight: 1, State: machine.Live}
	mine := sync(ann).Mine
	sync(bob)
	seal()
	if said := s.fails(exit.Failed, "drain n carl"); !strings.Contains(said, "no peer that takes part has the id carl: there are ann, bob (--force") {
		t.Errorf("said %q", said)
	}
	// Nobody takes anything over yet: ann is drained all the same.
	said := s.fails(exit.Failed, "drain n ann --wait 1ms --why", "its disk is slow")
	if !strings.Contains(said, "ann is drained, but it still has 3 of the partitions and ingress lists: no roll without it is sealed yet (with WaitReplicas") {
		t.Errorf("said %q", said)
	}
	out := s.run("status n")
	if !strings.Contains(out, "  drained  ann, since ") || !strings.Contains(out, " (its disk is slow): countoff recall n ann gives it its share back") || !strings.Contains(out, "drained       1          3") {
		t.Errorf("status says:\n%s", out)
	}
	if out := s.run("names"); !strings.Contains(out, "2 (1 drained)") {
		t.Errorf("names says:\n%s", out)
	}
	if out := s.run("names --json"); !strings.Contains(out, `"drained":["ann"]`) {
		t.Errorf("names says:\n%s", out)
	}
	// Asked again it waits until it has nothing.
	var told output
	ended := make(chan error, 1)
	go func() { ended <- s.start(t.Context(), &told, "drain n ann --wait 10m --why", "another one") }()
	wait(t, func() bool {
		return strings.Contains(told.String(), "ann was drained already, since ") && strings.Contains(told.String(), " (its disk is slow)")
	})
	seal()
	if said := s.fails(exit.Failed, "drain n ann --wait 1ms"); !strings.Contains(said, "it still has 3 of the partitions and ingress lists (what runs ends first; a process that stands still keeps them for its lease; ") {
		t.Errorf("said %q", said)
	}
	ann.Claim, ann.Release = nil, nil
	for _, m := range mine {
		ann.Release = append(ann.Release, m.Grant)
	}
	sync(ann)
	if err := <-ended; err != nil || !strings.Contains(told.String(), "it has nothing any more") {
		t.Errorf("%v, said %q", err, told.String())
	}
	// Who is alone keeps what it has, and nobody waits for that.
	bob.Claim = []partition.ID{0, 1, 2, 3}
	sync(bob)
	ann.State, ann.Release = machine.Gone, nil
	sync(ann)
	seal()
	s.run("drain n bob --wait 0s")
	seal()
	if said := s.fails(exit.Failed, "drain n bob --wait 10m"); !strings.Contains(said, "it keeps 4 of the partitions and ingress lists: nobody else") {
		t.Errorf("said %q", said)
	}
	// An older build seals the roll for others who come.
	sync(transition.Request{Session: "cc", Peer: "carl", Weight: 1, State: machine.Live})
	census, err := l.Census(t.Context())
	for i := range census.Sessions {
		census.Sessions[i].Drained = false
	}
	next, _, _ := machine.NextRoll(census, partition.Sticky{})
	if err := errors.Join(err, l.Seal(t.Context(), next)); err != nil {
		t.Fatal(err)
	}
	bob.Claim, bob.Release = nil, nil
	for _, m := range sync(bob).Mine[2:] {
		bob.Release = append(bob.Release, m.Grant)
	}
	sync(bob)
	if said := s.fails(exit.Failed, "drain n bob --wait 10m"); !strings.Contains(said, "it has its share, 2 of the partitions and ingress lists: a peer whose build") {
		t.Errorf("said %q", said)
	}
	if out := s.run("recall n bob"); out != "bob is recalled\n" {
		t.Errorf("%q", out)
	}
	if out := s.run("recall n bob"); out != "bob was not drained\n" {
		t.Errorf("%q", out)
	}
	if out := s.run("status n"); !strings.Contains(out, "(its disk is slow), and does not take part: countoff recall n ann gives") {
		t.Errorf("status says:\n%s", out)
	}
	if out := s.run("drain n carl --force --wait 0s"); !strings.Contains(out, "carl is drained (countoff recall n carl gives") {
		t.Errorf("%q", out)
	}
	if out := s.run("history n"); strings.Count(out, "was drained") != 3 || strings.Count(out, "bob was recalled") != 1 {
		t.Errorf("history says:\n%s", out)
	}
}
