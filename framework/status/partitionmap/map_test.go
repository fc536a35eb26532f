package partitionmap

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition"
)

func sample() status.Status {
	s := status.Status{Name: "n", Roll: status.Roll{Version: 7, Replicas: 2}}
	s.Peers = []status.Peer{
		{ID: "ann", Session: "a", State: "live", Weight: 2, Partitions: 2, LeaseMS: 1900},
		{ID: "bob", Session: "b", Index: 1, State: "live", Weight: 1, Unwell: true, Tags: []string{"eu", "gpu"}},
	}
	for i, h := range []status.Held{
		{State: status.Owned, Owner: "ann", Epoch: 5, Session: "a"},
		{State: status.Moving, Owner: "ann", Epoch: 6, Session: "a"},
		{State: status.Opening, Owner: "bob", Epoch: 8, Session: "b"},
		{State: status.Unowned},
		{State: status.Double, Owner: "bob", Epoch: 9, Session: "b"},
		{State: status.Owned, Owner: "bob", Epoch: 10, Session: "b"},
	} {
		h.ID = partition.ID(i)
		s.Partitions = append(s.Partitions, status.Partition{Held: h})
	}
	s.Partitions[5].Pending = 3
	return s
}

func ExampleMap() {
	var m Map
	fmt.Println(strings.Join(m.Lines(sample()), "\n"))
	fmt.Println(strings.Join(new(Map).Table(sample(), false), "\n"))
	// Output:
	// n  roll 7  2 peers  6 partitions: 2 owned, 1 moving, 1 opening, 1 unowned, 1 double
	//
	//      0  Aa+.!B
	//
	//   A: served by A   a: A hands it over   +: granted, not yet served   .: nobody's   !: two owners
	//
	//   peer                     index  state    weight partitions    lease
	//   A ann                        0  live          2          2    1.9 s
	//   B bob                        1  unwell        1          0     over  has eu, gpu
	//
	//   pending 3   in flight 0   delayed 0   dead 0
	//   partition  owner@epoch                      state     pending in flight  delayed   dead
	//           1  ann@6                            moving          0         0        0      0
	//           2  bob@8                            opening         0         0        0      0
	//           3  nobody                           unowned         0         0        0      0
	//           4  bob@9                            double          0         0        0      0
	//           5  bob@10                           owned           3         0        0      0
	//           …  1 partition owned and empty (--all lists them)
}

// Where a name works a topic of Kafka nobody has counted its dead letters: they are on a topic too.
func ExampleMap_topic() {
	var m Map
	lines := m.Lines(status.Status{Name: "orders", Config: partition.Config{Total: 1, Hash: partition.Murmur2}})
	fmt.Println(lines[len(lines)-1])
	// Output:
	//   pending 0   in flight 0   delayed 0   dead: on a topic, see countoff dead list orders --kafka URL
}

// While a barrier is closed the map says who has arrived, and who is waited for.
func ExampleMap_barrier() {
	var m Map
	s := status.Status{Name: "n", Roll: status.Roll{Version: 9, Replicas: 3}, Barrier: &status.Barrier{
		Roll: 9, ForMS: 1300, Arrived: []string{"ann", "cid"}, Behind: []status.Behind{{Peer: "bob", Roll: 7, LeaseMS: 2100}},
	}}
	fmt.Println(strings.Join(m.Lines(s)[9:], "\n"))
	s.Barrier.ForMS, s.Barrier.Arrived = -1, nil
	for i := range 10 {
		s.Barrier.Behind = append(s.Barrier.Behind, status.Behind{Peer: fmt.Sprint("p", i), Roll: 8})
	}
	lines := m.Lines(s)
	fmt.Println(strings.Join(append(lines[9:12:12], lines[len(lines)-1]), "\n"))
	// Output:
	//   barrier: nobody works under roll 9 before all have stopped, for 1.3 s now
	//     arrived   ann, cid
	//     waits for bob, at roll 7, lease 2.1 s
	//   barrier: nobody works under roll 9 before all have stopped
	//     arrived   nobody
	//     waits for bob, at roll 7, lease 2.1 s
	//     waits for 3 more
}

