package command

import (
	"io"
	"math"
	"strings"

	"github.com/countoff/countoff/framework/status/partitionmap"
)

// A table is rows whose cells stand below each other at a terminal, also where a character takes two of
// its columns or none: text/tabwriter counts characters. One cell that is longer than [widest] moves what is beside it,
// and no other row.
type table struct {
	rows [][]string
	wide []int // of the columns
}

// widest is how many columns of a terminal a column gets, at most.
const widest = 100

// add puts a row at the end.
func (t *table) add(cells ...string) {
	for i, c := range cells {
		if i == len(t.wide) {
			t.wide = append(t.wide, 0)
		}
		if room := partitionmap.Room(c); i < len(cells)-1 && room <= widest { // nothing stands behind the last
			t.wide[i] = max(t.wide[i], room)
		}
	}
	t.rows = append(t.rows, cells)
}

// print writes the rows.
func (t *table) print(out io.Writer) error {
	var b strings.Builder
	for _, cells := range t.rows {
		for i, c := range cells {
			if i == len(cells)-1 {
				b.WriteString(partitionmap.Printable(c) + "\n")
			} else {
				b.WriteString(partitionmap.Column(c, t.wide[i], math.MaxInt) + "  ")
			}
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
