package sourcetest

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
)

var (
	seeds = flag.Int("sourcetest.seeds", 5, "how many seeds the random clauses run")
	seed  = flag.Int64("sourcetest.seed", 0, "the one seed that the random clauses run; 0: all")
)

// Run checks a source, clause by clause, each on a new harness. The harness uses
// t's Cleanup to take its store down. Clauses run side by side, as many as -parallel
// says, so harnesses are made and used at once; only the one that looks for
// goroutines has the process for itself.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	check(t, func(t *testing.T, c clause, first bool) {
		if c.name != noGoroutine && !first {
			t.Parallel()
		}
		c.check(newScene(t, newHarness(t)))
	})
}

// RunSynctest is Run with each clause in a synctest bubble of its own: time costs
// nothing and a goroutine that is left behind fails the clause. It is for sources
// that do no I/O.
func RunSynctest(t *testing.T, newHarness func(t *testing.T) Harness) {
	check(t, func(t *testing.T, c clause, _ bool) {
		synctest.Test(t, func(t *testing.T) { c.check(newScene(t, newHarness(t))) })
	})
}

// check runs all clauses. Those that all others build on come first, and if one of them
// fails the others, each of which would wait in vain for what it needs, or for a call that
// does not return, are not run.
func check(t *testing.T, run func(t *testing.T, c clause, first bool)) {
	basics, all := len(basics()), clauses()
	for i, c := range all {
		first := i < basics
		if !t.Run(c.name, func(t *testing.T) { run(t, c, first) }) && first {
			t.Fatalf("the other clauses need what this one checks: they were not run")
		}
	}
}

// A clause is one sentence of the contract.
type clause struct {
	name  string
	check func(*scene)
}

const noGoroutine = "close leaves no goroutine"

// basics are the clauses without which no other can hold.
func basics() []clause {
	return []clause{
		{"the layout is valid and the same for every peer", layout},
		{"a task says whose it is", taskNamesGrant},
		{"fetch ends with its context", fetchEnds},
		{"what is settled does not come back", settled},
	}
}

func clauses() []clause {
	all := append(basics(), []clause{
		{"fetch keeps the order of the log", fetchOrder},
		{"fetch returns at most the limit", fetchLimit},
		{"fetch waits for a task", fetchWaits},
		{"a fetch that ended took nothing with it", fetchEndsEmpty},
		{"fetch returns a task once", fetchOnce},
		{"what is in hand for long is not handed out again", fetchNotAgain},
		{"what is pushed side by side is all handed out", fetchBesidePushes},
		{"a task arrives byte for byte", taskIntact},
		{"partitions do not disturb each other", partitionsApart},
		{"partitions are opened side by side", opensAtOnce},

		{"a newer owner fences fetch", fencesFetch},
		{"a newer owner fences settle", fencesSettle},
		{"a newer owner fences settle in the moment in which it comes", fencesInTheMoment},
		{"a newer epoch of the same session fences the older", fencesItself},
		{"closing a fenced stream changes nothing", fencesClose},
		{"the fence is of one partition", fencesOnePartition},
		{"opening again with the token that stands changes nothing", openAgain},
		{"a smaller epoch is refused and told which one stands", openSmaller},
		{"the same epoch of another session is refused", openSameEpoch},
		{"an epoch that was closed is over", openClosed},

		{"settle is idempotent", settleTwice},
		{"settling no task is fine", settleNothing},
		{"a settle of many tasks is of all of them", settleMany},
		{"a settle whose context has ended has settled or says so", settleEnded},
		{"a hand-over brings exactly what was not settled", settledOutOfOrder},
		{"what is settled stays settled over many hand-overs", settledForGood},
		{"settle overlaps fetch", settleOverlapsFetch},
		{"what a settle sets free wakes fetch", settleWakes},
		{"a dead letter is whole and says why", deadLetter},
		{"dead letters stand in the order in which they were given up", deadInOrder},
		{"a reason may be any bytes", reasonOfAnyBytes},

		{"a retried task keeps its place", retryKeepsPlace},
		{"the attempt only rises and the first error stays", retryAttemptRises},
		{"a run that waited is no attempt", waitIsNoAttempt},
		{"a retried task is kept by the caller", retryIsKept},
		{"a requeued task goes behind the others", requeueToEnd},
		{"a requeued task comes back after its delay", requeueAfterDelay},
		{"an old receipt does not reach the new delivery", requeueOldReceipt},
		{"a task that comes again is whole", comesAgainWhole},

		{"close gives back in order", closeGivesBack},
		{"closing is no crash", closeIsNoCrash},
		{"a closed stream does nothing", closedStream},
		{"a close whose context has ended leaves the fence", closeSaysNothing},
		{"what is to be cancelled is heard until it is over", cancelledIsHeard},
		{noGoroutine, closeLeavesNoGoroutine},

		{"a crash loses nothing", crashLosesNothing},
		{"what was started at a crash is handed out alone", crashAlone},
		{"a crash while nothing was started blames nobody", crashIdle},
		{"a suspect that ended is none any more", crashCleared},
		{"a suspect that went to the end is none any more", crashRequeued},
		{"what waits for its retry holds up nothing after a crash", crashWaiting},
		{"what waits for an hour holds up no suspect that waited for a moment", crashWaitingBeside},
		{"what waits behind a retry of its key holds up no suspect", crashBehindRetry},
		{"a suspect behind an open task of its key steps aside", crashAside},
		{"a suspect is not charged if a retry may have run beside it", crashBeside},
		{"a crash that was charged stays charged", crashKept},
		{"a task that keeps killing its owner becomes a dead letter, and no other does", crashPoison},

		{"a store that lost what it answered is noticed", forgot},
		{"a store that lost an open does not take one owner for another", forgotGrant},
	}...)
	all = append(all, faultClauses()...)
	for _, day := range []day{quiet, rough} {
		for i := int64(1); i <= int64(*seeds); i++ {
			n := i
			if *seed != 0 {
				n = *seed
			}
			all = append(all, clause{fmt.Sprintf("%s, seed %d", day.name, n), func(s *scene) { day.run(s, uint64(n)) }})
			if *seed != 0 {
				break
			}
		}
	}
	return all
}
