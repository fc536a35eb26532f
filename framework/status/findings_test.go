package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// TestFindings breaks a name by hand in each way there is, and wants its status to say
// so in a line of its own.
func TestFindings(t *testing.T) {
	m, client, pass := mini(t)
	for kind, c := range map[coverage.Kind]struct {
		inject func(name string, l *redisledger.Ledger)
		word   string
	}{
		coverage.Unowned: {func(name string, _ *redisledger.Ledger) {
			m.HDel("{"+name+"}:transition", "1")
		}, "unowned: partition 1: it is granted to nobody"},
		coverage.Double: {func(name string, _ *redisledger.Ledger) {
			m.HSet(redissource.KeysOf(name, 0).Fence, "t", partition.Token{Epoch: 99, Session: "bb"}.String())
		}, "double: partition 0: the ledger granted it to ann"},
		coverage.Refused: {func(name string, _ *redisledger.Ledger) {
			if _, err := redisconfig.Agree(t.Context(), client, name, partition.Config{Total: 3}); err == nil {
				t.Fatal("accepted")
			}
		}, "refused: "},
		coverage.Unwell: {func(name string, l *redisledger.Ledger) {
			sync(t, l, transition.Request{Session: "aa", Peer: "ann", Weight: 1, Unwell: true, State: machine.Live, Hold: []partition.Grant{{ID: 0, Epoch: 2}, {ID: 1, Epoch: 3}}})
		}, "unwell: every peer says that it is unwell"},
		coverage.Paused: {func(name string, l *redisledger.Ledger) {
			if err := l.Pause(t.Context(), partition.Pause{Since: time.Unix(1_790_000_000, 0), Why: "the database moves"}); err != nil {
				t.Fatal(err)
			}
			sync(t, l, transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Release: []partition.Grant{{ID: 0, Epoch: 2}, {ID: 1, Epoch: 3}}})
		}, "paused: nobody works, since 2026-09-21T14:13:20Z (the database moves): countoff resume goes on"},
		coverage.NoneEligible: {func(name string, _ *redisledger.Ledger) {
			if err := redisledger.Require(t.Context(), client, name, []partition.Requirement{{First: 1, Last: 1, Tags: "gpu"}}); err != nil {
				t.Fatal(err)
			}
		}, "none-eligible: partition 1: it asks for gpu"},
		coverage.TwoNames: {func(name string, l *redisledger.Ledger) {
			sync(t, ledgerOf(t, client, name, "other"), transition.Request{Session: "cc", Peer: "cid", Weight: 1, State: machine.Live})
		}, `two-deployments: the peers belong to "mine" (ann) and "other" (cid)`},
		coverage.TwoWays: {func(name string, l *redisledger.Ledger) {
			ann := transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Strategy: "sticky", Hold: []partition.Grant{{ID: 0, Epoch: 2}, {ID: 1, Epoch: 3}}}
			sync(t, l, ann)
			sync(t, l, transition.Request{Session: "cc", Peer: "cid", Weight: 1, State: machine.Live, Strategy: "jump"})
		}, `two-strategies: the peers share out the partitions by "jump" (cid) and "sticky" (ann)`},
		coverage.SameID: {func(name string, l *redisledger.Ledger) {
			ann := transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Hold: []partition.Grant{{ID: 0, Epoch: 2}, {ID: 1, Epoch: 3}}}
			for range 8 {
				sync(t, l, ann)
				sync(t, l, transition.Request{Session: "cc", Peer: "ann", Weight: 1, State: machine.Live})
				if s := read(t, client, name); len(s.Findings) > 0 {
					t.Errorf("told before its bound: %v", s.Findings)
				}
				pass(1800 * time.Millisecond)
			}
		}, `same-id: 2 peers that live have the id "ann"`},
		coverage.Overdue: {func(name string, l *redisledger.Ledger) {
			m.RPush(redissource.KeysOf(name, 1).Pending, "task")
			ann := transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Hold: []partition.Grant{{ID: 0, Epoch: 2}, {ID: 1, Epoch: 3}}}
			for range 10 { // its lease stands
				pass(2 * time.Second)
				sync(t, l, ann)
			}
		}, "overdue: partition 1: ann, who was granted it, has not opened it"},
	} {
		name := "n-" + string(kind)
		if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 2}); err != nil {
			t.Fatal(err)
		}
		l := ledgerOf(t, client, name, "mine")
		a := sync(t, l, transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{0, 1}})
		census, err := l.Census(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Seal(t.Context(), transition.Roll{Membership: census.Membership, Members: []machine.RollMember{
			{Member: partition.Member{Session: "aa", Peer: "ann", Weight: 1}, Partitions: []partition.ID{0, 1}},
		}}); err != nil {
			t.Fatal(err)
		}
		if s := read(t, client, name); len(s.Findings) > 0 || s.TakeoverMS != 13_500 {
			t.Errorf("%s: all is well with %v, and status says %+v, bound %d", kind, a.Mine, s.Findings, s.TakeoverMS)
		}
		c.inject(name, l)
		s := read(t, client, name)
		if len(s.Findings) != 1 || s.Findings[0].Kind != kind || !strings.HasPrefix(s.Findings[0].String(), c.word) {
			t.Errorf("%s: status finds %v", kind, s.Findings)
		}
	}
}

