package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/transition/machine"
)

// fleet is a name whose peers have what their roll gives them.
func fleet(t *testing.T, total int, strategy partition.Strategy, peers ...string) machine.Census {
	t.Helper()
	c := machine.Census{Config: partition.Config{Total: total, Hash: partition.XXHash64}, Membership: 1}
	for _, peer := range peers {
		c.Sessions = append(c.Sessions, seat(peer))
	}
	return settled(t, c, strategy)
}

func seat(peer string) machine.Seat {
	return machine.Seat{
		Session: partition.Session("s-" + peer), Peer: peer, Weight: 1, State: machine.Live, Lease: 1, Strategy: "sticky",
		Terms: machine.Terms{Drain: 30_000_000_000},
	}
}

// settled is c once its next roll is sealed and everything has been handed over.
func settled(t *testing.T, c machine.Census, strategy partition.Strategy) machine.Census {
	t.Helper()
	next, fault, due := machine.NextRoll(c, strategy)
	if fault != "" || !due {
		t.Fatalf("no roll: %q", fault)
	}
	next.Version, c.Roll, c.Grants = next.Version+1, next, nil
	for _, m := range next.Members {
		for _, id := range m.Partitions {
			c.Grants = append(c.Grants, machine.Ownership{Grant: partition.Grant{ID: id, Epoch: 1}, Session: m.Session})
		}
	}
	return c
}

func looks(c machine.Census) (s status.Status) {
	s.Name = "n"
	for _, id := range c.Config.IDs() {
		s.Partitions = append(s.Partitions, status.Partition{Held: status.Held{ID: id}, InFlight: 1})
	}
	return s
}

func owners(c machine.Census) map[partition.ID]string {
	all := map[partition.ID]string{}
	for _, g := range c.Grants {
		for _, seat := range c.Sessions {
			if seat.Session == g.Session {
				all[g.Grant.ID] = seat.Peer
			}
		}
	}
	return all
}

