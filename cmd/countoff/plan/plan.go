// Package plan says what a change of the number of peers would move, before it is made. It shares out
// with the function of the peers themselves, over those that would be there then.
package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// A Change of who takes part.
type Change struct {
	Peers int      // how many there are to be; 0: as many as are left
	Leave []string // ids of peers that leave
	Drain []string // ids of peers that are drained
	// Strategy is how the peers share out. Nil: as they say of themselves.
	Strategy partition.Strategy
}

// A Plan is what `countoff plan --json` prints.
type Plan struct {
	Name     string `json:"name"`
	Strategy string `json:"strategy"`
	Assumed  bool   `json:"strategy_assumed,omitempty"` // no peer has said which
	Now      int    `json:"peers_now"`
	Then     int    `json:"peers_then"`
	Peers    []Peer `json:"peers"`
	Moves    []Move `json:"moves"` // from one peer to another; nobody else pauses, unless by a barrier
	Stay     int    `json:"stay"`
	// Units are the ingress lists that change hands, and those that nobody has then.
	Units []UnitMove `json:"units,omitempty"`
	// Barrier says that the change stops all peers, also in what stays.
	Barrier bool `json:"barrier,omitempty"`
	// Gained are partitions that nobody has now and somebody has then; Left those that nobody has then.
	Gained []partition.ID `json:"gained"`
	Left   []partition.ID `json:"left"`
	// InFlight is how many tasks run now in what pauses: each move waits for its own, a barrier for
	// all. -1: unknown.
	InFlight int `json:"in_flight"`
	// WorkUnits are those that change hands, where peers share such instead of tasks. InFlight counts none of them.
	WorkUnits []string `json:"work_units,omitempty"`
	// DrainMS is how long a move waits for them at most; 0: no peer has said.
	DrainMS int64 `json:"drain_ms"`
	// Elsewhere is how many partitions one has now and the newest roll gives to another: they move
	// already, or the peers count off in another way than by rolls, and this is not what comes.
	Elsewhere int `json:"elsewhere,omitempty"`
	// Unsealed says that peers have changed since the newest roll: the next one moves partitions before this does.
	Unsealed bool `json:"unsealed,omitempty"`
	// ByID says that what moves depends on the ids that newcomers will have.
	ByID bool `json:"by_id,omitempty"`
}

// A Peer is one that is there now, or then, or both.
type Peer struct {
	ID   string `json:"id"`
	Now  int    `json:"now"`  // partitions that it has
	Then int    `json:"then"` // that it is to have
	Gone bool   `json:"leaves,omitempty"`
	New  bool   `json:"joins,omitempty"`
}

// A Move is a partition that changes hands.
type Move struct {
	ID   partition.ID `json:"partition"`
	From string       `json:"from"`
	To   string       `json:"to"`
}

// A UnitMove is an ingress list that changes hands.
type UnitMove struct {
	Unit string `json:"unit"`
	From string `json:"from"` // "": nobody has it now
	To   string `json:"to"`   // "": nobody has it then
}

