package kafkaprogress

import (
	"encoding/base64"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/progress"
)

var noon = time.UnixMilli(1_700_000_000_000)

// random is a table as an owner of a window might have it.
func random(r *rand.Rand, window, lifted, tries int) *table {
	t := newTable(r.Int64N(1 << 40))
	t.epoch = partition.Epoch(r.Int64N(1 << 40))
	t.token = partition.Token{Epoch: t.epoch, Session: "0123456789abcdef0123456789abcdef"}
	t.writes, t.gate, t.suspects, t.life = r.Int64N(1<<40), t.base+int64(window), t.base/2, strings.Repeat("f", 32)
	for x := t.base - 3*int64(lifted); x < t.base; x += 3 {
		t.lifted = append(t.lifted, x)
	}
	for x := t.base + 1; x < t.base+int64(window); x++ {
		if r.IntN(2) == 0 {
			t.finish(x, t.base)
		}
	}
	for x := t.lowest(); len(t.tries) < tries; x++ {
		if t.open(x) {
			n := 1 + r.IntN(5)
			t.tries[x] = tried{tries: n, waits: int(x) % 7 / 6 * n, crashes: r.IntN(20) / 19, due: noon.Add(time.Duration(r.IntN(60_000)) * time.Millisecond), why: "451 try again later"}
		}
	}
	return t
}

func TestMetadataRoundTrip(t *testing.T) {
	for n := range uint64(200) {
		r := rand.New(rand.NewPCG(n, 0))
		had := random(r, r.IntN(200), r.IntN(20), r.IntN(20))
		metadata, whole := had.encode(4096, noon)
		if !whole {
			t.Fatalf("seed %d: not whole", n)
		}
		got, err := decode(metadata, noon)
		if err != nil {
			t.Fatalf("seed %d: %v", n, err)
		}
		for x, was := range had.tries {
			if !was.due.After(noon) {
				was.due = time.Time{}
				had.tries[x] = was
			}
		}
		if !reflect.DeepEqual(got, had) {
			t.Fatalf("seed %d: wrote\n%+v\nread\n%+v", n, had, got)
		}
	}
}

// The default window fits whatever is done in it, also when every other task is, beside
// 120 tries or 450 tasks carried past the base.
func TestDefaultWindowFits(t *testing.T) {
	for _, c := range []struct{ tries, lifted int64 }{{120, 0}, {0, 450}} {
		had := newTable(1 << 40)
		had.epoch, had.life = 1<<40, strings.Repeat("f", 32)
		had.token = partition.Token{Epoch: had.epoch, Session: "0123456789abcdef0123456789abcdef"}
		for x := had.base + 1; x < had.base+2048; x += 2 {
			had.finish(x, had.base)
		}
		for n := range c.tries {
			had.tries[had.base+2*n] = tried{tries: 4, due: noon.Add(time.Minute), why: "451 try again later"}
		}
		for n := range c.lifted {
			had.lifted = append(had.lifted, had.base-100*(c.lifted-n))
		}
		if metadata, whole := had.encode(4096, noon); !whole {
			t.Errorf("%+v: %d characters are not enough", c, len(metadata))
		}
	}
}

// What does not fit is left out so that what is written stays true: nothing that is open
// is told to be done, and what is told lies above the lowest.
func TestMetadataThatDoesNotFit(t *testing.T) {
	for n := range uint64(200) {
		r := rand.New(rand.NewPCG(n, 1))
		had := random(r, 1+r.IntN(2000), r.IntN(2000), r.IntN(600))
		limit := leastMetadata + r.IntN(2000)
		metadata, whole := had.encode(limit, noon)
		if len(metadata) > limit {
			t.Fatalf("seed %d: %d characters, %d were allowed", n, len(metadata), limit)
		}
		if !whole && len(metadata) < limit-64 {
			t.Errorf("seed %d: it is not whole, and %d of %d characters", n, len(metadata), limit)
		}
		got, err := decode(metadata, noon)
		if err != nil {
			t.Fatalf("seed %d: %v", n, err)
		}
		if got.lowest() != had.lowest() {
			t.Fatalf("seed %d: the lowest is %d, written %d", n, had.lowest(), got.lowest())
		}
		lost := 0
		for x := had.lowest() - 5; x < had.base+2000; x++ {
			if had.open(x) && !got.open(x) {
				t.Fatalf("seed %d: %d is open, and not in what was written", n, x)
			}
			if !had.open(x) && got.open(x) {
				lost++
			}
		}
		if whole && lost > 0 {
			t.Errorf("seed %d: whole, and %d are done again", n, lost)
		}
		for x, was := range got.tries {
			if !got.open(x) || was.tries != had.tries[x].tries || was.crashes != had.tries[x].crashes {
				t.Errorf("seed %d: of %d it says %+v, want %+v", n, x, was, had.tries[x])
			}
		}
		if left := maps.Clone(had.tries); !whole && len(got.tries) < len(left) {
			for x, was := range left {
				_, told := got.tries[x]
				for y, other := range got.tries {
					if !told && x < got.base && was.crashes > 0 && other.crashes == 0 {
						t.Fatalf("seed %d: the tries of %d are told, and the crash of %d is not", n, y, x)
					}
				}
			}
		}
	}
}

