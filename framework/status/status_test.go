package status

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

func seat(session, peer string, state machine.State, lease time.Duration) machine.Seat {
	return machine.Seat{Session: partition.Session(session), Peer: peer, Weight: 1, State: state, Lease: lease}
}

func grant(id partition.ID, epoch partition.Epoch, session, waiter string) machine.Ownership {
	return machine.Ownership{Grant: partition.Grant{ID: id, Epoch: epoch}, Session: partition.Session(session), Waiter: partition.Session(waiter)}
}

func TestAssemble(t *testing.T) {
	census := transition.Census{
		Config: partition.Config{Total: 8, Units: []string{"inbox"}},
		Roll: machine.Roll{Version: 9, Members: []machine.RollMember{
			{Member: partition.Member{Session: "a", Index: 1}},
			{Member: partition.Member{Session: "b", Index: 0}},
			{Member: partition.Member{Session: "dead", Index: 2}},
		}},
		Sessions: []machine.Seat{
			seat("a", "ann", machine.Live, 2*time.Second),
			seat("b", "bob", machine.Leaving, time.Second),
			seat("c", "cid", machine.Live, time.Second),
			seat("dead", "dan", machine.Live, -time.Second),
		},
		Grants: []machine.Ownership{
			grant(0, 10, "a", ""), grant(1, 11, "b", "a"), grant(2, 12, "b", "dead"), grant(3, 13, "dead", ""),
			grant(4, 14, "a", ""), grant(5, 15, "a", ""), grant(6, 16, "unknown", ""),
			grant(partition.FirstUnit, 17, "a", ""),
		},
	}
	fence := func(epoch partition.Epoch, session string) partition.Token {
		return partition.Token{Epoch: epoch, Session: partition.Session(session)}
	}
	stats := []redissource.Stat{
		{ID: 0, Fence: fence(10, "a"), Pending: 3, InFlight: 2, Delayed: 1, Dead: 4},
		{ID: 1, Fence: fence(11, "b")},
		{ID: 2, Fence: fence(12, "b")},
		{ID: 3, Fence: fence(13, "dead")},
		{ID: 4, Fence: fence(9, "b")},  // the former owner's
		{ID: 5, Fence: fence(20, "b")}, // newer than the ledger's
		{ID: 6, Fence: fence(16, "unknown")},
		{ID: 7},
	}
	s := assemble("n", census, stats, []inbox{{pending: 5}}, nil)

	want := []string{"ann owned", "bob moving", "bob owned", " unowned", "ann opening", "ann double", " unowned", " unowned"}
	for i, p := range s.Partitions {
		if got := p.Owner + " " + p.State; got != want[i] {
			t.Errorf("partition %d: %q, want %q", i, got, want[i])
		}
	}
	if !reflect.DeepEqual(s.Coverage, Coverage{Unowned: []partition.ID{3, 6, 7}, Double: []partition.ID{5}}) {
		t.Errorf("coverage %+v", s.Coverage)
	}
	if p := s.Partitions[0]; p.Epoch != 10 || p.Pending != 3 || p.InFlight != 2 || p.Delayed != 1 || p.Dead != 4 {
		t.Errorf("%+v", p)
	}
	if u := s.Units[0]; u.Name != "inbox" || u.Owner != "ann" || u.State != Owned || u.Pending != 5 {
		t.Errorf("%+v", u)
	}
	var peers []string
	for _, p := range s.Peers {
		peers = append(peers, p.ID+" "+p.State)
	}
	if want := []string{"bob leaving", "ann live", "dan expired", "cid joining"}; !slices.Equal(peers, want) {
		t.Errorf("peers %q, want %q", peers, want)
	}
	if ann := s.Peers[1]; ann.Partitions != 3 || ann.LeaseMS != 2000 || ann.Index != 1 {
		t.Errorf("%+v", ann)
	}

	// What keeps its fences elsewhere, as a topic whose progress is kept in Kafka, a source of the
	// application's own or a Share, has nothing here.
	none := make([]redissource.Stat, len(stats))
	for i := range none {
		none[i].ID = partition.ID(i)
	}
	want = []string{"ann owned", "bob moving", "bob owned", " unowned", "ann owned", "ann owned", " unowned", " unowned"}
	for i, p := range assemble("n", census, none, []inbox{{}}, nil).Partitions {
		if got := p.Owner + " " + p.State; got != want[i] {
			t.Errorf("partition %d without a fence: %q, want %q", i, got, want[i])
		}
	}
	none[7].Pending = 1 // there are tasks here, and nobody has come to them
	if p := assemble("n", census, none, []inbox{{}}, nil).Partitions[0]; p.State != Opening {
		t.Errorf("of a new name: %+v", p)
	}
}

