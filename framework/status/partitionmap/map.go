// Package partitionmap draws a name for a terminal: which partition is whose, who
// takes part, what waits. `countoff status`, `countoff watch` and the demo show the
// same picture.
//
// Letters carry the meaning; colour only repeats it.
package partitionmap

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition"
)

// legend explains the letters of a map.
const legend = "A: served by A   a: A hands it over   +: granted, not yet served   .: nobody's   !: two owners"

// A Map draws one name again and again and keeps each peer's letter, which is another's only once
// all of A to Z were in use. The zero value is ready. It must not be used concurrently.
type Map struct {
	// Width of the terminal in columns, in which the rows of tables are to fit. Default: the map has 80, and
	// the rows of tables all that they need.
	Width int
	// Height is how many lines there is room for: where there is not enough the letters are not explained, of more
	// peers than fit the last are counted, and of a map that leaves no room for peers the rows that are served. Default: for all.
	Height int
	// Colour repeats the letters' meaning in colour.
	Colour bool

	letters map[partition.Session]int // of the peers that are there, by first sight
	given   int                       // of A to Z
}

// Lines draws s.
func (m *Map) Lines(s status.Status) []string {
	m.meet(s.Peers)
	lines := []string{Headline(s)}
	for _, f := range s.Findings { // where a screen that is too short for all cuts them last
		lines = append(lines, "  WRONG  "+f.String())
	}
	lines = append(printable(lines), "")
	grid := m.grid(s)
	explained := []string{"", "  " + legend}
	peers, rest := printable(m.peers(s)), append([]string{""}, printable(m.rest(s))...)
	const beside, fewest = 1, 2 // an empty line between map and peers; of peers the head, and one
	room, least := m.Height-m.rows(lines)-m.rows(rest)-beside, m.rows(peers)
	if len(peers) > fewest {
		least = m.rows(append(peers[:fewest:fewest], morePeers(len(peers)-fewest, s.Name)))
	}
	if m.Height > 0 && len(grid) > room-least { // a map of thousands of partitions
		grid = m.short(grid, max(room-m.rows(peers), min(room/2, room-least)), s.Name)
	}
	lines = append(append(lines, lineOf(grid)...), "")
	over := m.rows(lines) + m.rows(peers) + m.rows(rest) - m.Height
	if m.Height <= 0 || over+m.rows(explained) <= 0 {
		lines = slices.Insert(lines, len(lines)-1, explained...)
	} else if over > 0 && len(peers) > fewest {
		shown := max(fewest, len(peers)-over-m.rows([]string{morePeers(len(peers), s.Name)}))
		peers = append(peers[:shown], morePeers(len(peers)-shown, s.Name))
	}
	return slices.Concat(lines, peers, rest)
}

// morePeers stands for n peers that there is no room for.
func morePeers(n int, name string) string {
	return fmt.Sprintf("  … %s more (countoff status %s)", Plural(n, "peer"), name)
}

// Whole draws s, and lists who owns which work units, and the partitions as Table does: all that there is to print.
func (m *Map) Whole(s status.Status, all bool) []string {
	return slices.Concat(m.Lines(s), []string{""}, unitLines(s, all), m.Table(s, all))
}

// rows is how many lines of the terminal lines take.
func (m *Map) rows(lines []string) (n int) {
	for _, l := range lines {
		n += len(fold(l, cmp.Or(m.Width, math.MaxInt)-1))
	}
	return n
}

// rest is what stands below the peers.
func (m *Map) rest(s status.Status) (lines []string) {
	for _, u := range s.Units {
		line := fmt.Sprintf("  ingress %s: %s, %s", u.Name, u.State, owner(u.Held))
		switch {
		case u.Trouble != "":
			line += ", WRONG: " + u.Trouble
		case !s.TasksUnknown:
			line += fmt.Sprintf(", %s waiting", Plural(u.Pending, "line"))
			if u.Delayed > 0 {
				line += fmt.Sprintf(", %d delayed", u.Delayed)
			}
		}
		lines = append(lines, line)
	}
	if s.TasksUnknown {
		lines = append(lines, "  what the partitions hold is not known: "+WhyUnknown(s.Config.Hash))
	} else {
		t := s.Totals()
		dead := fmt.Sprint("dead ", t.Dead)
		if DeadElsewhere(s) {
			dead = fmt.Sprintf("dead: on a topic, see countoff dead list %s --kafka URL", s.Name)
		}
		but := ""
		if t.Unknown {
			but = "   without those that cannot be read"
		}
		lines = append(lines, fmt.Sprintf("  pending %d   in flight %d   delayed %d   %s%s", t.Pending, t.InFlight, t.Delayed, dead, but))
	}
	lines = append(lines, Drained(s)...)
	lines = append(lines, ToCancel(s)...)
	if s.TakeoverMS > 0 && s.Config.Paused == (partition.Pause{}) { // nobody takes over from anybody while it is
		lines = append(lines, fmt.Sprintf("  a dead peer's partitions are another's within %s", Seconds(time.Duration(s.TakeoverMS)*time.Millisecond)))
	}
	if s.Barrier != nil {
		lines = append(lines, Barrier(*s.Barrier)...)
	}
	return lines
}