// Before a first grace is over, and while no peer lives, all partitions are nobody's: the
// map shows it, and a line for each would push it away.
func TestManyOfNobodyAreCounted(t *testing.T) {
	var s status.Status
	for i := range mostUnowned + 1 {
		s.Partitions = append(s.Partitions, status.Partition{Held: status.Held{ID: partition.ID(i), State: status.Unowned}})
	}
	if lines := new(Map).Table(s, false); len(lines) != 2 || !strings.Contains(lines[1], "17 partitions unowned and empty") {
		t.Errorf("many: %q", lines)
	}
	if lines := new(Map).Table(s, true); len(lines) != 1+len(s.Partitions) {
		t.Errorf("all of them: %q", lines)
	}
	s.Partitions[3].Pending = 1
	if lines := new(Map).Table(s, false); len(lines) != 1+len(s.Partitions) {
		t.Errorf("16 that are empty, and one that is not: %q", lines)
	}
	s.Partitions = append(s.Partitions, s.Partitions[0])
	if lines := new(Map).Table(s, false); len(lines) != 3 || !strings.Contains(lines[1], " 3  nobody") || !strings.Contains(lines[2], "17 partitions unowned") {
		t.Errorf("17, and one with a task: %q", lines)
	}
	s.TasksUnknown = true
	if lines := new(Map).Table(s, false); len(lines) != 1+len(s.Partitions) {
		t.Errorf("what waits is not known: %q", lines)
	}
}

// What is not known is not said to be empty, and of a topic it is said where to look.
func TestWhatIsNotKnownIsNotEmpty(t *testing.T) {
	s := sample()
	s.TasksUnknown, s.Config.Hash = true, partition.Murmur2
	var m Map
	if text := strings.Join(append(m.Lines(s), new(Map).Table(s, false)...), "\n"); strings.Contains(text, "empty") || !strings.Contains(text, "kafka-consumer-groups") {
		t.Error(text)
	}
}

// Of a paused name nobody takes over anything.
func TestNobodyTakesOverUnderAPausedName(t *testing.T) {
	s := sample()
	s.TakeoverMS = 5100
	told := func() bool {
		var m Map
		return strings.Contains(strings.Join(m.Lines(s), "\n"), "a dead peer's partitions are another's within 5.1 s")
	}
	if !told() {
		t.Error("it is not told by when a dead peer's partitions are another's")
	}
	if s.Config.Paused.Why = "the database moves"; told() {
		t.Error("paused, it is told by when a dead peer's partitions are another's")
	}
}

// A partition that cannot be read is in the list, whatever the others hold, and in no sum.
func TestWhatCannotBeReadIsNotEmpty(t *testing.T) {
	s := sample()
	s.Partitions = []status.Partition{{Held: status.Held{ID: 3, Owner: "ann", Epoch: 7, State: status.Owned}, Unknown: true}}
	var m Map
	if text := strings.Join(append(m.Lines(s), new(Map).Table(s, false)...), "\n"); strings.Contains(text, "empty") || !strings.Contains(text, "without those that cannot be read") ||
		!strings.Contains(text, "ann@7") {
		t.Error(text)
	}
}

// What is wrong is seen on a screen that is too short for all peers.
func TestWhatIsWrongIsNotCutOff(t *testing.T) {
	s := sample()
	s.Findings = []status.Finding{{Kind: "unowned", Partitions: []partition.ID{3}, Text: "nobody takes part"}}
	var b strings.Builder
	screen := &Screen{out: &b, Width: 80, Height: 10}
	for range 20 {
		s.Peers = append(s.Peers, s.Peers[0])
	}
	var m Map
	screen.Draw(m.Lines(s))
	if !strings.Contains(b.String(), "WRONG  unowned") {
		t.Errorf("it shows\n%s", b.String())
	}
}