// What of a paused name is not given up is told once its owner should have ended.
func TestFindingsOfAPause(t *testing.T) {
	_, client, pass := mini(t)
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	l := ledgerOf(t, client, "n", "")
	ann := transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{1}}
	sync(t, l, ann)
	now, err := client.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Pause(t.Context(), partition.Pause{Since: now}); err != nil {
		t.Fatal(err)
	}
	for range 20 { // its lease stands
		if s := read(t, client, "n"); len(s.Findings) != 1 || s.Findings[0].Kind != coverage.Paused {
			t.Fatalf("before ann should have ended: %v", s.Findings)
		}
		pass(time.Second)
		sync(t, l, ann)
	}
	for range 20 {
		pass(time.Second)
		sync(t, l, ann)
	}
	found := read(t, client, "n").Findings
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.Kind == coverage.Overdue && f.ForMS == 40_000 }) {
		t.Errorf("40 s later: %v", found)
	}
	// That nobody had it meanwhile was meant.
	sync(t, l, transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Release: []partition.Grant{{ID: 1, Epoch: 2}}})
	ann.Claim = nil
	for range 60 {
		pass(time.Second)
		sync(t, l, ann)
	}
	if err := l.Pause(t.Context(), partition.Pause{}); err != nil {
		t.Fatal(err)
	}
	sync(t, l, ann)
	nobodys := func(f Finding) bool { return f.Kind == coverage.Unowned && slices.Contains(f.Partitions, 1) }
	if found := read(t, client, "n").Findings; slices.ContainsFunc(found, nobodys) {
		t.Errorf("it has just been resumed: %v", found)
	}
	for range 15 {
		pass(time.Second)
		sync(t, l, ann)
	}
	if found := read(t, client, "n").Findings; !slices.ContainsFunc(found, func(f Finding) bool { return nobodys(f) && f.ForMS == 15_000 }) {
		t.Errorf("15 s later: %v", found)
	}
}