// DeadElsewhere reports whether the dead letters of a name may be on a topic: it is Kafka's, and the store has
// none of them.
func DeadElsewhere(s status.Status) bool {
	return s.Config.Hash == partition.Murmur2 && s.Totals().Dead == 0
}

// WhyUnknown says why it is not known what the partitions of a name hold, whose keys are hashed so.
func WhyUnknown(hash partition.Hash) string {
	const unsaid = "nobody said where the tasks are"
	if hash != partition.Murmur2 {
		return unsaid
	}
	return unsaid + ", or it is kept in Kafka what of the topic is done: kafka-consumer-groups shows it then"
}

// Headline says in one line how name, peers and partitions stand.
func Headline(s status.Status) string {
	count := map[string]int{}
	for _, p := range s.Partitions {
		count[p.State]++
	}
	peers := 0
	for _, p := range s.Peers {
		if p.Present() {
			peers++
		}
	}
	text := fmt.Sprintf("%s  roll %d  %s  %s: %d owned", s.Name, s.Roll.Version, Plural(peers, "peer"), Plural(len(s.Partitions), "partition"), count[status.Owned])
	for _, state := range []string{status.Moving, status.Opening, status.Unowned, status.Double} {
		if count[state] > 0 {
			text += fmt.Sprintf(", %d %s", count[state], state)
		}
	}
	if s.GraceMS > 0 {
		text += fmt.Sprintf("  (grace: nobody gains a partition for %s)", Seconds(time.Duration(s.GraceMS)*time.Millisecond))
	}
	return text
}

// grid draws the partitions, in groups of eight.
func (m *Map) grid(s status.Status) (rows []gridRow) {
	width := m.Width
	if width <= 0 {
		width = 80
	}
	cell := 1
	for _, n := range m.letters {
		if n >= single {
			cell = 2
		}
	}
	const margin = 8
	groups := max(1, (width-margin)/(8*cell+1))
	groups = min(groups, 8)
	for row := range slices.Chunk(s.Partitions, groups*8) {
		var b strings.Builder
		fmt.Fprintf(&b, "%6d ", int(row[0].ID))
		served := true
		for i, p := range row {
			served = served && p.State == status.Owned
			if i%8 == 0 {
				b.WriteByte(' ')
			}
			b.WriteString(m.paint(p.Held, m.mark(p.Held), cell))
		}
		rows = append(rows, gridRow{b.String(), served})
	}
	return rows
}

// A gridRow is one of the map, and whether all in it are served.
type gridRow struct {
	line   string
	served bool
}

func lineOf(rows []gridRow) (lines []string) {
	for _, r := range rows {
		lines = append(lines, r.line)
	}
	return lines
}

// short leaves of more rows than there is room for those first in which a partition is not served, and counts the others.
func (m *Map) short(rows []gridRow, room int, name string) (shown []gridRow) {
	if len(rows) <= room {
		return rows
	}
	more := func(n int) string {
		return fmt.Sprintf("       … %s more (countoff status %s)", Plural(n, "row"), name)
	}
	shown = slices.Clone(rows)
	drop := len(rows) - max(1, room-m.rows([]string{more(len(rows))}))
	served := true
	for _, of := range []bool{true, false} { // from the end, those that are served before the others
		for i := len(shown) - 1; i >= 0 && drop > 0; i-- {
			if shown[i].served == of {
				shown = slices.Delete(shown, i, i+1)
				drop--
				served = of
			}
		}
	}
	line := more(len(rows) - len(shown))
	if served {
		line = fmt.Sprintf("       … %s more, all served", Plural(len(rows)-len(shown), "row"))
	}
	return append(shown, gridRow{line: line, served: served})
}

