// Package status reads what stands in the store about a name: who takes part, who
// owns what, and what waits. It is what `countoff status --json` prints, and what
// the demo watches.
//
// It asks no peer. Everything in it is a moment's look from outside, taken without
// a lease or a fence: for people and observers, not for decisions.
package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// A Status is a look at one name. The JSON names are what scripts read.
type Status struct {
	Name       string      `json:"name"`
	Roll       Roll        `json:"roll"`
	Peers      []Peer      `json:"peers"`
	Partitions []Partition `json:"partitions"`
	Units      []Unit      `json:"units"`
	Coverage   Coverage    `json:"coverage"`
	// GraceMS is what is left of the time in which nobody gains a partition,
	// because the store is new, restarted or lost its memory; 0: none.
	GraceMS int64 `json:"grace_ms"`
	// TakeoverMS is the published bound: by then a dead peer's partitions are granted
	// to others. 0: no peer has told its times.
	TakeoverMS int64 `json:"takeover_bound_ms"`
	// Barrier is what the peers wait for where they go from roll to roll by the barrier;
	// absent: nothing.
	Barrier *Barrier `json:"barrier,omitempty"`
	// Findings are what is wrong for longer than it may be.
	Findings []Finding `json:"findings"`
	// TasksUnknown says that it is not known what partitions hold: it was not said where the
	// tasks are, or they are a topic's of which this store has nothing, since its progress is
	// kept in Kafka or nobody has opened it yet.
	TasksUnknown bool `json:"tasks_unknown,omitempty"`
	// LedgerElsewhere says that no peer of a ledger of the name in the store where the tasks are is alive, and that peers
	// have opened partitions which none of it was given: it stands in another store, or was lost. Who takes part and who
	// owns what is not known then. Of a name that had its ledger here it may not be seen at once.
	LedgerElsewhere bool `json:"ledger_elsewhere,omitempty"`
	// Drained are the peers that are to have nothing until they are recalled, the one first that was drained
	// first; absent: none.
	Drained []Drained `json:"drained,omitempty"`
	// ToCancel are the tasks that somebody wants out of the way, and that are not yet; absent: none, or it may
	// not be read.
	ToCancel *ToCancel `json:"to_cancel,omitempty"`
	// Table is, where peers share units instead of tasks, who owns which: peer id -> units.
	// The row [Nobody] has those that nobody owns.
	Table map[string][]string `json:"table,omitempty"`
	// Config is what all peers and producers agree on.
	Config partition.Config `json:"-"`
}

// Nobody is the row of [Status.Table] that has the units which nobody owns.
const Nobody = redisledger.Nobody

// A Finding is something that is wrong; see package coverage for the kinds, and those of this package.
type Finding struct {
	Kind       coverage.Kind  `json:"kind"`
	Partitions []partition.ID `json:"partitions"`      // empty: it is about the name
	Units      []string       `json:"units,omitempty"` // the names of those that are ingress lists: the last of Partitions
	Text       string         `json:"text"`
	ForMS      int64          `json:"for_ms"` // how long it has been so, as far as known; of a refusal, how long ago it was
}

// A Drained peer has been told to have nothing.
type Drained struct {
	Peer    string    `json:"peer"` // its id, without what tells those apart that share it
	Since   time.Time `json:"since"`
	Why     string    `json:"why,omitempty"`
	Present bool      `json:"present"` // somebody with that id takes part
}

// ToCancel is how many tasks are to be cancelled: see [redissource.Cancellation].
type ToCancel struct {
	Waits int `json:"waits"` // nobody has met them
	Runs  int `json:"runs"`  // their handlers were told, and have not returned
	// Since when the oldest of them stands, by the store's clock.
	Since time.Time `json:"since,omitzero"`
	// Trouble is why nothing can be read of them, so that the rest says nothing: another program writes their key.
	Trouble string `json:"trouble,omitempty"`
}

// A Barrier is one that is closed: whoever works under an older roll than the newest is
// waited for, and nobody begins under the newest before.
type Barrier struct {
	Roll    uint64   `json:"roll"`    // the newest
	Arrived []string `json:"arrived"` // peers that have stopped for it
	Behind  []Behind `json:"behind"`  // those that are waited for, the one with the oldest roll first
	ForMS   int64    `json:"for_ms"`  // how long the roll has been the newest; -1: unknown
}

