package jobs_test

import (
	"fmt"
	"time"

	"github.com/countoff/countoff/sources/jobs"
)

// When a job comes next, over the night in which the clocks are set forward and there is no 02:30: it comes at 03:30 then.
// Its instants may be in any location: these are told in UTC. The ID of its task is the same whoever fires it.
func ExampleCompile() {
	compiled, err := jobs.Compile(jobs.Entry{Name: "digest", Spec: "30 2 * * *", Zone: "Europe/Berlin", Missed: jobs.Once})
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, time.March, 27, 12, 0, 0, 0, time.UTC)
	for range 3 {
		at = compiled[0].Next(at)
		fmt.Println(at.UTC().Format("Jan _2 15:04"), compiled[0].Task(at).ID)
	}
	// Output:
	// Mar 28 01:30 digest@2026-03-28T01:30:00Z
	// Mar 29 01:30 digest@2026-03-29T01:30:00Z
	// Mar 30 00:30 digest@2026-03-30T00:30:00Z
}

// All that is wrong with entries is said at once.
func ExampleCompile_faults() {
	_, err := jobs.Compile(jobs.Entry{Name: "digest", Spec: "30 2 * *", Missed: jobs.Once})
	fmt.Println(err)
	// Output:
	// job "digest": zone "": say the time zone, as in UTC or Europe/Berlin
	// job "digest": spec "30 2 * *": expected 5 to 6 fields, found 4: [30 2 * *]
}