// In a narrow window a row is still a row, and who it is, how it is and what it owns stand in it.
func TestRowsFitTheWindow(t *testing.T) {
	t.Parallel()
	for _, width := range []int{40, 50, 60, 68, 69, 70, 71, 80, 200} {
		for _, peers := range []int{2, 40} {
			s := sample()
			for i := range peers - 2 {
				s.Peers = append(s.Peers, status.Peer{ID: fmt.Sprint("mail-sender-7d9f8b6c5-x2x4z-", i), Session: partition.Session(fmt.Sprint(i)), State: status.Expired, Partitions: 65536, LeaseMS: 30_000})
			}
			s.Peers[1].Tags = []string{"eu", strings.Repeat("gpu", 100)}
			m := Map{Width: width}
			m.meet(s.Peers)
			lines := m.peers(s)
			for i, l := range lines {
				if columns(l) >= width {
					t.Errorf("%d columns: a row of %d: %s", width, columns(l), l)
				}
				if i > 0 && (!strings.Contains(l, m.letter(s.Peers[i-1].Session)+" ") || !strings.Contains(l, State(s.Peers[i-1])) || !strings.Contains(l, fmt.Sprint(" ", s.Peers[i-1].Partitions))) {
					t.Errorf("%d columns: not all of %v stands in %s", width, s.Peers[i-1], l)
				}
			}
		}
	}
	s := sample()
	s.Partitions[5].Owner = "mail-sender-7d9f8b6c5-x2x4z"
	s.Partitions[5].Pending, s.Partitions[5].InFlight, s.Partitions[5].Delayed, s.Partitions[5].Dead = 1_000_000, 200_000, 30_000, 4000
	s.Partitions[4].Unknown = true
	for _, width := range []int{40, 50, 60, 72, 73, 80} {
		tasks := "1000000    200000    30000   4000"
		if width < 73 {
			tasks = "1230000  4000"
		}
		lines := (&Map{Width: width}).Table(s, true)
		for _, l := range lines {
			if columns(l) > width {
				t.Errorf("%d columns: a row of %d: %s", width, columns(l), l)
			}
		}
		if l := lines[6]; !strings.Contains(l, "mai") || !strings.Contains(l, s.Partitions[5].State) || !strings.HasSuffix(l, tasks) {
			t.Errorf("%d columns: not all stands in %s", width, l)
		}
		if head := lines[0]; strings.Index(head, "state") != strings.Index(lines[1], s.Partitions[0].State) || columns(head) != columns(lines[6]) {
			t.Errorf("%d columns: the head is %s", width, head)
		}
	}

}

// Of more peers than there is room for the last are counted, and what stands below them is seen.
func TestPeersBeyondTheWindowAreCounted(t *testing.T) {
	t.Parallel()
	s := sample()
	for i := range 40 {
		s.Peers = append(s.Peers, status.Peer{ID: fmt.Sprint("p", i), Session: partition.Session(fmt.Sprint(i)), State: status.Live})
	}
	for _, width := range []int{40, 80} {
		var b strings.Builder
		screen := &Screen{out: &b, Width: width, Height: 24}
		screen.Draw((&Map{Width: width, Height: screen.Height - 1}).Lines(s))
		if got := b.String(); !strings.Contains(got, "peers more (countoff status n)") || !strings.Contains(got, "pending 3") || strings.Contains(got, "taller") || strings.Count(got, "\n") != 23 {
			t.Errorf("%d columns: it shows\n%s", width, got)
		}
	}
	if got := strings.Join((&Map{Width: 80, Height: 100}).Lines(s), "\n"); strings.Contains(got, "more") {
		t.Errorf("there is room for all:\n%s", got)
	}
}

// What other programs call themselves moves no cursor and makes no line of its own.
func TestIDsAreNotObeyedByTheTerminal(t *testing.T) {
	const evil = "a\x1b[2J\n  WRONG\t\u009b31m\u202e\xff"
	s := sample()
	s.Peers[0].ID, s.Peers[0].Tags, s.Partitions[5].Owner = evil, []string{evil}, evil
	s.Units = []status.Unit{{Held: status.Held{Owner: evil}, Name: evil, Trouble: evil}}
	s.Findings = []status.Finding{{Kind: "refused", Text: evil}}
	s.Barrier = &status.Barrier{Arrived: []string{evil}, Behind: []status.Behind{{Peer: evil}}}
	var m Map
	for _, l := range append(m.Lines(s), new(Map).Table(s, true)...) {
		if i := strings.IndexFunc(l, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q", l)
		}
	}
	if l := m.Lines(s)[1]; l != "  WRONG  refused: a\ufffd[2J   WRONG \ufffd31m\ufffd\ufffd" {
		t.Errorf("%q", l)
	}
}