// Behind is a peer that a barrier waits for.
type Behind struct {
	Peer string `json:"peer"`
	Roll uint64 `json:"roll"` // at which it stands, and may work under
	// LeaseMS is what is left of its lease: one that is dead is waited for as long.
	LeaseMS int64 `json:"lease_ms"`
}

// A Roll is the newest sealed membership.
type Roll struct {
	Version  uint64 `json:"version"` // 0: none was sealed yet
	Replicas int    `json:"replicas"`
}

// The states of a peer that tell it from the rest, beside leaving and gone.
const (
	Live    = "live"
	Expired = "expired" // its lease is over; nobody has taken note yet
	Joining = "joining" // live, and in no roll yet
)

// A Peer is a session the store knows.
type Peer struct {
	// ID is the peer's, here and wherever a peer is named. Live sessions that share one have
	// "#" and the beginning of their session after it.
	ID         string            `json:"id"`
	Index      int               `json:"index"` // -1: in no roll
	State      string            `json:"state"` // live, joining, leaving, gone or expired
	Weight     int               `json:"weight"`
	Unwell     bool              `json:"unwell"`            // says so: keeps its index, and partitions are for others
	Drained    bool              `json:"drained,omitempty"` // is to have nothing: see [Status.Drained]
	Partitions int               `json:"partitions"`        // that it owns now, units not counted
	Tags       []string          `json:"tags"`              // what it has, for partitions that ask for some
	LeaseMS    int64             `json:"lease_ms"`          // what is left of its lease
	Session    partition.Session `json:"-"`
}

// The states of a partition.
const (
	Owned   = "owned"   // the fence at the data is its owner's
	Opening = "opening" // granted; its owner has not installed its fence yet
	Moving  = "moving"  // its owner is to hand it over: a live peer waits for it
	Unowned = "unowned" // nobody has it
	Double  = "double"  // the fence is another living peer's than the grant
)

// Held is what is known of anything that is granted.
type Held struct {
	ID      partition.ID      `json:"id"`
	Owner   string            `json:"owner"` // peer id; empty: nobody
	Epoch   partition.Epoch   `json:"epoch"`
	State   string            `json:"state"`
	Session partition.Session `json:"-"`
	Fence   partition.Token   `json:"-"` // what admits at the data
}

// A Partition is one share of the work.
type Partition struct {
	Held
	Pending  int `json:"pending"`
	InFlight int `json:"in_flight"`
	Delayed  int `json:"delayed"`
	Dead     int `json:"dead"`
	// Unknown says that what it holds, and whose fence is there, could not be read: why says a
	// finding of the kind [Unread]. Its State is what the ledger says.
	Unknown bool `json:"unknown,omitempty"`
}

// A Unit is what is granted beside the partitions: an ingress list.
type Unit struct {
	Held
	Name    string `json:"name"`
	Pending int    `json:"pending"` // lines not yet routed into partitions
	// Delayed are tasks in a queue of asynq that is no time to route yet: scheduled, retried later, or in a group.
	Delayed int `json:"delayed,omitempty"`
	// Trouble is why nothing of the list is routed: its key, or that of its fence or its plan, holds something
	// else, or the node of a cluster where it is does not answer. Unless it is one of these two, Pending says nothing.
	Trouble string `json:"trouble,omitempty"`
	// Unknown says that it is for the latter: lines may wait.
	Unknown bool `json:"unknown,omitempty"`
}

// Coverage lists the partitions and units that do not have exactly one owner.
type Coverage struct {
	Unowned []partition.ID `json:"unowned"`
	Double  []partition.ID `json:"double"`
}

// A Place is where what is known of a name stands.
type Place struct {
	// Client of the Redis where the tasks are. Nil, where Ledger is set: nobody has said
	// where they are, and what partitions hold is not known.
	Client redis.UniversalClient
	// Ledger is one that stands elsewhere, and Config what its peers agree on; since when
	// something is so is known if it is a transition.Historian. Nil: the ledger stands
	// beside the tasks.
	Ledger transition.Ledger
	Config partition.Config
}

// Read looks at name, whose ledger stands beside its tasks. It returns an error that wraps
// redisconfig.ErrNone if nobody has used the name yet.
func Read(ctx context.Context, client redis.UniversalClient, name string) (Status, error) {
	return Place{Client: client}.Read(ctx, name)
}