// Of a topic whose progress is kept in Kafka, or that nobody has opened yet, the store does not know what
// waits: none is not said.
func TestNothingIsKnownOfATopic(t *testing.T) {
	census := transition.Census{Config: partition.Config{Total: 2, Hash: partition.Murmur2}}
	stats := []redissource.Stat{{ID: 0}, {ID: 1}}
	if s := assemble("n", census, stats, []inbox{}, nil); !s.TasksUnknown {
		t.Error("it says that nothing waits")
	}
	stats[1].Epoch = 3
	if s := assemble("n", census, stats, []inbox{}, nil); s.TasksUnknown {
		t.Error("of one that was opened here it says nothing")
	}
	stats[1].Epoch, census.Config.Hash = 0, partition.XXHash64
	if s := assemble("n", census, stats, []inbox{}, nil); s.TasksUnknown {
		t.Error("of lists it says nothing")
	}
}

// Scripts read these names.
func TestJSONFields(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	if _, err := Read(t.Context(), client, name); !errors.Is(err, redisconfig.ErrNone) {
		t.Errorf("of a name nobody used: %v", err)
	}
	if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 2}.WithDefaults()); err != nil {
		t.Fatal(err)
	}
	ledger, err := redisledger.New(client, name, redisledger.Config{Config: partition.Config{Total: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Sync(t.Context(), transition.Request{
		Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{0},
	}); err != nil {
		t.Fatal(err)
	}
	client.RPush(t.Context(), redissource.KeysOf(name, 1).Pending, "task")
	s, err := Read(t.Context(), client, name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var fields struct {
		Roll       map[string]any
		Peers      []map[string]any
		Partitions []map[string]any
		Coverage   map[string]any
	}
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		got  map[string]any
		want string
	}{
		"roll":       {fields.Roll, "version replicas"},
		"peers":      {fields.Peers[0], "id index state weight unwell partitions tags lease_ms"},
		"partitions": {fields.Partitions[0], "id owner epoch state pending in_flight delayed dead"},
		"coverage":   {fields.Coverage, "unowned double"},
	} {
		want := strings.Fields(c.want)
		for _, f := range want {
			if _, ok := c.got[f]; !ok {
				t.Errorf("%s has no field %q: %v", what, f, c.got)
			}
		}
		if len(c.got) != len(want) {
			t.Errorf("%s: %v, want %v", what, c.got, want)
		}
	}
	if !strings.Contains(string(text), `"double":[]`) {
		t.Errorf("lists must not be null: %s", text)
	}
	if got := s.Partitions[0]; got.Owner != "ann" || got.State != Opening {
		t.Errorf("%+v", got)
	}
}

// Two live sessions of one peer id are two peers, in all that names them.
func TestTwoOfOneIDAreTwoPeers(t *testing.T) {
	_, client, pass := mini(t)
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	l := ledgerOf(t, client, "n", "mine")
	one := transition.Request{Session: "aaaaaaaabb", Peer: "ann", Weight: 1, State: machine.Live, Barrier: true, Arrived: 1, Claim: []partition.ID{0}}
	two := one
	two.Session, two.Arrived, two.Claim = "bbbbbbbbcc", 1<<40, []partition.ID{1}
	sync(t, l, one)
	sync(t, l, two)
	if err := l.Seal(t.Context(), transition.Roll{Membership: census(t, l).Membership, Members: []machine.RollMember{
		{Member: partition.Member{Session: one.Session, Peer: "ann", Weight: 1}, Partitions: []partition.ID{0}},
	}}); err != nil {
		t.Fatal(err)
	}
	s := read(t, client, "n")
	if s.Peers[0].ID != "ann#aaaaaaaa" || s.Peers[1].ID != "ann#bbbbbbbb" {
		t.Errorf("peers %+v", s.Peers)
	}
	if s.Partitions[0].Owner != "ann#aaaaaaaa" || s.Partitions[1].Owner != "ann#bbbbbbbb" {
		t.Errorf("partitions %+v", s.Partitions)
	}
	if b := s.Barrier; b == nil || b.Behind[0].Peer != "ann#aaaaaaaa" || b.Arrived[0] != "ann#bbbbbbbb" {
		t.Errorf("barrier %+v", b)
	}
	two.State, two.Claim = machine.Gone, nil // it has stopped
	sync(t, l, two)
	pass(time.Second)
	if s := read(t, client, "n"); s.Peers[0].ID != "ann" {
		t.Errorf("peers %+v", s.Peers)
	}
}

// TestBarrier closes a barrier and wants to be told who has arrived, who is waited for and
// since when, until all have.
func TestBarrier(t *testing.T) {
	m, client := redistest.Mini(t)
	now := time.Unix(1_800_000_000, 0)
	m.SetTime(now)
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	l := ledgerOf(t, client, "n", "mine")
	say := func(session, peer string, arrived, view uint64) {
		t.Helper()
		sync(t, l, transition.Request{
			Session: partition.Session(session), Peer: peer, Weight: 1, State: machine.Live, View: view, Barrier: true, Arrived: arrived,
		})
	}
	roll := func(sessions ...string) uint64 {
		t.Helper()
		census, err := l.Census(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next := transition.Roll{Version: census.Roll.Version, Membership: census.Membership}
		for i, s := range sessions {
			next.Members = append(next.Members, machine.RollMember{Member: partition.Member{Session: partition.Session(s), Peer: s, Index: i, Weight: 1}})
		}
		if err := l.Seal(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		if census, err = l.Census(t.Context()); err != nil {
			t.Fatal(err)
		}
		return census.Roll.Version
	}
	closed := func(when string, want *Barrier) {
		t.Helper()
		if got := read(t, client, "n").Barrier; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}

	say("aa", "ann", 0, 0)
	say("bb", "bob", 0, 0)
	first := roll("aa", "bb")
	closed("nobody has begun", nil)
	say("aa", "ann", first, first)
	say("bb", "bob", first, first)
	say("cc", "cid", 0, 0)
	closed("all are under one roll", nil)
	second := roll("aa", "bb", "cc")
	say("aa", "ann", second, second)
	m.SetTime(now.Add(1500 * time.Millisecond))
	closed("one of two has stopped", &Barrier{
		Roll: second, Arrived: []string{"ann"}, Behind: []Behind{{Peer: "bob", Roll: first, LeaseMS: 8500}}, ForMS: 1500,
	})
	if err := client.Del(t.Context(), "{n}:history").Err(); err != nil {
		t.Fatal(err)
	}
	if s := read(t, client, "n"); s.Barrier == nil || s.Barrier.ForMS != -1 || len(s.Findings) > 0 {
		t.Errorf("without a history: %+v, and found %v", s.Barrier, s.Findings)
	}
	say("bb", "bob", second, second)
	closed("both have", nil)
}

// Of a cluster a node may be away, with the keys of some partitions and lists: what stands elsewhere is told, and
// what is missing. Here another program has written those keys, which reads the same.
func TestReadWithoutSome(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	ctx, list := t.Context(), "{"+name+"}:inbox"
	if _, err := redisledger.Init(ctx, client, name, partition.Config{Total: 4, Units: []string{list}}); err != nil {
		t.Fatal(err)
	}
	k := redissource.KeysOf(name, 1)
	for _, cmd := range []error{
		client.LPush(ctx, k.Pending, "x", "y").Err(), client.Set(ctx, list, "x", 0).Err(),
		client.Set(ctx, redissource.KeysOf(name, 2).Pending, "x", 0).Err(), client.Set(ctx, redissource.KeysOf(name, 3).Pending, "x", 0).Err(),
	} {
		if cmd != nil {
			t.Fatal(cmd)
		}
	}
	s, err := Read(ctx, client, name)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Findings) == 0 {
		t.Fatal("it finds nothing")
	}
	f := s.Findings[len(s.Findings)-1]
	if f.Kind != Unread || !slices.Equal(f.Partitions, []partition.ID{2, 3}) || !strings.Contains(f.Text, "WRONGTYPE") {
		t.Errorf("it finds %+v", f)
	}
	if p := s.Partitions; p[1].Pending != 2 || p[1].Unknown || !p[2].Unknown || !p[3].Unknown || s.Totals().Pending != 2 || !s.Totals().Unknown {
		t.Errorf("partitions %+v", p)
	}
	if s.Units[0].Trouble == "" {
		t.Errorf("units %+v", s.Units)
	}
}

// Where the ledger stands in another store nothing here says who takes part: that is not the same as nobody.
func TestALedgerElsewhere(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	ctx := t.Context()
	source, err := redissource.New(client, name, redissource.Config{Partitions: 4})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.Layout(ctx); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true, true, false} {
		s, err := Read(ctx, client, name)
		if err != nil {
			t.Fatal(err)
		}
		if s.LedgerElsewhere != want {
			t.Errorf("a ledger elsewhere: %v, want %v", s.LedgerElsewhere, want)
		}
		switch i {
		case 0: // nobody has come yet: the next is a peer whose ledger is not here
			stream, err := source.Open(ctx, partition.Grant{Epoch: 1}, partition.Token{Epoch: 1, Session: "aa"})
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Close(ctx); err != nil {
				t.Fatal(err)
			}
		case 1: // a ledger that no peer has used yet
			if _, err := redisledger.Init(ctx, client, name, partition.Config{Total: 4}); err != nil {
				t.Fatal(err)
			}
		case 2:
			ledger, err := redisledger.New(client, name, redisledger.Config{Config: partition.Config{Total: 4}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ledger.Sync(ctx, transition.Request{Session: "bb", Peer: "bob", Weight: 1, State: machine.Live}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A name that goes on with a ledger in another store leaves that which it had here, with its last roll. Partitions that
// are opened under epochs which it has not given tell of that, also where a resize has opened them before.
func TestALedgerElsewhereAfterOneHere(t *testing.T) {
	for _, resized := range []bool{false, true} {
		mini, client := redistest.Mini(t)
		name := redistest.Name(t)
		ctx := t.Context()
		ledger, err := redisledger.New(client, name, redisledger.Config{Config: partition.Config{Total: 1}})
		if err != nil {
			t.Fatal(err)
		}
		open := func(total int, g partition.Grant, session partition.Session) interface{ Close(context.Context) error } {
			source, err := redissource.New(client, name, redissource.Config{Partitions: total})
			if err != nil {
				t.Fatal(err)
			}
			stream, err := source.Open(ctx, g, partition.Token{Epoch: g.Epoch, Session: session})
			if err != nil {
				t.Fatal(err)
			}
			return stream
		}
		elsewhere := func(want bool, when string) {
			t.Helper()
			s, err := Read(ctx, client, name)
			if err != nil {
				t.Fatal(err)
			}
			if s.LedgerElsewhere != want {
				t.Errorf("resized %v, %s: a ledger elsewhere: %v, want %v", resized, when, s.LedgerElsewhere, want)
			}
			if want && (s.Roll.Version != 0 || len(s.Peers) > 0 || len(s.Findings) > 0) {
				t.Errorf("resized %v, %s: it says %+v", resized, when, s)
			}
		}
		if _, err := redisledger.Init(ctx, client, name, partition.Config{Total: 1}); err != nil {
			t.Fatal(err)
		}
		ann := transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{0}}
		a, err := ledger.Sync(ctx, ann)
		if err != nil || len(a.Mine) != 1 {
			t.Fatal(a, err)
		}
		stream := open(1, a.Mine[0].Grant, "aa")
		elsewhere(false, "with a peer here")
		ann.State, ann.Claim, ann.Hold = machine.Gone, nil, nil
		if a, err = ledger.Sync(ctx, ann); err != nil {
			t.Fatal(err)
		}
		elsewhere(false, "with one that has gone and left its fence")
		if err := stream.Close(ctx); err != nil {
			t.Fatal(err)
		}
		total, epoch := 1, partition.Epoch(a.Count+1)
		if resized {
			idle := func(ctx context.Context) error { return redisledger.Idle(ctx, client, name) }
			for total = 2; total < 6; total++ {
				if _, err := redissource.Resize(ctx, client, name, total, redissource.ResizeConfig{Idle: idle}); err != nil {
					t.Fatal(err)
				}
			}
			total--
			epoch += 10
			elsewhere(false, "after a resize")
		}
		stream = open(total, partition.Grant{Epoch: epoch}, "bb")
		mini.SetTime(time.Now().Add(time.Hour)) // nobody has had them here for long
		elsewhere(true, "with a peer whose ledger is not here")
		if err := stream.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// A resize opens partitions, too, of a name that nobody has worked on yet, whether it was made beforehand or by a producer.
func TestAResizeIsNoPeerOfALedgerElsewhere(t *testing.T) {
	for _, by := range []string{"init", "producer", "peer whose ledger is not here"} {
		client, name := redistest.New(t), redistest.Name(t)
		ctx := t.Context()
		peers := by == "peer whose ledger is not here"
		open := func(total int, epoch partition.Epoch) {
			source, err := redissource.New(client, name, redissource.Config{Partitions: total})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := source.Layout(ctx); err != nil || !peers {
				return
			}
			stream, err := source.Open(ctx, partition.Grant{Epoch: epoch}, partition.Token{Epoch: epoch, Session: "aa"})
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Close(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if by == "init" {
			if _, err := redisledger.Init(ctx, client, name, partition.Config{Total: 4}); err != nil {
				t.Fatal(err)
			}
		}
		open(4, 1)
		idle := func(ctx context.Context) error { return redisledger.Idle(ctx, client, name) }
		if _, err := redissource.Resize(ctx, client, name, 8, redissource.ResizeConfig{Idle: idle}); err != nil {
			t.Fatal(err)
		}
		s, err := Read(ctx, client, name)
		if err != nil {
			t.Fatal(err)
		}
		if s.LedgerElsewhere != peers || len(s.Partitions) != 8 {
			t.Errorf("made by a %s: of %d partitions it says a ledger elsewhere: %v", by, len(s.Partitions), s.LedgerElsewhere)
		}
		if by != "producer" {
			continue
		}
		peers = true
		open(8, 2) // it comes after the resize
		if s, err := Read(ctx, client, name); err != nil || !s.LedgerElsewhere {
			t.Errorf("opened since by a peer whose ledger is not here, and it says %v, %v", s.LedgerElsewhere, err)
		}
	}
}

// A node of a cluster that stands still costs what is there, also where the partitions are queues of asynq.
func TestReadBesideANodeThatStandsStill(t *testing.T) {
	for _, asynq := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			direct, client := redistest.Frozen(t)
			name := "n"
			for redistest.Slot(redisconfig.Key(name)) > 8191 {
				name += "n"
			}
			lists := []string{"away", "there"}
			for redistest.Slot("{"+lists[0]+"}") < 8192 {
				lists[0] += "y"
			}
			for redistest.Slot("{"+lists[1]+"}") > 8191 {
				lists[1] += "e"
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := redisledger.Init(ctx, direct, name, partition.Config{Total: 8, Units: lists}); err != nil {
				t.Fatal(err)
			}
			if asynq {
				if err := direct.HSet(ctx, redisconfig.Key(name), queuestat.Field, "").Err(); err != nil {
					t.Fatal(err)
				}
			}
			s, err := Read(ctx, client, name)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range s.Partitions {
				key := redissource.KeysOf(name, p.ID).Pending
				if asynq {
					key = queuestat.Pending(name + ":" + p.ID.String())
				}
				if away := redistest.Slot(key) > 8191; p.Unknown != away {
					t.Errorf("asynq %v: partition %v: away %v, %+v", asynq, p.ID, away, p)
				}
			}
			if u := s.Units; !u[0].Unknown || u[1].Unknown || u[1].Trouble != "" {
				t.Errorf("asynq %v: lists %+v", asynq, u)
			}
			if len(s.Findings) == 0 || !slices.ContainsFunc(s.Findings, func(f Finding) bool { return f.Kind == Unread }) {
				t.Errorf("asynq %v: findings %v", asynq, s.Findings)
			}
		})
	}
}

// Who is drained is told with the name, whether it is there or not, and of each session that has the id.
// Tasks that wait for their time in an ingress are counted in half of the time that there is, and are not worth the
// whole look: a queue of asynq may have a million groups, and a thousand are counted a round trip.
func TestReadBesideAnIngressThatTakesLong(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 2, Units: []string{name + "-in"}}); err != nil {
		t.Fatal(err)
	}
	client.HSet(t.Context(), redisconfig.Key(name), queuestat.Field, "")
	client.LPush(t.Context(), queuestat.Pending(name+"-in"), "task")
	client.AddHook(long("asynq:{" + name + "-in}:groups"))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	s, err := Read(ctx, client, name)
	if err != nil || s.Units[0].Pending != 1 {
		t.Errorf("%v, %+v", err, s.Units)
	}
}

// A long does not end scripts that read its key while there is time.
type long string

func (long) DialHook(next redis.DialHook) redis.DialHook { return next }

func (long) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (key long) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == "eval_ro" && slices.Contains(cmd.Args(), any(string(key))) {
				<-ctx.Done()
			}
		}
		return next(ctx, cmds)
	}
}

func TestDrained(t *testing.T) {
	_, client, _ := mini(t)
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	l := ledgerOf(t, client, "n", "mine")
	for session, peer := range map[partition.Session]string{"aaaaaaaabb": "ann", "aaaaaaaacc": "ann", "dd": "carl"} {
		if _, err := l.Sync(t.Context(), transition.Request{Session: session, Peer: peer, Weight: 1, State: machine.Live}); err != nil {
			t.Fatal(err)
		}
	}
	since := time.UnixMilli(1_790_000_000_000).UTC()
	for _, d := range []partition.Drain{{Peer: "ann", Since: since, Why: "its disk is slow"}, {Peer: "bob", Since: since}} {
		if err := l.Drain(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Read(t.Context(), client, "n")
	if err != nil {
		t.Fatal(err)
	}
	if want := []Drained{{Peer: "ann", Since: since, Why: "its disk is slow", Present: true}, {Peer: "bob", Since: since}}; !slices.Equal(s.Drained, want) {
		t.Errorf("%+v, want %+v", s.Drained, want)
	}
	for _, p := range s.Peers {
		if p.Drained != strings.HasPrefix(p.ID, "ann#") {
			t.Errorf("%s is told to be drained: %v", p.ID, p.Drained)
		}
	}
	if len(s.Findings) != 0 {
		t.Errorf("it is told as wrong: %+v", s.Findings)
	}
}

// Who looks is told of tasks that are to be cancelled until they are, unless he may not read of them.
func TestToCancel(t *testing.T) {
	m, client, _ := mini(t)
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	look := func() *ToCancel {
		t.Helper()
		s, err := Read(t.Context(), client, "n")
		if err != nil {
			t.Fatal(err)
		}
		return s.ToCancel
	}
	if got := look(); got != nil {
		t.Errorf("of none: %+v", got)
	}
	if err := redissource.GiveCancel(t.Context(), client, "n", "ann wants it", time.Hour, "a", "b", "c", "d", "e"); err != nil {
		t.Fatal(err)
	}
	key := redissource.CancelKey("n")
	is := func(id string, state redissource.CancelState) {
		f := strings.Fields(m.HGet(key, id))
		f[2] = string(state)
		m.HSet(key, id, strings.Join(f, " "))
	}
	is("c", redissource.CancelRuns)
	is("d", redissource.CancelDead)
	is("e", redissource.CancelDone)
	all, err := redissource.Cancellations(t.Context(), client, "n")
	if err != nil {
		t.Fatal(err)
	}
	if got := look(); got == nil || *got != (ToCancel{Waits: 2, Runs: 1, Since: all[0].Since}) {
		t.Errorf("%+v", got)
	}
	is("a", redissource.CancelDead)
	is("b", redissource.CancelDead)
	is("c", redissource.CancelDead)
	if got := look(); got != nil {
		t.Errorf("of those that are over: %+v", got)
	}
}

// forbids refuses what reads of cancellations.
type forbids struct{}

func (forbids) DialHook(next redis.DialHook) redis.DialHook { return next }
func (forbids) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (forbids) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any(redissource.CancelKey("n"))) {
			cmd.SetErr(errors.New("ERR ACL failure in script: no permissions to access a key"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func TestWhatIsToBeCancelledMayBeForbidden(t *testing.T) {
	_, client, _ := mini(t)
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	client.AddHook(forbids{})
	if s, err := Read(t.Context(), client, "n"); err != nil || s.ToCancel != nil {
		t.Errorf("%+v, %v", s.ToCancel, err)
	}
}

// Another program that writes the key of what is to be cancelled hides nothing else.
func TestWhatIsToBeCancelledMayBeOverwritten(t *testing.T) {
	_, client, _ := mini(t)
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	if err := client.Set(t.Context(), redissource.CancelKey("n"), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s, err := Read(t.Context(), client, "n")
	if err != nil || len(s.Partitions) != 2 || s.ToCancel == nil || *s.ToCancel != (ToCancel{Trouble: "{n}:cancel is no hash: another program writes it"}) {
		t.Errorf("%+v, %v", s, err)
	}
}