// A lease that is over has no seconds left.
func TestALeaseThatIsOver(t *testing.T) {
	s := sample()
	s.Peers[0].State, s.Peers[0].LeaseMS = status.Expired, -345_000
	s.Barrier = &status.Barrier{Roll: 9, ForMS: -1, Behind: []status.Behind{{Peer: "bob", Roll: 7, LeaseMS: -1}}}
	text := strings.Join((&Map{}).Lines(s), "\n")
	for _, want := range []string{"     over", "waits for bob, at roll 7, lease over"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
}

// One watches over many deploys: what has gone leaves its letter to others, so that a few peers never have two
// characters each, and no two peers one.
func TestLettersOfThoseWhoHaveGoneAreFree(t *testing.T) {
	var m Map
	s := sample()
	s.Peers = nil
	for i := range 1000 {
		s.Peers = append(s.Peers, status.Peer{ID: fmt.Sprint("p", i), Session: partition.Session(fmt.Sprint(i)), State: status.Live})
		s.Peers = s.Peers[max(0, len(s.Peers)-3):]
		m.Lines(s)
		if i == 24 && m.letter(s.Peers[2].Session) != "Y" {
			t.Errorf("a letter is another's before all were in use: %s", m.letter(s.Peers[2].Session))
		}
		seen := map[string]bool{}
		for _, p := range s.Peers {
			seen[m.letter(p.Session)] = true
			if len(m.letter(p.Session)) != 1 {
				t.Fatalf("peer %d of 3 is %s", i, m.letter(p.Session))
			}
		}
		if len(seen) != len(s.Peers) {
			t.Fatalf("with peer %d, %d letters for %d peers", i, len(seen), len(s.Peers))
		}
	}
	for i := range 40 {
		s.Peers = append(s.Peers, status.Peer{Session: partition.Session(fmt.Sprint("more", i))})
	}
	m.Lines(s)
	seen := map[string]bool{}
	for _, p := range s.Peers {
		seen[m.letter(p.Session)] = true
	}
	if len(seen) != 43 {
		t.Errorf("%d letters for 43 peers", len(seen))
	}
}

// A peer keeps its letter while others come and go.
func TestLettersStay(t *testing.T) {
	var m Map
	m.Lines(sample())
	s := sample()
	s.Peers = s.Peers[1:]
	if lines := strings.Join(m.Lines(s), "\n"); !strings.Contains(lines, "B bob") {
		t.Error(lines)
	}
}

func TestManyPeers(t *testing.T) {
	s := status.Status{Name: "n"}
	seen := map[string]bool{}
	m := Map{Width: 200}
	for i := range 100 {
		p := status.Peer{ID: fmt.Sprint("p", i), Session: partition.Session(fmt.Sprint(i))}
		s.Peers = append(s.Peers, p)
		s.Partitions = append(s.Partitions, status.Partition{Held: status.Held{ID: partition.ID(i), State: status.Owned, Session: p.Session}})
	}
	m.Lines(s)
	for _, p := range s.Peers {
		seen[m.letter(p.Session)] = true
	}
	if len(seen) != 100 {
		t.Errorf("%d letters for 100 peers", len(seen))
	}
	for _, l := range m.Lines(s) {
		if len(l) > 200 {
			t.Errorf("a line of %d columns: %s", len(l), l)
		}
	}
}

func TestColourRepeatsOnly(t *testing.T) {
	plain, colour := Map{}, Map{Colour: true}
	a, b := plain.Lines(sample()), colour.Lines(sample())
	if strings.Join(a, "") == strings.Join(b, "") {
		t.Error("no colour")
	}
	for i := range a {
		if got := strip(b[i]); got != a[i] {
			t.Errorf("with colour %q, without %q", got, a[i])
		}
	}
}

func strip(s string) string {
	for {
		at := strings.IndexByte(s, '\x1b')
		if at < 0 {
			return s
		}
		e := escape.FindString(s[at:])
		s = s[:at] + s[at+len(e):]
	}
}

// What is wrong is a sentence, and longer than a terminal is wide.
func TestScreenFoldsSentences(t *testing.T) {
	var b strings.Builder
	s := &Screen{out: &b, Width: 21, Height: 6}
	s.Draw([]string{"one", "  WRONG  refused: vm wants another list", "averyveryveryverylongword and on", "exactly twenty chars"})
	want := []string{"one", "  WRONG  refused: vm", "    wants another", "    list", "… 3 lines more: a ta"}
	if got := "\x1b[2K" + strings.Join(want, "\n\x1b[2K") + "\n\x1b[J"; b.String() != got {
		t.Errorf("got  %q\nwant %q", b.String(), got)
	}
	b.Reset()
	s.Draw([]string{"exactly twenty chars"})
	if got, want := b.String(), "\x1b[5A\x1b[2Kexactly twenty chars\n\x1b[J"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A window that is too low for all shows what happens, the counters and the peers: the letters are
// explained where there is room.
func TestALowWindowLeavesOutTheLegend(t *testing.T) {
	s := status.Status{Name: "n", Partitions: make([]status.Partition, 32)}
	for i := range 3 {
		s.Peers = append(s.Peers, status.Peer{ID: fmt.Sprint("peer-", i)})
	}
	for height, explains := range map[int]bool{16: false, 40: true} {
		var b strings.Builder
		screen := &Screen{out: &b, Width: 60, Height: height}
		screen.Draw(append((&Map{Width: 60, Height: height - 4}).Lines(s), "  counters", ""), "it began", "peer-1 is killed")
		got := b.String()
		for _, shown := range []string{"peer-0", "peer-2", "pending", "counters", "peer-1 is killed"} {
			if !strings.Contains(got, shown) {
				t.Errorf("of %d lines none shows %q: %q", height, shown, got)
			}
		}
		if strings.Contains(got, "served by A") != explains {
			t.Errorf("%d lines explain the letters: %t, want %t", height, !explains, explains)
		}
	}
	var b strings.Builder
	(&Screen{out: &b, Width: 60, Height: 4}).Draw([]string{"one", "two", "three", "four"}, "it began", "peer-1 is killed")
	if !strings.Contains(b.String(), "peer-1 is killed") {
		t.Errorf("a frame of four lines leaves no room for what happens: %q", b.String())
	}
}

// Of a story the newest is what happens now, and not what a window that is too short leaves out.
func TestScreenShowsTheNewestOfAStory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		height int
		want   []string
	}{
		{10, []string{"map", "first", "then one and", "  two", "last"}},
		{6, []string{"map", "first", "then one and", "  two", "last"}},
		{5, []string{"map", "then one and", "  two", "last"}},
		{4, []string{"map", "last"}},
		{2, []string{"map"}},
	} {
		var b strings.Builder
		(&Screen{out: &b, Width: 14, Height: c.height}).Draw([]string{"map"}, "first", "then one and two", "last")
		if want := "\x1b[2K" + strings.Join(c.want, "\n\x1b[2K") + "\n\x1b[J"; b.String() != want {
			t.Errorf("%d lines: it shows %q, want %q", c.height, b.String(), want)
		}
	}
}

