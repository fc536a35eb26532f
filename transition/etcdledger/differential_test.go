package etcdledger_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/etcdledger"
	"github.com/countoff/countoff/transition/etcdledger/etcdtest"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
)

// same reports whether etcd tells of the past what the reference tells, but for the wall clock.
func same(got, want machine.Entry) bool {
	want.At = time.Time{}
	return reflect.DeepEqual(got, want)
}

// TestSameAsReference sends random calls of several sessions through several ledgers, one of them
// with a shorter lease, to etcd, and to the reference, whose time is the same, and wants the same answers: what is kept
// between two calls, in etcd and in a ledger that remembers it, is all that matters.
func TestSameAsReference(t *testing.T) {
	server := etcdtest.Start(t)
	for seed := range uint64(8) {
		var log []string
		fails := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("seed %d: %s\nafter\n%s", seed, fmt.Sprintf(format, args...), strings.Join(log[max(0, len(log)-20):], "\n"))
		}
		r := rand.New(rand.NewPCG(seed, 1))
		s := newStage(t, server, fmt.Sprint("reference-", seed))
		var ledgers []*etcdledger.Ledger
		for _, lease := range []time.Duration{3 * time.Second, s.timing.Lease, s.timing.Lease} {
			of := *s
			of.timing = transition.Timing{Lease: lease}.WithDefaults()
			l, _ := of.ledger()
			l.SetClock(func() time.Duration { return s.now })
			ledgers = append(ledgers, l)
		}
		call := memledger.Call{Config: s.cfg.WithDefaults(), Timing: s.timing, Run: "one"}
		made := call
		made.Now = 1
		made.Timing.Lease = 96 * time.Hour
		ref := memledger.NewStore(made)
		view, top, longest := make(map[partition.Session]uint64), uint64(0), time.Duration(0)
		mine := make(map[partition.Session][]partition.Grant)
		var sent []machine.Request
		for range 120 {
			// Everybody looks, and either no time passes or so much that the next call writes the
			// clock: what is not written counts a little less than in the reference, which is safe.
			for _, l := range ledgers {
				if _, err := l.Census(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if r.IntN(2) == 0 {
				d := s.timing.ClockStep()/4 + time.Duration(r.IntN(1000))*time.Millisecond
				if r.IntN(20) == 0 {
					d = time.Hour
				}
				s.now += d
				log = append(log, fmt.Sprint(d, " pass"))
			}
			call.Now = 1 + s.now.Milliseconds()
			l := ledgers[r.IntN(len(ledgers))]
			call.Timing = l.Times()
			if r.IntN(8) == 0 {
				seen, _ := ref.Census(call)
				next := machine.Roll{Version: seen.Roll.Version, Membership: seen.Membership}
				if r.IntN(4) == 0 {
					next.Version++
				}
				for i, x := range seen.Sessions {
					next.Members = append(next.Members, machine.RollMember{
						Member:     partition.Member{Session: x.Session, Peer: x.Peer, Index: i, Weight: x.Weight, Tags: x.Tags, Down: r.IntN(4) == 0},
						Partitions: []partition.ID{partition.ID(i)},
					})
				}
				log = append(log, fmt.Sprintf("seal %+v", next))
				got := l.Seal(t.Context(), next)
				if _, want := ref.Seal(call, next); !errors.Is(got, want) || (got == nil) != (want == nil) {
					fails("seal: etcd says %v, the reference %v", got, want)
				}
			} else {
				session := partition.Session(fmt.Sprint("s", r.IntN(5)))
				q := machine.Request{
					Session: session, Peer: "p " + string(session), Weight: r.IntN(3), Unwell: r.IntN(5) == 0, State: machine.Live,
					View: view[session], Top: top, Longest: longest,
				}
				if r.IntN(12) == 0 {
					q.State = machine.Leaving + machine.State(r.IntN(2))
				}
				if r.IntN(4) == 0 {
					q.Tags = "eu gpu"
				}
				for _, g := range mine[session] {
					switch r.IntN(6) {
					case 0:
						q.Release = append(q.Release, g)
					default:
						q.Hold = append(q.Hold, g)
					}
				}
				for range r.IntN(3) {
					q.Claim = append(q.Claim, partition.ID(r.IntN(s.cfg.Total)))
				}
				if len(sent) > 0 && r.IntN(10) == 0 {
					q = sent[r.IntN(len(sent))] // late, or once more
				}
				sent = append(sent, q)
				l = ledgers[1+r.IntN(len(ledgers)-1)]
				if q.Session == "s0" {
					l = ledgers[0]
				}
				call.Timing = l.Times()
				log = append(log, fmt.Sprintf("sync %+v", q))
				got, err := l.Sync(t.Context(), q)
				if err != nil {
					fails("sync: %v", err)
				}
				want, _, _ := ref.Sync(call, q)
				if !reflect.DeepEqual(got, want) {
					fails("etcd answers         %+v %+v\nthe reference says %+v %+v", got, got.Line, want, want.Line)
				}
				mine[q.Session], top, longest = nil, max(top, want.Count), want.Longest
				for _, h := range want.Mine {
					mine[q.Session] = append(mine[q.Session], h.Grant)
				}
				if want.Line != nil {
					view[q.Session] = want.Line.Version
				}
			}
			got, err := l.Census(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if want, _ := ref.Census(call); !reflect.DeepEqual(got.Sessions, want.Sessions) || !reflect.DeepEqual(got.Grants, want.Grants) ||
				got.Count != want.Count || got.Membership != want.Membership || got.Grace != want.Grace || len(got.Roll.Members) != len(want.Roll.Members) {
				fails("census: etcd says  %+v\nthe reference says %+v", got, want)
			}
		}
		past, err := ledgers[0].History(t.Context(), machine.HistoryKept)
		if err != nil {
			t.Fatal(err)
		}
		want := ref.History()
		for i := range max(len(past), len(want)) {
			if i < len(past) {
				past[i].At = time.Time{} // by the clock of who called
			}
			if i >= len(past) || i >= len(want) || !same(past[i], want[i]) {
				fails("history, entry %d of %d and %d: etcd says\n%+v\nthe reference says\n%+v", i, len(past), len(want), past[i:min(i+1, len(past))], want[i:min(i+1, len(want))])
			}
		}
	}
}