// Of returns what change would do to a name of which c is known, and s is what it looks like.
func Of(c machine.Census, s status.Status, change Change) (Plan, error) {
	c = c.Apart()
	there := present(c)
	strategy, assumed, err := strategyOf(there, change.Strategy)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{
		Name: s.Name, Strategy: strategy.Name(), Assumed: assumed, Now: len(there),
		Peers: []Peer{}, Moves: []Move{}, Gained: []partition.ID{}, Left: []partition.ID{},
		Unsealed: len(there) > 0 && c.Roll.Version > 0 && c.Membership != c.Roll.Membership, // nobody seals one for nobody
	}
	leaving, joining, err := change.of(there)
	draining, errDrain := named(there, change.Drain)
	if err = errors.Join(err, errDrain); err != nil {
		return Plan{}, err
	}
	p.Then = len(there) - len(leaving) + len(joining)
	p.ByID = len(joining) > 0 && (p.Strategy == partition.Rendezvous{}.Name() || p.Strategy == partition.Ring{}.Name())

	future := c
	future.Sessions = append(slices.Clone(there), joining...)
	for i, seat := range future.Sessions {
		if slices.Contains(leaving, seat.Session) {
			future.Sessions[i].State = machine.Leaving
		}
		if slices.Contains(draining, seat.Session) {
			future.Sessions[i].Drained = true
		}
	}
	future.Grace, future.Membership = 0, c.Roll.Membership+1
	next, _, _ := machine.NextRoll(future, strategy)
	then := map[partition.ID]partition.Session{}
	for _, m := range next.Members {
		for _, id := range m.Partitions {
			then[id] = m.Session
		}
	}
	for _, seat := range c.Sessions {
		if seat.State == machine.Leaving && seat.Lease > 0 { // it still has what it has not handed over
			future.Sessions, leaving = append(future.Sessions, seat), append(leaving, seat.Session)
		}
	}
	for _, seat := range there {
		p.DrainMS = max(p.DrainMS, seat.Terms.Drain.Milliseconds())
		p.Barrier = p.Barrier || seat.Arrived > 0 && len(leaving)+len(joining)+len(draining) > 0
	}
	p.compare(c, future.Sessions, leaving, then)
	p.cost(c, s)
	return p, nil
}

// present are the sessions that take part.
func present(c machine.Census) (there []machine.Seat) {
	for _, seat := range c.Sessions {
		if seat.State == machine.Live && seat.Lease > 0 {
			there = append(there, seat)
		}
	}
	index := map[partition.Session]int{}
	for _, m := range c.Roll.Members {
		index[m.Session] = m.Index
	}
	slices.SortStableFunc(there, func(a, b machine.Seat) int {
		of := func(s machine.Seat) int {
			if i, ok := index[s.Session]; ok {
				return i
			}
			return len(index) // joins just now
		}
		return of(a) - of(b)
	})
	return there
}

// counted is how what peers of an intervalindexer.Indexer say begins.
const counted = "interval "

// strategyOf is how the peers share out, and whether that is a guess.
func strategyOf(there []machine.Seat, said partition.Strategy) (strategy partition.Strategy, assumed bool, err error) {
	if said != nil {
		return said, false, nil
	}
	var names []string
	for _, seat := range there {
		if seat.Strategy != "" && !slices.Contains(names, seat.Strategy) {
			names = append(names, seat.Strategy)
		}
	}
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, counted) }) {
		return nil, false, fmt.Errorf("the peers count off by themselves (%s), not by rolls, so it cannot be told", strings.Join(names, "; "))
	}
	switch len(names) {
	case 0:
		strategy, err = partition.StrategyByName("")
		return strategy, true, err
	case 1:
		switch names[0] {
		case partition.Even{}.Name():
			return nil, false, errors.New("the peers share units out evenly (--even), by what came first, so who gets which cannot be told: " +
				"those of a peer that leaves or is drained move, one that comes gets its share, and nothing else moves")
		case partition.First{}.Name():
			return partition.First{}, false, nil
		}
		if strategy, err = partition.StrategyByName(names[0]); err != nil {
			err = fmt.Errorf("the peers share out by a strategy of their own, %q, so it cannot be told; with --strategy: what would move with one that countoff has", names[0])
		}
		return strategy, false, err
	}
	return nil, false, fmt.Errorf("the peers share out by several strategies (%s): say with --strategy which one is to stay", strings.Join(names, ", "))
}

