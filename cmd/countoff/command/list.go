package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/status/partitionmap"
)

// A list prints what a store tells one after the other: a table, or with --json an object a line.
type list[T any] struct {
	out, notes io.Writer
	table      table
	limit      int // 0: none
	json       bool
	none       string // what it says of none
	head       string // of the table, as it stands
	row        func(T) []string
	object     func(T) any
	n          int
	failed     error // of a write
}

func newList[T any](cmd *cobra.Command, limit int, asJSON bool, none, head string, row func(T) []string, object func(T) any) *list[T] {
	out := cmd.OutOrStdout()
	return &list[T]{
		out: out, notes: cmd.ErrOrStderr(), limit: limit, json: asJSON,
		none: none, head: head, row: row, object: object,
	}
}

// add prints one, and reports whether more are wanted.
func (l *list[T]) add(v T) bool {
	if l.n++; l.limit > 0 && l.n > l.limit {
		return false
	}
	if l.json {
		l.failed = json.NewEncoder(l.out).Encode(l.object(v))
		return l.failed == nil
	}
	if l.n == 1 {
		l.table.add(strings.Split(l.head, "\t")...)
	}
	l.table.add(l.row(v)...)
	return true
}

// end prints what is left to print, and returns why some may be missing. That there are more, JSON
// has no line for: it is said beside it.
func (l *list[T]) end(missing error) error {
	switch {
	case l.failed != nil:
		return l.failed
	case missing != nil && l.n == 0:
		return missing
	case l.n == 0 && !l.json:
		fmt.Fprintln(l.out, l.none)
		return nil
	}
	if err := l.table.print(l.out); err != nil {
		return err
	}
	if l.limit > 0 && l.n > l.limit {
		to := l.out
		if l.json {
			to = l.notes
		}
		fmt.Fprintf(to, "… more than %d (--limit 0 lists all)\n", l.limit)
	}
	return missing
}

// oneLine keeps a table a table.
func oneLine(s string) string { return strings.Join(strings.Fields(partitionmap.Printable(s)), " ") }

// short is the beginning of what may be as long as its writer liked.
func short(line string) string {
	if r := []rune(line); len(r) > 100 {
		return string(r[:99]) + "…"
	}
	return line
}

// clipped is a type or a key in a table: those that belong together differ at their ends. The whole is in the JSON.
func clipped(s string) string { return partitionmap.Column(s, 0, 63) }
