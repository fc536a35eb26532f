package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// groups are the tables of medians: each has the contestants of which its first measure
// is known.
var groups = [][]string{
	{TasksPerSecond, ClientPerTask, StorePerTask, CommandsPerTask, AllocsPerTask, BytesPerTask},
	{P50, P99},
	{RequestsPerSec, CommandsPerSec, ClientShare, StoreShare},
}

// Medians writes the medians of all samples as Markdown, in the order of tags.
func Medians(w io.Writer, tags []string, all Samples) {
	for _, group := range groups {
		header := []string{"contestant", "runs", group[0], "min..max"}
		rows := [][]string{append(header, group[1:]...)}
		for _, tag := range tags {
			first := spreadOf(all.Of(tag, group[0]))
			if first.N == 0 {
				continue
			}
			row := []string{tag, strconv.Itoa(first.N), Number(first.Median), Number(first.Min) + ".." + Number(first.Max)}
			for _, m := range group[1:] {
				cell := "-"
				if s := spreadOf(all.Of(tag, m)); s.N > 0 {
					cell = Number(s.Median)
				}
				row = append(row, cell)
			}
			rows = append(rows, row)
		}
		if len(rows) > 1 {
			Markdown(w, rows)
		}
	}
}

// Verdicts writes how the goals stand as Markdown; goals without a figure are left out.
func Verdicts(w io.Writer, verdicts []Verdict) {
	rows := [][]string{{"goal", "what", "rounds", "median", "min..max", "wanted", ""}}
	for _, v := range verdicts {
		if v.N == 0 {
			continue
		}
		wanted, word := "≥ "+Number(v.Least), "short"
		if v.Most > 0 {
			wanted = "≤ " + Number(v.Most)
		}
		if v.Met {
			word = "ok"
		}
		rows = append(rows, []string{v.ID, v.What, strconv.Itoa(v.N), Number(v.Median), Number(v.Min) + ".." + Number(v.Max), wanted, word})
	}
	if len(rows) > 1 {
		Markdown(w, rows)
	}
}

// Number writes a figure with three digits that count, thousands apart.
func Number(f float64) string {
	switch abs := math.Abs(f); {
	case abs == 0:
		return "0"
	case abs >= 1000:
		digits := strconv.FormatFloat(f, 'f', 0, 64)
		for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
			digits = digits[:i] + "," + digits[i:]
		}
		return digits
	default:
		places := max(0, 2-int(math.Floor(math.Log10(abs))))
		return strconv.FormatFloat(f, 'f', places, 64)
	}
}

// Markdown writes rows as a table, the first one as its head, in columns of one width.
func Markdown(w io.Writer, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	line := make([]string, len(width))
	for i, n := range width {
		line[i] = strings.Repeat("-", max(n, 3))
		width[i] = max(n, 3)
	}
	for _, row := range slices.Insert(slices.Clone(rows), 1, line) {
		for i, cell := range row {
			fmt.Fprintf(w, "| %s%s ", cell, strings.Repeat(" ", width[i]-len([]rune(cell))))
		}
		fmt.Fprintln(w, "|")
	}
	fmt.Fprintln(w)
}