func TestForeignMetadata(t *testing.T) {
	for _, metadata := range []string{"", "consumer-1-host", "count"} {
		if got, err := decode(metadata, noon); got != nil || err != nil {
			t.Errorf("%q: %v, %v, want that it is not ours", metadata, got, err)
		}
	}
	whole, _ := random(rand.New(rand.NewPCG(1, 1)), 10, 2, 2).encode(4096, noon)
	for n := len(mark); n < len(whole); n++ {
		if _, err := decode(whole[:n], noon); err == nil {
			t.Fatalf("%q is taken", whole[:n])
		}
	}
	negative := base64.RawStdEncoding.EncodeToString(binary.AppendVarint(binary.AppendVarint(nil, 1), -5))
	if _, err := decode(mark+version+"1:"+negative, noon); err == nil {
		t.Error("a text of a negative length is taken")
	}
	if _, err := decode(whole+"AAAA", noon); err == nil {
		t.Error("what has more behind it is taken")
	}
	_, body, _ := strings.Cut(whole[len(mark+version):], ":")
	for _, metadata := range []string{mark + version + "x:" + body, mark + version + "7:" + body + "!"} {
		if _, err := decode(metadata, noon); err == nil {
			t.Errorf("%q is taken", metadata)
		}
	}
	if _, err := decode("countoff:2:7:abc", noon); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("another version: %v", err)
	}
}

// A clock that is wrong makes a task wait no longer than it was told to wait, and does
// not make it wait again.
func TestDelaysOfAnotherClock(t *testing.T) {
	had := newTable(0)
	had.tries[0] = tried{tries: 1, due: noon.Add(time.Minute)}
	metadata, _ := had.encode(4096, noon)
	for _, c := range []struct{ ahead, left time.Duration }{
		{0, time.Minute}, {20 * time.Second, 40 * time.Second}, {time.Hour, 0}, {-time.Hour, time.Minute},
	} {
		now := noon.Add(c.ahead)
		got, err := decode(metadata, now)
		if err != nil {
			t.Fatal(err)
		}
		left := time.Duration(0)
		if at := got.found(now).Tried[0].NotBefore; !at.IsZero() {
			left = at.Sub(now)
		}
		if left != c.left {
			t.Errorf("a clock %v ahead: %v are left, want %v", c.ahead, left, c.left)
		}
	}
}

// A reset forgets what is known of positions that come again, and no more.
func TestReset(t *testing.T) {
	for _, c := range []struct {
		name   string
		base   int64
		life   string
		lifted int
		tries  int
		done   []span
	}{
		{"forward", 6, "one", 1, 2, []span{{6, 7}, {8, 9}}},
		{"nowhere", 3, "one", 1, 3, []span{{4, 5}, {6, 7}, {8, 9}}},
		{"back", 0, "one", 0, 0, nil},
		{"another life", 6, "two", 0, 0, nil},
	} {
		had := newTable(0)
		had.life = "one"
		had.settle(&progress.Request{Base: 3, Gate: 9, Alone: progress.None, Lift: []int64{1}, Done: []int64{4, 6, 8}, Others: []progress.Verdict{
			{Position: 1, Outcome: progress.Retry, Attempt: 1}, {Position: 3, Outcome: progress.Retry, Attempt: 1}, {Position: 7, Outcome: progress.Retry, Attempt: 1},
		}}, make([]progress.Content, 3), noon)
		writes := had.writes
		had.reset(c.base, c.life)
		if had.writes == writes {
			t.Errorf("%s: it is not counted", c.name)
		}
		if had.base != c.base || had.life != c.life || len(had.lifted) != c.lifted || len(had.tries) != c.tries || !reflect.DeepEqual(had.done, c.done) {
			t.Errorf("%s: %+v", c.name, had)
		}
	}
}

// A log whose life becomes known is the one that it was.
func TestALifeThatBecomesKnown(t *testing.T) {
	had := newTable(3)
	had.lifted, had.suspects, had.gate = []int64{1}, 9, 9
	had.reset(3, "one")
	if had.life != "one" || len(had.lifted) != 1 || had.suspects != 9 || had.gate != 9 {
		t.Errorf("%+v", had)
	}
}

// What was committed says of which life of the topic it is, whoever of us has committed it.
func TestLife(t *testing.T) {
	had := newTable(3)
	had.life = "one"
	ours, _ := had.encode(4096, noon)
	for metadata, life := range map[string]string{
		ours: "one", MirrorMark + "two": "two", "": "", "consumer-1-host": "", ours[:len(ours)-4]: "", mark + "9:1:abc": "",
	} {
		if got := Life(metadata); got != life {
			t.Errorf("%q is of %q, want %q", metadata, got, life)
		}
	}
}

// The text of an error that is cut is text all the same.
func TestErrorsAreCutBetweenCharacters(t *testing.T) {
	had := newTable(0)
	had.tries[0] = tried{tries: 1, why: strings.Repeat("x", 63) + strings.Repeat("é", 1000)}
	metadata, whole := had.encode(200, noon)
	got, err := decode(metadata, noon)
	if err != nil || !whole {
		t.Fatal(whole, err)
	}
	if why := got.tries[0].why; why != strings.Repeat("x", 63) {
		t.Errorf("kept %q", why)
	}
}
