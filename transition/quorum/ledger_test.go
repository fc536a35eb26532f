package quorum_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/ledgertest"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
	"github.com/countoff/countoff/transition/quorum"
)

// A witnessed ledger keeps all that a ledger promises.
func TestConformance(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) ledgertest.Harness {
		counter, _ := witness(t)
		return &harness{now: time.Unix(1_800_000_000, 0), counter: counter}
	})
}

type harness struct {
	now     time.Time
	counter *quorum.Counter
	main    *memledger.Ledger
}

func (h *harness) Ledger(cfg partition.Config, timing transition.Timing) transition.Ledger {
	l := h.main
	if l == nil {
		l = memledger.New(cfg, timing, memledger.Options{Clock: func() time.Time { return h.now }})
		h.main = l
	} else {
		l = l.As(cfg, timing)
	}
	return quorum.Witness(l, h.counter, nil)
}

func (h *harness) Advance(d time.Duration) { h.now = h.now.Add(d) }

func (h *harness) Restart(keepMemory bool) {
	if keepMemory {
		h.main.Restart()
	} else {
		h.main.Forget()
	}
}

func (h *harness) Can() ledgertest.Abilities {
	return ledgertest.Abilities{Jump: true, Restart: true, Forget: true, Fresh: true}
}

// A switched register can be turned off.
type switched struct {
	quorum.Memory
	mu   sync.Mutex
	off  bool
	mute bool // and says nothing
	full bool // it answers, and takes nothing

	asked int
}

var (
	errOff  = errors.New("turned off")
	errFull = errors.New("OOM command not allowed")
)