// Hues is how many colours peers have.
const Hues = 10

// A Mark is what stands in a map for one partition.
type Mark struct {
	Text string
	Hue  int // its owner's, below Hues; -1: nobody's, or of two
}

// Marks returns the marks of s.Partitions: a map for something else than a terminal.
func (m *Map) Marks(s status.Status) []Mark {
	m.meet(s.Peers)
	marks := make([]Mark, len(s.Partitions))
	for i, p := range s.Partitions {
		marks[i] = Mark{Text: m.mark(p.Held), Hue: m.hue(p.Held)}
	}
	return marks
}

// Peer returns the mark of a peer that was in what was drawn last.
func (m *Map) Peer(s partition.Session) Mark {
	return Mark{Text: m.letter(s), Hue: m.letters[s] % Hues}
}

// hue is the number of the colour of one partition.
func (m *Map) hue(h status.Held) int {
	switch h.State {
	case status.Owned, status.Moving, status.Opening:
		return m.Peer(h.Session).Hue
	}
	return -1
}

// mark is what stands for one partition.
func (m *Map) mark(h status.Held) string {
	switch h.State {
	case status.Owned:
		return m.letter(h.Session)
	case status.Moving:
		return strings.ToLower(m.letter(h.Session))
	case status.Opening:
		return "+"
	case status.Double:
		return "!"
	}
	return "."
}

// The columns that the table of peers takes beside their ids: with all that it has, and without index and weight.
const (
	besideIDs  = 46
	leastAside = 26
)

func (m *Map) peers(s status.Status) []string {
	wide, narrow := 24, false
	if room := m.Width - 1; m.Width > 0 && room < besideIDs+wide {
		wide, narrow = min(wide, max(8, room-leastAside)), true
	}
	row := func(id, index, state, weight, partitions, lease string) string {
		if narrow {
			return fmt.Sprintf("  %s %-8s %5s %7s", Column(id, wide, wide+1), state, partitions, lease)
		}
		return fmt.Sprintf("  %s %5s  %-8s %6s %10s  %7s", Column(id, wide, wide+1), index, state, weight, partitions, lease)
	}
	owns := "partitions"
	if narrow {
		owns = "owns"
	}
	lines := []string{row("peer", "index", "state", "weight", owns, "lease")}
	for _, p := range s.Peers {
		index := "-"
		if p.Index >= 0 {
			index = fmt.Sprint(p.Index)
		}
		line := row(m.letter(p.Session)+" "+Column(p.ID, 0, wide-2), index, State(p), fmt.Sprint(p.Weight), fmt.Sprint(p.Partitions), lease(p.Lease()))
		if len(p.Tags) > 0 {
			line += "  has " + strings.Join(p.Tags, ", ")
		}
		if m.Width > 0 && columns(Printable(line)) >= m.Width {
			line = cut(Printable(line), m.Width-2) + "…"
		}
		lines = append(lines, line)
	}
	if len(s.Peers) == 0 {
		lines = append(lines, "  "+Nobody(s))
	}
	return lines
}

// Nobody is what there is to say where no peer is known.
func Nobody(s status.Status) string {
	if s.LedgerElsewhere {
		return "who takes part is not known: this Redis has no ledger that they have used. It stands elsewhere (--ledger says where), or was lost"
	}
	return "nobody takes part"
}

// lease is what is left of one. For how long it has been over is of no use: by the ledger's clock,
// which stands still while nobody calls.
func lease(left time.Duration) string {
	if left <= 0 {
		return "over"
	}
	return Seconds(left)
}

// ToCancel says how many tasks are to be cancelled, and since when.
func ToCancel(s status.Status) []string {
	c := s.ToCancel
	switch {
	case c == nil:
		return nil
	case c.Trouble != "":
		return []string{"  to be cancelled, WRONG: " + c.Trouble}
	}
	return []string{fmt.Sprintf("  to be cancelled: %d that nobody has met, %d with a handler that was told, the oldest since %s (countoff cancel %s lists them)",
		c.Waits, c.Runs, c.Since.UTC().Format(time.RFC3339), s.Name)}
}