// LedgerElsewhere is what Read says of it, also where the configuration of name is lost: then the partition tells that there
// is under every one.
func LedgerElsewhere(ctx context.Context, client redis.UniversalClient, name string) (bool, error) {
	s, err := Read(ctx, client, name)
	if !errors.Is(err, redisconfig.ErrNone) {
		return s.LedgerElsewhere, err
	}
	stats, err := redissource.Stats(ctx, client, name, []partition.ID{0})
	if err != nil {
		return false, err
	}
	ledger, err := redisledger.New(client, name, redisledger.Config{})
	if err != nil {
		return false, err
	}
	census, err := heard(ctx, ledger)
	if err != nil || lives(census) || !opened(stats) {
		return false, err
	}
	return another(ctx, client, name, census, stats)
}

// Read is the function of that name, for a name at that place.
func (at Place) Read(ctx context.Context, name string) (Status, error) {
	ledger, cfg, err := at.open(ctx, name)
	if err != nil {
		return Status{}, err
	}
	stats, queues, err := at.data(ctx, name, cfg.Total)
	if err != nil {
		return Status{}, err
	}
	census, err := heard(ctx, ledger) // after the data: then no fence is newer than its grant
	if err != nil {
		return Status{}, err
	}
	then := &past{}
	then.ledger, _ = ledger.(transition.Historian)
	if at.Client == nil {
		return conclude(ctx, then, assemble(name, census, stats, nil, nil), census, stats)
	}
	inboxes := inboxesOf(ctx, at.Client, cfg.Units, queues)
	table, err := redisledger.ReadTable(ctx, at.Client, name)
	if err != nil {
		return Status{}, err
	}
	other := false
	if at.Ledger == nil && !lives(census) && opened(stats) {
		if other, err = another(ctx, at.Client, name, census, stats); err != nil {
			return Status{}, err
		}
		if other { // the one here says nothing of those who take part, or what was once
			census.Roll, census.Sessions, census.Grants, then.ledger = machine.Roll{}, nil, nil, nil
		}
	}
	s := assemble(name, census, stats, inboxes, table)
	s.LedgerElsewhere = other
	if s.ToCancel, err = toCancel(ctx, at.Client, name); err != nil {
		return Status{}, err
	}
	if s, err = conclude(ctx, then, s, census, stats); err != nil {
		return Status{}, err
	}
	s.Findings = append(s.Findings, unread(stats)...)
	if at.Ledger == nil {
		s.Findings = append(s.Findings, missing(ctx, at.Client, name, census)...)
	}
	if queues {
		s.Findings = append(s.Findings, ofAsynq(ctx, at.Client, name, cfg, stats, inboxes)...)
	}
	return s, nil
}

// open returns the ledger of name, and what all agree on.
func (at Place) open(ctx context.Context, name string) (transition.Ledger, partition.Config, error) {
	if at.Ledger != nil {
		return at.Ledger, at.Config, nil
	}
	cfg, err := redisconfig.Read(ctx, at.Client, name)
	if err != nil {
		return nil, cfg, err
	}
	ledger, err := redisledger.New(at.Client, name, redisledger.Config{Config: cfg})
	return ledger, cfg, err
}

// data reads what the partitions of name hold, if it is known where, and says whether they are queues of asynq.
func (at Place) data(ctx context.Context, name string, total int) (stats []redissource.Stat, asynq bool, err error) {
	ids := partition.Config{Total: total}.IDs()
	if at.Client == nil {
		for _, id := range ids {
			stats = append(stats, redissource.Stat{ID: id})
		}
		return stats, false, nil
	}
	queues, asynq, err := queuestat.Read(ctx, at.Client, name)
	if err != nil {
		return nil, false, err
	}
	if !asynq {
		stats, err = redissource.Stats(ctx, at.Client, name, ids)
		return stats, false, err
	}
	found, err := queues.Stats(ctx, at.Client, ids)
	for _, f := range found {
		stats = append(stats, redissource.Stat{
			ID: f.ID, Fence: f.Fence, Epoch: f.Fence.Epoch, Err: f.Err,
			Pending: f.Pending, InFlight: f.Active, Delayed: f.Delayed, Dead: f.Archived,
		})
	}
	return stats, true, err
}

// An inbox is what waits in an ingress list; its fields are those of a [Unit].
type inbox struct {
	pending, delayed int
	trouble          string
	unknown          bool
}

