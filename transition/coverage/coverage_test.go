package coverage_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
	"github.com/countoff/countoff/transition/machine"
)

var timing = transition.Timing{Lease: 10 * time.Second, Drain: 20 * time.Second}.WithDefaults()

// healthy is a name with two peers, four partitions, and nothing to say about it.
func healthy() coverage.Look {
	seat := func(s string) machine.Seat {
		return machine.Seat{Session: partition.Session(s), Peer: "peer-" + s, Weight: 1, State: machine.Live, Lease: 5 * time.Second, Terms: timing.Terms("d")}
	}
	l := coverage.Look{Census: machine.Census{
		Config: partition.Config{Total: 4}.WithDefaults(), Membership: 2, Roll: machine.Roll{Version: 3, Membership: 2},
		Sessions: []machine.Seat{seat("a"), seat("b")},
	}}
	for i, s := range []partition.Session{"a", "a", "b", "b"} {
		g := partition.Grant{ID: partition.ID(i), Epoch: partition.Epoch(10 + i)}
		l.Census.Grants = append(l.Census.Grants, machine.Ownership{Grant: g, Session: s})
		l.Data = append(l.Data, coverage.Datum{ID: g.ID, Fence: partition.Token{Epoch: g.Epoch, Session: s}})
	}
	return l
}

