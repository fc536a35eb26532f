package etcdledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/etcdledger"
	"github.com/countoff/countoff/transition/etcdledger/etcdtest"
	"github.com/countoff/countoff/transition/machine"
)

// A spy stands between one ledger and etcd.
type spy struct {
	clientv3.KV
	calls  int
	whole  int         // of them, those that read all of the name
	writes []string    // keys of the last transaction that could write
	before func(n int) // is called before the transaction that is the nth of the spy
	txns   int
	looked func() // is called after a look at one key
}

func (s *spy) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := s.KV.Get(ctx, key, opts...)
	if s.looked != nil {
		s.looked()
	}
	return resp, err
}

func (s *spy) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	s.calls++
	s.whole++
	return s.KV.Do(ctx, op)
}

func (s *spy) Txn(ctx context.Context) clientv3.Txn { return &spiedTxn{Txn: s.KV.Txn(ctx), spy: s} }

type spiedTxn struct {
	clientv3.Txn
	spy    *spy
	writes []string
}

func (t *spiedTxn) If(cs ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(cs...); return t }

func (t *spiedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		if op.IsPut() || op.IsDelete() {
			t.writes = append(t.writes, string(op.KeyBytes()))
		}
	}
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t *spiedTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }

func (t *spiedTxn) Commit() (*clientv3.TxnResponse, error) {
	t.spy.calls++
	if len(t.writes) > 0 {
		t.spy.writes = t.writes
		t.spy.txns++
		if t.spy.before != nil {
			t.spy.before(t.spy.txns)
		}
	}
	return t.Txn.Commit()
}

// A stage is one name with ledgers whose clocks the test moves.
type stage struct {
	*testing.T
	server *etcdtest.Server
	name   string
	cfg    partition.Config
	timing transition.Timing
	now    time.Duration
}

