package play

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// The kinds of faults.
const (
	Kill          = "kill"           // SIGKILL, and another process of the peer
	Freeze        = "freeze"         // SIGSTOP past the lease, then SIGCONT
	Blink         = "blink"          // a short SIGSTOP
	Term          = "term"           // SIGTERM, and another process of the peer
	Roll          = "roll"           // a rolling restart of all peers
	Scale         = "scale"          // 1 -> 8 -> 2
	Restart       = "restart"        // the store is killed and comes back with its file
	Wipe          = "wipe"           // and comes back empty
	Failover      = "failover"       // the master is killed, Sentinels promote its replica
	CutControl    = "cut-control"    // one peer's connections for the ledger are closed
	CutData       = "cut-data"       // for its tasks
	Cut           = "cut"            // both
	SilentControl = "silent-control" // held back, and delivered late
	SilentData    = "silent-data"
	Silent        = "silent"
	DelayControl  = "delay-control"
	DelayData     = "delay-data"
	Delay         = "delay"
	Clock         = "clock"  // the store's clock steps
	OOM           = "oom"    // the store refuses what needs memory
	Starve        = "starve" // busy processes take the processors

	LedgerRestart = "ledger-restart" // the ledger's own store is killed and comes back with its disk
	LedgerPause   = "ledger-pause"   // is stopped past the lease
	LedgerCut     = "ledger-cut"     // nobody reaches it
)

// ofPeers are the faults that strike one peer, so that several can strike at once.
// The number is how often they come, relative to the others.
var ofPeers = []weighted{
	{Kill, 8}, {Freeze, 4}, {Blink, 4}, {Term, 4},
	{CutControl, 2}, {CutData, 2}, {Cut, 2}, {SilentControl, 2}, {SilentData, 2}, {Silent, 2},
	{DelayControl, 1}, {DelayData, 1}, {Delay, 1},
}

// ofAll are those that come alone.
var ofAll = []weighted{
	{Restart, 4}, {Wipe, 3}, {OOM, 4}, {Starve, 2}, {Roll, 1}, {Scale, 1}, {Clock, 5},
}

// ofTrio are those that come where there is a replica.
var ofTrio = []weighted{{Failover, 1}}

// ofLedger are those that come alone where the ledger has a store of its own.
var ofLedger = []weighted{{LedgerRestart, 6}, {LedgerPause, 4}, {LedgerCut, 4}}

type weighted struct {
	kind   string
	weight int
}

// Kinds lists all kinds of faults.
func Kinds() []string {
	var all []string
	for _, w := range slices.Concat(ofPeers, ofAll, ofTrio, ofLedger) {
		all = append(all, w.kind)
	}
	return all
}

// KindsOf lists those that there are where the ledger stands beside the tasks, or
// elsewhere. Then what only makes a ledger in Redis forget or jump is left out.
func KindsOf(elsewhere bool) []string {
	return slices.DeleteFunc(Kinds(), func(k string) bool {
		if elsewhere {
			return k == Wipe || k == Clock || k == Failover
		}
		return slices.ContainsFunc(ofLedger, func(w weighted) bool { return w.kind == k })
	})
}

// CheckKinds says what is wrong with a choice of kinds.
func CheckKinds(elsewhere bool, kinds []string) error {
	known := KindsOf(elsewhere)
	for _, k := range kinds {
		if !slices.Contains(known, k) {
			return fmt.Errorf("no such fault: %q; there are: %s", k, strings.Join(known, ", "))
		}
	}
	return nil
}

// A bundle are faults that happen at once.
type bundle []string

// plan orders n faults of the given kinds; several says how many peers may be struck at once.
func plan(random *rand.Rand, n, several int, kinds []string) []bundle {
	choose := func(from []weighted) []weighted {
		return slices.DeleteFunc(slices.Clone(from), func(w weighted) bool { return !slices.Contains(kinds, w.kind) })
	}
	peers, all := choose(ofPeers), slices.Concat(choose(ofAll), choose(ofTrio), choose(ofLedger))
	var out []bundle
	for n > 0 {
		if len(out) == 0 && slices.Contains(kinds, Failover) {
			out, n = append(out, bundle{Failover}), n-1
			continue
		}
		if len(all) > 0 && (len(peers) == 0 || random.IntN(3) == 0) {
			out = append(out, bundle{pick(random, all)})
			n--
			continue
		}
		var b bundle
		for range min(n, max(1, several-random.IntN(max(1, several/3)))) {
			b = append(b, pick(random, peers))
		}
		out = append(out, b)
		n -= len(b)
	}
	return out
}

func pick(random *rand.Rand, from []weighted) string {
	total := 0
	for _, w := range from {
		total += w.weight
	}
	n := random.IntN(total)
	for _, w := range from {
		if n -= w.weight; n < 0 {
			return w.kind
		}
	}
	panic("unreachable")
}
