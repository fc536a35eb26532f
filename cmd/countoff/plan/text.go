package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
)

// listed are units, of which there may be thousands, each as long as its program likes.
func listed(units []string) string {
	const most = 16
	var names []string
	for _, u := range units[:min(len(units), most)] {
		names = append(names, partitionmap.Column(u, 0, 63))
	}
	if n := len(units) - most; n > 0 {
		names = append(names, fmt.Sprintf("and %d more (--json lists them)", n))
	}
	return strings.Join(names, "  ")
}

// Lines prints p for people.
func (p Plan) Lines() []string {
	how := p.Strategy
	if p.Assumed {
		how += ", which nobody has said (--strategy)"
	}
	lines := []string{fmt.Sprintf("%s: %s now, %d then, by the strategy %s", p.Name, partitionmap.Plural(p.Now, "peer"), p.Then, how), ""}
	lines = append(lines, p.pauses()...)
	if len(p.WorkUnits) > 0 {
		lines = append(lines, "  work units in them: "+listed(p.WorkUnits))
	}
	gained, left, lists := ranges(p.Gained), ranges(p.Left), []string(nil)
	for _, m := range p.Units {
		switch ingress := "ingress " + m.Unit; {
		case m.To == "":
			left = append(left, ingress)
		case m.From == "":
			gained = append(gained, ingress)
		default:
			lists = append(lists, fmt.Sprintf("  %s -> %s: %s", m.From, m.To, ingress))
		}
	}
	if len(gained) > 0 {
		lines = append(lines, "  nobody's now, somebody's then: "+strings.Join(gained, ", "))
	}
	if len(left) > 0 {
		lines = append(lines, "  nobody's then: "+strings.Join(left, ", "))
	}
	if p.Elsewhere > 0 {
		lines = append(lines, fmt.Sprintf("  elsewhere than the newest roll says: %s, on the way already; if that stays so, the peers count off", partitionmap.Plural(p.Elsewhere, "partition")),
			"  in another way than by rolls (--indexer interval), and this is not what comes")
	}
	if p.Unsealed {
		lines = append(lines, "  the peers have changed just now, and no roll says yet who gets what: ask again in some seconds")
	}
	if p.ByID && len(p.Moves) > 0 {
		lines = append(lines, "  which ones, this strategy decides by the ids that the newcomers will have")
	}
	lines = append(lines, p.table()...)
	if len(p.Moves)+len(lists) > 0 {
		lines = append(lines, "")
	}
	for _, m := range p.pairs() {
		lines = append(lines, fmt.Sprintf("  %s -> %s: %s", m.from, m.to, partition.Ranges(m.ids)))
	}
	lines = append(lines, lists...)
	for i, l := range lines {
		lines[i] = partitionmap.Printable(l)
	}
	return lines
}

// pauses says how many partitions move, what they wait for, and what does not pause.
func (p Plan) pauses() []string {
	moves := " move"
	if len(p.Moves) == 1 {
		moves = " moves"
	}
	stay, wait, what := " and do not pause", "  each waits for what runs of it", " in them"
	if p.Barrier {
		stay, wait, what = "; all of them pause (--barrier)", "  the peers go on together, when none of them runs anything", ""
	}
	lines := []string{fmt.Sprintf("  %s%s from one peer to another, %d stay%s", partitionmap.Plural(len(p.Moves), "partition"), moves, p.Stay, stay)}
	if len(p.Moves) == 0 && !p.Barrier {
		return lines
	}
	if p.InFlight >= 0 {
		wait += fmt.Sprintf(": %s in flight%s now", partitionmap.Plural(p.InFlight, "task"), what)
	}
	if p.DrainMS > 0 {
		wait += fmt.Sprintf(", at most %s", partitionmap.Seconds(time.Duration(p.DrainMS)*time.Millisecond))
	}
	return append(lines, wait)
}

// table says what each peer has, gives and gets.
func (p Plan) table() []string {
	gives, gets := map[string]int{}, map[string]int{}
	for _, m := range p.Moves {
		gives[m.From]++
		gets[m.To]++
	}
	lines := []string{"", fmt.Sprintf("  %-24s %5s %5s %6s %6s", "peer", "now", "then", "gives", "gets")}
	for _, peer := range p.Peers {
		line := fmt.Sprintf("  %s %5d %5d %6d %6d", partitionmap.Column(peer.ID, 24, 24), peer.Now, peer.Then, gives[peer.ID], gets[peer.ID])
		switch {
		case peer.Gone:
			line += "  leaves"
		case peer.New:
			line += "  joins"
		}
		lines = append(lines, line)
	}
	return lines
}

// ranges is what to print of ids, if there are any.
func ranges(ids []partition.ID) []string {
	if len(ids) == 0 {
		return nil
	}
	return []string{partition.Ranges(ids)}
}

// A pair is what one peer hands over to another.
type pair struct {
	from, to string
	ids      []partition.ID
}

func (p Plan) pairs() (all []*pair) {
	found := map[[2]string]*pair{}
	for _, m := range p.Moves {
		key := [2]string{m.From, m.To}
		if found[key] == nil {
			found[key] = &pair{from: m.From, to: m.To}
			all = append(all, found[key])
		}
		found[key].ids = append(found[key].ids, m.ID)
	}
	return all
}
