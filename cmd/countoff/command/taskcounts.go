package command

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/status/past"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/redissource"
)

// A group is of the tasks of one key, or of one type.
type group struct {
	Tasks     int           `json:"tasks"`
	Tried     int           `json:"tried"`               // of them, that have run before
	Oldest    *time.Time    `json:"oldest"`              // null: unknown
	Partition *partition.ID `json:"partition,omitempty"` // of the key
	Key       *string       `json:"key,omitempty"`
	Type      *string       `json:"type,omitempty"`

	name string
	born time.Time // of the oldest
}

// counted are tasks by their key, or by their type.
type counted struct {
	byKey  bool
	groups map[string]*group
	apart  int // that have no key, or no type, or that nobody can read
}

// add takes in one task, and always wants more. A key is in one partition.
func (c *counted) add(o redissource.Open) bool {
	name := o.Type
	if c.byKey {
		name = o.Key
	}
	if name == "" || o.Unread {
		c.apart++
		return true
	}
	g := c.groups[name]
	if g == nil {
		g = &group{name: name, born: o.Born}
		if g.Type = &g.name; c.byKey {
			g.Type, g.Key, g.Partition = nil, &g.name, &o.Partition
		}
		if c.groups == nil {
			c.groups = map[string]*group{}
		}
		c.groups[name] = g
	}
	if g.Tasks++; o.Tries+o.Waits+o.Crashes > 0 {
		g.Tried++
	}
	if o.Born.Before(g.born) {
		g.born = o.Born
	}
	return true
}

// print prints the groups, those with the most tasks first.
func (c *counted) print(cmd *cobra.Command, limit int, asJSON bool, none string, missing error) error {
	head := "TASKS\tTRIED\tOLDEST\tTYPE"
	if c.byKey {
		head = "TASKS\tTRIED\tOLDEST\tPARTITION\tKEY"
	}
	out := newList(cmd, limit, asJSON, none, head, func(g *group) []string {
		row := []string{fmt.Sprint(g.Tasks), fmt.Sprint(g.Tried), date(g.born)}
		if c.byKey {
			row = append(row, g.Partition.String())
		}
		return append(row, clipped(g.name))
	}, func(g *group) any {
		g.Oldest = past.Known(g.born)
		return g
	})
	most := func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), a.born.Compare(b.born), cmp.Compare(a.name, b.name))
	}
	for _, g := range slices.SortedFunc(maps.Values(c.groups), most) {
		if !out.add(g) {
			break
		}
	}
	return out.end(missing)
}
