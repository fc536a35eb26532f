package command

import (
	"io"
	"math"
	"strings"

	"github.com/countoff/countoff/framework/status/partitionmap"
)

// A table is rows whose cells stand below each other at a terminal, also where a character takes two of
// its columns or none: text/tabwriter counts characters.
type table struct {
	rows [][]string
	wide []int // of the columns
}

// add puts a row at the end.
func (t *table) add(cells ...string) {
	for i, c := range cells {
		if i == len(t.wide) {
			t.wide = append(t.wide, 0)
		}
		if i < len(cells)-1 { // nothing stands behind the last
			t.wide[i] = max(t.wide[i], partitionmap.Room(c))
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