// Drained says which peers are, since when and why.
func Drained(s status.Status) (lines []string) {
	const most = 8
	for i, d := range s.Drained {
		if i == most {
			return append(lines, fmt.Sprintf("  drained  %d more: countoff status %s --json", len(s.Drained)-most, s.Name))
		}
		line := fmt.Sprintf("  drained  %s, since %s", Column(d.Peer, 0, mostID), d.Since.UTC().Format(time.RFC3339))
		if d.Why != "" {
			line += fmt.Sprintf(" (%s)", d.Why)
		}
		if !d.Present {
			line += ", and does not take part"
		}
		lines = append(lines, fmt.Sprintf("%s: %s gives it its share back", line, Recall(s.Name, d.Peer)))
	}
	return lines
}

// plain is what no shell reads as anything else.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,][A-Za-z0-9_./:@%+=,-]*$`)

// Recall is the command that ends a drain, for a shell: an id may have spaces, quotes and the like.
func Recall(name, peer string) string {
	if plain.MatchString(name) && plain.MatchString(peer) {
		return "countoff recall " + name + " " + peer
	}
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	return "countoff recall -- " + quote(name) + " " + quote(peer)
}

// State is that of the peer, or that a live one is drained or unwell.
func State(p status.Peer) string {
	if p.Drained && p.State == status.Live {
		return "drained"
	}
	if p.Unwell && p.State == status.Live {
		return "unwell"
	}
	return p.State
}

// Barrier says who has arrived at a closed barrier, and who is waited for.
func Barrier(b status.Barrier) []string {
	head := fmt.Sprintf("  barrier: nobody works under roll %d before all have stopped", b.Roll)
	if b.ForMS >= 0 {
		head += fmt.Sprintf(", for %s now", Seconds(time.Duration(b.ForMS)*time.Millisecond))
	}
	const most = 8
	var ids []string
	for _, id := range b.Arrived[:min(most, len(b.Arrived))] {
		ids = append(ids, Column(id, 0, mostID))
	}
	arrived := cmp.Or(strings.Join(ids, ", "), "nobody")
	if n := len(b.Arrived) - most; n > 0 {
		arrived += fmt.Sprintf(" and %d more", n)
	}
	lines := []string{head, "    arrived   " + arrived}
	for i, p := range b.Behind {
		if i == most {
			lines = append(lines, fmt.Sprintf("    waits for %d more", len(b.Behind)-most))
			break
		}
		lines = append(lines, fmt.Sprintf("    waits for %s, at roll %d, lease %s", Column(p.Peer, 0, mostID), p.Roll, lease(time.Duration(p.LeaseMS)*time.Millisecond)))
	}
	return lines
}

// single is how many letters there are of one character.
const single = 26

// meet gives letters to peers that have none, and forgets those that are not there any more: one
// may watch for months.
func (m *Map) meet(peers []status.Peer) {
	there := map[partition.Session]int{}
	taken := map[int]bool{}
	for _, p := range peers {
		if n, ok := m.letters[p.Session]; ok {
			there[p.Session], taken[n] = n, true
		}
	}
	m.letters = there
	free := 0
	for _, p := range peers {
		if _, ok := there[p.Session]; ok {
			continue
		}
		n := m.given
		if n < single {
			m.given++
		} else {
			for taken[free] {
				free++
			}
			n = free
		}
		there[p.Session], taken[n] = n, true
	}
}

// letter returns the session's letter: A to Z, then AA, AB and so on.
func (m *Map) letter(s partition.Session) string {
	n, ok := m.letters[s]
	if !ok {
		return "?"
	}
	if n < single {
		return string(rune('A' + n))
	}
	n -= single
	return string(rune('A'+n/26%26)) + string(rune('A'+n%26))
}

// paint pads mark to the cell and colours it by its owner.
func (m *Map) paint(h status.Held, mark string, cell int) string {
	text := fmt.Sprintf("%-*s", cell, mark)
	if !m.Colour {
		return text
	}
	if hue := m.hue(h); hue >= 0 {
		return fmt.Sprintf("\x1b[%dm%s\x1b[0m", [Hues]int{32, 36, 33, 35, 34, 92, 96, 93, 95, 94}[hue], text)
	}
	return "\x1b[1;31m" + text + "\x1b[0m"
}

// mostUnowned is how many empty partitions of nobody are listed one by one. Before the first
// grace is over, and while no peer lives, it is all of them, and the map shows it.
const mostUnowned = 16

