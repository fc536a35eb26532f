package simulation_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/countoff/countoff/transition/simulation"
)

var (
	oneMix  = flag.String("mix", "", "run this mix only")
	oneSeed = flag.Uint64("seed", 0, "run this seed only; with -v it is told line by line")
	seeds   = flag.Uint64("seeds", 0, "run so many seeds of each mix; default 50, under the race detector 4")
)

// TestSeeds runs seeds of every mix. A seed that violates an invariant is told from
// the beginning, with the command that runs it again.
func TestSeeds(t *testing.T) {
	first, last := uint64(1), uint64(50)
	if raceDetector {
		last = 4
	}
	if *seeds > 0 {
		last = *seeds
	}
	if *oneSeed > 0 {
		first, last = *oneSeed, *oneSeed
	}
	found := false
	for _, mix := range simulation.Mixes() {
		if *oneMix != "" && *oneMix != mix.Name {
			continue
		}
		found = true
		t.Run(mix.Name, func(t *testing.T) {
			t.Parallel()
			var sum simulation.Stats
			for seed := first; seed <= last; seed++ {
				var trace func(string)
				if *oneSeed > 0 && testing.Verbose() {
					trace = func(line string) { t.Log(line) }
				}
				stats, violation := simulation.New(mix, seed, trace).Run()
				if violation != nil {
					tell(t, mix, seed, violation)
					return
				}
				sum = add(sum, stats)
			}
			t.Logf("%d seeds: %d rolls, %d serves, %d drains, %d aborts, %d stray; longest: settled after calm %v, leave %v, gap %v, halt %v; %d steps",
				last-first+1, sum.Rolls, sum.Serves, sum.Drains, sum.Aborts, sum.Stray, sum.Settled, sum.Leave, sum.Gap, sum.Halt, sum.Steps)
		})
	}
	if !found {
		t.Fatalf("no mix %q", *oneMix)
	}
}

// tell runs the seed again with a transcript and shows its end.
func tell(t *testing.T, mix simulation.Mix, seed uint64, v *simulation.Violation) {
	t.Helper()
	const shown = 60
	var lines []string
	if *oneSeed == 0 {
		simulation.New(mix, seed, func(line string) { lines = append(lines, line) }).Run()
	}
	t.Errorf("%v\nfor all of it: go test ./transition/simulation -run TestSeeds -mix %s -seed %d -v\n%s",
		v, mix.Name, seed, strings.Join(lines[max(0, len(lines)-shown):], "\n"))
}

func add(a, b simulation.Stats) simulation.Stats {
	return simulation.Stats{
		Rolls:   a.Rolls + b.Rolls,
		Serves:  a.Serves + b.Serves,
		Drains:  a.Drains + b.Drains,
		Aborts:  a.Aborts + b.Aborts,
		Stray:   a.Stray + b.Stray,
		Settled: max(a.Settled, b.Settled),
		Leave:   max(a.Leave, b.Leave),
		Gap:     max(a.Gap, b.Gap),
		Halt:    max(a.Halt, b.Halt),
		Steps:   a.Steps + b.Steps,
	}
}

// TestReplay: a seed is the same run every time, also from a copy in its midst.
func TestReplay(t *testing.T) {
	mix := simulation.Mixes()[len(simulation.Mixes())-2]
	want, _ := simulation.New(mix, 7, nil).Run()
	w := simulation.New(mix, 7, nil)
	for range want.Steps / 2 {
		w.Next()
	}
	copied := w.Clone()
	for name, w := range map[string]*simulation.World{"again": simulation.New(mix, 7, nil), "a copy": copied, "the original": w} {
		if got, _ := w.Run(); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