// A partition that only the dead were eligible for is told once it has been nobody's for the
// takeover bound, and then by everybody who asks: not in the moment before somebody
// removes the dead, and then no more for a while.
func TestFindingsOfTheDead(t *testing.T) {
	_, client, pass := mini(t)
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	if err := redisledger.Require(t.Context(), client, "n", []partition.Requirement{{First: 1, Last: 1, Tags: "gpu"}}); err != nil {
		t.Fatal(err)
	}
	l := ledgerOf(t, client, "n", "")
	sync(t, l, transition.Request{Session: "bb", Peer: "bob", Weight: 1, Tags: "gpu", State: machine.Live, Claim: []partition.ID{1}})
	ann := transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{0}}
	told := func() bool {
		return slices.ContainsFunc(read(t, client, "n").Findings, func(f Finding) bool { return f.Kind == coverage.NoneEligible })
	}
	step := transition.Timing{}.WithDefaults().ClockStep() / 2
	for range 40 { // until the lease of bob is over, and ann has not said anything since
		sync(t, l, ann)
		if pass(step); len(leasesOver(census(t, l))) > 0 {
			pass(time.Millisecond)
			break
		}
	}
	if over := leasesOver(census(t, l)); len(over) != 1 || told() {
		t.Errorf("over are %v, told: %v", over, told())
	}
	sync(t, l, ann) // removes bob
	if len(leasesOver(census(t, l))) > 0 || told() {
		t.Error("it is told at once")
	}
	bound := transition.Timing{}.WithDefaults().Takeover()
	for left := bound; left > 0; left -= step {
		pass(step)
		sync(t, l, ann)
	}
	if !told() {
		t.Errorf("nothing is told after %v", bound)
	}
}

// The last peer leaves in good order, and nobody is there to take note that its lease ends: it is
// gone, and has not died. A grant or a wish in its name would be nobody's all the same.
func TestWhoLeftInGoodOrderDoesNotExpire(t *testing.T) {
	_, client, pass := mini(t)
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	l := ledgerOf(t, client, "n", "")
	sync(t, l, transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live})
	sync(t, l, transition.Request{Session: "aa", Peer: "ann", State: machine.Gone})
	pass(3 * transition.Timing{}.WithDefaults().Takeover())
	if p := read(t, client, "n").Peers[0]; p.State != machine.Gone.String() || p.Present() || p.LeaseMS > 0 {
		t.Errorf("it has left in good order and is told as %+v", p)
	}

	peers := peersOf(transition.Census{Sessions: []machine.Seat{
		{Session: "aa", Peer: "ann", State: machine.Gone, Lease: -1}, {Session: "bb", Peer: "ben", State: machine.Live, Lease: time.Second},
	}})
	grants := map[partition.ID]machine.Ownership{
		0: {Grant: partition.Grant{ID: 0, Epoch: 1}, Session: "aa"},
		1: {Grant: partition.Grant{ID: 1, Epoch: 2}, Session: "bb", Waiter: "aa"},
	}
	for id, want := range []string{Unowned, Owned} {
		if h := held(partition.ID(id), grants, peers, partition.Token{}, false); h.State != want {
			t.Errorf("%d is %s, of %q, want %s", id, h.State, h.Owner, want)
		}
	}
}

// What is wrong is told with its age, as far as that is known.
func TestFindingsSayForHowLong(t *testing.T) {
	for want, f := range map[string]Finding{
		"unowned: partition 1: nobody takes part, for 1m5s now":  {Kind: coverage.Unowned, Partitions: []partition.ID{1}, Text: "nobody takes part", ForMS: 65_400},
		"double: partition 1: the ledger granted it to ann":      {Kind: coverage.Double, Partitions: []partition.ID{1}, Text: "the ledger granted it to ann"},
		"refused: host: total 2 stands there, 9m0s ago":          {Kind: coverage.Refused, Text: "host: total 2 stands there", ForMS: 540_000},
		"unwell: every peer says that it is unwell, for 14s now": {Kind: coverage.Unwell, Text: "every peer says that it is unwell", ForMS: 14_000},
	} {
		if got := f.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// When all peers have died as one nobody moves the ledger's clock, by which their leases never end.
// Whoever looks is told all the same that nobody works, once a takeover would be over.
func TestAFleetThatDiedAsOne(t *testing.T) {
	_, client, pass := mini(t)
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	l := ledgerOf(t, client, "n", "")
	sync(t, l, transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{0, 1}})
	for range 20 { // the grace of a new name
		pass(time.Second)
		sync(t, l, transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{0, 1}})
	}
	if s := read(t, client, "n"); len(s.Coverage.Unowned) > 0 || !s.Peers[0].Present() {
		t.Fatalf("while it lives: %+v", s)
	}
	bound := transition.Timing{}.WithDefaults().Takeover()
	pass(bound)
	if s := read(t, client, "n"); len(s.Findings) > 0 || !s.Peers[0].Present() {
		t.Errorf("a store that was paused for a moment is told as a fleet that died: %+v", s)
	}
	pass(2 * bound)
	s := read(t, client, "n")
	if s.Peers[0].Present() || s.Peers[0].State != Expired || len(s.Coverage.Unowned) != 2 {
		t.Errorf("the peers are %+v, nobody's %v", s.Peers, s.Coverage.Unowned)
	}
	if len(s.Findings) != 1 || s.Findings[0].Kind != coverage.Unowned || !strings.Contains(s.Findings[0].Text, "nobody takes part") {
		t.Errorf("the findings are %+v", s.Findings)
	}
	if text := s.Findings[0].String(); !strings.HasSuffix(text, ": nobody takes part, for 31s now") { // the lease of 10 s is over since
		t.Errorf("it is told as %s", text)
	}
	if sealer := census(t, l); sealer.Sessions[0].Lease <= 0 {
		t.Error("a peer that looks takes the other for dead: it may only have been the store that stood still")
	}
}