// of says who of there leaves and who comes. Where fewer are wanted than there are, the highest indexes leave.
func (change Change) of(there []machine.Seat) (leaving []partition.Session, joining []machine.Seat, err error) {
	if leaving, err = named(there, change.Leave); err != nil {
		return nil, nil, err
	}
	left := slices.DeleteFunc(slices.Clone(there), func(s machine.Seat) bool { return slices.Contains(leaving, s.Session) })
	if change.Peers == 0 {
		return leaving, nil, nil
	}
	for len(left) > change.Peers {
		last := left[len(left)-1]
		leaving, left = append(leaving, last.Session), left[:len(left)-1]
	}
	model := machine.Seat{Weight: 1}
	for _, seat := range there {
		if seat.Weight > 0 { // peers are identical processes; one that claims nothing is there for its index
			model = seat
		}
	}
	for i := len(left); i < change.Peers; i++ {
		seat := machine.Seat{
			Peer: fmt.Sprint("new-", len(joining)+1), Weight: model.Weight, Tags: model.Tags, State: machine.Live, Lease: 1,
		}
		seat.Session = partition.Session("plan:" + seat.Peer)
		joining = append(joining, seat)
	}
	return leaving, joining, nil
}

// named returns those of there that have one of ids.
func named(there []machine.Seat, ids []string) (sessions []partition.Session, err error) {
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		found := false
		for _, seat := range there {
			if seat.Peer == id {
				sessions, found = append(sessions, seat.Session), true
			}
		}
		if !found {
			err = errors.Join(err, fmt.Errorf("no peer that takes part has the id %q: countoff status lists them", id))
		}
	}
	return sessions, err
}

// compare notes what is another's then.
func (p *Plan) compare(c machine.Census, all []machine.Seat, leaving []partition.Session, then map[partition.ID]partition.Session) {
	place := map[partition.Session]int{}
	for _, seat := range all {
		place[seat.Session] = len(p.Peers)
		p.Peers = append(p.Peers, Peer{ID: seat.Peer, Gone: slices.Contains(leaving, seat.Session), New: strings.HasPrefix(string(seat.Session), "plan:")})
	}
	now := map[partition.ID]partition.Session{}
	for _, g := range c.Grants {
		now[g.Grant.ID] = g.Session
	}
	rolled := map[partition.ID]partition.Session{}
	for _, m := range c.Roll.Members {
		for _, id := range m.Partitions {
			rolled[id] = m.Session
		}
	}
	for _, id := range c.Config.IDs() {
		from, had := place[now[id]] // whoever is gone has nothing
		to, has := place[then[id]]
		if unit := c.Config.Unit(id); unit != "" {
			move := UnitMove{Unit: unit}
			if had {
				move.From = p.Peers[from].ID
			}
			if has {
				move.To = p.Peers[to].ID
			}
			if !had || !has || from != to {
				p.Units = append(p.Units, move)
			}
			continue
		}
		if had {
			p.Peers[from].Now++
			if rolled[id] != now[id] && (rolled[id] != "" || machine.Fit(c, id)) { // what nobody may have stays where it is
				p.Elsewhere++
			}
		}
		if has {
			p.Peers[to].Then++
		}
		switch {
		case had && has && from == to:
			p.Stay++
		case had && has:
			p.Moves = append(p.Moves, Move{ID: id, From: p.Peers[from].ID, To: p.Peers[to].ID})
		case has:
			p.Gained = append(p.Gained, id)
		default:
			p.Left = append(p.Left, id)
		}
	}
}

// cost is what the moves wait for.
func (p *Plan) cost(c machine.Census, s status.Status) {
	moves := map[partition.ID]bool{}
	for _, m := range p.Moves {
		moves[m.ID] = true
	}
	for _, units := range s.Table {
		for _, unit := range units {
			if id, err := c.Config.Hash.Of(unit, c.Config.Total); err == nil && moves[id] {
				p.WorkUnits = append(p.WorkUnits, unit)
			}
		}
	}
	slices.Sort(p.WorkUnits)
	if s.TasksUnknown || s.Totals().Unknown || s.Table != nil { // what runs of work units is they themselves
		p.InFlight = -1
		return
	}
	running := map[partition.ID]int{}
	for _, held := range s.Partitions {
		running[held.ID] = held.InFlight
		if p.Barrier {
			p.InFlight += held.InFlight
		}
	}
	if p.Barrier {
		return
	}
	for _, m := range p.Moves {
		p.InFlight += running[m.ID]
	}
}
