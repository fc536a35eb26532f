package transition

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// Write writes the medians of the rounds for people, as a table; what was lost is of all
// rounds together.
func Write(w io.Writer, results []Result) {
	type row struct{ event, tag string }
	var rows []row
	by := make(map[row][]Result)
	for _, r := range results {
		k := row{r.Event, r.Tag}
		if by[k] == nil {
			rows = append(rows, k)
		}
		by[k] = append(by[k], r)
	}
	order := []string{"steady", "join", "leave", "crash"}
	slices.SortStableFunc(rows, func(a, b row) int { return slices.Index(order, a.event) - slices.Index(order, b.event) })
	fmt.Fprintln(w, "| event | contestant | rounds | moved | pause of moved | pause of unmoved | balanced after | begun again | out of order | lost |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|")
	for _, k := range rows {
		all := by[k]
		median := func(of func(Verdict) float64) float64 {
			var xs []float64
			for _, r := range all {
				xs = append(xs, of(r.Verdict))
			}
			slices.Sort(xs)
			return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
		}
		ms := func(of func(Verdict) time.Duration) string {
			return fmt.Sprintf("%.0f ms", median(func(v Verdict) float64 { return float64(of(v)) / float64(time.Millisecond) }))
		}
		count := func(of func(Verdict) int) string {
			return fmt.Sprintf("%g", median(func(v Verdict) float64 { return float64(of(v)) }))
		}
		gone := 0
		for _, r := range all {
			gone += r.Lost
		}
		fmt.Fprintf(w, "| %s | %s | %d | %s | %s | %s | %s | %s | %s | %d |\n", k.event, all[0].What, len(all),
			count(func(v Verdict) int { return v.Moved }), ms(func(v Verdict) time.Duration { return v.PauseMoved }),
			ms(func(v Verdict) time.Duration { return v.PauseOther }), ms(func(v Verdict) time.Duration { return v.Balanced }),
			count(func(v Verdict) int { return v.Again }), count(func(v Verdict) int { return v.Behind }), gone)
	}
}