func census(t *testing.T, l *redisledger.Ledger) machine.Census {
	t.Helper()
	c, err := l.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mini returns an emulated server whose clock stands, but for what pass lets pass.
func mini(t *testing.T) (m *miniredis.Miniredis, client redis.UniversalClient, pass func(time.Duration)) {
	m, client = redistest.Mini(t)
	now := time.Unix(1_800_000_000, 0)
	m.SetTime(now)
	return m, client, func(d time.Duration) {
		now = now.Add(d)
		m.SetTime(now)
	}
}

func ledgerOf(t *testing.T, client redis.UniversalClient, name, deployment string) *redisledger.Ledger {
	t.Helper()
	l, err := redisledger.New(client, name, redisledger.Config{Config: partition.Config{Total: 2}, Deployment: deployment})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func sync(t *testing.T, l *redisledger.Ledger, r transition.Request) transition.Answer {
	t.Helper()
	a, err := l.Sync(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func read(t *testing.T, client redis.UniversalClient, name string) Status {
	t.Helper()
	s, err := Read(t.Context(), client, name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What the history tells of a partition is as old as its last owner, and a wait as old as the first
// who asks.
func TestHistorySaysSinceWhen(t *testing.T) {
	at := func(n int) time.Duration { return time.Duration(n) * time.Second }
	of := func(ids ...partition.ID) (all []machine.Passed) {
		for _, id := range ids {
			all = append(all, machine.Passed{Grant: partition.Grant{ID: id, Epoch: 1}})
		}
		return all
	}
	before := machine.History{
		{Clock: at(0), What: machine.Came, Session: "a"},
		{Clock: at(1), What: machine.Granted, Session: "a", Grants: of(0, 1, 2)},
		{Clock: at(2), What: machine.Asked, Session: "b", Other: "a", Grants: of(0)},
		{Clock: at(3), What: machine.Asked, Session: "c", Other: "a", Grants: of(0)},
		{Clock: at(4), What: machine.Expired, Session: "a"},
		{Clock: at(5), What: machine.Took, Session: "b", Other: "a", Grants: of(0)},
		{Clock: at(6), What: machine.Asked, Session: "b", Other: "a", Grants: of(1)},
		{Clock: at(7), What: machine.GivenUp, Session: "a", Grants: of(1)},
		{Clock: at(8), What: machine.Came, Session: "b"},
		{Clock: at(9), What: machine.GoesOn},
	}
	h := before
	type moment = map[partition.ID]time.Duration
	for what, c := range map[string]struct{ got, want moment }{
		"asked, at first": {begun(h[:4]).asked, moment{0: at(2)}},
		"free, at first":  {begun(h[:5]).free, moment{0: at(4), 1: at(4), 2: at(4)}},
		"asked":           {begun(h).asked, moment{}},
		"free":            {begun(h[:9]).free, moment{1: at(7), 2: at(4)}},
		"free, resumed":   {begun(h).free, moment{1: at(9), 2: at(9)}},
		"granted":         {begun(h).granted, moment{0: at(5), 1: at(1), 2: at(1)}},
	} {
		if !maps.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
	// The ledger's clock begins anew with what it forgot, and may have stood for a month before. So it does where
	// somebody deleted its keys and made the name anew.
	for _, anew := range []machine.Change{machine.Forgot, machine.Made} {
		h = append(before[:7:7], machine.Entry{Clock: at(1000), What: anew}, machine.Entry{Clock: at(1001), What: machine.HeldAgain, Session: "b", Grants: of(0)})
		for what, c := range map[string]struct{ got, want moment }{
			"asked":   {begun(h).asked, moment{}},
			"free":    {begun(h).free, moment{1: at(1000), 2: at(1000)}},
			"granted": {begun(h).granted, moment{0: at(1001)}},
		} {
			if !maps.Equal(c.got, c.want) {
				t.Errorf("%s, %s: %v, want %v", what, anew, c.got, c.want)
			}
		}
	}
	then := &past{history: before, now: at(10)}
	if got := then.together([]partition.Session{"a", "b"}); got != 2*time.Second {
		t.Errorf("the two have been there together for %v", got)
	}
	if got := then.together([]partition.Session{"a"}); got != 10*time.Second {
		t.Errorf("the first has been there for %v", got)
	}
}

// Who waits for a partition has waited since it asked, and not since somebody did who is gone, or it did
// itself and then wanted it no more. What of that is not in the history must not make a hand-over, which
// has just begun, look like one that takes hours.
func TestAWaitIsAsOldAsWhoWaits(t *testing.T) {
	_, client, pass := mini(t)
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	l := ledgerOf(t, client, "n", "")
	ann := transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{0, 1}}
	works := func(others ...transition.Request) {
		for range 60 {
			pass(time.Second)
			sync(t, l, ann)
			for _, r := range others {
				sync(t, l, r)
			}
		}
	}
	waits := func(when string, want bool) {
		t.Helper()
		found := read(t, client, "n").Findings
		if is := slices.ContainsFunc(found, func(f Finding) bool { return f.Kind == coverage.Overdue }); is != want {
			t.Errorf("%s: %v", when, found)
		}
	}
	bob := transition.Request{Session: "bb", Peer: "bob", Weight: 1, State: machine.Live}
	asks := bob
	asks.Claim = []partition.ID{1}
	cid := transition.Request{Session: "cc", Peer: "cid", Weight: 1, State: machine.Live, Claim: []partition.ID{1}}
	works()
	sync(t, l, asks)
	sync(t, l, bob)
	works(bob)
	sync(t, l, asks)
	waits("bob has just asked again", false)
	works(asks)
	waits("bob has waited for a minute", true)
	left := bob
	left.State = machine.Gone
	sync(t, l, left)
	works()
	sync(t, l, cid)
	waits("cid has just asked", false)
	works(cid)
	waits("cid has waited for a minute", true)
}

// The wall clock of the store is set, as by a fail-over to a machine with another one, while a peer waits for
// a partition: that makes no wait longer, and no wait shorter.
func TestAWaitIsNotAsLongAsTheStoresClockJumps(t *testing.T) {
	for jump, want := range map[time.Duration]map[int]int64{
		time.Hour:  {2: 0, 60: 60_000},
		-time.Hour: {2: 0, 60: 60_000},
	} {
		for seconds, wantMS := range want {
			_, client, pass := mini(t)
			if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2}); err != nil {
				t.Fatal(err)
			}
			l := ledgerOf(t, client, "n", "")
			ann := transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{0, 1}}
			bob := transition.Request{Session: "bb", Peer: "bob", Weight: 1, State: machine.Live, Claim: []partition.ID{1}}
			works := func(seconds int) {
				for range seconds {
					pass(time.Second)
					sync(t, l, ann)
					sync(t, l, bob)
				}
			}
			works(seconds) // it has waited since the end of the first
			pass(jump - time.Second)
			sync(t, l, ann) // however far the clock jumps, no more than a step of it counts
			works(1)
			found := read(t, client, "n").Findings
			var ms int64
			for _, f := range found {
				if f.Kind == coverage.Overdue {
					ms = f.ForMS
				}
			}
			if ms < wantMS-1000 || ms > wantMS+3000 {
				t.Errorf("the clock jumps by %v while bob has waited for %d s: %v, want for %d ms", jump, seconds, found, wantMS)
			}
		}
	}
}

// Who wants a partition no more says nothing of it in the history; but a roll has come that left it with its owner.
// What the next roll takes from one who waits, for another, the owner owes as before.
func TestAWaitPassesFromRollToRoll(t *testing.T) {
	entry := func(n int, what machine.Change, session partition.Session) machine.Entry {
		e := machine.Entry{Clock: time.Duration(n), What: what, Session: session}
		if session != "" {
			e.Other, e.Grants = "a", []machine.Passed{{Grant: partition.Grant{ID: 1, Epoch: 1}}}
		}
		return e
	}
	for rolls, want := range []time.Duration{1, 1, 9, 9} {
		h := machine.History{entry(0, machine.RollMade, ""), entry(1, machine.Asked, "b")}
		for n := range rolls {
			h = append(h, entry(2+n, machine.RollMade, ""))
		}
		h = append(h, entry(9, machine.Asked, "c"), entry(10, machine.Asked, "b"))
		if got := begun(h).asked[1]; got != want {
			t.Errorf("with %d rolls between they have waited since %d, want %d", rolls, got, want)
		}
	}
}

// Who else consumes the queues of a name is in no ledger, and its peers fetch nothing while he is there.
func TestWhoElseConsumesItsQueues(t *testing.T) {
	_, client, _ := mini(t)
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2, Units: []string{"old"}}); err != nil {
		t.Fatal(err)
	}
	list := func(key, host, queues string) {
		t.Helper()
		client.ZAdd(t.Context(), queuestat.AllServers, redis.Z{Member: key})
		client.Set(t.Context(), key, "\n\x01"+host+"\x10\x2a"+queues, 0) // host, pid 42
	}
	strangers := func() (all []string) {
		for _, f := range read(t, client, "n").Findings {
			if f.Kind == Stranger {
				all = append(all, f.String())
			}
		}
		return all
	}
	list("a", "a", "*\x05\n\x03n:1")
	if found := strangers(); len(found) > 0 {
		t.Errorf("its partitions are no queues, and found is %v", found)
	}
	client.HSet(t.Context(), redisconfig.Key("n"), queuestat.Field, "")
	list("b", "b", "*\x05\n\x03old*\x0c\n\x0acountoff-m")
	list("c", "c", "*\x05\n\x03n:1*\x0c\n\x0acountoff-n")
	list("d", "d", "*\x05\n\x03n:2")
	const rest = ": the peers fetch nothing while it is there, unless they only sound the alarm"
	want := []string{
		`stranger: a plain asynq.Server consumes queue "n:1" (host a, pid 42)` + rest,
		`stranger: a peer of the name m consumes queue "old" (host b, pid 42)` + rest,
	}
	if found := strangers(); !slices.Equal(found, want) {
		t.Errorf("found is %q, want %q", found, want)
	}
	for _, key := range []string{"e", "f"} { // a fleet is one line: the rest of a screen is the peers'
		list(key, key, "*\x05\n\x03n:1")
	}
	want[0] = `stranger: a plain asynq.Server consumes queue "n:1" (host a, pid 42, and 2 more)` + rest
	if found := strangers(); !slices.Equal(found, want) {
		t.Errorf("found is %q, want %q", found, want)
	}
	client.Del(t.Context(), queuestat.AllServers)
	client.Set(t.Context(), queuestat.AllServers, "x", 0)
	if found := strangers(); len(found) > 0 {
		t.Errorf("nothing is known, and found is %v", found)
	}
}

// Tasks of a queue that asynq pauses wait, whoever has it: in status that looks like an owner that does nothing.
func TestAQueueThatAsynqPauses(t *testing.T) {
	_, client, _ := mini(t)
	const more = 10
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: more, Units: []string{"old"}}); err != nil {
		t.Fatal(err)
	}
	paused := func() (all []string) {
		for _, f := range read(t, client, "n").Findings {
			if f.Kind == QueuePaused {
				all = append(all, f.String())
			}
		}
		return all
	}
	pause := func(queue string, since any) { client.Set(t.Context(), "asynq:{"+queue+"}:paused", since, 0) }
	pause("n:1", 1795802184)
	if found := paused(); len(found) > 0 {
		t.Errorf("its partitions are no queues, and found is %v", found)
	}
	client.HSet(t.Context(), redisconfig.Key("n"), queuestat.Field, "")
	const rest = ": nothing is taken from there until that ends (asynqmon, asynq queue unpause, Inspector.UnpauseQueue)"
	want := []string{"queue-paused: asynq pauses n:1 (since 2026-11-27T17:56:24Z)" + rest}
	if found := paused(); !slices.Equal(found, want) {
		t.Errorf("found is %q, want %q", found, want)
	}
	pause("old", "x")
	pause("n:2", 1795802185)
	want = []string{"queue-paused: asynq pauses n:1 (since 2026-11-27T17:56:24Z), n:2 (since 2026-11-27T17:56:25Z), old" + rest}
	if found := paused(); !slices.Equal(found, want) {
		t.Errorf("found is %q, want %q", found, want)
	}
	for id := range more {
		pause(fmt.Sprint("n:", id), "x")
	}
	want = []string{"queue-paused: asynq pauses n:0, n:1, n:2, n:3, n:4, n:5, n:6, n:7 and 3 more" + rest}
	if found := paused(); !slices.Equal(found, want) {
		t.Errorf("found is %q, want %q", found, want)
	}
}