func newStage(t *testing.T, server *etcdtest.Server, name string) *stage {
	s := &stage{T: t, server: server, name: name, cfg: partition.Config{Total: 4}, timing: transition.Timing{}.WithDefaults()}
	if _, err := etcdledger.Init(t.Context(), server.Client(), prefix, name, s.cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// ledger returns a ledger with a spy of its own.
func (s *stage) ledger() (*etcdledger.Ledger, *spy) {
	s.Helper()
	client := *s.server.Client()
	spy := &spy{KV: client.KV}
	client.KV = spy
	l, err := etcdledger.New(&client, prefix, s.name, etcdledger.Config{Config: s.cfg, Timing: s.timing})
	if err != nil {
		s.Fatal(err)
	}
	l.SetClock(func() time.Duration { return s.now })
	return l, spy
}

func (s *stage) sync(l *etcdledger.Ledger, r machine.Request) machine.Answer {
	s.Helper()
	r.Peer, r.Weight, r.State = string(r.Session), 1, max(r.State, machine.Live)
	a, err := l.Sync(s.Context(), r)
	if err != nil {
		s.Fatal(err)
	}
	return a
}

// lease returns what is left of a session's lease; false if nobody knows it.
func (s *stage) lease(l *etcdledger.Ledger, session partition.Session) (time.Duration, bool) {
	s.Helper()
	c, err := l.Census(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	for _, x := range c.Sessions {
		if x.Session == session {
			return x.Lease, true
		}
	}
	return 0, false
}

// A Sync with nothing new is a read and a write of one lease, and those of others do not get
// into its way.
func TestQuietSyncsDoNotCollide(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "quiet")
	a, seen := s.ledger()
	b, _ := s.ledger()
	granted := s.sync(a, machine.Request{Session: "a", Claim: []partition.ID{0}})
	hold := []partition.Grant{granted.Mine[0].Grant}
	s.sync(b, machine.Request{Session: "b"})
	s.sync(a, machine.Request{Session: "a", Hold: hold})
	s.now += time.Millisecond // too little for the clock to be written
	seen.calls = 0
	seen.before = func(int) { s.sync(b, machine.Request{Session: "b"}) }
	if got := s.sync(a, machine.Request{Session: "a", Hold: hold}); len(got.Mine) != 1 {
		t.Errorf("the answer lists %v", got.Mine)
	}
	if seen.calls != 2 || len(seen.writes) != 1 || !strings.HasSuffix(seen.writes[0], "/leases/a") {
		t.Errorf("%d calls, written were %v", seen.calls, seen.writes)
	}
	// The clock makes nobody read the name anew.
	seen.before = nil
	s.now += s.timing.ClockStep()
	s.sync(a, machine.Request{Session: "a", Hold: hold})
	slices.Sort(seen.writes)
	if len(seen.writes) != 3 || !strings.HasSuffix(seen.writes[0], "/clock") || !strings.HasSuffix(seen.writes[1], "/leases/a") || !strings.HasSuffix(seen.writes[2], "/seen") {
		t.Errorf("with the clock were written %v", seen.writes)
	}
	if seen.whole != 1 {
		t.Errorf("all of the name was read %d times", seen.whole)
	}
}

// Another build says the same in other words, as an older one that leaves out what it does not
// know: who has nothing new to say leaves them as they are. Two that put them right in turn would
// take the lock word from each other, and from all, with each Sync.
func TestAnotherBuildsWordsStand(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "words")
	l, seen := s.ledger()
	g := s.sync(l, machine.Request{Session: "a", Claim: []partition.ID{0}}).Mine[0].Grant
	quiet := machine.Request{Session: "a", Hold: []partition.Grant{g}}
	s.sync(l, quiet)
	client := s.server.Client()
	for key, change := range map[string]func(map[string]any){
		"meta":       func(m map[string]any) { delete(m, "sessions"); delete(m, "longest"); m["later"] = 7 },
		"config":     func(m map[string]any) { m["later"] = 7 },
		"roll":       func(m map[string]any) { m["later"] = 7 },
		"sessions/a": func(m map[string]any) { m["later"] = 7 },
	} {
		path := prefix + "/words/" + key
		got, err := client.Get(t.Context(), path)
		if err != nil || len(got.Kvs) != 1 {
			t.Fatalf("%s: %v, %v", key, got, err)
		}
		var words map[string]any
		if err := json.Unmarshal(got.Kvs[0].Value, &words); err != nil {
			t.Fatal(err)
		}
		change(words)
		others, err := json.Marshal(words)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Put(t.Context(), path, string(others)); err != nil {
			t.Fatal(err)
		}
	}
	s.now += time.Millisecond
	s.sync(l, quiet)
	if len(seen.writes) != 1 || !strings.HasSuffix(seen.writes[0], "/leases/a") {
		t.Errorf("written were %v", seen.writes)
	}
	// What is news is said in words of one's own.
	s.sync(l, machine.Request{Session: "a", Release: []partition.Grant{g}})
	if got, err := client.Get(t.Context(), prefix+"/words/meta"); err != nil || !strings.Contains(string(got.Kvs[0].Value), `"sessions":1`) {
		t.Errorf("meta is %v, %v", got, err)
	}
}

// etcd allows 128 operations in one transaction. What others' hands, or another build, did to
// more sessions than that must not keep everybody from the name.
func TestMoreSessionsThanATransactionWrites(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "many")
	l, _ := s.ledger()
	const sessions = 150
	for i := range sessions {
		s.sync(l, machine.Request{Session: partition.Session(fmt.Sprint("s", i))})
	}
	client := s.server.Client()
	keys := func(below string) []*mvccpb.KeyValue {
		t.Helper()
		got, err := client.Get(t.Context(), prefix+"/many/"+below, clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		return got.Kvs
	}

	// Of another build, which says more: a change leaves its words too.
	for _, kv := range keys("sessions/") {
		if _, err := client.Put(t.Context(), string(kv.Key), strings.Replace(string(kv.Value), "{", `{"later":7,`, 1)); err != nil {
			t.Fatal(err)
		}
	}
	newcomer, _ := s.ledger() // l knows better, and does not look
	s.sync(newcomer, machine.Request{Session: "s0", Claim: []partition.ID{0}})
	for _, kv := range keys("sessions/") {
		if !strings.Contains(string(kv.Value), "later") {
			t.Errorf("%s was put right", kv.Key)
		}
	}

	// mended returns when each session has a lease, and each lease a session.
	mended := func(what string) {
		t.Helper()
		for try := 0; len(keys("leases/")) != len(keys("sessions/")); try++ {
			if try == 10 {
				t.Fatalf("%s are deleted: after %d calls there are %d leases of %d sessions", what, try, len(keys("leases/")), len(keys("sessions/")))
			}
			newcomer, _ := s.ledger()
			if a := s.sync(newcomer, machine.Request{Session: "s1", Claim: []partition.ID{0, 1}}); len(a.Mine) != 0 || a.Grace == 0 {
				t.Errorf("%s are deleted: got %v with a grace of %v", what, a.Mine, a.Grace)
			}
		}
	}
	s.delAll("leases/")
	mended("leases")
	if n := len(keys("leases/")); n != sessions {
		t.Errorf("%d sessions have a lease", n)
	}
	s.delAll("sessions/")
	mended("sessions")
}

// A Sync that waited on its way does not put back the end of a lease that a later one has
// moved forward.
func TestALateSyncDoesNotShortenALease(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "late")
	slow, held := s.ledger()
	quick, _ := s.ledger()
	s.sync(slow, machine.Request{Session: "a"})
	s.sync(quick, machine.Request{Session: "a"})
	s.now += 100 * time.Millisecond
	held.before = func(n int) {
		held.before = nil
		s.now += 400 * time.Millisecond
		s.sync(quick, machine.Request{Session: "a"})
	}
	s.sync(slow, machine.Request{Session: "a"})
	if left, _ := s.lease(quick, "a"); left < s.timing.Lease {
		t.Errorf("%v of the lease are left, want %v", left, s.timing.Lease)
	}
}