func (s *switched) Raise(ctx context.Context, n uint64) (uint64, error) {
	s.mu.Lock()
	off, mute, full := s.off, s.mute, s.full
	s.asked++
	s.mu.Unlock()
	if mute {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if off {
		return 0, errOff
	}
	if full && n > 0 {
		return 0, errFull
	}
	return s.Memory.Raise(ctx, n)
}

func (s *switched) turn(off bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = off
}

func (s *switched) fill(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

func witness(t *testing.T) (*quorum.Counter, []*switched) {
	t.Helper()
	all := []*switched{{}, {}, {}}
	counter, err := quorum.New([]quorum.Register{all[0], all[1], all[2]}, quorum.Config{Patience: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counter.Close() })
	if _, err := counter.Admit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return counter, all
}

// A peer says what it says until it is granted its partition, and returns the epoch.
func gain(t *testing.T, l transition.Ledger, session partition.Session, now *time.Time) partition.Epoch {
	t.Helper()
	r := transition.Request{Session: session, Peer: string(session), Weight: 1, State: machine.Live, Claim: []partition.ID{0}}
	for range 100 {
		a, err := l.Sync(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Mine) > 0 {
			return a.Mine[0].Grant.Epoch
		}
		*now = now.Add(time.Second)
	}
	t.Fatal("it was granted nothing")
	return 0
}

// The store of the ledger is lost, all peers with it, and one of the masters: who comes
// next works under larger epochs all the same. Without the witness epochs begin anew.
func TestEpochsRiseOverTheLossOfTheStore(t *testing.T) {
	counter, masters := witness(t)
	now := time.Unix(1_800_000_000, 0)
	clock := memledger.Options{Clock: func() time.Time { return now }, Forgot: true}
	timing := transition.Timing{Lease: 10 * time.Second}
	last := partition.Epoch(0)
	for i, session := range []partition.Session{"aa", "bb", "cc", "dd", "ee", "ff"} {
		for j, m := range masters {
			m.turn(j == i%3)
		}
		// Another store, in which nothing is.
		l := quorum.Witness(memledger.New(partition.Config{Total: 1}, timing, clock), counter, nil)
		epoch := gain(t, l, session, &now)
		if epoch <= last {
			t.Errorf("%s works under epoch %d, after %d", session, epoch, last)
		}
		last = epoch
	}
}

// A witnessed ledger has the history of the other.
func TestHistory(t *testing.T) {
	counter, _ := witness(t)
	now := time.Unix(1_800_000_000, 0)
	l := quorum.Witness(memledger.New(partition.Config{Total: 1}, transition.Timing{}, memledger.Options{Clock: func() time.Time { return now }}), counter, nil)
	epoch := gain(t, l, "aa", &now)
	var ledger transition.Ledger = l
	past, ok := ledger.(transition.Historian)
	if !ok {
		t.Fatal("it is no Historian")
	}
	all, err := past.History(t.Context(), machine.HistoryKept)
	if err != nil || len(all) < 2 || all[len(all)-1].What != machine.Granted {
		t.Fatalf("%+v: %v", all, err)
	}
	if last, err := past.History(t.Context(), 1); err != nil || len(last) != 1 || last[0].Grants[0].Grant.Epoch != epoch {
		t.Errorf("the last entry is %+v: %v", last, err)
	}
	if _, err := past.History(t.Context(), 0); err == nil {
		t.Error("it says what nobody asked for")
	}
	bare := quorum.Witness(struct{ transition.Ledger }{l}, counter, nil)
	if none, err := bare.History(t.Context(), 1); err != nil || len(none) > 0 {
		t.Errorf("of a ledger without a history: %v, %v", none, err)
	}
}

// A witnessed ledger has the times of the other: a peer with another lease is refused.
func TestTimes(t *testing.T) {
	counter, _ := witness(t)
	timing := transition.Timing{Lease: 7 * time.Second}
	l := quorum.Witness(memledger.New(partition.Config{Total: 1}, timing, memledger.Options{}), counter, nil)
	if got := l.Times(); got != timing.WithDefaults() {
		t.Errorf("times are %+v", got)
	}
	if got := quorum.Witness(struct{ transition.Ledger }{l}, counter, nil).Times(); got != (transition.Timing{}) {
		t.Errorf("of a ledger that does not tell: %+v", got)
	}
}

// A witnessed ledger has the layout of the other: a peer with another one is refused.
func TestLayout(t *testing.T) {
	counter, _ := witness(t)
	layout := partition.Config{Total: 7}
	l := quorum.Witness(memledger.New(layout, transition.Timing{}, memledger.Options{}), counter, nil)
	if got := l.Layout(); got.Total != 7 {
		t.Errorf("the layout is %+v", got)
	}
	if err := transition.CheckLayout(l, partition.Config{Total: 8}.WithDefaults()); !errors.Is(err, transition.ErrLayout) {
		t.Errorf("another layout: %v", err)
	}
	if got := quorum.Witness(struct{ transition.Ledger }{l}, counter, nil).Layout(); got.Total != 0 {
		t.Errorf("of a ledger that does not tell: %+v", got)
	}
}

// A namedLedger says which name it was made for.
type namedLedger struct{ transition.Ledger }

func (namedLedger) Name() string { return "mail" }

// A witnessed ledger has the name of the other: a consumer of another name is refused.
func TestName(t *testing.T) {
	counter, _ := witness(t)
	l := memledger.New(partition.Config{Total: 1}, transition.Timing{}, memledger.Options{})
	if got := quorum.Witness(namedLedger{l}, counter, nil).Name(); got != "mail" {
		t.Errorf("it says %q", got)
	}
	if got := quorum.Witness(l, counter, nil).Name(); got != "" {
		t.Errorf("of a ledger that does not tell: %q", got)
	}
}

// While less than a majority answers, who has a partition keeps it and may give it up, and
// nobody gains one.
func TestWithoutAMajorityNobodyGains(t *testing.T) {
	counter, masters := witness(t)
	now := time.Unix(1_800_000_000, 0)
	var told []error
	inner := memledger.New(partition.Config{Total: 2}, transition.Timing{Lease: 10 * time.Second}, memledger.Options{Clock: func() time.Time { return now }})
	l := quorum.Witness(inner, counter, func(err error) { told = append(told, err) })
	epoch := gain(t, l, "aa", &now)
	holds := transition.Request{
		Session: "aa", Peer: "aa", Weight: 1, State: machine.Live,
		Hold: []partition.Grant{{ID: 0, Epoch: epoch}}, Claim: []partition.ID{1},
	}
	waits := transition.Request{Session: "bb", Peer: "bb", Weight: 1, State: machine.Live, Claim: []partition.ID{0}}
	if _, err := l.Sync(t.Context(), waits); err != nil {
		t.Fatal(err)
	}
	masters[0].turn(true)
	masters[1].turn(true)
	for range 30 { // three leases
		a, err := l.Sync(t.Context(), holds)
		if err != nil || len(a.Mine) != 1 || a.Mine[0].Grant != holds.Hold[0] {
			t.Fatalf("who holds a partition is answered %+v, %v", a, err)
		}
		if a, err := l.Sync(t.Context(), waits); err != nil || len(a.Mine) > 0 {
			t.Fatalf("who waits is answered %+v, %v", a, err)
		}
		now = now.Add(time.Second)
	}
	if len(told) != 1 || !errors.Is(told[0], errOff) {
		t.Errorf("told %v, want the trouble, once", told)
	}
	// It is handed over to who waits since a majority answered, and not shown to it before
	// a majority knows.
	masters[0].turn(false)
	if _, err := l.Sync(t.Context(), waits); err != nil {
		t.Fatal(err)
	}
	masters[0].turn(true)
	gives := holds
	gives.Hold, gives.Release, gives.Claim = nil, holds.Hold, nil
	if _, err := l.Sync(t.Context(), gives); err != nil {
		t.Fatal(err)
	}
	for range 2 { // that it could not be said once does not make it heard
		if a, err := l.Sync(t.Context(), waits); err != nil || len(a.Mine) > 0 {
			t.Errorf("the next owner is shown %+v, %v", a, err)
		}
	}
	if c, err := inner.Census(t.Context()); err != nil || len(c.Grants) != 1 || c.Grants[0].Session != "bb" {
		t.Errorf("the ledger has %+v, %v", c.Grants, err)
	}
	masters[0].turn(false)
	if next := gain(t, l, "bb", &now); next <= epoch {
		t.Errorf("epoch %d after %d", next, epoch)
	}
	if len(told) != 4 || told[1] != nil || told[2] == nil || told[3] != nil {
		t.Errorf("told %v, want the trouble and its end, twice", told)
	}
	if n, err := counter.Read(t.Context()); err != nil || n <= uint64(epoch) {
		t.Errorf("a majority has heard of %d, %v", n, err)
	}
}

// Masters that are full answer what is asked and take nothing: that is one trouble, and none
// that ends with each answer and begins with the next.
func TestMastersThatTakeNothingAreOneTrouble(t *testing.T) {
	counter, masters := witness(t)
	var told []error
	now := time.Unix(1_800_000_000, 0)
	inner := memledger.New(partition.Config{Total: 2}, transition.Timing{Lease: 10 * time.Second}, memledger.Options{Clock: func() time.Time { return now }})
	l := quorum.Witness(inner, counter, func(err error) { told = append(told, err) })
	claims := transition.Request{Session: "aa", Peer: "aa", Weight: 1, State: machine.Live, Claim: []partition.ID{0, 1}}
	for _, m := range masters {
		m.fill(true)
	}
	for range 5 {
		if a, err := l.Sync(t.Context(), claims); err != nil || len(a.Mine) > 0 {
			t.Fatalf("it is answered %+v, %v", a, err)
		}
	}
	if len(told) != 1 || !errors.Is(told[0], errFull) {
		t.Errorf("told %v, want the trouble, once", told)
	}
	for _, m := range masters {
		m.fill(false)
	}
	gain(t, l, "aa", &now)
	if len(told) != 2 || told[1] != nil {
		t.Errorf("told %v, want the trouble and its end", told)
	}
}

// failing is a ledger whose store does not answer.
type failing struct{ transition.Ledger }

func (failing) Sync(context.Context, transition.Request) (transition.Answer, error) {
	return transition.Answer{}, errOff
}

// Masters that are missed beside a store that does not answer are told of.
func TestTroubleBesideThatOfTheStore(t *testing.T) {
	counter, masters := witness(t)
	for _, m := range masters {
		m.turn(true)
	}
	var told []error
	l := quorum.Witness(failing{}, counter, func(err error) { told = append(told, err) })
	_, err := l.Sync(t.Context(), transition.Request{Session: "aa", Peer: "aa", Weight: 1, State: machine.Live, Claim: []partition.ID{0}})
	if !errors.Is(err, errOff) || len(told) != 1 || told[0] == nil {
		t.Errorf("it returns %v and told %v", err, told)
	}
}

// Two peers share a ledger: that a majority has heard of the epoch of one says nothing of
// the other's, though the ledger has counted farther by then.
func TestEachEpochIsHeardOf(t *testing.T) {
	counter, _ := witness(t)
	inner := memledger.New(partition.Config{Total: 2}, transition.Timing{}, memledger.Options{})
	l := quorum.Witness(inner, counter, nil)
	claim := func(session partition.Session, id partition.ID) transition.Request {
		return transition.Request{Session: session, Peer: string(session), Weight: 1, State: machine.Live, Claim: []partition.ID{id}}
	}
	if _, err := inner.Sync(t.Context(), claim("aa", 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := inner.Sync(t.Context(), claim("bb", 1)); err != nil { // its answer is lost
		t.Fatal(err)
	}
	for _, r := range []transition.Request{claim("aa", 0), claim("bb", 1)} {
		a, err := l.Sync(t.Context(), r)
		if err != nil || len(a.Mine) != 1 {
			t.Fatalf("%s is answered %+v, %v", r.Session, a, err)
		}
		if n, err := counter.Read(t.Context()); err != nil || n < uint64(a.Mine[0].Grant.Epoch) {
			t.Errorf("%s is shown %v, and a majority has heard of %d (%v)", r.Session, a.Mine[0].Grant, n, err)
		}
	}
}

// Registers that say nothing at all get a part of the time that a call has: the answer of the
// ledger comes in time to renew the lease.
func TestSilentRegistersLeaveTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		masters := []*switched{{}, {}, {}}
		counter, err := quorum.New([]quorum.Register{masters[0], masters[1], masters[2]}, quorum.Config{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer counter.Close()
		if _, err := counter.Admit(t.Context()); err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1_800_000_000, 0)
		layout, timing := partition.Config{Total: 2}, transition.Timing{Lease: 10 * time.Second}
		l := quorum.Witness(memledger.New(layout, timing, memledger.Options{Clock: func() time.Time { return now }}), counter, nil)
		epoch := gain(t, l, "aa", &now)
		for _, m := range masters {
			m.mu.Lock()
			m.mute = true
			m.mu.Unlock()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began, g := time.Now(), partition.Grant{ID: 0, Epoch: epoch}
		a, err := l.Sync(ctx, transition.Request{
			Session: "aa", Peer: "aa", Weight: 1, State: machine.Live,
			Hold: []partition.Grant{g}, Claim: []partition.ID{1},
		})
		if err != nil || len(a.Mine) != 1 || a.Mine[0].Grant != g {
			t.Errorf("told %+v, %v; want that %v goes on", a.Mine, err, g)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v of the 3 s there were", took)
		}
	})
}

// What a majority has heard of does not take the place of what the claimant has seen itself:
// data may have refused it for an epoch that was never asked about.
func TestClaimsCarryWhatTheirPeerHasSeen(t *testing.T) {
	counter, _ := witness(t)
	l := quorum.Witness(memledger.New(partition.Config{Total: 1}, transition.Timing{}, memledger.Options{}), counter, nil)
	const seen = 4021
	a, err := l.Sync(t.Context(), transition.Request{
		Session: "aa", Peer: "aa", Weight: 1, State: machine.Live, Claim: []partition.ID{0}, Top: seen,
	})
	if err != nil || len(a.Mine) != 1 || a.Mine[0].Grant.Epoch <= seen {
		t.Errorf("answered %+v, %v; want an epoch after %d", a.Mine, err, seen)
	}
}

// A Sync that claims nothing and is shown nothing new asks no master: it costs what it did.
func TestQuietSyncsAskNobody(t *testing.T) {
	counter, masters := witness(t)
	now := time.Unix(1_800_000_000, 0)
	l := quorum.Witness(memledger.New(partition.Config{Total: 1}, transition.Timing{}, memledger.Options{Clock: func() time.Time { return now }}), counter, nil)
	holds := transition.Request{Session: "aa", Peer: "aa", Weight: 1, State: machine.Live}
	holds.Hold = []partition.Grant{{ID: 0, Epoch: gain(t, l, "aa", &now)}}
	asked := func() (n int) {
		if err := counter.Close(); err != nil { // waits for the calls that nobody waited for
			t.Fatal(err)
		}
		for _, m := range masters {
			n += m.asked
		}
		return n
	}
	if a, err := l.Sync(t.Context(), holds); err != nil || len(a.Mine) != 1 {
		t.Errorf("who holds a partition is answered %+v, %v", a, err)
	}
	// Once to be admitted, once for the claim, once for the epoch.
	if n := asked(); n != 3*len(masters) {
		t.Errorf("the %d masters were asked %d times", len(masters), n)
	}
}
