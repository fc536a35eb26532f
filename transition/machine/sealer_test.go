package machine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// TestNextRoll reads a census from a line and the roll as a line: sessions are
// letters, a peer id is the letter before a dash, if there is one.
func TestNextRoll(t *testing.T) {
	for _, c := range []struct {
		why      string
		roll     string // session=partitions, in the order of indexes
		sessions string // of live ones; - before: leaving; + before: lease over
		grants   string // session=partitions held
		want     string
	}{
		{
			why:      "the first roll shares out evenly",
			sessions: "a b c d",
			want:     "a=0,1 b=2,3 c=4,5 d=6,7",
		},
		{
			why:      "nobody is left",
			roll:     "a=0,1,2,3,4,5,6,7",
			sessions: "-a",
			want:     "",
		},
		{
			why:      "a newcomer gets the next index and its share, the others keep theirs",
			roll:     "b=0,1,2,3 a=4,5,6,7",
			sessions: "a b c d",
			want:     "b=0,1 a=4,5 c=? d=?",
		},
		{
			why:      "the highest index fills the hole, the others stay",
			roll:     "d=0,1 a=2,3 c=4,5 b=6,7",
			sessions: "b c d",
			want:     "d=? b=? c=?",
		},
		{
			why:      "a newcomer fills the hole when the number stays the same",
			roll:     "d=0,1 a=2,3 c=4,5 b=6,7",
			sessions: "b c d e",
			want:     "d=0,1 e=2,3 c=4,5 b=6,7",
		},
		{
			why:      "three leave: indexes that are too high fill the holes in their order, newcomers come after",
			roll:     "a=0 b=1 c=2 d=3 e=4,5 f=6,7",
			sessions: "c e f x",
			want:     "e=4,5 f=6,7 c=? x=?",
		},
		{
			why:      "a peer id that came back takes the index and the partitions of its old session",
			roll:     "a-1=0,1 b-1=2,3 c-1=4,5 d-1=6,7",
			sessions: "a-1 -b-1 b-2 c-1 d-1",
			want:     "a-1=0,1 b-2=2,3 c-1=4,5 d-1=6,7",
		},
		{
			why:      "of many that came back each takes its own index",
			roll:     "b-1=0,1 a-1=2,3 d-1=4,5 c-1=6,7",
			sessions: "a-2 b-2 c-1 d-1",
			want:     "b-2=0,1 a-2=2,3 d-1=4,5 c-1=6,7",
		},
		{
			why:      "a peer id that is there twice is two members",
			roll:     "a-1=0,1,2,3 b-1=4,5,6,7",
			sessions: "a-1 a-2 b-1 b-2",
			want:     "a-1=0,1 b-1=4,5 a-2=? b-2=?",
		},
		{
			why:      "what a joiner was promised that died before asking counts as its holder's",
			roll:     "a=0,1 b=2,3 x=4,5,6,7",
			sessions: "a b",
			grants:   "a=0,1,4,5 b=2,3,6,7",
			want:     "a=0,1,4,5 b=2,3,6,7",
		},
		{
			why:      "what a living member was promised stays its, whoever has it still",
			roll:     "a=0,1,2,3 b=4,5,6,7",
			sessions: "a b",
			grants:   "a=0,1,2,3,4,5,6,7",
			want:     "a=0,1,2,3 b=4,5,6,7",
		},
		{
			why:      "what a living member was promised stays its, though the other has all of it",
			roll:     "a=0,1,2,3 b=4,5,6,7",
			sessions: "a b",
			grants:   "b=0,1,2,3,4,5,6,7",
			want:     "a=0,1,2,3 b=4,5,6,7",
		},
		{
			why:      "a store that forgot the roll: the holders keep what they hold",
			sessions: "a b",
			grants:   "b=0,1,2,3 a=4,5,6,7",
			want:     "a=4,5,6,7 b=0,1,2,3",
		},
		{
			why:      "a session whose lease is over is dead, removed or not",
			roll:     "a=0,1,2,3 b=4,5,6,7",
			sessions: "a +b",
			want:     "a=0,1,2,3,4,5,6,7",
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			census := machine.Census{
				Config:     partition.Config{Total: 8},
				Membership: 9,
				Roll:       machine.Roll{Version: 5, Membership: 7},
			}
			for i, line := range strings.Fields(c.roll) {
				session, ids := readLine(t, line)
				census.Roll.Members = append(census.Roll.Members, machine.RollMember{
					Member:     partition.Member{Session: session, Peer: peerOf(session), Index: i},
					Partitions: ids,
				})
			}
			for s := range strings.FieldsSeq(c.sessions) {
				seat := machine.Seat{State: machine.Live, Lease: 1}
				if rest, ok := strings.CutPrefix(s, "-"); ok {
					s, seat.State = rest, machine.Leaving
				} else if rest, ok := strings.CutPrefix(s, "+"); ok {
					s, seat.Lease = rest, -1
				}
				seat.Session, seat.Peer = partition.Session(s), peerOf(partition.Session(s))
				census.Sessions = append(census.Sessions, seat)
			}
			for line := range strings.FieldsSeq(c.grants) {
				session, ids := readLine(t, line)
				for _, id := range ids {
					census.Grants = append(census.Grants, machine.Ownership{
						Grant:   partition.Grant{ID: id, Epoch: 1},
						Session: session,
					})
				}
			}
			next, _, ok := machine.NextRoll(census, partition.Sticky{})
			if !ok {
				t.Fatal("no roll is due")
			}
			if next.Version != 5 || next.Membership != 9 {
				t.Errorf("on top of roll %d for membership %d, want 5 and 9", next.Version, next.Membership)
			}
			checkRoll(t, next, c.want)
		})
	}
}