// A lease is counted from the clock that stands when it is written, not from one that stood.
func TestALeaseIsCountedFromTheClockThatStands(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "stands")
	slow, held := s.ledger()
	other, _ := s.ledger()
	s.sync(slow, machine.Request{Session: "a"})
	s.sync(other, machine.Request{Session: "b"})
	s.now += 100 * time.Millisecond
	held.before = func(int) {
		held.before = nil
		for range 3 {
			s.now += s.timing.ClockStep() / 2
			s.sync(other, machine.Request{Session: "b"})
		}
	}
	s.sync(slow, machine.Request{Session: "a"})
	if left, _ := s.lease(other, "a"); left < s.timing.Lease {
		t.Errorf("%v of the lease are left, want %v", left, s.timing.Lease)
	}
}

// What another has changed without taking a number is not written over.
func TestAWaiterIsNotForgotten(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "waiter")
	owner, held := s.ledger()
	other, _ := s.ledger()
	g := s.sync(owner, machine.Request{Session: "a", Claim: []partition.ID{0}}).Mine[0].Grant
	s.sync(other, machine.Request{Session: "b"})
	held.before = func(int) {
		held.before = nil
		s.sync(other, machine.Request{Session: "b", Claim: []partition.ID{0}})
	}
	s.sync(owner, machine.Request{Session: "a", Release: []partition.Grant{g}})
	if got := s.sync(other, machine.Request{Session: "b"}); len(got.Mine) != 1 {
		t.Errorf("who waited has %v", got.Mine)
	}
}

// A session that renews its lease in the moment in which another finds it over keeps it.
func TestALeaseThatIsRenewedIsNotRemoved(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "reap")
	reaper, held := s.ledger()
	l, _ := s.ledger()
	g := s.sync(l, machine.Request{Session: "a", Claim: []partition.ID{0}}).Mine[0].Grant
	// The reaper writes the clock each time but the last, after a lease without half a second.
	step := s.timing.ClockStep()
	for _, d := range []time.Duration{step, step, step, step - 500*time.Millisecond, 500 * time.Millisecond} {
		s.sync(reaper, machine.Request{Session: "b"})
		_, _ = s.lease(l, "a")
		s.now += d
	}
	s.now += 10 * time.Millisecond
	held.before = func(n int) {
		held.before = nil
		s.now -= 10 * time.Millisecond // for a it is not over
		s.sync(l, machine.Request{Session: "a", Hold: []partition.Grant{g}})
	}
	s.sync(reaper, machine.Request{Session: "b", Claim: []partition.ID{0}})
	if _, known := s.lease(l, "a"); !known {
		t.Error("the session was removed")
	}
}

// Many ledgers with clocks that are read at random moments: no session is removed sooner
// than a lease without a clock step after its last Sync was sent, and none is there for ever.
func TestLeasesLastAsLongAsPeersBelieve(t *testing.T) {
	server := etcdtest.Start(t)
	removed := 0
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newStage(t, server, fmt.Sprint("random-", seed))
		var ledgers []*etcdledger.Ledger
		for range 4 {
			l, _ := s.ledger()
			ledgers = append(ledgers, l)
		}
		last := make(map[partition.Session]time.Duration)
		for range 150 {
			s.now += time.Duration(r.IntN(900)) * time.Millisecond
			if r.IntN(40) == 0 {
				s.now += s.timing.Lease // nobody gets through
			}
			i := r.IntN(len(ledgers))
			session := partition.Session(fmt.Sprint("s", i))
			if i == 0 && r.IntN(3) != 0 {
				continue // seldom heard of: it runs out
			}
			last[session] = s.now
			s.sync(ledgers[i], machine.Request{Session: session})
			c, err := ledgers[i].Census(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			there := make(map[partition.Session]bool)
			for _, x := range c.Sessions {
				there[x.Session] = true
			}
			for session, at := range last {
				if there[session] {
					continue
				}
				removed++
				delete(last, session)
				if least := s.timing.Lease - s.timing.ClockStep(); s.now-at < least {
					t.Fatalf("seed %d: %s was removed %v after its last Sync, want %v at least", seed, session, s.now-at, least)
				}
			}
		}
	}
	if removed == 0 {
		t.Error("nobody was ever removed")
	}
}

