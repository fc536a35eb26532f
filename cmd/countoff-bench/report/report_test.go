package report

import (
	"strings"
	"testing"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		figures map[int]float64
		want    Spread
	}{
		{nil, Spread{}},
		{map[int]float64{3: 7}, Spread{1, 7, 7, 7}},
		{map[int]float64{1: 9, 2: 1, 3: 4}, Spread{3, 4, 1, 9}},
		{map[int]float64{1: 9, 2: 1, 3: 4, 4: 6}, Spread{4, 5, 1, 9}},
	} {
		if got := spreadOf(c.figures); got != c.want {
			t.Errorf("%v: got %+v, want %+v", c.figures, got, c.want)
		}
	}
}

// The median of the ratios is not the ratio of the medians: rounds differ.
func TestRatiosAreOfTheSameRound(t *testing.T) {
	got := Ratios(map[int]float64{1: 100, 2: 10, 3: 8, 4: 5}, map[int]float64{1: 50, 2: 5, 3: 2, 5: 9})
	want := map[int]float64{1: 2, 2: 2, 3: 4}
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for round, v := range want {
		if got[round] != v {
			t.Errorf("round %d: got %v, want %v", round, got[round], v)
		}
	}
	if got := Ratios(map[int]float64{1: 1}, map[int]float64{1: 0}); len(got) > 0 {
		t.Errorf("divided by zero: %v", got)
	}
}

func samples(tag, measure string, figures ...float64) Samples {
	var all Samples
	for i, f := range figures {
		all = append(all, Sample{Round: i + 1, Tag: tag, Measures: Measures{measure: f}})
	}
	return all
}

func TestVerdicts(t *testing.T) {
	all := append(samples("a", TasksPerSecond, 100, 300, 200), samples("b", TasksPerSecond, 10, 10, 10)...)
	all = append(all, samples("a", P50, 0.5, 0.3, 0.2)...)
	for _, c := range []struct {
		goal   Goal
		met    bool
		n      int
		median float64
	}{
		{Goal{Tag: "a", Measure: TasksPerSecond, Per: "b", Least: 20}, true, 3, 20},
		{Goal{Tag: "a", Measure: TasksPerSecond, Per: "b", Least: 20.1}, false, 3, 20},
		{Goal{Tag: "a", Measure: P50, Most: 0.3}, true, 3, 0.3},
		{Goal{Tag: "a", Measure: P50, Most: 0.29}, false, 3, 0.3},
		{Goal{Tag: "a", Measure: TasksPerSecond, By: 400, Least: 0.5}, true, 3, 0.5},
		{Goal{Tag: "a", Measure: TasksPerSecond, Per: "none", Least: 1}, false, 0, 0},
		{Goal{Tag: "none", Measure: P50, Most: 1}, false, 0, 0},
	} {
		v := Judge([]Goal{c.goal}, all)[0]
		if v.Met != c.met || v.N != c.n || v.Median != c.median {
			t.Errorf("%+v: got met %v, %+v", c.goal, v.Met, v.Spread)
		}
	}
	if got := all.Of("a", TasksPerSecond); got[2] != 300 {
		t.Errorf("judging changed the samples: %v", got)
	}
}

func TestNumber(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 0.0313: "0.0313", 0.5: "0.500", 1.234: "1.23", 80: "80.0", 131.4: "131", 999.7: "1000",
		1000: "1,000", 1234567: "1,234,567", -4321: "-4,321",
	} {
		if got := Number(f); got != want {
			t.Errorf("%v: got %s, want %s", f, got, want)
		}
	}
}

func TestTables(t *testing.T) {
	all := append(samples("fast", TasksPerSecond, 3000, 1000), samples("quick", P50, 0.25)...)
	var b strings.Builder
	Medians(&b, []string{"quick", "fast", "absent"}, all)
	Verdicts(&b, Judge([]Goal{
		{ID: "G1", What: "is fast", Tag: "fast", Measure: TasksPerSecond, Least: 2500},
		{ID: "G2", What: "is quick", Tag: "quick", Measure: P50, Most: 0.4},
		{ID: "G3", What: "is there", Tag: "absent", Measure: P50, Most: 0.4},
	}, all))
	got := b.String()
	for _, want := range []string{
		"| fast       | 2    | 2,000   | 1,000..3,000 | -              |",
		"| quick      | 1    | 0.250  | 0.250..0.250 | -      |",
		"| G1   | is fast  | 2      | 2,000  | 1,000..3,000 | ≥ 2,500 | short |",
		"| G2   | is quick | 1      | 0.250  | 0.250..0.250 | ≤ 0.400 | ok    |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "absent") || strings.Contains(got, "G3") || strings.Contains(got, RequestsPerSec) {
		t.Errorf("what was not measured is in\n%s", got)
	}
}

// Each goal says one thing, of contestants that a table can name.
func TestGoalsAreWhole(t *testing.T) {
	for _, g := range Goals() {
		if g.ID == "" || g.What == "" || g.Tag == "" || g.Measure == "" || (g.Least == 0) == (g.Most == 0) || g.Per != "" && g.By != 0 {
			t.Errorf("%+v", g)
		}
	}
}
