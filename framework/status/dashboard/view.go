package dashboard

import (
	"cmp"
	"embed"
	"fmt"
	"html"
	"html/template"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/framework/status/past"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

//go:embed page.gohtml style.css live.js
var files embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"seconds":   func(ms int64) string { return partitionmap.Seconds(time.Duration(ms) * time.Millisecond) },
	"printable": partitionmap.Printable,
	"state":     partitionmap.State,
	"barrier":   partitionmap.Barrier,
	"drained":   partitionmap.Drained,
	"nobody":    partitionmap.Nobody,
	"tocancel":  partitionmap.ToCancel,
}).ParseFS(files, "page.gohtml"))

// A view is what there is to show of one look at a name. It does not change.
type view struct {
	name    string
	seen    bool // a look has succeeded
	status  status.Status
	history machine.History     // oldest first
	at      time.Time           // of the last look that succeeded
	err     error               // of this one
	took    time.Duration       // for this one, if it succeeded
	letters *partitionmap.Map   // not for those who only have the view: drawing a look changes them
	marks   []partitionmap.Mark // of the partitions

	pieces map[string]string // of the page: id -> its element, but for the map
	cells  []string          // of the map: the element of each partition
	row    string            // in the list of all names
	text   string            // for terminals
}

// next returns the view after v, which is nil before the first one. A look that failed leaves what was seen
// before it, and is told.
func (v *view) next(name string, s status.Status, history machine.History, err error, now time.Time) *view {
	n := view{name: name, letters: &partitionmap.Map{}}
	if v != nil {
		n = *v
	}
	n.err = err
	if err == nil {
		n.status, n.history, n.at, n.seen = s, history, now, true
		n.marks = n.letters.Marks(s)
		n.cells = cells(s.Partitions, n.marks, n.letters)
		n.text = strings.Join(n.letters.Whole(s, false), "\n") + "\n"
	}
	n.pieces = maps.Clone(n.pieces) // whoever has v may read it now
	if n.pieces == nil {
		n.pieces = map[string]string{}
	}
	for _, id := range changing {
		if err == nil || !n.seen || id == "wrong" || id == "title" {
			n.pieces[id] = drawn(id, &n)
		}
	}
	n.row = drawn("row", &n)
	return &n
}

// changing are the pieces of a page, by their ids and the names of their templates.
var changing = []string{"title", "headline", "wrong", "sums", "peers", "lists", "units", "busy", "history"}

// drawn is a template with v in it. One that cannot be drawn is a fault of this package, and says so in its
// place: a peer may be in the same process.
func drawn(piece string, v any) string {
	var b strings.Builder
	if err := pages.ExecuteTemplate(&b, piece, v); err != nil {
		return fmt.Sprintf(`<p id="%s" class="wrong">dashboard: %s</p>`, piece, html.EscapeString(err.Error()))
	}
	return b.String()
}

// since returns the elements to put into a page that shows old: ids and what is there now. All of
// them if old is nil.
func (v *view) since(old *view) (changes [][2]string) {
	if old == nil {
		old = &view{}
	}
	for _, id := range changing {
		if v.pieces[id] != old.pieces[id] {
			changes = append(changes, [2]string{id, v.pieces[id]})
		}
	}
	if len(v.cells) != len(old.cells) {
		return append(changes, [2]string{"map", string(v.Map())})
	}
	for i, cell := range v.cells {
		if cell != old.cells[i] {
			changes = append(changes, [2]string{fmt.Sprint("c", i), cell})
		}
	}
	return changes
}

// load is how high the bar of a partition is that holds so much: 0 for nothing, to 5.
func load(p status.Partition) int {
	return min((bits.Len(uint(max(p.Pending+p.InFlight+p.Delayed, 0)))+2)/3, 5)
}

// cells are the elements of a map.
func cells(partitions []status.Partition, marks []partitionmap.Mark, letters *partitionmap.Map) []string {
	all := make([]string, len(partitions))
	for i, p := range partitions {
		hue, peer := "", ""
		if m := marks[i]; m.Hue >= 0 {
			hue, peer = fmt.Sprint(" h", m.Hue), letters.Peer(p.Session).Text
		}
		owner := "nobody's"
		if p.Owner != "" {
			owner = fmt.Sprintf("%s@%v", p.Owner, p.Epoch)
		}
		title := fmt.Sprintf("partition %v: %s, %s; %d pending, %d in flight, %d delayed, %d dead",
			p.ID, owner, p.State, p.Pending, p.InFlight, p.Delayed, p.Dead)
		if p.Unknown {
			title = fmt.Sprintf("partition %v: %s, %s; what it holds cannot be read", p.ID, owner, p.State)
		}
		all[i] = fmt.Sprintf(`<i id="c%d" class="%s l%d%s" data-peer="%s" title="%s">%s</i>`,
			i, p.State, load(p), hue, peer, html.EscapeString(partitionmap.Printable(title)), html.EscapeString(marks[i].Text))
	}
	return all
}

// What templates ask for.

// Name is that of the task processing.
func (v *view) Name() string { return v.name }

// Status is that of the last look that succeeded.
func (v *view) Status() status.Status { return v.status }

// Seen reports whether there was one.
func (v *view) Seen() bool { return v.seen }

// Fault is why what is shown is not of now; empty: it is.
func (v *view) Fault() string {
	switch {
	case v.err == nil:
		return ""
	case !v.seen:
		return partitionmap.Printable(v.err.Error())
	}
	return partitionmap.Printable(fmt.Sprintf("what is shown is of %s UTC: %v", v.at.UTC().Format(time.TimeOnly), v.err))
}