// Two ledgers that both look do not count the same time twice.
func TestNoMomentIsCountedTwice(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "twice")
	a, _ := s.ledger()
	b, _ := s.ledger()
	s.sync(a, machine.Request{Session: "a"})
	s.sync(b, machine.Request{Session: "b"})
	for range 10 {
		s.now += s.timing.ClockStep() / 2
		s.sync(a, machine.Request{Session: "a"})
		if _, err := b.Census(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = b.Seal(t.Context(), machine.Roll{Version: 999}) // another tick, if it had one
	}
	left, known := s.lease(a, "b")
	if want := s.timing.Lease - 5*s.timing.ClockStep(); known && left < want {
		t.Errorf("%v of the lease are left", left)
	}
}

// The clock is not known to stand before it was received.
func TestANewcomerLetsNoTimePass(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "newcomer")
	a, _ := s.ledger()
	s.sync(a, machine.Request{Session: "a"})
	s.now += time.Hour
	b, _ := s.ledger()
	s.sync(b, machine.Request{Session: "b"})
	if left, _ := s.lease(b, "a"); left < s.timing.Lease {
		t.Errorf("%v of the lease are left", left)
	}
}

// After a loss nobody gains, if there is anybody who can tell that it was one.
func TestGraceAfterALoss(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(*stage)
		// Who notices: a ledger that has seen the name before, and one that has not.
		witness, newcomer bool
	}{
		"another cluster with the same keys":               {func(s *stage) { s.server.Replace(true) }, true, true},
		"another cluster without them":                     {func(s *stage) { s.server.Replace(false) }, true, true},
		"an older state of the same cluster":               {func(s *stage) { s.server.SetBack() }, true, false},
		"an older state, and others have gone on to write": {func(s *stage) { s.server.SetBack(); s.others(300) }, true, false},
		"an older state, and meta is as new again":         {setBackAndAsNew, true, false},
		"meta is deleted":                                  {del("meta"), true, true},
		"the clock is deleted":                             {del("clock"), true, true},
		"a lease is deleted":                               {del("leases/a"), true, true},
		"the clock is deleted, and the configuration":      {func(s *stage) { del("clock")(s); del("config")(s) }, true, true},
		// A witness knows better, and goes on: see TestWhatIsLostIsPutBack.
		"the configuration is deleted":             {del("config"), false, true},
		"the roll is deleted":                      {del("roll"), false, true},
		"the grants are deleted":                   {del("transition"), false, true},
		"a session is deleted":                     {del("sessions/a"), false, true},
		"a session is deleted, and its lease":      {func(s *stage) { del("sessions/a")(s); del("leases/a")(s) }, true, true},
		"all sessions are deleted, and all leases": {func(s *stage) { s.delAll("sessions/"); s.delAll("leases/") }, true, true},
	} {
		for _, newcomer := range []bool{false, true} {
			if newcomer && !c.newcomer || !newcomer && !c.witness {
				continue
			}
			t.Run(fmt.Sprintf("%s, newcomer %v", name, newcomer), func(t *testing.T) {
				s := newStage(t, etcdtest.Start(t), "lost")
				a, _ := s.ledger()
				s.server.Keep()
				b, _ := s.ledger()
				g := s.sync(a, machine.Request{Session: "a", Claim: []partition.ID{0}}).Mine[0].Grant
				s.sync(b, machine.Request{Session: "b"})
				s.others(200) // what is set back stays so for long
				s.sync(b, machine.Request{Session: "b"})
				c.lose(s)
				if newcomer {
					b, _ = s.ledger()
				}
				if _, err := b.Census(t.Context()); err != nil { // who only looks has not told anybody
					t.Fatal(err)
				}
				got := s.sync(b, machine.Request{Session: "b", Claim: []partition.ID{0, 1}})
				if len(got.Mine) != 0 || got.Grace < s.timing.Grace()-s.timing.ClockStep() {
					t.Errorf("got %v with a grace of %v", got.Mine, got.Grace)
				}
				if again := s.sync(a, machine.Request{Session: "a", Hold: []partition.Grant{g}, Top: uint64(g.Epoch)}); len(again.Mine) != 1 {
					t.Errorf("the owner's hold is not honoured: %+v", again)
				}
				// It ends: what was suspected once is not suspected for ever.
				for passed := time.Duration(0); passed < 2*s.timing.Grace(); passed += s.timing.ClockStep() / 2 {
					s.sync(a, machine.Request{Session: "a"})
					got = s.sync(b, machine.Request{Session: "b", Claim: []partition.ID{1}})
					s.now += s.timing.ClockStep() / 2
				}
				if len(got.Mine) != 1 {
					t.Errorf("got %v, with a grace of %v still", got.Mine, got.Grace)
				}
			})
		}
	}
}