// inboxesOf reads what waits in lists, which may be queues of asynq. It is never nil.
func inboxesOf(ctx context.Context, client redis.UniversalClient, lists []string, queues bool) []inbox {
	keys := slices.Clone(lists)
	if queues {
		for i, queue := range lists {
			keys[i] = queuestat.Pending(queue)
		}
	}
	all := make([]inbox, len(keys))
	asked := redisconfig.EachNode(ctx, client, keys, func(pipe redis.Pipeliner, i int) { pipe.LLen(ctx, keys[i]) })
	for i, cmds := range asked {
		n, err := cmds[0].(*redis.IntCmd).Result()
		all[i].pending = int(n)
		switch {
		case redis.HasErrorPrefix(err, "WRONGTYPE"):
			all[i].trouble = fmt.Sprintf("%s is no list: another program writes it", keys[i])
		case err != nil:
			all[i].trouble, all[i].unknown = fmt.Sprintf("%s cannot be read: %v", keys[i], redisconfig.Explain(err)), true
		}
	}
	if queues {
		for i, n := range queuestat.Delayed(ctx, client, lists) {
			all[i].delayed = n
		}
		return all
	}
	for i, key := range redissource.IngressOverwritten(ctx, client, keys) {
		if key != "" && all[i].trouble == "" {
			all[i].trouble = key + " is no hash: another program writes it"
		}
	}
	return all
}

func toCancel(ctx context.Context, client redis.UniversalClient, name string) (*ToCancel, error) {
	all, err := redissource.Cancellations(ctx, client, name)
	if err != nil && redisconfig.Forbidden(err) { // to who only looks
		return nil, nil
	}
	if err != nil && strings.Contains(err.Error(), "WRONGTYPE") {
		return &ToCancel{Trouble: redissource.CancelKey(name) + " is no hash: another program writes it"}, nil
	}
	var open ToCancel
	for _, c := range all { // the oldest first
		switch c.State {
		case redissource.CancelWaits:
			open.Waits++
		case redissource.CancelRuns:
			open.Runs++
		default:
			continue
		}
		if open.Since.IsZero() {
			open.Since = c.Since
		}
	}
	if open == (ToCancel{}) {
		return nil, err
	}
	return &open, err
}

// heard is a census for people.
func heard(ctx context.Context, ledger transition.Ledger) (transition.Census, error) {
	census, err := ledger.Census(ctx)
	return coverage.Heard(census), err
}

// Census is what the ledger of a name at that place knows, as [coverage.Heard] shows it.
func (at Place) Census(ctx context.Context, name string) (transition.Census, error) {
	ledger, _, err := at.open(ctx, name)
	if err != nil {
		return transition.Census{}, err
	}
	return heard(ctx, ledger)
}

// History returns the last changes of who owns what in name, at most limit, oldest first. Of a ledger
// that keeps none it is empty. A limit below 1 is an error.
func (at Place) History(ctx context.Context, name string, limit int) (machine.History, error) {
	ledger, _, err := at.open(ctx, name)
	if err != nil {
		return nil, err
	}
	historian, ok := ledger.(transition.Historian)
	if !ok {
		return nil, nil
	}
	history, err := historian.History(ctx, limit)
	return history.Apart(), err
}

// conclude adds to s what its past is asked for.
func conclude(ctx context.Context, then *past, s Status, census transition.Census, stats []redissource.Stat) (_ Status, err error) {
	then.now = census.Clock + census.Silence
	if s.Barrier = barrierOf(census.Apart()); s.Barrier != nil {
		if s.Barrier.ForMS, err = then.sealed(ctx, s.Barrier.Roll); err != nil {
			return Status{}, err
		}
	}
	s.Findings, err = findings(ctx, then, lookOf(census, stats))
	return s, err
}

// drainedOf are those of census that are drained.
func drainedOf(census transition.Census) (all []Drained) {
	for _, d := range census.Config.Drained {
		present := slices.ContainsFunc(census.Sessions, func(s machine.Seat) bool {
			return s.Peer == d.Peer && s.State != machine.Gone && s.Lease > 0
		})
		all = append(all, Drained{Peer: d.Peer, Since: d.Since, Why: d.Why, Present: present})
	}
	return all
}

