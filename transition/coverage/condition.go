package coverage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// A Kind is what is wrong.
type Kind string

// The kinds.
const (
	Unowned      Kind = "unowned"       // nobody owns the partition
	Double       Kind = "double"        // the data and the ledger name different owners
	Overdue      Kind = "overdue"       // the partition waits longer than its bound to be worked on by whom it is for
	NoneEligible Kind = "none-eligible" // nobody has the tags that the partition asks for
	Refused      Kind = "refused"       // somebody wants another number of partitions, hash or units, or may not open one
	TwoNames     Kind = "two-deployments"
	TwoWays      Kind = "two-strategies" // peers share out the partitions in different ways
	SameID       Kind = "same-id"        // several live peers have one id
	Unwell       Kind = "unwell"         // all who claim partitions say that they are unwell, or are drained
	Paused       Kind = "paused"         // nobody is to work, see transition.Pauser
)

// Kinds lists all kinds.
func Kinds() []Kind {
	return []Kind{Unowned, NoneEligible, Double, Overdue, Refused, TwoNames, TwoWays, SameID, Unwell, Paused}
}

// refusedFor is how long a refusal is worth telling.
const refusedFor = 10 * time.Minute

// A Datum is what the data of a partition says.
type Datum struct {
	ID    partition.ID
	Fence partition.Token // zero: nobody may fetch and settle now
	// Waiting says that there are tasks in it that are not finished, or may be.
	Waiting bool
}

// A Look is what was seen. The data must have been read before the census: then a
// fence is never newer than the grant it belongs to. Partitions and units of which
// nothing was read are judged by the census alone.
type Look struct {
	Census machine.Census
	Data   []Datum
}

// A Condition is something that can be seen in one look.
type Condition struct {
	Kind Kind
	// ID is the partition, of the first four kinds.
	ID partition.ID
	// Unit is the name of the ingress list that ID is, or "".
	Unit string
	// Sessions share a peer id, of SameID.
	Sessions []partition.Session
	// Text says what is wrong, for people, without the partition and without Who.
	Text string
	// Who wanted it, of Refused.
	Who string
	// Ago is how long ago it was, of Refused.
	Ago time.Duration
	// Bound is how long it may last; zero: it is wrong at once.
	Bound time.Duration
	// Explained says that something under way explains it. An unowned partition that
	// nothing explains has a shorter bound.
	Explained bool
	// Handover says that it waits for a hand-over, of those that are overdue.
	Handover bool
}

// partitions reports whether it is about partitions, and not about the name.
func (k Kind) partitions() bool {
	switch k {
	case Unowned, NoneEligible, Double, Overdue:
		return true
	case Refused, TwoNames, TwoWays, SameID, Unwell, Paused:
	}
	return false
}

// key tells conditions apart over several looks.
func (c Condition) key() string {
	if c.Kind.partitions() {
		return fmt.Sprintf("%s %d", c.Kind, c.ID)
	}
	return string(c.Kind) + " " + c.Who + " " + c.Text
}

// Conditions returns what is not as it should be in the end.
func Conditions(l Look) []Condition {
	b := bounds(l.Census)
	all := refusals(l.Census)
	all = append(all, sameIDs(l.Census, b.takeover)...)
	l.Census = l.Census.Apart()
	all = append(all, disagreements(l.Census)...)
	if p := l.Census.Config.Paused; p != (partition.Pause{}) {
		all = append(all, paused(p))
	}
	if l.Census.Grace > 0 {
		return all // nobody gains a partition: who owned what says so again first
	}
	all = append(all, unwell(l.Census, b.takeover)...)
	r := readingOf(l, b)
	for _, id := range l.Census.Config.IDs() {
		if c, wrong := r.condition(id); wrong {
			all = append(all, c)
		}
	}
	return all
}

// A reading is a look, ordered to be asked of one partition after the other.
type reading struct {
	census  machine.Census
	limits  limits
	gate    barrier
	seats   map[partition.Session]machine.Seat // of those that live
	grants  map[partition.ID]machine.Ownership
	data    map[partition.ID]Datum
	silent  map[partition.ID]string // who is to have it by the roll, lives by its lease alone, and has missed a beat
	claimed bool                    // somebody claims partitions, or has some
	ill     bool                    // those that claim some are all unwell
	due     bool                    // a roll of other members is to come
}

func readingOf(l Look, b limits) reading {
	claims := machine.Claimed(l.Census)
	r := reading{
		census:  l.Census,
		limits:  b,
		gate:    barrierOf(l.Census, b),
		seats:   make(map[partition.Session]machine.Seat),
		grants:  make(map[partition.ID]machine.Ownership),
		data:    make(map[partition.ID]Datum),
		silent:  make(map[partition.ID]string),
		claimed: claims || len(l.Census.Grants) > 0,
		ill:     claims && !machine.Well(l.Census),
		due:     l.Census.Membership != l.Census.Roll.Membership,
	}
	for _, s := range l.Census.Sessions {
		if s.State != machine.Gone && s.Lease > 0 {
			r.seats[s.Session] = s
		}
	}
	for _, g := range l.Census.Grants {
		r.grants[g.Grant.ID] = g
	}
	for _, d := range l.Data {
		r.data[d.ID] = d
	}
	for _, m := range l.Census.Roll.Members {
		s, lives := r.seats[m.Session]
		if beat := transition.TimingOf(s.Terms).Beat(); !lives || s.Terms.Lease-s.Lease <= beat+beat/2 {
			continue
		}
		for _, id := range m.Partitions {
			r.silent[id] = m.Peer
		}
	}
	return r
}

