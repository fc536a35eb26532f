package status

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// TestFindings breaks a name by hand in each way there is, and wants its status to say
// so in a line of its own.
func TestFindings(t *testing.T) {
	m, client := redistest.Mini(t)
	now := time.Unix(1_800_000_000, 0)
	m.SetTime(now)
	pass := func(d time.Duration) {
		now = now.Add(d)
		m.SetTime(now)
	}
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
		coverage.Overdue: {func(name string, l *redisledger.Ledger) {
			m.RPush(redissource.KeysOf(name, 1).Pending, "task")
			ann := transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Hold: []partition.Grant{{ID: 0, Epoch: 2}, {ID: 1, Epoch: 3}}}
			for range 10 { // its lease stands
				pass(2 * time.Second)
				sync(t, l, ann)
			}
		}, "overdue: partition 1: it has tasks, and ann, who was granted it, has not opened it"},
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