// A window is made larger and smaller while one watches.
func TestScreenFollowsItsTerminal(t *testing.T) {
	var b strings.Builder
	width, height, fails := 21, 6, error(nil)
	s := &Screen{out: &b, Width: 21, Height: 6, size: func() (int, int, error) { return width, height, fails }}
	draws := func(want string) {
		t.Helper()
		b.Reset()
		s.Draw([]string{"one two \x1b[32mthree\x1b[0m", "four five six"})
		if b.String() != want {
			t.Errorf("%d columns, %d lines: it draws %q, want %q", width, height, b.String(), want)
		}
	}
	const both = "\x1b[2Kone two \x1b[32mthree\x1b[0m\x1b[0m\n\x1b[2Kfour five six\n\x1b[J"
	draws(both)
	width, height = 80, 24
	draws("\x1b[2A" + both)
	width = 14 // what stands there still fits in a line each
	draws("\x1b[2A\x1b[2Kone two \x1b[32mthree\x1b[0m\x1b[0m\n\x1b[2Kfour five six\n\x1b[J")
	width = 11 // it does not
	draws("\x1b[H\x1b[J\x1b[2Kone two \x1b[32mth\x1b[0m\n\x1b[2Kfour five\n\x1b[2K  six\n\x1b[J")
	height = 3
	draws("\x1b[3A\x1b[2Kone two \x1b[32mth\x1b[0m\n\x1b[2K… 2 lines \n\x1b[J")
	width, height = 0, 0 // it does not tell
	draws("\x1b[2A\x1b[2Kone two \x1b[32mth\x1b[0m\n\x1b[2K… 2 lines \n\x1b[J")
	width, height, fails = 80, 24, errors.New("no terminal")
	if s.Fit(); s.Width != 11 || s.Height != 3 {
		t.Errorf("it is %d by %d", s.Width, s.Height)
	}
	fails = nil
	if s.Fit(); s.Width != 80 || s.Height != 24 {
		t.Errorf("it is %d by %d", s.Width, s.Height)
	}
}