// assemble puts together what the ledger and the data say. inboxes is nil if nobody has
// looked at the data.
func assemble(name string, census transition.Census, stats []redissource.Stat, inboxes []inbox, table map[string][]string) Status {
	drained := drainedOf(census)
	census = census.Apart()
	s := Status{
		Drained: drained,
		Name:    name, Config: census.Config, Table: table, TasksUnknown: inboxes == nil || census.Config.Hash == partition.Murmur2 && elsewhere(stats),
		Roll:       Roll{Version: census.Roll.Version, Replicas: len(census.Roll.Members)},
		GraceMS:    census.Grace.Milliseconds(),
		TakeoverMS: coverage.Takeover(census).Milliseconds(),
		// Scripts want lists, not null.
		Peers: []Peer{}, Partitions: []Partition{}, Units: []Unit{}, Findings: []Finding{},
		Coverage: Coverage{Unowned: []partition.ID{}, Double: []partition.ID{}},
	}
	peers := peersOf(census)
	grants := map[partition.ID]machine.Ownership{}
	for _, g := range census.Grants {
		grants[g.Grant.ID] = g
	}
	hold := func(id partition.ID, fence partition.Token, fenced bool) Held {
		h := held(id, grants, peers, fence, fenced)
		switch h.State {
		case Unowned:
			s.Coverage.Unowned = append(s.Coverage.Unowned, id)
		case Double:
			s.Coverage.Double = append(s.Coverage.Double, id)
		}
		return h
	}
	fenced := table == nil && !s.TasksUnknown && !elsewhere(stats) // units have no data of ours to fence
	for _, stat := range stats {
		s.Partitions = append(s.Partitions, Partition{
			Held:    hold(stat.ID, stat.Fence, fenced && stat.Err == nil),
			Pending: stat.Pending, InFlight: stat.InFlight, Delayed: stat.Delayed, Dead: stat.Dead,
			Unknown: stat.Err != nil,
		})
	}
	for i, list := range census.Config.Units {
		u := Unit{Held: hold(partition.FirstUnit+partition.ID(i), partition.Token{}, false), Name: list}
		if inboxes != nil {
			in := inboxes[i]
			u.Pending, u.Delayed, u.Trouble, u.Unknown = in.pending, in.delayed, in.trouble, in.unknown
		}
		s.Units = append(s.Units, u)
	}
	for _, seat := range census.Sessions {
		s.Peers = append(s.Peers, *peers[seat.Session])
	}
	slices.SortStableFunc(s.Peers, func(a, b Peer) int {
		// Those in no roll come last.
		return cmp.Or(cmp.Compare(uint(a.Index), uint(b.Index)), cmp.Compare(a.ID, b.ID))
	})
	return s
}

// barrierOf returns the barrier of census that is closed, or nil.
func barrierOf(census transition.Census) *Barrier {
	b := &Barrier{Roll: census.Roll.Version, Arrived: []string{}, ForMS: -1}
	for _, seat := range census.Sessions {
		switch {
		case seat.Arrived == 0: // it has begun nothing yet, and nobody waits for it
		case seat.Arrived < b.Roll:
			b.Behind = append(b.Behind, Behind{Peer: seat.Peer, Roll: seat.Arrived, LeaseMS: seat.Lease.Milliseconds()})
		default:
			b.Arrived = append(b.Arrived, seat.Peer)
		}
	}
	if len(b.Behind) == 0 {
		return nil
	}
	slices.Sort(b.Arrived)
	slices.SortFunc(b.Behind, func(a, b Behind) int { return cmp.Or(cmp.Compare(a.Roll, b.Roll), cmp.Compare(a.Peer, b.Peer)) })
	return b
}

// elsewhere reports whether the fences are not here: those of a topic whose progress is kept in
// Kafka are in its group, a source of the application's own has its own, and a Share has none.
// Then no fence was ever installed here, and nothing is here that could be worked on: a new name
// with tasks has partitions that nobody has come to yet.
func elsewhere(stats []redissource.Stat) bool {
	return !opened(stats) && !slices.ContainsFunc(stats, func(s redissource.Stat) bool {
		return s.Pending+s.InFlight+s.Delayed+s.Dead > 0
	})
}