// faults are all the ways in which a look shows something wrong, and the kind, the bound
// and a word of what is to be said.
var faults = map[string]struct {
	inject func(*coverage.Look)
	kind   coverage.Kind
	bound  time.Duration
	word   string
}{
	"grant deleted by hand": {
		func(l *coverage.Look) { l.Census.Grants = l.Census.Grants[1:] },
		coverage.Unowned, timing.Settle, "granted to nobody",
	},
	"granted to nobody, and who came is in no roll yet": {
		func(l *coverage.Look) { l.Census.Membership, l.Census.Grants = 3, l.Census.Grants[1:] },
		coverage.Unowned, timing.Takeover(), "granted to nobody",
	},
	"granted to nobody of those who have the tags": {
		func(l *coverage.Look) {
			l.Census.Config.Requires = []partition.Requirement{{First: 0, Last: 0, Tags: "gpu"}}
			l.Census.Sessions[1].Tags, l.Census.Grants = "gpu", l.Census.Grants[1:]
		},
		coverage.Unowned, timing.Settle, "it is granted to nobody",
	},
	"granted to nobody, and who is to have it may be dead": {
		func(l *coverage.Look) {
			l.Census.Roll.Members = []machine.RollMember{{Member: partition.Member{Session: "b", Peer: "peer-b"}, Partitions: []partition.ID{2, 3}}}
			l.Census.Sessions[1].Lease, l.Census.Grants = timing.Lease-2*timing.Beat(), l.Census.Grants[:2]
		},
		coverage.Unowned, timing.Takeover(), "peer-b is to have it, and has missed a beat",
	},
	"granted to nobody, and who is to have it is there": {
		func(l *coverage.Look) {
			l.Census.Roll.Members = []machine.RollMember{{Member: partition.Member{Session: "b", Peer: "peer-b"}, Partitions: []partition.ID{2, 3}}}
			l.Census.Sessions[1].Lease, l.Census.Grants = timing.Lease-timing.Beat(), l.Census.Grants[:2]
		},
		coverage.Unowned, timing.Settle, "granted to nobody",
	},
	"barrier stays closed": {
		func(l *coverage.Look) {
			l.Census.Sessions[0].Arrived, l.Census.Sessions[1].Arrived, l.Census.Grants = 3, 2, nil
		},
		coverage.Unowned, timing.Drain + timing.CancelGrace + 2*timing.Beat(), "nobody works under roll 3 before peer-b has stopped",
	},
	"barrier waits for the slowest": {
		func(l *coverage.Look) {
			slow := transition.Timing{Lease: timing.Lease, Drain: time.Minute}.WithDefaults()
			l.Census.Sessions[0].Arrived, l.Census.Sessions[0].Terms = 2, slow.Terms("d")
			l.Census.Sessions[1].Arrived, l.Census.Grants = 2, nil
			l.Census.Sessions[0].Peer, l.Census.Sessions[1].Peer = "peer-b", "peer-a"
		},
		coverage.Unowned, time.Minute + timing.CancelGrace + 2*timing.Beat(), "before peer-a and 1 more have stopped",
	},
	"barrier is open": {
		func(l *coverage.Look) {
			l.Census.Sessions[0].Arrived, l.Census.Sessions[1].Arrived, l.Census.Grants = 3, 3, nil
		},
		coverage.Unowned, timing.Drain + timing.CancelGrace + 3*timing.Beat() + timing.Settle, "granted to nobody",
	},
	"barrier is open, and who is to have it may be dead": {
		func(l *coverage.Look) {
			l.Census.Roll.Members = []machine.RollMember{{Member: partition.Member{Session: "b", Peer: "peer-b"}, Partitions: []partition.ID{0, 1, 2, 3}}}
			l.Census.Sessions[0].Arrived, l.Census.Sessions[1].Arrived, l.Census.Grants = 3, 3, nil
			l.Census.Sessions[1].Lease = timing.Lease - 2*timing.Beat()
		},
		coverage.Unowned, timing.Drain + timing.CancelGrace + 3*timing.Beat() + timing.Settle, "peer-b is to have it, and has missed a beat",
	},
	"barrier is open, and who came is in no roll yet": {
		func(l *coverage.Look) {
			l.Census.Sessions[0].Arrived, l.Census.Sessions[1].Arrived, l.Census.Grants, l.Census.Membership = 3, 3, nil, 3
		},
		coverage.Unowned, timing.Drain + timing.CancelGrace + 3*timing.Beat() + timing.Settle, "granted to nobody",
	},
	"owner died": {
		func(l *coverage.Look) { l.Census.Sessions[1].Lease = -1 },
		coverage.Unowned, timing.Takeover(), "session b, is over",
	},
	"owner's lease has just ended": {
		func(l *coverage.Look) { l.Census.Sessions[1].Lease = 0 },
		coverage.Unowned, timing.Takeover(), "session b, is over",
	},
	"owner died, of a build that told no times": {
		func(l *coverage.Look) {
			l.Census.Sessions[1].Lease = -1
			for i := range l.Census.Sessions {
				l.Census.Sessions[i].Terms = machine.Terms{}
			}
		},
		coverage.Unowned, transition.Timing{}.WithDefaults().Takeover(), "session b, is over",
	},
	"owner unknown": {
		func(l *coverage.Look) { l.Census.Sessions = l.Census.Sessions[:1] },
		coverage.Unowned, timing.Takeover(), "session b, is over",
	},
	"everybody left": {
		func(l *coverage.Look) {
			l.Census.Sessions[0].State, l.Census.Sessions[1].State = machine.Gone, machine.Gone
			l.Census.Grants = nil
		},
		coverage.Unowned, timing.Takeover(), "nobody takes part",
	},
	"only members for the index": {
		func(l *coverage.Look) {
			l.Census.Sessions[0].Weight, l.Census.Sessions[1].Weight, l.Census.Grants = 0, 0, nil
		},
		coverage.Unowned, timing.Takeover(), "nobody who takes part claims partitions",
	},
	"nobody eligible": {
		func(l *coverage.Look) {
			l.Census.Config.Requires = []partition.Requirement{{First: 2, Last: 2, Tags: "gpu"}}
			l.Census.Sessions[0].Tags = "eu"
			l.Census.Grants = slices.Delete(l.Census.Grants, 2, 3)
		},
		coverage.NoneEligible, timing.Takeover(), "it asks for gpu, and nobody",
	},
	"owner not eligible, nor anybody": {
		func(l *coverage.Look) {
			l.Census.Config.Requires = []partition.Requirement{{First: 2, Last: 2, Tags: "gpu"}}
		},
		coverage.NoneEligible, timing.Takeover(), "it asks for gpu, and nobody",
	},
	"all unwell": {
		func(l *coverage.Look) { l.Census.Sessions[0].Unwell, l.Census.Sessions[1].Unwell = true, true },
		coverage.Unwell, timing.Takeover(), "every peer says that it is unwell",
	},
	"newer fence": {
		func(l *coverage.Look) { l.Data[0].Fence = partition.Token{Epoch: 99, Session: "b"} },
		coverage.Double, 0, "granted it to peer-a under epoch 10, the data admits epoch 99 of peer-b",
	},
	"fence of another ledger": {
		func(l *coverage.Look) { l.Data[0].Fence = partition.Token{Epoch: 99, Session: "elsewhere"} },
		coverage.Double, 0, "epoch 99 of session elsewhere: nobody is there with that session. If this comes again and again, peers with a ledger elsewhere",
	},
	"next fence": {
		func(l *coverage.Look) { l.Data[1].Fence = partition.Token{Epoch: 12, Session: "b"} },
		coverage.Double, 0, "the data admits epoch 12 of peer-b",
	},
	"refused": {
		func(l *coverage.Look) {
			l.Census.Refused = []machine.Refusal{{Who: "host", What: "total 5", Ago: time.Second}, {Who: "host", What: "total 5", Ago: time.Minute}}
		},
		coverage.Refused, 0, "host: total 5",
	},
	"two deployments": {
		func(l *coverage.Look) { l.Census.Sessions[1].Terms.Deployment = "e" },
		coverage.TwoNames, 0, `"d" (peer-a) and "e" (peer-b)`,
	},
	"two deployments of three": {
		func(l *coverage.Look) {
			l.Census.Sessions[0].Terms.Deployment = "e"
			c := l.Census.Sessions[1]
			c.Session, c.Peer = "c", "peer-0"
			l.Census.Sessions = append(l.Census.Sessions, c)
		},
		coverage.TwoNames, 0, `"d" (peer-0 and 1 more) and "e" (peer-a)`,
	},
	"two strategies": {
		func(l *coverage.Look) {
			l.Census.Sessions[0].Strategy, l.Census.Sessions[1].Strategy = "sticky", "jump"
		},
		coverage.TwoWays, 0, `share out the partitions by "jump" (peer-b) and "sticky" (peer-a)`,
	},
	"two of one id": {
		func(l *coverage.Look) { l.Census.Sessions[1].Peer = "peer-a" },
		coverage.SameID, timing.Takeover(), `2 peers that live have the id "peer-a"`,
	},
	"not handed over": {
		func(l *coverage.Look) { l.Census.Grants[0].Waiter = "b" },
		coverage.Overdue, timing.Drain + timing.CancelGrace + 2*timing.Beat(), "peer-b waits for it, and peer-a",
	},
	"opened by another": {
		func(l *coverage.Look) {
			l.Data[0].Fence, l.Data[0].Waiting = partition.Token{Epoch: 10, Session: "b"}, true
		},
		coverage.Overdue, timing.Takeover(), "peer-a, who was granted it, has not opened it",
	},
	"not opened under its epoch": {
		func(l *coverage.Look) {
			l.Data[0].Fence, l.Data[0].Waiting = partition.Token{Epoch: 9, Session: "a"}, true
		},
		coverage.Overdue, timing.Takeover(), "peer-a, who was granted it, has not opened it",
	},
	"not opened": {
		func(l *coverage.Look) {
			l.Data[0].Fence, l.Data[0].Waiting = partition.Token{Epoch: 1, Session: "b"}, true
		},
		coverage.Overdue, timing.Takeover(), "peer-a, who was granted it, has not opened it",
	},
}