func TestScreen(t *testing.T) {
	var b strings.Builder
	s := &Screen{out: &b, Width: 10, Height: 4}
	s.Draw([]string{"one", "two", "\x1b[32mAAAAAAAAAAAAAAAAA\x1b[0m", "four", "five"})
	if got, want := b.String(), "\x1b[2Kone\n\x1b[2Ktwo\n\x1b[2K… 3 lines\n\x1b[J"; got != want {
		t.Errorf("first frame %q, want %q", got, want)
	}
	b.Reset()
	s.Draw([]string{"x"})
	if got, want := b.String(), "\x1b[3A\x1b[2Kx\n\x1b[J"; got != want {
		t.Errorf("second frame %q, want %q", got, want)
	}
	b.Reset()
	s.Keep()
	s.Draw([]string{"y"})
	if strings.Contains(b.String(), "A\x1b") {
		t.Errorf("after Keep: %q", b.String())
	}
}

// Ids that are too long keep what tells them apart.
func TestLongIDsDifferAtTheirEnds(t *testing.T) {
	for id, want := range map[string]string{
		"mail-sender-7d9f8b6c5-x2x4z":     "mail-sende…8b6c5-x2x4z",
		"a-host-of-ours.example#3f9a1c20": "a-host-of-…le#3f9a1c20",
		"ann":                             "ann",
	} {
		if got := clip(id, 22); got != want {
			t.Errorf("%q", got)
		}
	}
}