// Whoever knows what a deleted key said puts it back with his next Sync: nobody who comes finds half a name.
func TestWhatIsLostIsPutBack(t *testing.T) {
	server := etcdtest.Start(t)
	for _, key := range []string{"config", "roll", "transition"} {
		for _, looks := range []bool{false, true} { // without telling anybody, before the Sync
			s := newStage(t, server, fmt.Sprintf("back-%s-%v", key, looks))
			if err := etcdledger.Require(t.Context(), server.Client(), prefix, s.name, []partition.Requirement{{First: 3, Last: 3, Tags: "gpu"}}); err != nil {
				t.Fatal(err)
			}
			a, _ := s.ledger()
			s.sync(a, machine.Request{Session: "a", Claim: []partition.ID{0}})
			census := func(l *etcdledger.Ledger) machine.Census {
				t.Helper()
				c, err := l.Census(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			next := machine.Roll{Membership: census(a).Membership, Members: []machine.RollMember{{Member: partition.Member{Session: "a", Peer: "a", Weight: 1}}}}
			if err := a.Seal(t.Context(), next); err != nil {
				t.Fatal(err)
			}
			s.sync(a, machine.Request{Session: "a"})
			stood := census(a)
			del(key)(s)
			if looks {
				if c := census(a); !reflect.DeepEqual(c, stood) {
					t.Errorf("%s is deleted, and who knew it sees %+v", key, c)
				}
			}
			if a := s.sync(a, machine.Request{Session: "a"}); a.Grace != 0 || len(a.Mine) != 1 {
				t.Errorf("%s is deleted: got %+v", key, a)
			}
			newcomer, _ := s.ledger()
			if c := census(newcomer); !reflect.DeepEqual(c, stood) {
				t.Errorf("%s was deleted: %+v stands, and was %+v", key, c, stood)
			}
		}
	}
}

// Where not all can be put back the configuration is.
func TestTheConfigurationIsPutBack(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "back")
	asks := []partition.Requirement{{First: 3, Last: 3, Tags: "gpu"}}
	if err := etcdledger.Require(t.Context(), s.server.Client(), prefix, s.name, asks); err != nil {
		t.Fatal(err)
	}
	a, _ := s.ledger()
	s.sync(a, machine.Request{Session: "a"})
	del("config")(s)
	del("clock")(s)
	if got := s.sync(a, machine.Request{Session: "a"}); got.Grace == 0 {
		t.Error("there is no grace")
	}
	if cfg, known, err := etcdledger.ReadConfig(t.Context(), s.server.Client(), prefix, s.name); err != nil || !known || !slices.Equal(cfg.Requires, asks) {
		t.Errorf("%+v stands, known %v, %v", cfg, known, err)
	}
}

// By the ledger's clock the leases of a fleet that died as one, or that may write nothing any more, never end. Who comes
// to look sees for how long nobody has called, unless somebody does, whatever the wall clocks say.
func TestSilence(t *testing.T) {
	for name, c := range map[string]struct {
		ago   time.Duration // of the last call, by the wall clock of who made it
		calls bool          // while the newcomer looks
		want  time.Duration
	}{
		"nobody calls": {ago: time.Hour, want: time.Hour}, "who calls has another wall clock": {ago: time.Hour, calls: true}, "a moment ago": {},
		"a wall clock that is ahead": {ago: -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, etcdtest.Start(t), "n")
			lease := 2500 * time.Millisecond
			if c.calls { // it is heard of at once, if there is time to ask
				lease = time.Minute
			}
			s.timing = transition.Timing{Lease: lease}.WithDefaults()
			a, _ := s.ledger()
			s.sync(a, machine.Request{Session: "a"})
			client := s.server.Client()
			at := fmt.Sprint(time.Now().Add(-c.ago).UnixMilli())
			if got, err := client.Put(t.Context(), prefix+"/n/seen", at, clientv3.WithPrevKV()); err != nil || got.PrevKv == nil {
				t.Fatalf("%+v, %v", got, err)
			}
			newcomer, spy := s.ledger()
			if c.calls {
				spy.looked = func() {
					s.now += s.timing.ClockStep()
					s.sync(a, machine.Request{Session: "a"})
				}
			}
			census, err := newcomer.Census(t.Context())
			if err != nil || census.Silence < c.want || census.Silence > c.want+time.Minute {
				t.Errorf("silent for %v, %v", census.Silence, err)
			}
		})
	}
}

