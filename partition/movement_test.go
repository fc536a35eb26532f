package partition_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/countoff/countoff/partition"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/strategies.md")

const (
	movementDoc   = "../docs/strategies.md"
	movementBegin = "<!-- begin: go test ./partition -run TestMovementTable -update -->\n"
	movementEnd   = "<!-- end -->\n"
)

// The tables in docs/strategies.md are what the strategies do today.
func TestMovementTable(t *testing.T) {
	old, err := os.ReadFile(movementDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(old), movementBegin)
	_, after, ok2 := strings.Cut(rest, movementEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the tables: want a line %q and a line %q", movementDoc, movementBegin, movementEnd)
	}
	doc := before + movementBegin + movementTables() + movementEnd + after
	if doc == string(old) {
		return
	}
	if !*update {
		t.Fatalf("%s is stale: run go test ./partition -run TestMovementTable -update, and read the diff", movementDoc)
	}
	if err := os.WriteFile(movementDoc, []byte(doc), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A row is a strategy and how its members get their indexes.
type row struct {
	name       string
	strategy   partition.Strategy
	reshuffled bool
}

var movementRows = []row{
	{"sticky", partition.Sticky{}, false},
	{"ring", partition.Ring{}, false},
	{"rendezvous", partition.Rendezvous{}, false},
	{"jump", partition.Jump{}, false},
	{"modulo", partition.Modulo{}, false},
	{"modulo, indexes by arrival", partition.Modulo{}, true},
}

func movementTables() string {
	var b strings.Builder
	shown := []int{3, 5, 10, 20, 50, 100}
	for _, total := range []int{256, 1024} {
		all := total == 256 // n = 3..100; of more partitions only what is shown
		lives := map[string]map[int]life{}
		for _, r := range movementRows {
			rng := rand.New(rand.NewPCG(1, uint64(total)))
			lives[r.name] = map[int]life{}
			for n := 3; n <= 100; n++ {
				if all || slices.Contains(shown, n) {
					lives[r.name][n] = r.live(total, n, rng)
				}
			}
		}
		fmt.Fprintf(&b, "\n**%d partitions, moved %% on join / leave / crash and back · max/mean:**\n\n| strategy |", total)
		for _, n := range shown {
			fmt.Fprintf(&b, " n = %d |", n)
		}
		fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(shown)))
		for _, r := range movementRows {
			fmt.Fprintf(&b, "| %s |", r.name)
			for _, n := range shown {
				l := lives[r.name][n]
				fmt.Fprintf(&b, " %.0f / %.0f / %.0f · %.2f |", l.join.percent(total), l.leave.percent(total), l.crash.percent(total), l.peak)
			}
			b.WriteString("\n")
		}
		if !all {
			continue
		}
		fmt.Fprintf(&b, "\n**%d partitions, n = 3..100, moved × the least possible, mean (worst):**\n\n"+
			"| strategy | join | leave | crash and back | max/mean |\n|---|---|---|---|---|\n", total)
		for _, r := range movementRows {
			fmt.Fprintf(&b, "| %s |", r.name)
			for _, figure := range []func(life) movement{
				func(l life) movement { return l.join },
				func(l life) movement { return l.leave },
				func(l life) movement { return l.crash },
			} {
				var sum movement
				worst := 0.0
				for _, l := range lives[r.name] {
					m := figure(l)
					sum.moved += m.moved
					sum.least += m.least
					if m.least > 0 {
						worst = max(worst, m.times())
					}
				}
				fmt.Fprintf(&b, " %.2f (%.2f) |", sum.times(), worst)
			}
			mean, worst := 0.0, 0.0
			for n := range 98 { // in order: a sum of fractions depends on it
				l := lives[r.name][n+3]
				mean += l.peak / 98
				worst = max(worst, l.peak)
			}
			fmt.Fprintf(&b, " %.2f (%.2f) |", mean, worst)
			b.WriteString("\n")
		}
	}
	b.WriteString("\n")
	return b.String()
}

// A life is what happens to n members and back.
type life struct {
	join, leave, crash movement
	peak               float64 // greatest load by the mean one
}

// A movement is how many partitions moved, and the least that had to.
type movement struct{ moved, least int }

func (m movement) times() float64            { return float64(m.moved) / float64(m.least) }
func (m movement) percent(total int) float64 { return 100 * float64(m.moved) / float64(total) }

// live lets one join n members, one of n leave, and one of n crash and come back. The
// least possible is a joiner's even share, rounded down, and what the leaver had.
func (r row) live(total, n int, rng *rand.Rand) life {
	ids := partition.Config{Total: total}.IDs()
	assign := func(members []partition.Member, previous partition.Table) partition.Table {
		if r.reshuffled {
			for i, place := range rng.Perm(len(members)) {
				members[i].Index = place
			}
		}
		return r.strategy.Assign(ids, members, previous)
	}
	table := assign(team(n), nil)
	load, _ := counts(table)
	out := n / 3
	had := load[team(n)[out].Session]

	joined := assign(team(n+1), table)

	rest := team(n) // the highest index fills the hole of the one that left
	rest[out], rest[n-1].Index = rest[n-1], out
	rest[out].Index = out
	left := assign(rest[:n-1], table)

	down := team(n)
	down[out].Down = true
	crashed := assign(down, table)
	back := assign(team(n), crashed)

	l := life{
		join:  movement{moved(table, joined), total / (n + 1)},
		leave: movement{moved(table, left), had},
		crash: movement{moved(table, crashed) + moved(crashed, back), had + total/n},
	}
	for _, k := range load {
		l.peak = max(l.peak, float64(k)*float64(n)/float64(total))
	}
	return l
}