func TestNextRollOnlyWhenDue(t *testing.T) {
	census := machine.Census{Config: partition.Config{Total: 8}, Membership: 7, Roll: machine.Roll{Version: 5, Membership: 7}}
	if _, _, ok := machine.NextRoll(census, partition.Sticky{}); ok {
		t.Error("a roll is due although the membership is the one of the last")
	}
	census.Membership, census.Grace = 9, 1
	if _, _, ok := machine.NextRoll(census, partition.Sticky{}); ok {
		t.Error("a roll is due in a grace")
	}
}

// A roll for the same members is made only if it shares out otherwise, where none is due
// anyhow.
func TestReshare(t *testing.T) {
	census := machine.Census{Config: partition.Config{Total: 8}, Membership: 7}
	for _, s := range []partition.Session{"a", "b"} {
		census.Sessions = append(census.Sessions, machine.Seat{Session: s, State: machine.Live, Weight: 1})
	}
	even := partition.Even{Busy: []partition.ID{0, 1}}
	if _, _, ok := machine.Reshare(census, even); ok {
		t.Error("shared out anew where a roll is due anyhow")
	}
	next, _, _ := machine.NextRoll(census, partition.Sticky{})
	next.Membership, next.Version = census.Membership, 8
	census.Roll = next // 0 and 1 are both the first's
	if _, _, ok := machine.Reshare(census, partition.Sticky{}); ok {
		t.Error("shared out anew as it was")
	}
	again, _, ok := machine.Reshare(census, even)
	if !ok || again.Version != 8 || again.Membership != 7 {
		t.Fatalf("not shared out anew: %+v, %v", again, ok)
	}
	for _, m := range again.Members {
		if slices.Contains(m.Partitions, 0) == slices.Contains(m.Partitions, 1) {
			t.Errorf("%s has %v, want one of 0 and 1", m.Session, m.Partitions)
		}
	}
	// The last of the last member is as good a reason as the first of the first.
	census.Roll = again
	if _, _, ok := machine.Reshare(census, even); ok {
		t.Error("shared out anew, though it is even")
	}
	last := &census.Roll.Members[1].Partitions
	*last = (*last)[:len(*last)-1]
	if _, _, ok := machine.Reshare(census, even); !ok {
		t.Error("nobody has the last partition, and it is not shared out anew")
	}
	census.Grace = 1
	if _, _, ok := machine.Reshare(census, even); ok {
		t.Error("shared out anew in a grace")
	}
}

func TestNextRollByWeight(t *testing.T) {
	census := machine.Census{Config: partition.Config{Total: 8}, Membership: 1}
	for _, s := range []machine.Seat{{Session: "a", Weight: 1}, {Session: "b", Weight: 3}} {
		s.State = machine.Live
		census.Sessions = append(census.Sessions, s)
	}
	next, _, _ := machine.NextRoll(census, partition.Sticky{})
	if a, b := len(next.Members[0].Partitions), len(next.Members[1].Partitions); a != 2 || b != 6 {
		t.Errorf("weights 1 and 3 share 8 partitions as %d and %d", a, b)
	}
	if w := next.Members[1].Weight; w != 3 {
		t.Errorf("the roll says weight %d, want 3", w)
	}
}