// A watched is asked to watch, says for how long it was to, and refuses.
type watched struct {
	clientv3.Watcher
	patience time.Duration
	answer   clientv3.WatchResponse
}

func (w *watched) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	if end, ok := ctx.Deadline(); ok {
		w.patience = time.Until(end)
	}
	c := make(chan clientv3.WatchResponse, 1)
	c <- w.answer
	close(c)
	return c
}

// Whoever looks has other times than the peers, whose beat may be longer than all that it would wait for; and one that
// is not let look has not seen that nobody calls.
func TestSilenceIsOfThePeersBeat(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "n")
	s.timing = transition.Timing{Lease: time.Minute}.WithDefaults()
	a, _ := s.ledger()
	s.sync(a, machine.Request{Session: "a"})
	client := *s.server.Client()
	if _, err := client.Put(t.Context(), prefix+"/n/seen", fmt.Sprint(time.Now().Add(-time.Hour).UnixMilli())); err != nil {
		t.Fatal(err)
	}
	looks := &watched{answer: clientv3.WatchResponse{Canceled: true, CompactRevision: 7}}
	client.Watcher = looks
	newcomer, err := etcdledger.New(&client, prefix, "n", etcdledger.Config{Config: s.cfg})
	if err != nil {
		t.Fatal(err)
	}
	census, err := newcomer.Census(t.Context())
	if err != nil || census.Silence != 0 {
		t.Errorf("who may not look on says that nobody has called for %v, %v", census.Silence, err)
	}
	if beat := s.timing.Beat(); looks.patience <= beat {
		t.Errorf("it looked for %v, and peers call every %v", looks.patience, beat)
	}
}

// A lonely is a member of etcd that is cut off from the others: it hears of nothing, and says so to whoever asks for a leader.
type lonely struct{ clientv3.Watcher }

func (lonely) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	c := make(chan clientv3.WatchResponse, 1)
	if md, _ := metadata.FromOutgoingContext(ctx); len(md[rpctypes.MetadataRequireLeaderKey]) > 0 {
		c <- clientv3.WatchResponse{Canceled: true, CompactRevision: 7}
	}
	close(c)
	return c
}

// A member that is cut off has not seen that nobody calls.
func TestSilenceIsNotThatOfAMemberCutOff(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "n")
	a, _ := s.ledger()
	s.sync(a, machine.Request{Session: "a"})
	client := *s.server.Client()
	if _, err := client.Put(t.Context(), prefix+"/n/seen", fmt.Sprint(time.Now().Add(-time.Hour).UnixMilli())); err != nil {
		t.Fatal(err)
	}
	client.Watcher = lonely{}
	newcomer, err := etcdledger.New(&client, prefix, "n", etcdledger.Config{Config: s.cfg})
	if err != nil {
		t.Fatal(err)
	}
	if census, err := newcomer.Census(t.Context()); err != nil || census.Silence != 0 {
		t.Errorf("a member that is cut off says that nobody has called for %v, %v", census.Silence, err)
	}
}

// A peer calls: it neither asks nor waits for what its first call says, before the roll that is due then.
func TestSilenceIsNoneOfWhoCalls(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "n")
	a, spy := s.ledger()
	if _, err := s.server.Client().Put(t.Context(), prefix+"/n/seen", fmt.Sprint(time.Now().Add(-time.Hour).UnixMilli())); err != nil {
		t.Fatal(err)
	}
	s.sync(a, machine.Request{Session: "a"})
	spy.looked = func() { t.Error("it looks whether anybody calls") }
	if c, err := a.Census(t.Context()); err != nil || c.Silence != 0 {
		t.Errorf("who has just called says that nobody has for %v, %v", c.Silence, err)
	}
}