// How long something lasts does not begin anew when another word is said of it, and is not that of
// another partition of which the same is said.
func TestTellsConditionsApart(t *testing.T) {
	bound := timing.Drain + timing.CancelGrace + 2*timing.Beat()
	waits := func(waiters ...partition.Session) coverage.Look {
		l := healthy()
		c := l.Census.Sessions[1]
		c.Session, c.Peer = "c", "peer-c"
		l.Census.Sessions = append(l.Census.Sessions, c)
		for i, w := range waiters {
			l.Census.Grants[i].Waiter = w
		}
		return l
	}
	var d coverage.Detector
	now := time.Minute
	d.Look(now, waits())
	now += time.Hour
	d.Look(now, waits("b"))
	d.Look(now+bound/2, waits("c", "c"))
	found, _ := d.Look(now+bound, waits("c", "c"))
	if len(found) != 1 || !slices.Equal(found[0].Partitions, []partition.ID{0}) {
		t.Errorf("the first waits for too long, and it finds %v", found)
	}

	refused := healthy()
	refused.Census.Refused = []machine.Refusal{{Who: "x", What: "7 partitions"}}
	if found, _ = d.Look(now+2*bound, refused); len(found) != 1 {
		t.Errorf("the first was refused: %v", found)
	}
	refused.Census.Refused = append(refused.Census.Refused, machine.Refusal{Who: "y", What: "9 partitions"})
	if found, _ = d.Look(now+3*bound, refused); len(found) != 1 || !strings.Contains(found[0].Text, "y: 9") {
		t.Errorf("another was refused: %v", found)
	}
}

// Who was handed a partition over has its own time to open it: a long drain may have used up all of the bound.
func TestOpensAfterALongDrain(t *testing.T) {
	draining, opening := healthy(), healthy()
	draining.Census.Grants[0].Waiter = "b"
	opening.Data[0].Fence, opening.Data[0].Waiting = partition.Token{Epoch: 1, Session: "b"}, true
	var d coverage.Detector
	now := time.Minute
	d.Look(now, draining)
	now += timing.Drain
	if found, _ := d.Look(now, draining); len(found) > 0 {
		t.Fatalf("it drains for as long as it may, and it finds %v", found)
	}
	now += timing.Beat()
	if found, _ := d.Look(now, opening); len(found) > 0 {
		t.Errorf("it was handed over just now, and it finds %v", found)
	}
	if found, _ := d.Look(now+timing.Takeover(), opening); len(found) != 1 || found[0].For != timing.Takeover() {
		t.Errorf("it was not opened within the takeover bound, and it finds %v", found)
	}
}