// Troubles is how many things are wrong, or keep what is shown from being of now.
func (v *view) Troubles() int {
	n := len(v.status.Findings)
	if v.err != nil {
		n++
	}
	for _, u := range v.status.Units {
		if u.Trouble != "" {
			n++
		}
	}
	if c := v.status.ToCancel; c != nil && c.Trouble != "" {
		n++
	}
	return n
}

// Well reports whether there is nothing that anybody has to look at.
func (v *view) Well() bool {
	t, states := v.status.Totals(), v.States()
	return v.seen && v.Troubles() == 0 && t.Dead == 0 && !t.Unknown && states[status.Unowned] == 0
}

// Headline says in one line how it stands.
func (v *view) Headline() string {
	if !v.seen {
		return v.name
	}
	return partitionmap.Headline(v.status)
}

// Piece is one of the page.
func (v *view) Piece(id string) template.HTML { return template.HTML(v.pieces[id]) } //nolint:gosec // it was drawn by a template

// Map is the element of the map.
func (v *view) Map() template.HTML {
	var b strings.Builder
	class := "map"
	if len(v.cells) > 1024 {
		class += " dense"
	}
	fmt.Fprintf(&b, `<div id="map" class="%s" role="img" aria-label="who has which partition">`, class)
	for _, c := range v.cells {
		b.WriteString(c)
	}
	b.WriteString("</div>")
	return template.HTML(b.String()) //nolint:gosec // cells escapes what others have written
}

// Strip is a small map, for the list of names: of many partitions the first.
func (v *view) Strip() []partitionmap.Mark {
	const most = 256
	return v.marks[:min(len(v.marks), most)]
}

// Peer is the mark of one.
func (v *view) Peer(p status.Peer) partitionmap.Mark { return v.letters.Peer(p.Session) }

// Present is how many peers take part.
func (v *view) Present() (n int) {
	for _, p := range v.status.Peers {
		if p.Present() {
			n++
		}
	}
	return n
}

// Most is how many partitions the peer has that has most: the measure of the others, of which there may be hundreds.
func (v *view) Most() (n int) {
	for _, p := range v.status.Peers {
		n = max(n, p.Partitions)
	}
	return n
}

// Tagged reports whether a peer has tags.
func (v *view) Tagged() bool {
	return slices.ContainsFunc(v.status.Peers, func(p status.Peer) bool { return len(p.Tags) > 0 })
}

// Scheduled reports whether tasks wait for their time in what is routed into the partitions.
func (v *view) Scheduled() bool {
	return slices.ContainsFunc(v.status.Units, func(u status.Unit) bool { return u.Delayed > 0 })
}

// States counts partitions by their state.
func (v *view) States() map[string]int {
	count := map[string]int{}
	for _, p := range v.status.Partitions {
		count[p.State]++
	}
	return count
}

// Unknown is why it is not known what partitions hold; empty: it is.
func (v *view) Unknown() string {
	if !v.status.TasksUnknown {
		return ""
	}
	return partitionmap.WhyUnknown(v.status.Config.Hash)
}

// DeadElsewhere reports whether dead letters may be on a topic.
func (v *view) DeadElsewhere() bool { return partitionmap.DeadElsewhere(v.status) }

// mostBusy is how many partitions are listed, and mostUnits how many units of a peer.
const (
	mostBusy  = 32
	mostUnits = 16
)

// A share is a part of a list, and how much more there is.
type share[T any] struct {
	Shown []T
	More  int
}

func first[T any](all []T, most int) share[T] {
	return share[T]{Shown: all[:min(len(all), most)], More: max(len(all)-most, 0)}
}

// Busy are the partitions that are in trouble, cannot be read or hold something: those in trouble first, each kind by how much it
// holds. Trouble of many leaves half of the room to the others, of which the fullest may be what is looked for.
func (v *view) Busy() share[status.Partition] {
	holds := func(p status.Partition) int { return p.Pending + p.InFlight + p.Delayed + p.Dead }
	var trouble, busy []status.Partition
	for _, p := range v.status.Partitions {
		switch {
		case p.State == status.Unowned || p.State == status.Double || p.Unknown:
			trouble = append(trouble, p)
		case holds(p) > 0:
			busy = append(busy, p)
		}
	}
	fullest := func(a, b status.Partition) int { return cmp.Compare(holds(b), holds(a)) }
	slices.SortStableFunc(trouble, fullest)
	slices.SortStableFunc(busy, fullest)
	room := max(mostBusy/2, mostBusy-len(busy))
	listed := first(trouble, room)
	rest := first(busy, mostBusy-len(listed.Shown))
	return share[status.Partition]{Shown: slices.Concat(listed.Shown, rest.Shown), More: listed.More + rest.More}
}

// A holder is a peer and the work units that it has.
type holder struct {
	Peer  string
	Count int
	Units share[string]
}

// Table is who has which work units.
func (v *view) Table() (rows []holder) {
	for _, peer := range slices.Sorted(maps.Keys(v.status.Table)) {
		units := v.status.Table[peer]
		if peer == redisledger.Nobody {
			peer = "nobody"
		}
		rows = append(rows, holder{Peer: peer, Count: len(units), Units: first(units, mostUnits)})
	}
	return rows
}

// Past are the last changes, newest first.
func (v *view) Past() (lines []string) {
	for _, e := range slices.Backward(v.history) {
		lines = append(lines, partitionmap.Printable(past.Line(e, v.status.Config)))
	}
	return lines
}