// condition says what is wrong with one partition, if anything is.
func (r reading) condition(id partition.ID) (c Condition, wrong bool) {
	g, granted := r.grants[id]
	owner, lives := r.seats[g.Session]
	c = Condition{ID: id, Unit: r.census.Config.Unit(id), Bound: r.limits.takeover}
	if r.census.Config.Paused != (partition.Pause{}) {
		if !lives {
			return c, false
		}
		c.Kind, c.Handover, c.Bound = Overdue, true, handover(owner) // what runs may end
		c.Text = fmt.Sprintf("the name is paused, and %s has not given it up", owner.Peer)
		return c, true
	}
	asks := r.census.Config.Asks(id)
	d := r.data[id] // zero: nothing was read of it
	waiter, awaited := r.seats[g.Waiter]
	switch {
	case len(r.seats) == 0:
		c.Kind, c.Text, c.Explained = Unowned, "nobody takes part", true
	case !r.claimed:
		c.Kind, c.Text, c.Explained = Unowned, "nobody who takes part claims partitions", true
	case asks != "" && !machine.Eligible(r.census, id):
		c.Kind, c.Explained = NoneEligible, true
		c.Text = fmt.Sprintf("it asks for %v, and nobody who takes part has that", asks)
	case !granted && r.ill:
		c.Kind, c.Text, c.Explained = Unowned, "nobody who takes part is well, and not drained", true
	case !granted:
		c.Kind, c.Text, c.Explained = Unowned, "it is granted to nobody", r.due
		if asks != "" && !machine.Fit(r.census, id) {
			c.Text = fmt.Sprintf("it asks for %v, and nobody who has that is well, and not drained", asks)
		}
		if r.gate.used { // it may have opened just now, and who waited behind it asks with the next beat
			c.Bound = r.gate.patience + r.limits.beat + r.limits.settle
		}
		switch {
		case len(r.gate.behind) > 0:
			c.Explained, c.Bound = true, r.gate.patience
			c.Text = fmt.Sprintf("nobody works under roll %d before %s stopped", r.census.Roll.Version, has(r.gate.behind))
		case r.due:
		case r.silent[id] != "":
			c.Explained = true
			c.Text = fmt.Sprintf("%s is to have it, and has missed a beat: if it is dead, another takes it over once its lease is over", r.silent[id])
		case !r.gate.used:
			c.Bound = r.limits.settle
		}
	case !lives:
		c.Kind, c.Text, c.Explained = Unowned, fmt.Sprintf("the lease of its owner, session %s, is over", g.Session), true
	case d.Fence.Epoch > g.Grant.Epoch:
		c.Kind, c.Bound = Double, 0
		c.Text = fmt.Sprintf("the ledger granted it to %s under epoch %d, the data admits epoch %d of %s",
			owner.Peer, g.Grant.Epoch, d.Fence.Epoch, name(r.seats, d.Fence.Session))
	case awaited && waiter.Session != owner.Session:
		c.Kind, c.Handover, c.Bound = Overdue, true, handover(owner)
		c.Text = fmt.Sprintf("%s waits for it, and %s has not handed it over", waiter.Peer, owner.Peer)
	case d.Waiting && (d.Fence.Epoch != g.Grant.Epoch || d.Fence.Session != g.Session):
		c.Kind, c.Text = Overdue, fmt.Sprintf("%s, who was granted it, has not opened it: nobody works on it", owner.Peer)
	default:
		return c, false
	}
	return c, true
}

// sameIDs finds ids that several live peers have. One that was killed and came back under its
// id is no other: its former session lives until its lease is over.
func sameIDs(c machine.Census, bound time.Duration) []Condition {
	var all []Condition
	shared := c.Shared()
	for _, id := range slices.Sorted(maps.Keys(shared)) {
		all = append(all, Condition{Kind: SameID, Bound: bound, Sessions: shared[id],
			Text: fmt.Sprintf("%d peers that live have the id %q: give each its own", len(shared[id]), id)})
	}
	return all
}

// unwell tells that nobody is well: then nobody takes over from anybody.
func unwell(c machine.Census, bound time.Duration) []Condition {
	if !machine.Claimed(c) || machine.Well(c) {
		return nil
	}
	return []Condition{{Kind: Unwell, Bound: bound, Explained: true,
		Text: "every peer says that it is unwell, or is drained: each works on what it has, and nobody takes over"}}
}

// paused tells that nobody is to work. It may be meant, and it may have been forgotten.
func paused(p partition.Pause) Condition {
	text := "nobody works, since " + p.Since.UTC().Format(time.RFC3339)
	if p.Why != "" {
		text += fmt.Sprintf(" (%s)", p.Why)
	}
	return Condition{Kind: Paused, Text: text + ": countoff resume goes on"}
}