// A partition that nobody works on is not well again because another peer is to have it.
func TestNotOpenedAndToBeHandedOver(t *testing.T) {
	unopened, moving := healthy(), healthy()
	for _, l := range []*coverage.Look{&unopened, &moving} {
		l.Data[0].Fence, l.Data[0].Waiting = partition.Token{Epoch: 1, Session: "b"}, true
	}
	moving.Census.Grants[0].Waiter = "b"
	var d coverage.Detector
	now := time.Minute
	d.Look(now, unopened)
	now += timing.Takeover()
	if found, _ := d.Look(now, unopened); len(found) != 1 {
		t.Fatalf("it was not opened within the takeover bound, and it finds %v", found)
	}
	for _, l := range []coverage.Look{moving, unopened} {
		now += timing.Beat()
		if found, over := d.Look(now, l); len(found)+len(over) > 0 {
			t.Errorf("nobody works on it still, and it finds %v, and %v to be over", found, over)
		}
	}
	if _, over := d.Look(now, healthy()); len(over) != 1 {
		t.Errorf("it is worked on, and %v is over", over)
	}
}

// A grace passes by the ledger's clock, which stands still when nobody calls.
func TestAGraceOfAFleetThatDied(t *testing.T) {
	l := healthy()
	l.Census.Grace, l.Census.Silence = 5*time.Second, time.Hour
	got := coverage.Judge(coverage.Look{Census: coverage.Heard(l.Census)}, func(coverage.Condition) time.Duration { return time.Hour })
	if len(got) != 1 || got[0].String() != "unowned: partitions 0-3: nobody takes part" {
		t.Errorf("nobody has called for an hour, and it finds %v", got)
	}
	if left := l.Census.Sessions[0].Lease; left != healthy().Census.Sessions[0].Lease {
		t.Errorf("the census was changed: a lease of %v", left)
	}
	// That of a long lease outlasts it.
	l.Census.Grace, l.Census.Silence = time.Minute, 20*time.Second
	if left := coverage.Heard(l.Census).Grace; left != 40*time.Second {
		t.Errorf("%v are left of a minute after 20 s", left)
	}
}