// A node of a cluster that does not answer takes all the time for who else consumes the queues; that some are paused is
// told all the same, and where a queue cannot be read nobody is asked once more.
func TestAQueueThatAsynqPausesBesideASilentNode(t *testing.T) {
	_, client, _ := mini(t)
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client.HSet(ctx, redisconfig.Key("n"), queuestat.Field, "")
	client.Set(ctx, queuestat.Pending("n:0"), "no list", 0)
	for _, queue := range []string{"n:0", "n:1"} {
		client.Set(ctx, "asynq:{"+queue+"}:paused", "x", 0)
	}
	client.AddHook(silent{queuestat.AllServers, cancel})
	s, err := Read(ctx, client, "n")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range s.Findings {
		if f.Kind == QueuePaused {
			found = append(found, f.Text)
		}
	}
	if len(found) != 1 || !strings.HasPrefix(found[0], "asynq pauses n:1: ") {
		t.Errorf("found is %q", found)
	}
}

// silent lets the time be over with the command that asks for key.
type silent struct {
	key  string
	over context.CancelFunc
}

func (h silent) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h silent) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h silent) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any(h.key)) {
			h.over()
		}
		return next(ctx, cmd)
	}
}

// Of a replica that follows no more, or not yet, nothing can be waited for.
func TestFollowing(t *testing.T) {
	for info, want := range map[string]int{
		"":                                      0,
		"role:master\r\nconnected_slaves:0\r\n": 0,
		"role:master\r\nconnected_slaves:2\r\nslave0:ip=10.0.0.7,port=6379,state=online,offset=42,lag=0\r\nslave1:ip=::1,port=6379,state=online,offset=42,lag=10\r\n":     2,
		"role:master\r\nconnected_slaves:2\r\nslave0:ip=10.0.0.7,port=6379,state=wait_bgsave,offset=0,lag=0\r\nslave1:ip=::1,port=6379,state=online,offset=42,lag=11\r\n": 0,
	} {
		if got := following(info); got != want {
			t.Errorf("%q: %d follow, want %d", info, got, want)
		}
	}
}
