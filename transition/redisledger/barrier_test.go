package redisledger_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// TestBarrier lets peers come and go on a real server, and wants that nobody ever works
// under one roll while another works under another, that the arrivals stand among the
// grants, and that a peer without a barrier is refused.
func TestBarrier(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Server(t).Client(), fleetConfig{barrier: true, partitions: 8, handler: 30 * time.Millisecond})
	f.join()
	f.join()
	f.settled()
	f.join()
	f.settled()
	f.leave()
	f.settled()
	stands, err := f.client.HGetAll(t.Context(), "{"+f.name+"}:transition").Result()
	if err != nil {
		t.Fatal(err)
	}
	census, err := f.ledger.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	arrived := 0
	for field, version := range stands {
		if s, ok := strings.CutPrefix(field, "arrived:"); ok && version == fmt.Sprint(census.Roll.Version) {
			if !slices.ContainsFunc(census.Roll.Members, func(m machine.RollMember) bool { return string(m.Session) == s }) {
				t.Errorf("%s has arrived at roll %s and is not in it", s, version)
			}
			arrived++
		}
	}
	if arrived != 2 || len(stands) != 2+8 {
		t.Errorf("two peers and 8 grants stand there as %v", stands)
	}
	f.cfg.barrier = false
	if err := f.join().run(t.Context()); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("a peer without a barrier ended with %v, want ErrConfig", err)
	}
	f.stop()
}

// While one who claims goes from roll to roll in one way, nobody who claims goes in the other.
func TestBarrierIsAgreed(t *testing.T) {
	const yes, no = true, false
	claims := func(s partition.Session, barrier bool) machine.Request {
		return machine.Request{Session: s, Weight: 1, Barrier: barrier}
	}
	unwell, gone := claims(session(1), yes), claims(session(1), yes)
	unwell.Unwell, gone.State = true, machine.Gone
	for name, c := range map[string]struct {
		agreed  []machine.Request
		lost    []string
		other   machine.Request
		refused bool // for good
		unsure  bool // in the grace
	}{
		"by one who claims":         {agreed: []machine.Request{claims(session(1), yes)}, other: claims(session(2), no), refused: true},
		"by one who does without":   {agreed: []machine.Request{claims(session(1), no)}, other: claims(session(2), yes), refused: true},
		"by one who is unwell":      {agreed: []machine.Request{unwell}, other: claims(session(2), no), refused: true},
		"by one who claims nothing": {agreed: []machine.Request{{Session: session(1)}}, other: claims(session(2), yes)},
		"by one who is gone":        {agreed: []machine.Request{claims(session(1), yes), gone}, other: claims(session(2), no)},
		"by itself":                 {agreed: []machine.Request{claims(session(1), yes)}, other: claims(session(1), no)},
		"by nobody":                 {other: claims(session(1), yes)},
		"and the other claims nothing": {
			agreed: []machine.Request{claims(session(1), yes)}, other: machine.Request{Session: session(2)},
		},
		"and what they say is lost": {
			agreed: []machine.Request{claims(session(1), yes)}, lost: []string{"peers"}, other: claims(session(2), no), refused: true,
		},
		"and who lives is lost": { // they are there, and may not have said so yet
			agreed: []machine.Request{claims(session(1), yes)}, lost: []string{"meta", "sessions", "leases", "transition"},
			other: claims(session(2), no), unsure: true,
		},
		"and who lives without is lost": {
			agreed: []machine.Request{claims(session(1), no)}, lost: []string{"meta", "sessions", "leases", "transition"},
			other: claims(session(2), yes), unsure: true,
		},
		"and the agreement is lost": { // with it, else a fleet would refuse each of its own
			agreed: []machine.Request{claims(session(1), yes)}, lost: []string{"config"}, other: claims(session(2), yes),
		},
		"and the agreement is lost, and another way wanted": {
			agreed: []machine.Request{claims(session(1), yes)}, lost: []string{"config"}, other: claims(session(2), no), refused: true,
		},
		"and nobody knows who lives": {lost: []string{"meta"}, other: claims(session(1), yes)},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := miniStage(t)
			makeName(t, s.client, s.name, partition.Config{})
			l := newLedger(t, s.client, s.name, redisledger.Config{})
			for _, r := range c.agreed {
				mustSync(t, l, r)
			}
			for _, key := range c.lost {
				if err := s.client.Del(t.Context(), "{"+s.name+"}:"+key).Err(); err != nil {
					t.Fatal(err)
				}
			}
			_, err := l.Sync(t.Context(), c.other)
			refused, unsure := errors.Is(err, partition.ErrConfig), errors.Is(err, transition.ErrUnsure)
			if refused != c.refused || unsure != c.unsure || err != nil && !refused && !unsure {
				t.Errorf("the other way is answered with %v", err)
			}
		})
	}
}