// Every fault is told once, as soon as its bound is over and not before, and its end.
func TestFaults(t *testing.T) {
	for what, f := range faults {
		t.Run(what, func(t *testing.T) {
			var d coverage.Detector
			now := time.Minute
			if found, over := d.Look(now, healthy()); len(found)+len(over) > 0 || d.Suspects() {
				t.Fatalf("all is well, and it finds %v %v", found, over)
			}
			bad := healthy()
			f.inject(&bad)
			now += time.Hour
			found, _ := d.Look(now, bad)
			if f.bound > 0 {
				if len(found) > 0 {
					t.Fatalf("told at once: %v", found)
				}
				if !d.Suspects() {
					t.Error("it does not ask for another look")
				}
				if found, _ = d.Look(now+f.bound-time.Millisecond, bad); len(found) > 0 {
					t.Fatalf("told before its bound: %v", found)
				}
				found, _ = d.Look(now+f.bound, bad)
			}
			if len(found) != 1 || found[0].Kind != f.kind || !strings.Contains(found[0].Text, f.word) {
				t.Fatalf("found %v", found)
			}
			if found[0].For < f.bound {
				t.Errorf("for %v, want at least %v", found[0].For, f.bound)
			}
			if again, over := d.Look(now+f.bound+time.Second, bad); len(again)+len(over) > 0 {
				t.Errorf("told again: %v %v", again, over)
			}
			if _, over := d.Look(now+f.bound+time.Minute, healthy()); !slices.Equal(over, []coverage.Kind{f.kind}) {
				t.Errorf("over: %v", over)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	for what, f := range faults {
		bad := healthy()
		f.inject(&bad)
		for _, c := range []struct {
			age  time.Duration
			want bool
		}{{0, f.bound == 0}, {f.bound - 1, f.bound == 0}, {f.bound, true}} {
			got := coverage.Judge(bad, func(coverage.Condition) time.Duration { return c.age })
			if (len(got) > 0) != c.want {
				t.Errorf("%s, seen for %v: %v", what, c.age, got)
			}
		}
	}
	if got := coverage.Judge(healthy(), func(coverage.Condition) time.Duration { return time.Hour }); len(got) > 0 {
		t.Errorf("all is well: %v", got)
	}
}

// Several partitions are told as old as the one that has been so longest, and a refusal by how long
// ago it was.
func TestFindingsSayForHowLong(t *testing.T) {
	l := healthy()
	l.Census.Refused = []machine.Refusal{{Who: "host", What: "total 5", Ago: 3 * time.Minute}, {Who: "host", What: "total 5", Ago: 4 * time.Minute}}
	if found, _ := new(coverage.Detector).Look(time.Hour, l); len(found) != 1 || found[0].For != 3*time.Minute {
		t.Errorf("found %v", found)
	}
	l.Census.Sessions, l.Census.Grants = nil, nil
	ages := map[partition.ID]time.Duration{0: time.Minute, 1: time.Hour, 2: 2 * time.Minute, 3: time.Minute}
	for _, f := range coverage.Judge(l, func(c coverage.Condition) time.Duration { return ages[c.ID] }) {
		if want := map[coverage.Kind]time.Duration{coverage.Unowned: time.Hour, coverage.Refused: 3 * time.Minute}[f.Kind]; f.For != want {
			t.Errorf("%v for %v, want %v", f, f.For, want)
		}
	}
}

// A fleet that wants another configuration, or a program that is started again and again, hides nothing else that is wrong.
func TestWhoIsRefusedForTheSameIsOneFinding(t *testing.T) {
	l := healthy()
	l.Census.Refused = []machine.Refusal{
		{Who: "host pid 3", What: "total 5", Ago: time.Second}, {Who: "other pid 7", What: "hash id", Ago: 2 * time.Second},
		{Who: "host pid 2", What: "total 5", Ago: time.Minute}, {Who: "host pid 1", What: "total 5", Ago: 2 * time.Minute},
	}
	want := []coverage.Finding{
		{Kind: coverage.Refused, Text: "host pid 3, and 2 more: total 5", For: time.Second},
		{Kind: coverage.Refused, Text: "other pid 7: hash id", For: 2 * time.Second},
	}
	if got := coverage.Judge(l, func(coverage.Condition) time.Duration { return -1 }); !reflect.DeepEqual(got, want) {
		t.Errorf("it judges %v, want %v", got, want)
	}
	var d coverage.Detector
	if got, _ := d.Look(time.Hour, l); !reflect.DeepEqual(got, want) {
		t.Errorf("it finds %v, want %v", got, want)
	}
	l.Census.Refused = slices.Insert(l.Census.Refused[:3:3], 0, machine.Refusal{Who: "host pid 4", What: "total 5"})
	if got, over := d.Look(time.Hour+time.Minute, l); len(got) != 1 || got[0].Text != "host pid 4: total 5" || over != nil {
		t.Errorf("of one more it finds %v, and %v is over", got, over)
	}
}

// By a store whose clock is behind that of the one before it a refusal is yet to come, and of what nobody
// knows the beginning of nobody knows for how long it has been.
func TestNothingHasBeenForLessThanNoTime(t *testing.T) {
	l := healthy()
	l.Census.Refused = []machine.Refusal{{Who: "host pid 3", What: "total 5", Ago: -5 * time.Second}}
	l.Census.Sessions[1].Peer = "peer-a"
	found := coverage.Judge(l, func(coverage.Condition) time.Duration { return -1 })
	if len(found) != 2 {
		t.Errorf("it finds %v", found)
	}
	for _, f := range found {
		if f.For != 0 {
			t.Errorf("%v: for %v", f, f.For)
		}
	}
}

// What nobody knows the beginning of is told if it does not pass by itself.
func TestJudgeOfWhatHasNoBeginning(t *testing.T) {
	unknown := func(coverage.Condition) time.Duration { return -1 }
	for what, change := range map[coverage.Kind]func(*coverage.Look){
		coverage.Unwell: func(l *coverage.Look) {
			for i := range l.Census.Sessions {
				l.Census.Sessions[i].Unwell = true
			}
		},
		coverage.SameID: func(l *coverage.Look) { l.Census.Sessions[1].Peer = "peer-a" },
		coverage.NoneEligible: func(l *coverage.Look) {
			l.Census.Config.Requires = []partition.Requirement{{First: 2, Last: 2, Tags: "gpu"}}
		},
	} {
		l := healthy()
		change(&l)
		if got := coverage.Judge(l, unknown); len(got) != 1 || got[0].Kind != what {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// What waits for a hand-over passes by itself: one look does not tell whether it lasts.
func TestOneLookSaysNothingOfAHandover(t *testing.T) {
	l := healthy()
	l.Census.Grants[0].Waiter = "b"
	if got := coverage.Judge(l, func(coverage.Condition) time.Duration { return -1 }); len(got) > 0 {
		t.Errorf("%v", got)
	}
}

// One kind is over while something of another stands.
func TestOneOfTwoKindsIsOver(t *testing.T) {
	both, one := healthy(), healthy()
	for _, l := range []*coverage.Look{&both, &one} {
		l.Census.Sessions[1].Terms.Deployment = "e"
	}
	both.Data[0].Fence.Epoch++
	for range 20 { // what was told has no order
		var d coverage.Detector
		d.Look(time.Minute, both)
		if _, over := d.Look(2*time.Minute, both); len(over) > 0 {
			t.Fatalf("both stand, and it says that they are over: %v", over)
		}
		if _, over := d.Look(3*time.Minute, one); !slices.Equal(over, []coverage.Kind{coverage.Double}) {
			t.Fatalf("over: %v", over)
		}
	}
}

// Of a paused name the pause is told, and what is not given up in time; that nobody has the rest is meant.
func TestPaused(t *testing.T) {
	l := healthy()
	l.Census.Config.Paused = partition.Pause{Since: time.Unix(1_790_000_000, 0), Why: "the database moves"}
	kept := l.Census.Grants[0]
	l.Census.Grants = l.Census.Grants[:1]
	l.Data[0].Fence.Epoch++ // nor does it matter
	var d coverage.Detector
	found, _ := d.Look(0, l)
	if len(found) != 1 || found[0].Kind != coverage.Paused || !strings.Contains(found[0].Text, "2026-09-21T14:13:20Z (the database moves)") {
		t.Errorf("at first: %v", found)
	}
	found, _ = d.Look(time.Hour, l)
	if len(found) != 1 || found[0].Kind != coverage.Overdue || !slices.Equal(found[0].Partitions, []partition.ID{kept.Grant.ID}) ||
		!strings.Contains(found[0].Text, "the name is paused, and peer-a has not given it up") {
		t.Errorf("an hour later: %v", found)
	}
	l.Census.Sessions = nil
	if _, over := d.Look(2*time.Hour, l); !slices.Equal(over, []coverage.Kind{coverage.Overdue}) {
		t.Errorf("with nobody there, over is %v", over)
	}
	if got := coverage.Conditions(l); len(got) != 1 || got[0].Kind != coverage.Paused {
		t.Errorf("with nobody there: %v", got)
	}
	l.Census.Grace = time.Second
	if got := coverage.Conditions(l); len(got) != 1 || got[0].Kind != coverage.Paused {
		t.Errorf("in a grace: %v", got)
	}
}

// What is under way is no finding.
func TestQuiet(t *testing.T) {
	for what, change := range map[string]func(*coverage.Look){
		"grace":         func(l *coverage.Look) { l.Census.Grants, l.Census.Grace = nil, time.Second },
		"old refusal":   func(l *coverage.Look) { l.Census.Refused = []machine.Refusal{{Who: "w", Ago: time.Hour}} },
		"no deployment": func(l *coverage.Look) { l.Census.Sessions[0].Terms.Deployment = "" },
		"of another deployment, and dead": func(l *coverage.Look) {
			l.Census.Sessions = append(l.Census.Sessions,
				machine.Seat{Session: "x", Peer: "x", State: machine.Live, Lease: -time.Second, Terms: machine.Terms{Deployment: "e"}},
				machine.Seat{Session: "y", Peer: "y", State: machine.Gone, Lease: time.Second, Terms: machine.Terms{Deployment: "f"}})
		},
		"of another deployment, and its lease has just ended": func(l *coverage.Look) {
			l.Census.Sessions = append(l.Census.Sessions,
				machine.Seat{Session: "x", Peer: "x", State: machine.Live, Terms: machine.Terms{Deployment: "e"}})
		},
		"of the same id, and dead": func(l *coverage.Look) {
			l.Census.Sessions = append(l.Census.Sessions,
				machine.Seat{Session: "x", Peer: "peer-a", State: machine.Live, Lease: -time.Second},
				machine.Seat{Session: "y", Peer: "peer-a", State: machine.Gone, Lease: time.Second})
		},
		"waits for itself":       func(l *coverage.Look) { l.Census.Grants[0].Waiter = "a" },
		"waiter is dead":         func(l *coverage.Look) { l.Census.Grants[0].Waiter = "x" },
		"opened, and tasks wait": func(l *coverage.Look) { l.Data[0].Waiting = true },
		"not opened and empty":   func(l *coverage.Look) { l.Data[0].Fence = partition.Token{} },
		"nothing read of data":   func(l *coverage.Look) { l.Data = nil },
		"its owner has what it asks for": func(l *coverage.Look) {
			l.Census.Config.Requires = []partition.Requirement{{First: 2, Last: 2, Tags: "gpu"}}
			l.Census.Sessions[1].Tags = "eu gpu"
		},
	} {
		l := healthy()
		change(&l)
		if got := coverage.Conditions(l); len(got) > 0 {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// Who is named where two have one id can be told from the other.
func TestTwoOfOneIDAreNamedApart(t *testing.T) {
	l := healthy()
	l.Census.Sessions[1].Peer = "peer-a"
	l.Census.Grants[0].Waiter = "b"
	for _, c := range coverage.Conditions(l) {
		if c.Kind == coverage.SameID && !slices.Equal(c.Sessions, []partition.Session{"a", "b"}) {
			t.Errorf("the sessions of one id are %v", c.Sessions)
		}
		if c.Kind == coverage.Overdue && !strings.Contains(c.Text, "peer-a#b waits for it, and peer-a#a has not") {
			t.Error(c.Text)
		}
	}
	if l.Census.Sessions[0].Peer != "peer-a" {
		t.Error("the census was changed")
	}
}

// A closed barrier explains that nobody owns anything, also to who does not know since when.
func TestAClosedBarrierExplains(t *testing.T) {
	unknown := func(coverage.Condition) time.Duration { return -1 }
	l := healthy()
	l.Census.Sessions[0].Arrived, l.Census.Sessions[1].Arrived, l.Census.Grants = 3, 2, nil
	if got := coverage.Judge(l, unknown); len(got) > 0 {
		t.Errorf("while it is closed: %v", got)
	}
	l.Census.Sessions[1].Arrived = 3
	if got := coverage.Judge(l, unknown); len(got) != 1 {
		t.Errorf("while it is open: %v", got)
	}
}

// After a new roll those whom it names have to ask first: a beat without hints.
func TestPatienceAfterARoll(t *testing.T) {
	var d coverage.Detector
	d.Look(time.Minute, healthy())
	l := healthy()
	l.Census.Roll.Version++
	l.Census.Grants = l.Census.Grants[1:]
	now := 2 * time.Minute
	d.Look(now, l)
	if found, _ := d.Look(now+timing.Settle+time.Millisecond, l); len(found) > 0 {
		t.Errorf("%v", found)
	}
	if found, _ := d.Look(now+timing.Beat()+timing.Settle, l); len(found) != 1 {
		t.Errorf("%v", found)
	}
	// What was told already is not told anew, nor over, because another roll explains it.
	l.Census.Roll.Version++
	if found, over := d.Look(now+timing.Beat()+timing.Settle+time.Second, l); len(found)+len(over) > 0 {
		t.Errorf("%v %v", found, over)
	}
	l.Census.Roll.Version++
	l.Data[3].Fence.Epoch++
	if found, _ := d.Look(now+2*time.Minute, l); len(found) != 1 || found[0].Kind != coverage.Double {
		t.Errorf("two owners are nothing that a roll explains, and it finds %v", found)
	}
}

func TestFindingsArePutTogether(t *testing.T) {
	l := healthy()
	l.Census.Grants = l.Census.Grants[3:]
	got := coverage.Judge(l, func(coverage.Condition) time.Duration { return time.Hour })
	if len(got) != 1 || got[0].String() != "unowned: partitions 0-2: it is granted to nobody" {
		t.Errorf("%v", got)
	}
}

// An ingress list is called by its name: its number says nothing to people.
func TestAnIngressListHasItsName(t *testing.T) {
	l := healthy()
	l.Census.Config.Units = []string{"inbox"}
	l.Census.Config.Requires = []partition.Requirement{{First: 3, Last: 3, Tags: "gpu"}, {First: partition.FirstUnit, Last: partition.FirstUnit, Tags: "gpu"}}
	unknown := func(coverage.Condition) time.Duration { return -1 }
	got := coverage.Judge(l, unknown)
	if len(got) != 1 || got[0].String() != "none-eligible: partition 3, ingress inbox: it asks for gpu, and nobody who takes part has that" {
		t.Errorf("%v", got)
	}
	l.Census.Config.Requires = l.Census.Config.Requires[1:]
	got = coverage.Judge(l, unknown)
	if len(got) != 1 || got[0].String() != "none-eligible: ingress inbox: it asks for gpu, and nobody who takes part has that" {
		t.Errorf("%v", got)
	}
}

func TestTakeover(t *testing.T) {
	l := healthy()
	if got := coverage.Takeover(l.Census); got != timing.Takeover() {
		t.Errorf("%v, want %v", got, timing.Takeover())
	}
	// The slowest counts, and who says nothing has no times.
	long := transition.Timing{Lease: time.Minute, Settle: 3 * time.Second}.WithDefaults()
	silent := l.Census.Sessions[0]
	silent.Session, silent.Peer, silent.Terms = "c", "peer-c", machine.Terms{}
	l.Census.Sessions[0].Terms = long.Terms("d")
	l.Census.Sessions = append(l.Census.Sessions, silent)
	if got := coverage.Takeover(l.Census); got != long.Takeover() {
		t.Errorf("%v, want %v", got, long.Takeover())
	}
	l.Census.Grants = l.Census.Grants[1:]
	if got := coverage.Conditions(l); len(got) != 1 || got[0].Bound != long.Settle {
		t.Errorf("%v, want a bound of %v", got, long.Settle)
	}
	l.Census.Sessions[0].Arrived = 3 // with a barrier those who waited ask with the next beat
	if got, want := coverage.Conditions(l)[0].Bound, long.Takeover()+long.Beat()+long.Settle; got != want {
		t.Errorf("after a barrier a bound of %v, want %v", got, want)
	}
	l.Census.Sessions = nil
	if got := coverage.Takeover(l.Census); got != 0 {
		t.Errorf("of nobody: %v", got)
	}
}

// What the dead left behind is called that also where only members for the index are left.
func TestLeftToMembersForTheIndexAlone(t *testing.T) {
	l := healthy()
	for i := range l.Census.Sessions {
		l.Census.Sessions[i].Weight = 0
	}
	l.Census.Grants, l.Census.Grants[0].Session = l.Census.Grants[:1], "x"
	var said []string
	for _, f := range coverage.Judge(l, func(coverage.Condition) time.Duration { return time.Hour }) {
		said = append(said, f.String())
	}
	want := []string{"unowned: partition 0: the lease of its owner, session x, is over", "unowned: partitions 1-3: it is granted to nobody"}
	if !slices.Equal(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
}

// Where nobody is well, and not drained, nobody takes over: that is told beside what has no owner.
func TestNobodyIsWell(t *testing.T) {
	l := healthy()
	l.Census.Sessions[0].Unwell, l.Census.Sessions[1].Drained = true, true
	l.Census.Grants = l.Census.Grants[3:]
	got := coverage.Judge(l, func(coverage.Condition) time.Duration { return time.Hour })
	if len(got) != 2 || got[0].String() != "unowned: partitions 0-2: nobody who takes part is well, and not drained" || got[1].Kind != coverage.Unwell {
		t.Errorf("%v", got)
	}
}

// Where that is so of those only who have what a partition asks for, it is told why nobody has it.
func TestNobodyWhoHasTheTagsIsWell(t *testing.T) {
	for name, take := range map[string]func(*machine.Seat){
		"unwell":  func(s *machine.Seat) { s.Unwell = true },
		"drained": func(s *machine.Seat) { s.Drained = true },
	} {
		l := healthy()
		l.Census.Config.Requires = []partition.Requirement{{First: 0, Last: 1, Tags: "gpu"}}
		l.Census.Sessions[0].Tags = "gpu"
		take(&l.Census.Sessions[0])
		l.Census.Grants = l.Census.Grants[1:]
		got := coverage.Judge(l, func(coverage.Condition) time.Duration { return -1 })
		if len(got) != 1 || got[0].String() != "unowned: partition 0: it asks for gpu, and nobody who has that is well, and not drained" {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestMembersForTheIndexAloneCountForNothing(t *testing.T) {
	alone := machine.Seat{Session: "i", Peer: "index", State: machine.Live, Lease: 1 << 33, Tags: "gpu", Strategy: "other"}
	kinds := func(l coverage.Look) (all []coverage.Kind) {
		for _, c := range coverage.Conditions(l) {
			all = append(all, c.Kind)
		}
		return all
	}
	l := healthy()
	for i := range l.Census.Sessions {
		l.Census.Sessions[i].Unwell = true
	}
	l.Census.Sessions = append(l.Census.Sessions, alone)
	if !slices.Contains(kinds(l), coverage.Unwell) {
		t.Error("a well member for the index alone hides that nobody who works is well")
	}
	l = healthy()
	l.Census.Config.Requires = []partition.Requirement{{First: 1, Last: 1, Tags: "gpu"}}
	l.Census.Sessions = append(l.Census.Sessions, alone)
	if !slices.Contains(kinds(l), coverage.NoneEligible) {
		t.Error("a member for the index alone counts as eligible")
	}
	l = healthy()
	for i := range l.Census.Sessions {
		l.Census.Sessions[i].Strategy = "sticky"
	}
	l.Census.Sessions = append(l.Census.Sessions, alone)
	if slices.Contains(kinds(l), coverage.TwoWays) {
		t.Error("the strategy of a member for the index alone matters")
	}
}