// A member that claims nothing has an index and no partition, whoever came first and
// whatever the strategy, and what a roll promised it before is its holder's.
func TestNextRollOfMembersForTheIndexAlone(t *testing.T) {
	seat := func(session partition.Session, weight int) machine.Seat {
		return machine.Seat{Session: session, Peer: string(session), Weight: weight, State: machine.Live, Lease: 1}
	}
	for _, name := range []string{"sticky", "modulo", "jump", "rendezvous", "ring"} {
		strategy, err := partition.StrategyByName(name)
		if err != nil {
			t.Fatal(err)
		}
		for why, c := range map[string]machine.Census{
			"they came first": {
				Sessions: []machine.Seat{seat("i", 0), seat("w", 1)},
				Roll:     machine.Roll{Version: 1, Membership: 1, Members: []machine.RollMember{{Member: partition.Member{Session: "i", Peer: "i"}, Partitions: []partition.ID{0, 1, 2, 3, 4, 5, 6, 7}}}},
			},
			"they came last": {
				Sessions: []machine.Seat{seat("i", 0), seat("w", 1)},
				Roll:     machine.Roll{Version: 1, Membership: 1, Members: []machine.RollMember{{Member: partition.Member{Session: "w", Peer: "w"}, Partitions: []partition.ID{0, 1, 2, 3, 4, 5, 6, 7}}}},
			},
		} {
			c.Config, c.Membership = partition.Config{Total: 8}, 9
			next, _, _ := machine.NextRoll(c, strategy)
			if len(next.Members) != 2 || next.Members[0].Session != c.Roll.Members[0].Session {
				t.Fatalf("%s, %s: %+v", name, why, next.Members)
			}
			for _, m := range next.Members {
				if want := map[partition.Session]int{"w": 8}[m.Session]; len(m.Partitions) != want {
					t.Errorf("%s, %s: %s has %v, want %d", name, why, m.Session, m.Partitions, want)
				}
			}
		}
	}

	held := func(session partition.Session, ids ...partition.ID) (all []machine.Ownership) {
		for _, id := range ids {
			all = append(all, machine.Ownership{Grant: partition.Grant{ID: id, Epoch: 1}, Session: session})
		}
		return all
	}
	next, _, _ := machine.NextRoll(machine.Census{
		Config: partition.Config{Total: 8}, Membership: 9,
		Sessions: []machine.Seat{seat("i", 0), seat("v", 1), seat("w", 1)},
		Roll:     machine.Roll{Version: 1, Membership: 1, Members: []machine.RollMember{{Member: partition.Member{Session: "i", Peer: "i"}, Partitions: []partition.ID{0, 1, 2, 3, 4, 5, 6, 7}}}},
		Grants:   append(held("w", 0, 1, 2, 3), held("v", 4, 5, 6, 7)...),
	}, partition.Sticky{})
	checkRoll(t, next, "i=? v=4,5,6,7 w=0,1,2,3")
}

// TestNextRollWhereTheIndexAloneComesBack: who claims nothing has the peer id of a worker that is gone,
// while those that work are unwell: it takes over the index, and nothing that would be nobody's.
func TestNextRollWhereTheIndexAloneComesBack(t *testing.T) {
	seat := func(session partition.Session, peer string, weight int, unwell bool) machine.Seat {
		return machine.Seat{Session: session, Peer: peer, Weight: weight, State: machine.Live, Lease: 1, Unwell: unwell}
	}
	for _, strategy := range []partition.Strategy{partition.Sticky{}, partition.Modulo{}} {
		next, _, _ := machine.NextRoll(machine.Census{
			Config: partition.Config{Total: 4}, Membership: 9,
			Sessions: []machine.Seat{seat("a-2", "a", 0, false), seat("b", "b", 1, true)},
			Roll: machine.Roll{Version: 1, Membership: 1, Members: []machine.RollMember{
				{Member: partition.Member{Session: "a-1", Peer: "a"}, Partitions: []partition.ID{0, 1}},
				{Member: partition.Member{Session: "b", Peer: "b", Index: 1}, Partitions: []partition.ID{2, 3}},
			}},
		}, strategy)
		if len(next.Members) != 2 || next.Members[0].Session != "a-2" {
			t.Fatalf("%s: %+v", strategy.Name(), next.Members)
		}
		if got := next.Members[0].Partitions; len(got) > 0 {
			t.Errorf("%s: %v are given to who claims nothing", strategy.Name(), got)
		}
		if got := next.Members[1].Partitions; !slices.Equal(got, []partition.ID{2, 3}) {
			t.Errorf("%s: the unwell one has %v, want what it had", strategy.Name(), got)
		}
	}
}

// checkRoll compares sessions in the order of indexes, and partitions where want
// names them.
func checkRoll(t *testing.T, roll machine.Roll, want string) {
	t.Helper()
	lines := strings.Fields(want)
	if len(lines) != len(roll.Members) {
		t.Fatalf("%d members, want %d: %+v", len(roll.Members), len(lines), roll.Members)
	}
	seen := make(map[partition.ID]bool)
	for i, m := range roll.Members {
		session, ids := readLine(t, lines[i])
		if m.Session != session || m.Index != i || m.Peer != peerOf(session) {
			t.Errorf("member %d is %s with index %d, want %s", i, m.Session, m.Index, session)
		}
		if ids != nil && !slices.Equal(m.Partitions, ids) {
			t.Errorf("%s has %v, want %v", m.Session, m.Partitions, ids)
		}
		for _, id := range m.Partitions {
			if seen[id] {
				t.Errorf("partition %d is given twice", id)
			}
			seen[id] = true
		}
	}
	if len(lines) > 0 && len(seen) != 8 {
		t.Errorf("%d partitions are given, want 8", len(seen))
	}
}

// readLine reads session=0,1,2; no ids for a question mark.
func readLine(t *testing.T, line string) (partition.Session, []partition.ID) {
	t.Helper()
	session, list, _ := strings.Cut(line, "=")
	if list == "?" {
		return partition.Session(session), nil
	}
	var ids []partition.ID
	for s := range strings.SplitSeq(list, ",") {
		g, err := partition.ParseGrant(s + "@1")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, g.ID)
	}
	return partition.Session(session), ids
}

func peerOf(s partition.Session) string {
	peer, _, _ := strings.Cut(string(s), "-")
	return peer
}