// Table lists partitions one a line, in a terminal without room for all columns with the sum of their
// tasks. Those that are owned and empty are left out unless all is set, and counted; so are those that
// are nobody's and empty, if there are many.
func (m *Map) Table(s status.Status, all bool) []string {
	wide, narrow := 32, false
	for _, p := range s.Partitions {
		wide = max(wide, columns(owner(p.Held)))
	}
	if m.Width > 0 {
		const besideOwner, leastBeside, least = 57, 32, 16
		if narrow = m.Width < besideOwner+least; narrow {
			wide = min(wide, max(8, m.Width-leastBeside))
		} else {
			wide = min(wide, m.Width-besideOwner)
		}
	}
	row := func(id, owner, state, pending, inFlight, delayed, tasks, dead string) string {
		if narrow {
			return fmt.Sprintf("  %5s  %s %-8s %7s %5s", id, Column(owner, wide, wide), state, tasks, dead)
		}
		return fmt.Sprintf("  %9s  %s %-8s %8s %9s %8s %6s", id, Column(owner, wide, wide), state, pending, inFlight, delayed, dead)
	}
	head, owns := "partition", "owner@epoch"
	if narrow {
		head, owns = "part.", "owner"
	}
	lines := []string{row(head, owns, "state", "pending", "in flight", "delayed", "tasks", "dead")}
	empty := map[string]int{}
	for _, p := range s.Partitions {
		if p.Pending+p.InFlight+p.Delayed+p.Dead == 0 && !p.Unknown {
			empty[p.State]++
		}
	}
	counts := func(state string) bool {
		return !all && (state == status.Owned || state == status.Unowned && empty[state] > mostUnowned && !s.TasksUnknown)
	}
	for _, p := range s.Partitions {
		if counts(p.State) && p.Pending+p.InFlight+p.Delayed+p.Dead == 0 && !p.Unknown {
			continue
		}
		if s.TasksUnknown || p.Unknown {
			lines = append(lines, row(p.ID.String(), owner(p.Held), p.State, "?", "?", "?", "?", "?"))
			continue
		}
		lines = append(lines, row(p.ID.String(), owner(p.Held), p.State,
			fmt.Sprint(p.Pending), fmt.Sprint(p.InFlight), fmt.Sprint(p.Delayed), fmt.Sprint(p.Pending+p.InFlight+p.Delayed), fmt.Sprint(p.Dead)))
	}
	for _, state := range []string{status.Owned, status.Unowned} {
		if n := empty[state]; n > 0 && counts(state) {
			more := " and empty"
			if s.TasksUnknown {
				more = ""
			}
			lines = append(lines, fmt.Sprintf("  %*s  %s %s%s (--all lists them)", len(head), "…", Plural(n, "partition"), state, more))
		}
	}
	return printable(lines)
}

// unitLines list who owns which units, where peers share such.
func unitLines(s status.Status, all bool) []string {
	const most = 8
	var lines []string
	for _, peer := range slices.Sorted(maps.Keys(s.Table)) {
		units, more := slices.Clone(s.Table[peer]), ""
		if n := len(units) - most; n > 0 && !all {
			units, more = units[:most], fmt.Sprintf("  and %d more (--all)", n)
		}
		for i := range units {
			if !all { // a URL may be as long as it likes
				units[i] = Column(units[i], 0, 63)
			}
		}
		who := peer
		if peer == status.Nobody {
			who = "nobody"
		}
		lines = append(lines, fmt.Sprintf("  %s %11s  %s%s", Column(who, 16, 63), Plural(len(s.Table[peer]), "unit"), strings.Join(units, "  "), more))
		lines[len(lines)-1] = Printable(lines[len(lines)-1])
	}
	if len(lines) > 0 {
		lines = append(lines, "")
	}
	return lines
}

// mostID is how many columns an id has where there is room: a pod's name as most are. Longer ones
// lose their middle: the whole stands in the JSON.
const mostID = 63

// owner is who has it and since when.
func owner(h status.Held) string {
	if h.Owner == "" {
		return "nobody"
	}
	return Printable(fmt.Sprintf("%s@%v", Column(h.Owner, 0, mostID), h.Epoch))
}

// Seconds prints a duration for people, to a tenth of a second.
func Seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// Plural is n of what, as in "1 peer" and "2 peers".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