// Peers of builds that know of no barrier have said nothing of it: those without may join them.
func TestBarrierBesideOlderBuilds(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	l := newLedger(t, s.client, s.name, redisledger.Config{})
	mustSync(t, l, machine.Request{Session: session(1), Weight: 1})
	for field, key := range map[string]string{"barrier": "config", "mode": "meta"} {
		if n, err := s.client.HDel(t.Context(), "{"+s.name+"}:"+key, field).Result(); n != 1 || err != nil {
			t.Fatalf("%s is not in %s: %v", field, key, err)
		}
	}
	if _, err := l.Sync(t.Context(), machine.Request{Session: session(2), Weight: 1, Barrier: true}); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("one with a barrier is answered with %v", err)
	}
	mustSync(t, l, machine.Request{Session: session(2), Weight: 1})
}

// Who has arrived at a roll is told when the last one has.
func TestBarrierTellsThatItIsOpen(t *testing.T) {
	s, _ := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	l := newLedger(t, s.client, s.name, redisledger.Config{})
	peers := []machine.Request{{Session: session(1), Weight: 1, Barrier: true}, {Session: session(2), Weight: 1, Barrier: true}}
	for _, r := range peers {
		mustSync(t, l, r)
	}
	told := listen(t, l, session(1))
	for range 2 {
		version := reseal(t, l)
		expect(t, told) // of the roll
		for _, r := range peers {
			r.View, r.Arrived = version, version
			mustSync(t, l, r)
		}
	}
	expect(t, told) // nobody was behind the first one, two were behind the second
}

// reseal seals a roll without members and returns its version.
func reseal(t testing.TB, l *redisledger.Ledger) uint64 {
	t.Helper()
	seen, err := l.Census(t.Context())
	if err == nil {
		err = l.Seal(t.Context(), machine.Roll{Version: seen.Roll.Version, Membership: seen.Membership})
	}
	if err != nil {
		t.Fatal(err)
	}
	if seen, err = l.Census(t.Context()); err != nil {
		t.Fatal(err)
	}
	return seen.Roll.Version
}

// closed makes a name of so many peers that all stand before its newest roll, and know it.
func closed(t testing.TB, client redis.UniversalClient, name string, peers int) (l *redisledger.Ledger, all []machine.Request, version uint64) {
	t.Helper()
	makeName(t, client, name, partition.Config{})
	l = newLedger(t, client, name, redisledger.Config{Timing: transition.Timing{Lease: time.Hour}})
	for i := range peers {
		all = append(all, machine.Request{Session: session(i), Weight: 1, Barrier: true})
		mustSync(t, l, all[i])
	}
	first := reseal(t, l)
	for i := range all {
		all[i].View, all[i].Arrived = first, first
		mustSync(t, l, all[i])
	}
	version = reseal(t, l)
	for i := range all {
		all[i].View = version
		mustSync(t, l, all[i])
	}
	return l, all, version
}

// An arrival costs the same for any number of peers, and those who wait hear of it in quiet
// Syncs: a thousand arrive at once.
func TestArrivalCostsTheSameForAll(t *testing.T) {
	t.Parallel()
	h := &traffic{}
	client := redistest.Server(t).Client()
	client.AddHook(h)
	measure := func(peers int) (cost int64) {
		l, all, version := closed(t, client, fmt.Sprint("gate-", peers), peers)
		waits := all[0]
		waits.Arrived = version
		mustSync(t, l, waits)
		for i := 1; i < 4; i++ {
			all[i].Arrived = version
			before := commands(t, client)
			own := commands(t, client) - before // what asking costs
			mustSync(t, l, all[i])
			cost = commands(t, client) - before - 2*own
			h.took()
			if a := mustSync(t, l, waits); a.Behind != peers-1-i {
				t.Errorf("%d of %d have arrived: %d are behind", i+1, peers, a.Behind)
			}
			if _, _, _, answers := h.took(); answers != "same" {
				t.Errorf("one has arrived, and another hears of it with %q, want same", answers)
			}
		}
		return cost
	}
	if small, large := measure(5), measure(600); small != large { // more than a script asks for at once
		t.Errorf("an arrival costs %d commands among 5 peers and %d among 600", small, large)
	}
}