// Whoever looks on while nobody calls knows that by its own clock too: an older build has left no wall clock, and that of
// another may be ahead.
func TestSilenceOfWhoLooksOn(t *testing.T) {
	server := etcdtest.Start(t)
	for i, ahead := range []bool{false, true} {
		s := newStage(t, server, fmt.Sprint("n", i))
		a, _ := s.ledger()
		s.sync(a, machine.Request{Session: "a"})
		if ahead {
			if _, err := server.Client().Put(t.Context(), prefix+"/"+s.name+"/seen", fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())); err != nil {
				t.Fatal(err)
			}
		} else {
			del("seen")(s)
		}
		watcher, _ := s.ledger()
		if _, err := watcher.Census(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.now += time.Minute
		if c, err := watcher.Census(t.Context()); err != nil || c.Silence < time.Minute-s.timing.ClockStep() {
			t.Errorf("ahead %v: who has looked on for a minute says that nobody has called for %v, %v", ahead, c.Silence, err)
		}
	}
}

// Init makes no name of what is left of one: an owner may be at work.
func TestInitAfterALoss(t *testing.T) {
	server := etcdtest.Start(t)
	for _, key := range []string{"config", "meta", "clock", "roll", "transition"} {
		s := newStage(t, server, "init-"+key)
		l, _ := s.ledger()
		s.sync(l, machine.Request{Session: "a", Claim: []partition.ID{0}})
		del(key)(s)
		for range 2 { // the first clears what is left
			if made, err := etcdledger.Init(t.Context(), server.Client(), prefix, s.name, s.cfg); made || err != nil {
				t.Errorf("without %s: made %v, error %v", key, made, err)
			}
		}
		newcomer, _ := s.ledger()
		if got := s.sync(newcomer, machine.Request{Session: "b", Claim: []partition.ID{0}}); len(got.Mine) != 0 || got.Grace == 0 {
			t.Errorf("without %s: got %v with a grace of %v", key, got.Mine, got.Grace)
		}
	}
}

// Who listens hears of what happens after a loss too, though etcd's client waits for a
// revision that is far away then.
func TestHintsAfterALoss(t *testing.T) {
	for name, lose := range map[string]func(*etcdtest.Server){
		"an older state":  (*etcdtest.Server).SetBack,
		"another cluster": func(s *etcdtest.Server) { s.Replace(true) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, etcdtest.Start(t), "hints")
			s.server.Keep()
			s.others(100)
			l, _ := s.ledger()
			s.sync(l, machine.Request{Session: "a"})
			hinted := make(chan struct{}, 1)
			ctx, cancel := context.WithCancel(t.Context())
			var listens sync.WaitGroup
			defer listens.Wait()
			defer cancel()
			listens.Go(func() {
				_ = l.Hints(ctx, "a", func() {
					select {
					case hinted <- struct{}{}:
					default:
					}
				})
			})
			wait := func(after string) {
				t.Helper()
				select {
				case <-hinted:
				case <-time.After(time.Minute):
					t.Fatalf("no hint after %s", after)
				}
			}
			wait("the beginning")
			lose(s.server)
			s.sync(l, machine.Request{Session: "a"})
			wait("the loss")
			if _, err := s.server.Client().Put(t.Context(), prefix+"/"+s.name+"/roll", "another"); err != nil {
				t.Fatal(err)
			}
			wait("a roll")
		})
	}
}

// setBackAndAsNew sets etcd back, and has others go on until meta is of the same revision as before.
func setBackAndAsNew(s *stage) {
	s.Helper()
	meta := func() *clientv3.GetResponse {
		got, err := s.server.Client().Get(s.Context(), prefix+"/"+s.name+"/meta")
		if err != nil || len(got.Kvs) != 1 {
			s.Fatalf("meta: %v, %v", got, err)
		}
		return got
	}
	before := meta().Kvs[0].ModRevision
	s.server.SetBack()
	s.others(int(before - meta().Header.Revision - 1))
	other, _ := s.ledger()
	s.sync(other, machine.Request{Session: "c"})
	if after := meta().Kvs[0].ModRevision; after != before {
		s.Fatalf("meta is of revision %d, want %d", after, before)
	}
	s.others(300)
}

// others writes what is no ledger's.
func (s *stage) others(times int) {
	s.Helper()
	for range times {
		if _, err := s.server.Client().Put(s.Context(), "/others", "x"); err != nil {
			s.Fatal(err)
		}
	}
}

// Of two that find half a memory the second must not remove what the first has made anew.
func TestWhatIsMadeAnewIsNotRemoved(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "half")
	a, _ := s.ledger()
	b, spy := s.ledger()
	del("transition")(s)
	spy.before = func(int) {
		spy.before = nil
		s.sync(a, machine.Request{Session: "a"})
	}
	s.sync(b, machine.Request{Session: "b"})
	if _, known := s.lease(a, "a"); !known {
		t.Error("a was removed")
	}
}

