package ledgertest

import (
	"slices"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// A Harness is one name in one store, made for one clause. The clauses call it from
// one goroutine.
type Harness interface {
	// Ledger returns the ledger as a peer with this configuration and these times
	// has it. It is called several times; all ledgers are of the same name in the
	// same store. The configuration takes effect with the first operation, not
	// before.
	Ledger(cfg partition.Config, timing transition.Timing) transition.Ledger
	// Advance lets d pass on the store's wall clock. A negative d sets it back. A
	// harness that cannot set the clock of its store waits (see Abilities.Jump).
	Advance(d time.Duration)
	// Restart ends the run of the store and begins another, with what it knew or
	// without. It returns when the ledgers can be used again.
	Restart(keepMemory bool)
	// Can says what the harness is able to do. The clauses that want more are
	// skipped with a line that says why.
	Can() Abilities
}

// Abilities of a harness.
type Abilities struct {
	// Jump: Advance moves the clock at once, also by hours and backwards. Without
	// it Advance really waits, and only clauses that wait at most a few leases run.
	Jump bool
	// Restart: Restart(true) works, and the store tells by itself that its run is
	// another one.
	Restart bool
	// Forget: Restart(false) works.
	Forget bool
	// Fresh: the name was made in advance (as by `countoff init`), so that it begins
	// without a grace. Otherwise every clause first waits for the end of the grace.
	Fresh bool
}

// Run checks every clause against a harness of its own.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	for _, c := range slices.Concat(clockClauses, syncClauses, grantClauses, rollClauses, graceClauses, hintClauses, barrierClauses, pauseClauses, drainClauses) {
		t.Run(c.says, func(t *testing.T) {
			h := newHarness(t)
			if missing := c.needs.without(h.Can()); missing != "" {
				t.Skipf("not checked: the harness cannot %s", missing)
			}
			c.check(newTable(t, h))
		})
	}
}

func (a Abilities) without(have Abilities) string {
	switch {
	case a.Jump && !have.Jump:
		return "set the store's clock"
	case a.Restart && !have.Restart:
		return "restart the store"
	case a.Forget && !have.Forget:
		return "make the store forget"
	}
	return ""
}

// A clause is one rule.
type clause struct {
	says  string
	needs Abilities
	check func(*table)
}