// What was planned is what comes of it: the same partitions stay, and each peer gets as many.
func TestWhatIsPlannedComes(t *testing.T) {
	t.Parallel()
	for _, strategy := range []partition.Strategy{partition.Sticky{}, partition.Modulo{}, partition.Jump{}} {
		for _, change := range []Change{{Peers: 1}, {Peers: 2}, {Peers: 3}, {Peers: 4}, {Peers: 7}, {Leave: []string{"bob"}}, {Leave: []string{"bob"}, Peers: 3}} {
			t.Run(fmt.Sprint(strategy.Name(), change.Peers, change.Leave), func(t *testing.T) {
				t.Parallel()
				c := fleet(t, 32, strategy, "ann", "bob", "cid")
				change.Strategy = strategy
				p, err := Of(c, looks(c), change)
				if err != nil {
					t.Fatal(err)
				}
				before := owners(c)
				after := c
				after.Sessions, after.Membership = nil, c.Membership+1
				for _, peer := range p.Peers {
					if !peer.Gone {
						after.Sessions = append(after.Sessions, seat(strings.Replace(peer.ID, "new-", "x", 1)))
					}
				}
				came := owners(settled(t, after, strategy))
				got := map[string]int{}
				stay := 0
				for id, peer := range came {
					got[peer]++
					if before[id] == peer {
						stay++
					}
				}
				if stay != p.Stay || len(p.Moves) != 32-stay || p.InFlight != len(p.Moves) || len(p.Gained)+len(p.Left) != 0 {
					t.Errorf("%d stay, the plan is %+v", stay, p)
				}
				for _, peer := range p.Peers {
					if n := got[strings.Replace(peer.ID, "new-", "x", 1)]; n != peer.Then {
						t.Errorf("%s has %d, the plan said %d", peer.ID, n, peer.Then)
					}
				}
			})
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	c := fleet(t, 8, partition.Sticky{}, "ann", "bob")
	late := seat("late")
	late.Lease = 0 // gone without a word
	c.Sessions = append(c.Sessions, late)
	c.Grants[0].Session = late.Session
	p, err := Of(c, looks(c), Change{Peers: 3})
	if err != nil {
		t.Fatal(err)
	}
	want := `n: 2 peers now, 3 then, by the strategy sticky

  2 partitions move from one peer to another, 5 stay and do not pause
  each waits for what runs of it: 2 tasks in flight in them now, at most 30.0 s
  nobody's now, somebody's then: 0

  peer                       now  then  gives   gets
  ann                          3     3      1      0
  bob                          4     3      1      0
  new-1                        0     2      0      2  joins

  ann -> new-1: 3
  bob -> new-1: 7`
	if got := strings.Join(p.Lines(), "\n"); got != want {
		t.Errorf("the plan is\n%s\nwant\n%s", got, want)
	}
}

// A newcomer is like the last of the peers, of those there are.
func TestNewcomersAreLikeTheOthers(t *testing.T) {
	t.Parallel()
	c := fleet(t, 12, partition.Sticky{}, "ann", "bob")
	for i := range c.Sessions {
		c.Sessions[i].Weight, c.Sessions[i].Tags = 2, "gpu"
	}
	c.Config.Requires = []partition.Requirement{{First: 0, Last: 5, Tags: "gpu"}}
	c.Membership++
	c = settled(t, c, partition.Sticky{})
	p, err := Of(c, looks(c), Change{Peers: 3})
	if err != nil {
		t.Fatal(err)
	}
	if p.Peers[2].Then != 4 || len(p.Moves) != 4 {
		t.Errorf("the plan is %+v", p)
	}
}

func TestWhatCannotBePlanned(t *testing.T) {
	t.Parallel()
	c := fleet(t, 8, partition.Sticky{}, "ann", "bob")
	if _, err := Of(c, looks(c), Change{Leave: []string{"bob", "nope", "none"}}); err == nil || !strings.Contains(err.Error(), `"nope"`) || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("peers that are not there: %v", err)
	}
	c.Sessions[1].Strategy = "modulo"
	if _, err := Of(c, looks(c), Change{Peers: 3}); err == nil || !strings.Contains(err.Error(), "--strategy") {
		t.Errorf("two strategies: %v", err)
	}
	if p, err := Of(c, looks(c), Change{Peers: 3, Strategy: partition.Rendezvous{}}); err != nil || !p.ByID || p.Assumed {
		t.Errorf("one that is said: %v, %+v", err, p)
	}
	c.Sessions[0].Strategy, c.Sessions[1].Strategy = "by-load", ""
	if _, err := Of(c, looks(c), Change{Peers: 3}); err == nil || !strings.Contains(err.Error(), "of their own") {
		t.Errorf("a strategy of the peers' own: %v", err)
	}
	x, err := intervalindexer.New(new(intervalindexer.Memory), "n", intervalindexer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c.Sessions[0].Strategy = x.String()
	if _, err := Of(c, looks(c), Change{Peers: 3}); err == nil || !strings.Contains(err.Error(), "count off by themselves (interval 5s, modulo)") {
		t.Errorf("peers that count off: %v", err)
	}
	c.Sessions[1].Strategy = "interval 2s, modulo" // a deploy rolls: neither can be said with --strategy
	_, err = Of(c, looks(c), Change{Peers: 3})
	if err == nil || !strings.Contains(err.Error(), "count off by themselves (interval 5s, modulo; interval 2s, modulo)") || strings.Contains(err.Error(), "--strategy") {
		t.Errorf("peers that count off in two ways: %v", err)
	}
	c.Sessions[1].Strategy = ""
	c.Sessions[0].Strategy = partition.First{}.Name()
	if p, err := Of(c, looks(c), Change{Drain: []string{"ann"}}); err != nil || len(p.Moves) == 0 {
		t.Errorf("a job with a home: %v, %+v", err, p)
	}
	c.Sessions[0].Strategy = partition.Even{}.Name()
	if _, err := Of(c, looks(c), Change{Drain: []string{"bob"}}); err == nil || !strings.Contains(err.Error(), "--even") || strings.Contains(err.Error(), "want one of") {
		t.Errorf("units that are shared out evenly: %v", err)
	}
	c.Sessions[0].Strategy = ""
	s := looks(c)
	s.TasksUnknown = true
	p, err := Of(c, s, Change{Leave: []string{"ann", "bob"}})
	if err != nil || !p.Assumed || p.InFlight != -1 || !slices.Equal(p.Left, c.Config.IDs()) {
		t.Errorf("all leave: %v, %+v", err, p)
	}
}

// All peers of a barrier stop for a change, whatever they keep.
func TestBarrierPausesAll(t *testing.T) {
	t.Parallel()
	c := fleet(t, 8, partition.Modulo{}, "ann", "bob")
	c.Sessions[1].Arrived = 1
	p, err := Of(c, looks(c), Change{Peers: 3, Strategy: partition.Modulo{}})
	if err != nil || !p.Barrier || p.InFlight != 8 {
		t.Errorf("%v, %+v", err, p)
	}
	text := strings.Join(p.Lines(), "\n")
	if strings.Contains(text, "do not pause") || !strings.Contains(text, "4 stay; all of them pause (--barrier)") {
		t.Errorf("the plan is\n%s", text)
	}
	if p, err := Of(c, looks(c), Change{Peers: 2, Strategy: partition.Modulo{}}); err != nil || p.Barrier || p.InFlight != 0 {
		t.Errorf("where nothing changes nobody pauses: %v, %+v", err, p)
	}
}

// Lists move like partitions, and are none.
func TestIngressListsMove(t *testing.T) {
	t.Parallel()
	c := machine.Census{Config: partition.Config{Total: 4, Hash: partition.XXHash64, Units: []string{"a", "b"}}, Membership: 1}
	c.Sessions = []machine.Seat{seat("ann"), seat("bob")}
	c = settled(t, c, partition.Sticky{})
	all := owners(c)
	had := all[partition.FirstUnit]
	p, err := Of(c, looks(c), Change{Leave: []string{had}})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Units) == 0 || p.Units[0].Unit != "a" || p.Units[0].From != had || p.Units[0].To == had || len(p.Moves) != 2 || p.Stay != 2 {
		t.Errorf("the plan is %+v", p)
	}
	if text := strings.Join(p.Lines(), "\n"); !strings.Contains(text, had+" -> "+p.Units[0].To+": ingress a") {
		t.Errorf("the plan is\n%s", text)
	}
}

// A list that nobody has then, as one whose tag goes with the only peer that has it, is told as a partition is.
func TestIngressListsOfNobody(t *testing.T) {
	t.Parallel()
	c := machine.Census{Config: partition.Config{
		Total: 4, Hash: partition.XXHash64, Units: []string{"a", "b"}, Requires: []partition.Requirement{{Unit: "a", Tags: "eu"}},
	}, Membership: 1}
	c.Sessions = []machine.Seat{seat("ann"), seat("bob")}
	c.Sessions[1].Tags = "eu"
	c = settled(t, c, partition.Sticky{})
	p, err := Of(c, looks(c), Change{Leave: []string{"bob"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Units) != 1 || p.Units[0] != (UnitMove{Unit: "a", From: "bob"}) {
		t.Errorf("the plan is %+v", p)
	}
	if text := strings.Join(p.Lines(), "\n"); !strings.Contains(text, "nobody's then: ingress a\n") {
		t.Errorf("the plan is\n%s", text)
	}
	c.Grants = nil // after all were killed
	if p, err = Of(c, looks(c), Change{Peers: 2}); err != nil || len(p.Units) != 2 || p.Units[1].From != "" {
		t.Fatalf("%v, %+v", err, p)
	}
	if text := strings.Join(p.Lines(), "\n"); !strings.Contains(text, "somebody's then: 0-3, ingress a, ingress b\n") {
		t.Errorf("the plan is\n%s", text)
	}
}

// A peer that leaves has what it has not handed over yet.
func TestWhatIsLeftByNowMoves(t *testing.T) {
	t.Parallel()
	c := fleet(t, 9, partition.Sticky{}, "ann", "bob", "cid")
	c.Sessions[1].State = machine.Leaving
	c.Membership++
	p, err := Of(c, looks(c), Change{Peers: 3})
	if err != nil || len(p.Gained) != 0 || p.Now != 2 || p.Then != 3 {
		t.Fatalf("%v, %+v", err, p)
	}
	if bob := p.Peers[len(p.Peers)-1]; bob.ID != "bob" || bob.Now != 3 || bob.Then != 0 || !bob.Gone {
		t.Errorf("the plan is %+v", p)
	}
}

func TestLeavesOnce(t *testing.T) {
	t.Parallel()
	c := fleet(t, 8, partition.Sticky{}, "ann", "bob")
	if p, err := Of(c, looks(c), Change{Leave: []string{"bob", "bob"}}); err != nil || p.Then != 1 {
		t.Errorf("%v, %+v", err, p)
	}
}

// A peer that is there for its index alone is no model.
func TestNewcomersClaimPartitions(t *testing.T) {
	t.Parallel()
	c := fleet(t, 8, partition.Sticky{}, "ann", "bob")
	c.Sessions[1].Weight = 0
	c.Membership++
	c = settled(t, c, partition.Sticky{})
	if p, err := Of(c, looks(c), Change{Peers: 3}); err != nil || p.Peers[2].Then != 4 {
		t.Errorf("%v, %+v", err, p)
	}
}

// Of fewer the highest indexes leave, whatever their sessions are called; who joins just now has the highest.
func TestTheLastLeave(t *testing.T) {
	t.Parallel()
	c := fleet(t, 8, partition.Sticky{}, "cid", "bob")
	c.Sessions = append(c.Sessions, seat("ann"))
	slices.Reverse(c.Sessions)
	first := c.Roll.Members[0].Session
	c.Grace = 1 // nor does a grace keep anybody from planning
	p, err := Of(c, looks(c), Change{Peers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Peers) != 3 || "s-"+p.Peers[0].ID != string(first) || p.Peers[0].Gone || p.Peers[0].Then != 8 || p.Peers[2].ID != "ann" || !p.Peers[1].Gone || !p.Peers[2].Gone {
		t.Errorf("the plan is %+v", p.Peers)
	}
	if text := strings.Join(p.Lines(), "\n"); strings.Count(text, "  leaves") != 2 {
		t.Errorf("the plan is\n%s", text)
	}
}

// Of several with one id each can be named.
func TestOneOfNamesakesLeaves(t *testing.T) {
	t.Parallel()
	c := fleet(t, 8, partition.Sticky{}, "ann", "bob")
	c.Sessions[0].Peer, c.Sessions[1].Peer = "pod", "pod"
	c.Sessions[1].Terms.Drain = 0
	p, err := Of(c, looks(c), Change{Leave: []string{"pod#s-bob"}})
	if err != nil || p.Then != 1 || len(p.Moves) != 4 || p.Moves[0].From != "pod#s-bob" || p.Moves[0].To != "pod#s-ann" || p.DrainMS != 30_000 {
		t.Errorf("%v, %+v", err, p)
	}
}

// What is not known is not said, and what is odd is.
func TestWhatTheLinesSay(t *testing.T) {
	t.Parallel()
	p := Plan{Name: "n", Strategy: "ring", Assumed: true, ByID: true, InFlight: -1, Moves: []Move{{ID: 3, From: "a\x1b", To: "b"}}, Left: []partition.ID{4}}
	text := strings.Join(p.Lines(), "\n")
	for _, want := range []string{"ring, which nobody has said (--strategy)", "1 partition moves", "decides by the ids", "nobody's then: 4"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, not := range []string{"in flight", "at most", "\x1b", "somebody's"} {
		if strings.Contains(text, not) {
			t.Errorf("%q is in\n%s", not, text)
		}
	}
}

// Where partitions are not where the roll has them, that is said: peers that count off in another way than by rolls
// go by other indexes, and what comes of a change is not what the rolls would make of it.
func TestPartitionsElsewhere(t *testing.T) {
	t.Parallel()
	c := fleet(t, 8, partition.Modulo{}, "ann", "bob")
	p, err := Of(c, looks(c), Change{Peers: 3, Strategy: partition.Modulo{}})
	if err != nil || p.Elsewhere != 0 || strings.Contains(strings.Join(p.Lines(), "\n"), "newest roll") {
		t.Errorf("%v, %+v", err, p)
	}
	c.Grants[0].Session, c.Grants[7].Session = c.Grants[7].Session, c.Grants[0].Session
	p, err = Of(c, looks(c), Change{Peers: 3, Strategy: partition.Modulo{}})
	if err != nil || p.Elsewhere != 2 || !strings.Contains(strings.Join(p.Lines(), "\n"), "than the newest roll says: 2 partitions, on the way already") {
		t.Errorf("%v, %+v", err, p)
	}
}

// What the roll gives to nobody, since nobody may have it, is not on its way: its owner keeps it. Of the rest two
// partitions are, since the shares are of the others alone.
func TestPartitionsOfNobodyStay(t *testing.T) {
	t.Parallel()
	c := fleet(t, 8, partition.Sticky{}, "ann", "bob")
	c.Config.Requires = []partition.Requirement{{First: 0, Last: 3, Tags: "gpu"}}
	grants := c.Grants
	c.Membership++
	c = settled(t, c, partition.Sticky{})
	c.Grants = grants
	p, err := Of(c, looks(c), Change{Leave: []string{"bob"}})
	if err != nil || p.Elsewhere != 2 || len(p.Left) != 4 {
		t.Errorf("%v, %+v", err, p)
	}
}

// Who has just come, or was recalled, has nothing yet: that nothing of it would move is not for long.
func TestBeforeTheNextRoll(t *testing.T) {
	t.Parallel()
	c := fleet(t, 8, partition.Sticky{}, "ann", "bob")
	c.Roll.Version = 1
	const said = "the peers have changed just now"
	p, err := Of(c, looks(c), Change{Leave: []string{"bob"}})
	if err != nil || p.Unsealed || strings.Contains(strings.Join(p.Lines(), "\n"), said) {
		t.Errorf("%v, %+v", err, p)
	}
	c.Sessions = append(c.Sessions, seat("cid"))
	c.Membership++
	p, err = Of(c, looks(c), Change{Leave: []string{"cid"}})
	if err != nil || !p.Unsealed || !strings.Contains(strings.Join(p.Lines(), "\n"), said) {
		t.Errorf("%v, %+v", err, p)
	}
	c.Sessions = nil // where nobody is left no roll comes
	c.Membership++
	p, err = Of(c, looks(c), Change{Peers: 3})
	if err != nil || p.Unsealed {
		t.Errorf("%v, %+v", err, p)
	}
}

// Work units are not tasks in flight: they are told by their names.
func TestWorkUnitsMove(t *testing.T) {
	t.Parallel()
	c := fleet(t, 8, partition.Sticky{}, "ann", "bob")
	s := looks(c)
	s.Table = map[string][]string{"ann": {}, "bob": {}, "_": {}}
	var want []string
	for i := range 9 {
		unit := fmt.Sprint("u", i)
		owner := owners(c)[partition.Of(unit, 8)]
		s.Table[owner] = append(s.Table[owner], unit)
		if owner == "bob" {
			want = append(want, unit)
		}
	}
	p, err := Of(c, s, Change{Leave: []string{"bob"}})
	if err != nil || p.InFlight != -1 || len(want) == 0 || !slices.Equal(p.WorkUnits, want) {
		t.Fatalf("%v, %+v, want %v", err, p, want)
	}
	if text := strings.Join(p.Lines(), "\n"); strings.Contains(text, "in flight") || !strings.Contains(text, "work units in them: "+strings.Join(want, "  ")) {
		t.Errorf("the plan is\n%s", text)
	}
}

// A plan with a drained peer is what the roll does then, and those that are drained already stay so.
func TestDrain(t *testing.T) {
	c := fleet(t, 12, partition.Sticky{}, "ann", "bob", "carl")
	p, err := Of(c, looks(c), Change{Drain: []string{"bob"}})
	if err != nil || p.Now != 3 || p.Then != 3 || len(p.Moves) != 4 || p.Stay != 8 || slices.ContainsFunc(p.Moves, func(m Move) bool { return m.From != "bob" }) {
		t.Errorf("%+v, %v", p, err)
	}
	drained := c
	drained.Membership++
	drained.Sessions = slices.Clone(c.Sessions)
	drained.Sessions[1].Drained = true
	then := owners(settled(t, drained, partition.Sticky{}))
	for _, m := range p.Moves {
		if then[m.ID] != m.To {
			t.Errorf("partition %v is to go to %s, and goes to %s", m.ID, m.To, then[m.ID])
		}
	}
	drained = settled(t, drained, partition.Sticky{})
	if p, err = Of(drained, looks(drained), Change{Drain: []string{"carl"}}); err != nil || slices.ContainsFunc(p.Moves, func(m Move) bool { return m.To != "ann" }) {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err = Of(c, looks(c), Change{Drain: []string{"nope"}}); err == nil || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("who is not there: %v", err)
	}
}

// Thousands of long work units are no line for people: some are shown, the rest is counted.
func TestManyWorkUnits(t *testing.T) {
	t.Parallel()
	p := Plan{WorkUnits: slices.Repeat([]string{"https://example.com/" + strings.Repeat("x", 5000)}, 3000)}
	if text := strings.Join(p.Lines(), "\n"); len(text) > 3000 || !strings.Contains(text, "  https://example.com/x") || !strings.Contains(text, "and 2984 more") {
		t.Errorf("%d characters: %.3000s", len(text), text)
	}
}
