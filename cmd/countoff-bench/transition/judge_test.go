package transition

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	line := func(peer string, p int32, offset int64, born, begun int) Begun {
		return Begun{Peer: peer, Partition: p, Offset: offset, Born: at(born), At: at(begun)}
	}
	keyed := func(key string, p int32, offset int64, begun int) Begun {
		l := line("a", p, offset, begun, begun)
		l.Key = key
		return l
	}
	lines := []Begun{
		// One moves: offset 1 was in flight, comes again, and waits from then on.
		line("a", 0, 0, 0, 1), line("a", 0, 1, 20, 21), line("b", 0, 1, 20, 521), line("b", 0, 2, 40, 522), line("b", 0, 3, 600, 601),
		// One stays, with a pause of 60 of which the record was there for 40.
		line("a", 1, 0, 0, 1), line("a", 1, 1, 120, 160), line("a", 1, 2, 140, 161),
		// Two keys side by side, and one behind itself.
		keyed("k", 2, 1, 30), keyed("l", 2, 0, 31), keyed("k", 2, 2, 33), keyed("k", 2, 3, 34), keyed("l", 2, 5, 35), keyed("l", 2, 4, 36),
		// Another event's business.
		line("a", 1, 3, 2000, 5000),
	}
	want := Verdict{Moved: 1, PauseMoved: 500 * time.Millisecond, PauseOther: 40 * time.Millisecond, Balanced: 501 * time.Millisecond, Again: 1, Behind: 1}
	if got := judge(lines, at(20), at(1000)); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if n := shares(lines); n["a"] != 2 || n["b"] != 1 {
		t.Errorf("shares %v", n)
	}
}

// A record that was begun by a peer that is killed, and not again by another, is lost as
// much as one that nobody has seen.
func TestLost(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	var log bytes.Buffer
	p := play{cfg: Config{Log: &log}, contestant: contestant{tag: "x"}, produced: make(map[place]time.Time), handled: make(map[place]bool)}
	for offset := range int64(60) { // one a second, in each of two partitions
		for id := range int32(2) {
			where := place{id, offset}
			p.produced[where] = at(int(offset))
			p.lines = append(p.lines, Begun{Peer: "a", Partition: id, Offset: offset, Born: at(int(offset)), At: at(int(offset))})
			p.handled[where] = true
		}
	}
	if n := p.open(); n != 0 {
		t.Errorf("%d records are open", n)
	}
	for _, offset := range []int64{3, 12, 25, 41, 42, 59} {
		delete(p.handled, place{1, offset})
	}
	p.lines = p.lines[:len(p.lines)-1] // of the last one not even that it was begun
	if n := p.open(); n != 6 {
		t.Errorf("%d records are open, want 6", n)
	}
	results := p.results([]mark{{"start", at(0)}, {"steady", at(10)}, {"join", at(20)}, {"leave", at(30)}, {"again", at(40)}, {"crash", at(50)}, {"end", at(55)}})
	want := map[string]int{"steady": 2, "join": 1, "leave": 2, "crash": 1} // with the start before, and with what came again
	for _, r := range results {
		if r.Lost != want[r.Event] {
			t.Errorf("%s: %d are lost, want %d", r.Event, r.Lost, want[r.Event])
		}
		delete(want, r.Event)
	}
	if len(want) != 0 {
		t.Errorf("nothing is said of %v", want)
	}
	if said := log.String(); strings.Count(said, "\n") != 5 ||
		!strings.Contains(said, `x: partition 1 lost 41-42, produced 21.000 to 22.000; begun by "aa", before by "a", behind by "a"`) ||
		!strings.Contains(said, `x: partition 1 lost 59-59, produced 39.000 to 39.000; begun by "", before by "a", behind by ""`) {
		t.Errorf("it is said of them\n%s", said)
	}
	// Of three rounds only one has lost something: no median may hide it.
	var out bytes.Buffer
	Write(&out, []Result{{Event: "join"}, {Event: "join", Verdict: Verdict{Lost: 2}}, {Event: "join"}})
	if !strings.Contains(out.String(), " | 2 |\n") {
		t.Error(out.String())
	}
}
