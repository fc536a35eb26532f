package transition

import (
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