// another reports whether those who have opened partitions of name had another ledger than that here: nobody has used that,
// or it has not given the epochs that stand. A resize opens partitions under greater ones than it has given, too.
func another(ctx context.Context, client redis.UniversalClient, name string, census transition.Census, stats []redissource.Stat) (bool, error) {
	given := partition.Epoch(census.Count)
	if census.Roll.Version == 0 && len(census.Sessions) == 0 {
		known, err := redisledger.Known(ctx, client, name)
		// What a producer has made has no ledger yet, and a resize opens what nobody has opened under epoch 1. Of peers' there
		// is a greater one then: it opens under the next one, and so does who comes after it.
		if err != nil || !known && slices.ContainsFunc(stats, func(s redissource.Stat) bool { return s.Epoch > 1 }) {
			return true, err
		}
		given = 0
	}
	if slices.ContainsFunc(stats, func(s redissource.Stat) bool { return s.Fence.Epoch > given && !redissource.Resizes(s.Fence) }) {
		return true, nil
	}
	i := slices.IndexFunc(stats, func(s redissource.Stat) bool { return s.Epoch > given })
	if i < 0 {
		return false, nil
	}
	resized, err := client.HExists(ctx, redissource.KeysOf(name, stats[i].ID).Fence, "p").Result()
	return !resized, err
}

// lives reports whether somebody takes part.
func lives(census transition.Census) bool {
	return slices.ContainsFunc(census.Sessions, func(s machine.Seat) bool { return s.State != machine.Gone && s.Lease > 0 })
}

// opened reports whether a peer has ever opened one of the partitions.
func opened(stats []redissource.Stat) bool {
	return slices.ContainsFunc(stats, func(s redissource.Stat) bool { return s.Epoch > 0 || s.Fence.Epoch > 0 })
}

// held says whose id is. fenced tells whether fence was read: of units it is not.
func held(id partition.ID, grants map[partition.ID]machine.Ownership, peers map[partition.Session]*Peer, fence partition.Token, fenced bool) Held {
	h := Held{ID: id, State: Unowned, Fence: fence}
	g, granted := grants[id]
	owner := peers[g.Session]
	if !granted || !alive(owner) {
		return h
	}
	if !id.IsUnit() {
		owner.Partitions++
	}
	h.Owner, h.Epoch, h.Session, h.State = owner.ID, g.Grant.Epoch, g.Session, Owned
	waiter := peers[g.Waiter]
	switch {
	case fenced && fence.Session != g.Session && fence.Epoch >= g.Grant.Epoch && alive(peers[fence.Session]):
		// The ledger has set back behind the data. A smaller epoch would only mean
		// that the new owner has not come to the data yet.
		h.State = Double
	case fenced && (fence.Session != g.Session || fence.Epoch != g.Grant.Epoch):
		h.State = Opening
	case alive(waiter):
		h.State = Moving
	}
	return h
}

// alive reports whether the lease of p stands, of who is gone too.
func alive(p *Peer) bool { return p != nil && p.Lease() > 0 }

// peersOf returns the sessions of census as peers, without what they own.
func peersOf(census transition.Census) map[partition.Session]*Peer {
	index := map[partition.Session]int{}
	for _, m := range census.Roll.Members {
		index[m.Session] = m.Index
	}
	peers := map[partition.Session]*Peer{}
	for _, seat := range census.Sessions {
		p := &Peer{
			ID: seat.Peer, Index: -1, State: seat.State.String(), Weight: seat.Weight, Unwell: seat.Unwell, Drained: seat.Drained,
			Tags:    append([]string{}, strings.Fields(string(seat.Tags))...), // scripts want lists, not null
			LeaseMS: seat.Lease.Milliseconds(), Session: seat.Session,
		}
		if i, ok := index[seat.Session]; ok {
			p.Index = i
		} else if seat.State == machine.Live {
			p.State = Joining
		}
		if seat.Lease <= 0 && seat.State != machine.Gone { // who left in good order has not died
			p.State = Expired
		}
		peers[seat.Session] = p
	}
	return peers
}

// Present reports whether the peer takes part: it has not left and its lease stands.
func (p Peer) Present() bool { return p.State != machine.Gone.String() && p.State != Expired }

// Lease returns what is left of the peer's lease.
func (p Peer) Lease() time.Duration { return time.Duration(p.LeaseMS) * time.Millisecond }

// Totals sums what all partitions hold, as far as it is known.
func (s Status) Totals() (t Partition) {
	for _, p := range s.Partitions {
		t.Pending += p.Pending
		t.InFlight += p.InFlight
		t.Delayed += p.Delayed
		t.Dead += p.Dead
		t.Unknown = t.Unknown || p.Unknown
	}
	return t
}