// limits are how long things may take among the peers of a name.
type limits struct {
	takeover, settle, beat time.Duration
}

func bounds(c machine.Census) limits {
	b := limits{}
	for _, s := range c.Sessions {
		if s.Terms.Lease == 0 {
			continue
		}
		t := transition.TimingOf(s.Terms)
		b.takeover = max(b.takeover, t.Takeover())
		b.settle, b.beat = max(b.settle, t.Settle), max(b.beat, t.Beat())
	}
	if b.takeover == 0 {
		t := transition.Timing{}.WithDefaults()
		b = limits{t.Takeover(), t.Settle, t.Beat()}
	}
	return b
}

// handover is how long owner may take to hand a partition over.
func handover(owner machine.Seat) time.Duration {
	t := transition.TimingOf(owner.Terms).WithDefaults()
	return t.Drain + t.CancelGrace + 2*t.Beat()
}

// A barrier is how peers go from roll to roll that all stop first.
type barrier struct {
	used     bool
	behind   []string      // who is waited for; none: it is open
	patience time.Duration // how long the slowest of all may take to stop, or to be missed
}

func barrierOf(c machine.Census, b limits) barrier {
	gate := barrier{patience: b.takeover}
	for _, s := range c.Sessions {
		if s.Arrived == 0 {
			continue // it has begun nothing
		}
		gate.used, gate.patience = true, max(gate.patience, handover(s))
		if s.Arrived < c.Roll.Version {
			gate.behind = append(gate.behind, s.Peer)
		}
	}
	slices.Sort(gate.behind)
	return gate
}

// has names peers, and says that they have.
func has(peers []string) string {
	switch n := len(peers); n {
	case 1:
		return peers[0] + " has"
	default:
		return fmt.Sprintf("%s and %d more have", peers[0], n-1)
	}
}

// Takeover returns the published bound of the name as its peers have told it: from the
// death of one of them until others have its partitions. Zero: none has told.
func Takeover(c machine.Census) time.Duration {
	for _, s := range c.Sessions {
		if s.Terms.Lease > 0 {
			return bounds(c).takeover
		}
	}
	return 0
}

// Heard returns c as whoever looks from outside should see it. The ledger's clock goes on with
// the calls of peers, so that by it the leases of a fleet that died as one never end; if nobody
// has called for longer than a takeover may take, they are over here. Nothing may be decided
// by it that a peer acts on: a store that was paused is silent as well.
func Heard(c machine.Census) machine.Census {
	if c.Silence <= bounds(c).takeover {
		return c
	}
	c.Sessions = slices.Clone(c.Sessions)
	for i := range c.Sessions {
		c.Sessions[i].Lease -= c.Silence
	}
	c.Grace = max(c.Grace-c.Silence, 0)
	return c
}

func refusals(c machine.Census) []Condition {
	var all []Condition
	type want struct{ who, what string }
	seen := make(map[want]bool)
	for _, r := range c.Refused {
		this := want{r.Who, r.What}
		if r.Ago > refusedFor || seen[this] {
			continue
		}
		seen[this] = true
		all = append(all, Condition{Kind: Refused, Text: r.What, Who: r.Who, Ago: r.Ago})
	}
	return all
}

// disagreements finds peers of which each says another thing where all should say the same.
func disagreements(c machine.Census) []Condition {
	var all []Condition
	if says := differ(c, func(s machine.Seat) string { return s.Terms.Deployment }); says != "" {
		all = append(all, Condition{Kind: TwoNames, Text: "the peers belong to " + says})
	}
	if says := differ(c, func(s machine.Seat) string {
		if s.Weight == 0 { // it seals no roll where others claim partitions
			return ""
		}
		return s.Strategy
	}); says != "" {
		all = append(all, Condition{Kind: TwoWays, Text: "the peers share out the partitions by " + says})
	}
	return all
}

// differ tells what the peers say, and who, if they do not all say the same. Who says
// nothing differs from nobody.
func differ(c machine.Census, of func(machine.Seat) string) string {
	peers := make(map[string][]string)
	for _, s := range c.Sessions {
		if what := of(s); what != "" && s.State != machine.Gone && s.Lease > 0 {
			peers[what] = append(peers[what], s.Peer)
		}
	}
	if len(peers) < 2 {
		return ""
	}
	var says []string
	for _, d := range slices.Sorted(maps.Keys(peers)) {
		slices.Sort(peers[d])
		who := peers[d][0]
		if n := len(peers[d]) - 1; n > 0 {
			who = fmt.Sprintf("%s and %d more", who, n)
		}
		says = append(says, fmt.Sprintf("%q (%s)", d, who))
	}
	return strings.Join(says, " and ")
}

func name(seats map[partition.Session]machine.Seat, s partition.Session) string {
	if seat, ok := seats[s]; ok {
		return seat.Peer
	}
	return fmt.Sprintf("session %s: nobody is there with that session. If this comes again and again, peers with a ledger elsewhere "+
		"work the same data under the same name: give one of the two another name", s)
}