// delAll is what a person does who wants to clear up.
func (s *stage) delAll(keys string) {
	s.Helper()
	got, err := s.server.Client().Delete(s.Context(), prefix+"/"+s.name+"/"+keys, clientv3.WithPrefix())
	if err != nil || got.Deleted == 0 {
		s.Fatalf("delete %s: %v, %v", keys, got, err)
	}
}

func del(key string) func(*stage) {
	return func(s *stage) {
		s.Helper()
		got, err := s.server.Client().Delete(s.Context(), prefix+"/"+s.name+"/"+key)
		if err != nil || got.Deleted != 1 {
			s.Fatalf("delete %s: %v, %v", key, got, err)
		}
	}
}

// Who is refused is told which ledger and which name refuse him.
func TestARefusalSaysWhereItIsFrom(t *testing.T) {
	l, err := etcdledger.New(etcdtest.Start(t).Client(), prefix, "n", etcdledger.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i, barrier := range []bool{false, true} {
		_, err = l.Sync(t.Context(), transition.Request{Session: partition.Session("ab"[i : i+1]), Peer: "ann", Weight: 1, State: machine.Live, Barrier: barrier})
	}
	if !errors.Is(err, partition.ErrConfig) || !strings.HasPrefix(err.Error(), "etcdledger: n: the name has peers") {
		t.Errorf("got %v", err)
	}
}

// A session whose name would be misread in the keys, or end a line of the grants, is kept out.
func TestSessionsOfOddNames(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "odd")
	l, spy := s.ledger()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.sync(l, machine.Request{Session: "Az-_09"})
	spy.calls = 0
	for _, session := range []partition.Session{"", "a b", "a/b", "a\nb", "a>b", "ä"} {
		_, errSync := l.Sync(t.Context(), machine.Request{Session: session, Peer: "p", State: machine.Live})
		errSeal := l.Seal(t.Context(), machine.Roll{Members: []machine.RollMember{{Member: partition.Member{Session: session}}}})
		errHints := l.Hints(ended, session, func() {})
		for what, err := range map[string]error{"sync": errSync, "seal": errSeal, "hints": errHints} {
			if err == nil || !strings.Contains(err.Error(), "want letters and digits") {
				t.Errorf("%s of session %q: %v", what, session, err)
			}
		}
	}
	if spy.calls != 0 {
		t.Errorf("etcd was called %d times", spy.calls)
	}
}

// Init leaves a name alone that is there, and says so of one that is another.
func TestInitOfANameThatIsThere(t *testing.T) {
	s := newStage(t, etcdtest.Start(t), "there")
	if made, err := etcdledger.Init(t.Context(), s.server.Client(), prefix, s.name, s.cfg); made || err != nil {
		t.Errorf("made %v, %v", made, err)
	}
	for _, other := range []partition.Config{{Total: 5}, {Total: 4, Hash: partition.Murmur2}, {Total: 4, Units: []string{"inbox"}}} {
		made, err := etcdledger.Init(t.Context(), s.server.Client(), prefix, s.name, other)
		if made || !errors.Is(err, partition.ErrConfig) {
			t.Errorf("%+v: made %v, %v", other, made, err)
		}
	}
}

// What is too large for etcd is told with what to do, also where its client or gRPC refuses to carry it.
func TestTooManyPartitions(t *testing.T) {
	server := etcdtest.Start(t)
	client, pre, err := etcdledger.Open(strings.Replace(server.Client().Endpoints()[0], "http", "etcd", 1) + prefix)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	small, err := clientv3.New(clientv3.Config{Endpoints: server.Client().Endpoints(), MaxCallSendMsgSize: 8 << 10, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	cfg := partition.Config{Total: 1 << 16}
	for _, client := range []*clientv3.Client{client, small} {
		l, err := etcdledger.New(client, pre, "large", etcdledger.Config{Config: cfg})
		if err != nil {
			t.Fatal(err)
		}
		hold := make([]partition.Grant, cfg.Total)
		for i := range hold {
			hold[i] = partition.Grant{ID: partition.ID(i), Epoch: 1_000_000_000_000_000}
		}
		_, err = l.Sync(t.Context(), machine.Request{Session: "a", Peer: "a", State: machine.Live, Hold: hold})
		if err == nil || !strings.Contains(err.Error(), "take fewer") {
			t.Errorf("got %v", err)
		}
	}
}