// The roll alone is lost, an evicted key, while peers stand before it: they stand before none,
// and the next can be sealed.
func TestRollLostAtAClosedBarrier(t *testing.T) {
	s, _ := miniStage(t)
	l, all, _ := closed(t, s.client, s.name, 3)
	if err := s.client.Del(t.Context(), "{"+s.name+"}:roll").Err(); err != nil {
		t.Fatal(err)
	}
	version := reseal(t, l)
	for i := range all {
		all[i].View, all[i].Arrived = version, version
		if a := mustSync(t, l, all[i]); a.Behind != len(all)-1-i {
			t.Errorf("%d have arrived: %d are behind", i+1, a.Behind)
		}
	}
}

// BenchmarkPause measures for how long partitions stand still when one of three or four
// peers joins or leaves, with and without a barrier, in turns: from the word to drain to
// the next owner's first moment, over handlers of up to 200 ms. Of the pauses the median and
// the longest, in ms, of partitions that moved and of those that did not; over-drain is the
// longest pause without the slowest drain of its change. A pass is a join and a leave.
func BenchmarkPause(b *testing.B) {
	client := redistest.Server(b).Client()
	type mode struct {
		name string
		fleetConfig
		moved, stayed, over []time.Duration
	}
	const handler = 200 * time.Millisecond
	modes := []*mode{
		{name: "sticky", fleetConfig: fleetConfig{partitions: 256, handler: handler}},
		{name: "modulo", fleetConfig: fleetConfig{partitions: 256, handler: handler, strategy: partition.Modulo{}}},
		{name: "barrier", fleetConfig: fleetConfig{partitions: 256, handler: handler, barrier: true}},
	}
	for b.Loop() {
		for _, m := range modes {
			f := newFleet(b, client, m.fleetConfig)
			for range 3 {
				f.join()
			}
			f.settled()
			for _, change := range []func(){func() { f.join() }, f.leave} {
				f.forget()
				change()
				f.settled()
				longest := time.Duration(0)
				for _, p := range f.pauses {
					if p.moved {
						m.moved = append(m.moved, p.stood)
					} else {
						m.stayed = append(m.stayed, p.stood)
					}
					longest = max(longest, p.stood)
				}
				m.over = append(m.over, longest-f.slowest)
			}
			f.stop()
		}
	}
	for _, m := range modes {
		for kind, all := range map[string][]time.Duration{"moved": m.moved, "stayed": m.stayed, "over-drain": m.over} {
			slices.Sort(all)
			median, longest := 0.0, 0.0
			if n := len(all); n > 0 {
				median, longest = 1000*all[n/2].Seconds(), 1000*all[n-1].Seconds()
			}
			b.ReportMetric(median, m.name+"-"+kind+"-p50-ms")
			b.ReportMetric(longest, m.name+"-"+kind+"-max-ms")
			if kind != "over-drain" {
				b.ReportMetric(float64(len(all))/float64(2*b.N), m.name+"-"+kind+"-paused")
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

type fleetConfig struct {
	barrier    bool
	strategy   partition.Strategy
	partitions int
	handler    time.Duration // longest
}

// fleet are peers of one name whose handlers always have work, and what really happens.
type fleet struct {
	testing.TB
	cfg    fleetConfig
	name   string
	client redis.UniversalClient
	ledger *redisledger.Ledger

	mu      sync.Mutex
	peers   []*worker
	owners  map[partition.ID]tenancy
	stopped map[partition.ID]stop
	pauses  []pause
	slowest time.Duration // drain
}

// tenancy is who works on a partition, from its Serve until its handlers have returned.
type tenancy struct {
	peer *worker
	roll uint64
}

type stop struct {
	at   time.Time
	peer *worker
}

type pause struct {
	moved bool
	stood time.Duration
}

// worker is a peer.
type worker struct {
	*transition.Coordinator
	fleet *fleet
	ended chan error
}

func newFleet(t testing.TB, client redis.UniversalClient, cfg fleetConfig) *fleet {
	t.Helper()
	f := &fleet{
		TB: t, cfg: cfg, client: client, name: fmt.Sprintf("fleet-%x", rand.Uint64()),
		owners: map[partition.ID]tenancy{}, stopped: map[partition.ID]stop{},
	}
	f.ledger = newLedger(t, client, f.name, redisledger.Config{Config: f.layout(), Timing: f.timing()})
	makeName(t, client, f.name, f.layout())
	return f
}

func (f *fleet) layout() partition.Config { return partition.Config{Total: f.cfg.partitions} }

func (f *fleet) timing() transition.Timing {
	return transition.Timing{Lease: 10 * time.Second, Settle: 200 * time.Millisecond}
}

// join starts a peer.
func (f *fleet) join() *worker {
	f.Helper()
	w := &worker{fleet: f, ended: make(chan error, 1)}
	co, err := transition.NewCoordinator(transition.Config{
		Ledger: newLedger(f, f.client, f.name, redisledger.Config{Config: f.layout(), Timing: f.timing()}),
		Tenant: w, Config: f.layout(), Timing: f.timing(), Strategy: f.cfg.strategy, Barrier: f.cfg.barrier,
	})
	if err != nil {
		f.Fatal(err)
	}
	w.Coordinator = co
	f.mu.Lock()
	f.peers = append(f.peers, w)
	f.mu.Unlock()
	go func() { w.ended <- co.Run(context.WithoutCancel(f.Context())) }()
	return w
}

// run waits for the end of w, which is no member of the fleet any more.
func (w *worker) run(ctx context.Context) error {
	w.fleet.mu.Lock()
	w.fleet.peers = slices.DeleteFunc(w.fleet.peers, func(o *worker) bool { return o == w })
	w.fleet.mu.Unlock()
	select {
	case err := <-w.ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave lets the peer go that came first.
func (f *fleet) leave() {
	f.Helper()
	w := f.peers[0]
	w.Stop()
	if err := w.run(f.Context()); err != nil {
		f.Fatal(err)
	}
}

func (f *fleet) stop() {
	f.Helper()
	for len(f.peers) > 0 {
		f.leave()
	}
}

// settled waits until the peers know of each other and work on everything.
func (f *fleet) settled() {
	f.Helper()
	deadline := time.Now().Add(time.Minute)
	for !f.complete() {
		if time.Now().After(deadline) {
			f.Fatal("the peers have not come to rest")
		}
		time.Sleep(5 * time.Millisecond) // a look, not a wait for something to be over
	}
}

func (f *fleet) complete() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	versions := map[uint64]bool{}
	for _, w := range f.peers {
		v := w.View()
		versions[v.Version] = true
		if v.Replicas != len(f.peers) || v.Index < 0 {
			return false
		}
		for _, id := range v.Wish {
			if f.owners[id].peer != w {
				return false
			}
		}
	}
	return len(versions) == 1 && len(f.stopped) == 0 && len(f.owners) == f.cfg.partitions
}

func (f *fleet) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pauses, f.slowest = nil, 0
}

// Serve implements transition.Tenant.
func (w *worker) Serve(g partition.Grant) {
	f, roll := w.fleet, w.View().Version
	f.mu.Lock()
	defer f.mu.Unlock()
	if o, ok := f.owners[g.ID]; ok {
		f.Errorf("partition %d is worked on by two peers, one since roll %d", g.ID, o.roll)
	}
	if f.cfg.barrier {
		for _, id := range slices.Sorted(maps.Keys(f.owners)) {
			if o := f.owners[id]; o.roll != roll {
				f.Errorf("partition %d is begun under roll %d, while %d is worked on under %d", g.ID, roll, id, o.roll)
				break
			}
		}
	}
	f.owners[g.ID] = tenancy{w, roll}
	if s, ok := f.stopped[g.ID]; ok {
		f.pauses = append(f.pauses, pause{moved: s.peer != w, stood: time.Since(s.at)})
		delete(f.stopped, g.ID)
	}
}

// Drain implements transition.Tenant: the handlers that run end by themselves.
func (w *worker) Drain(g partition.Grant, drained func()) {
	f, takes := w.fleet, rand.N(w.fleet.cfg.handler)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped[g.ID] = stop{time.Now(), w}
	f.slowest = max(f.slowest, takes)
	time.AfterFunc(takes, func() {
		f.mu.Lock()
		delete(f.owners, g.ID)
		f.mu.Unlock()
		drained()
	})
}

// Abort implements transition.Tenant.
func (w *worker) Abort(g partition.Grant, cause error, drained func()) {
	f := w.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Logf("%v was aborted: %v", g, cause) // the machine is too slow for the lease
	delete(f.owners, g.ID)
	go drained()
}