// Of a character that a terminal shows in two columns, no cell and no line has more than fit.
func TestWideCharactersCountTwice(t *testing.T) {
	for text, want := range map[string]int{"": 0, "ann": 3, "köln": 4, "ko\u0308ln": 4, "東京": 4, "ｆｕｌｌ": 8, "🚀x": 3, "…": 1} {
		if got := columns(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
	for _, c := range []struct {
		id          string
		least, most int
		want        string
	}{
		{"東京", 6, 10, "東京  "},
		{"東京特許許可局", 0, 10, "東京…可局"},
		{"a東京特許許可局b", 0, 10, "a東…可局b"},
		{"e\u0301e\u0301e\u0301e\u0301e\u0301", 0, 4, "e\u0301…e\u0301e\u0301"},
		{"a\tb\x1b", 5, 10, "a b\ufffd "},
	} {
		if got := Column(c.id, c.least, c.most); got != c.want || columns(got) > max(c.least, c.most) {
			t.Errorf("Column(%q, %d, %d) = %q, want %q", c.id, c.least, c.most, got, c.want)
		}
	}
	var b strings.Builder
	s := &Screen{out: &b, Width: 10, Height: 10}
	s.Draw([]string{"東京特許許可局 ok", "\x1b[32m東京特許許可局\x1b[0m"})
	if got, want := b.String(), "\x1b[2K東京特許\n\x1b[2K  許可局\n\x1b[2K  ok\n\x1b[2K\x1b[32m東京特許\x1b[0m\n\x1b[J"; got != want {
		t.Errorf("it shows %q, want %q", got, want)
	}
	s = &Screen{out: &b, Width: 2, Height: 99} // it has an end
	s.Draw([]string{"東京 x", "   東京"})
}

// Whatever peers call themselves, the table is one, and what follows an id stands under its head.
func TestLongAndWideIDsBreakNoTable(t *testing.T) {
	s := sample()
	s.Peers[0].ID, s.Peers[1].ID = strings.Repeat("x", 300), strings.Repeat("京", 100)
	for i := range s.Partitions {
		s.Partitions[i].Owner = s.Peers[i%2].ID
	}
	s.Units = []status.Unit{{Held: status.Held{Owner: s.Peers[0].ID, State: status.Owned}, Name: "n:inbox"}}
	s.Barrier = &status.Barrier{Arrived: []string{s.Peers[0].ID}, Behind: []status.Behind{{Peer: s.Peers[1].ID}}}
	var m Map
	for _, l := range append(m.Lines(s), new(Map).Table(s, true)...) {
		if columns(l) > 130 {
			t.Errorf("a line of %d columns: %s", columns(l), l)
		}
	}
	lines := m.peers(s)
	head := strings.Index(lines[0], "state")
	for _, l := range lines[1:3] {
		if at := columns(l[:max(0, strings.Index(l, s.Peers[0].State), strings.Index(l, "unwell"))]); at != head {
			t.Errorf("the state stands at %d, its head at %d: %s", at, head, l)
		}
	}
	lines = new(Map).Table(s, true)
	head = strings.Index(lines[0], "state")
	for i, l := range lines[1:] {
		if at := columns(l[:max(0, strings.Index(l, s.Partitions[i].State))]); at != head {
			t.Errorf("the state stands at %d, its head at %d: %s", at, head, l)
		}
	}
	if s.Partitions[1].Owner = "a pod of 36 columns 東京-7d9f8b6c5-x"; !strings.Contains(strings.Join(new(Map).Table(s, true), "\n"), s.Partitions[1].Owner) {
		t.Error("an id for which there is room is cut")
	}
}

// Who is drained is told, also if it is not there, and of many the first.
func TestDrained(t *testing.T) {
	t.Parallel()
	since := time.UnixMilli(1_790_000_000_000)
	s := status.Status{Name: "n", Drained: []status.Drained{{Peer: "ann", Since: since, Why: "its disk is slow", Present: true}, {Peer: "bob", Since: since}}}
	want := []string{
		"  drained  ann, since 2026-09-21T14:13:20Z (its disk is slow): countoff recall n ann gives it its share back",
		"  drained  bob, since 2026-09-21T14:13:20Z, and does not take part: countoff recall n bob gives it its share back",
	}
	if got := Drained(s); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for range 10 {
		s.Drained = append(s.Drained, s.Drained[1])
	}
	if got := Drained(s); len(got) != 9 || got[8] != "  drained  4 more: countoff status n --json" {
		t.Errorf("%q", got)
	}
	if got := State(status.Peer{State: status.Live, Drained: true, Unwell: true}) + State(status.Peer{State: status.Expired, Drained: true}); got != "drained"+status.Expired {
		t.Errorf("%q", got)
	}
}

// What is shown can be pasted: an id may have what a shell reads otherwise.
func TestRecallIsForAShell(t *testing.T) {
	t.Parallel()
	for peer, want := range map[string]string{
		"pod-3":      "countoff recall n pod-3",
		"ann's disk": `countoff recall -- 'n' 'ann'\''s disk'`,
		"$HOME":      "countoff recall -- 'n' '$HOME'",
		"-x":         "countoff recall -- 'n' '-x'",
	} {
		if got := Recall("n", peer); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// What is to be cancelled is told, and where all of it is listed.
func TestToCancel(t *testing.T) {
	t.Parallel()
	s := status.Status{Name: "n", ToCancel: &status.ToCancel{Waits: 2, Runs: 1, Since: time.Unix(1_800_000_000, 0)}}
	const want = "  to be cancelled: 2 that nobody has met, 1 with a handler that was told, the oldest since 2027-01-15T08:00:00Z (countoff cancel n lists them)"
	if got := new(Map).Lines(s); !slices.Contains(got, want) {
		t.Errorf("%q", got)
	}
	s.ToCancel = &status.ToCancel{Trouble: "{n}:cancel is no hash"}
	if got := new(Map).Lines(s); !slices.Contains(got, "  to be cancelled, WRONG: {n}:cancel is no hash") {
		t.Errorf("%q", got)
	}
	s.ToCancel = nil
	if got := strings.Join(new(Map).Lines(s), "\n"); strings.Contains(got, "to be cancelled") {
		t.Errorf("%q", got)
	}
}

// Units are as long as their programs like: eight of them are no page, and --all has them whole.
func TestLongUnitsLoseTheirMiddle(t *testing.T) {
	long := "https://example.com/" + strings.Repeat("x", 5000) + "/end"
	s := status.Status{Table: map[string][]string{"ann": {"a", long}, "_": {}}}
	if got := strings.Join(unitLines(s, false), "\n"); len(got) > 300 || !strings.Contains(got, "  a  https://example.com/xxxx") || !strings.Contains(got, "…") || !strings.Contains(got, "/end") {
		t.Error(got)
	}
	if got := strings.Join(unitLines(s, true), "\n"); !strings.Contains(got, "  a  "+long) {
		t.Error(got)
	}
}

// A map of more rows than a window has leaves room for the peers and for what waits, and a partition that nobody serves is
// seen in it wherever it stands.
func TestAMapThatIsHigherThanTheWindow(t *testing.T) {
	t.Parallel()
	for _, troubles := range []int{0, 1, 9000} {
		s := sample()
		s.Partitions = nil
		for i := range 10_000 {
			s.Partitions = append(s.Partitions, status.Partition{Held: status.Held{ID: partition.ID(i), State: status.Owned, Owner: "ann", Session: "a"}})
		}
		for i := range troubles {
			s.Partitions[9_999-i].State = status.Unowned
		}
		for _, height := range []int{12, 16, 24} {
			var b strings.Builder
			screen := &Screen{out: &b, Width: 80, Height: height}
			screen.Draw((&Map{Width: 80, Height: height - 1}).Lines(s))
			got := b.String()
			for _, want := range []string{"ann", "pending 0", "rows more"} {
				if !strings.Contains(got, want) {
					t.Errorf("%d lines, %d without an owner: no %q in\n%s", height, troubles, want, got)
				}
			}
			if strings.Contains(got, "taller") || troubles > 0 && !strings.Contains(got, "......") && !strings.Contains(got, "AAAAAAA.") || strings.Contains(got, "all served") != (troubles <= 1) {
				t.Errorf("%d lines, %d without an owner: it shows\n%s", height, troubles, got)
			}
		}
	}
}

// What stands for the rows and the peers that are left out has rows of its own, more than one in a narrow window, and moves
// nothing out of it.
func TestWhatIsLeftOutTakesRoom(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"n", strings.Repeat("n", 50)} {
		for _, partitions := range []int{65, 600} {
			for _, peers := range []int{0, 27} {
				s := status.Status{Name: name}
				for i := range peers {
					s.Peers = append(s.Peers, status.Peer{ID: fmt.Sprint("p", i), Session: partition.Session(fmt.Sprint("s", i)), State: status.Live})
				}
				for i := range partitions {
					s.Partitions = append(s.Partitions, status.Partition{Held: status.Held{ID: partition.ID(i), State: []string{status.Owned, status.Unowned}[i%2]}})
				}
				for _, width := range []int{41, 54, 80} {
					for height := 18; height < 30; height++ {
						m := &Map{Width: width, Height: height}
						lines := m.Lines(s)
						if n := m.rows(lines); n > height {
							t.Fatalf("%d rows in a window of %d by %d\n%s", n, width, height, strings.Join(lines, "\n"))
						}
					}
				}
			}
		}
	}
}

// That a store does not know who takes part is not that nobody does.
func TestWhoTakesPartElsewhere(t *testing.T) {
	t.Parallel()
	for elsewhere, want := range map[bool]string{true: "--ledger says where", false: "nobody takes part"} {
		s := status.Status{Name: "n", Partitions: make([]status.Partition, 8), LedgerElsewhere: elsewhere}
		if got := strings.Join(new(Map).Lines(s), "\n"); !strings.Contains(got, want) || elsewhere && strings.Contains(got, "nobody takes") {
			t.Errorf("it shows\n%s", got)
		}
	}
}
