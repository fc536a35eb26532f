package kafkaprogress

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/progress"
)

// mark begins the metadata of ours; a version and the epoch follow, to be read by people.
const (
	mark    = "countoff:"
	version = "1:"
)

// MirrorMark begins the metadata of an offset that the mirror of progress in Redis has committed; the life
// of its topic follows, and nothing else is known.
const MirrorMark = "countoff-life:"

// Life returns the life of the topic that an offset was committed in, by its metadata: the mirror's, or ours.
// It is empty if the metadata does not say.
func Life(metadata string) string {
	if life, mirrored := strings.CutPrefix(metadata, MirrorMark); mirrored {
		return life
	}
	if t, err := decode(metadata, time.Now()); t != nil && err == nil {
		return t.life
	}
	return ""
}

// errorCuts are how much of a first error is kept, from what is best to what is left.
var errorCuts = [...]int{1024, 64, 0}

// encode writes t in at most limit characters, or reports that it is not whole: then what
// is written is true, but the next owner does some of it again. at is the present instant.
// The lowest position that is open in what is written is that of t.
//
// What does not fit goes in this order: the text of first errors; what was done out of
// order; how often tasks were tried, those that crashed last; at last, open tasks that the
// base had passed: the base goes back to the first of them.
func (t *table) encode(limit int, at time.Time) (metadata string, whole bool) {
	prefix := mark + version + t.epoch.String() + ":"
	room := base64.RawStdEncoding.DecodedLen(max(0, limit-len(prefix)))
	var body []byte
	for _, most := range errorCuts {
		if body = t.write(at, t.base, t.lifted, t.positions(), most, t.done); len(body) <= room {
			whole = true
			break
		}
	}
	if !whole {
		body = t.squeeze(at, room)
	}
	return prefix + base64.RawStdEncoding.EncodeToString(body), whole
}

// positions are those that were tried, who crashed first.
func (t *table) positions() []int64 {
	return slices.SortedFunc(maps.Keys(t.tries), func(a, b int64) int {
		return cmp.Or(-cmp.Compare(min(t.tries[a].crashes, 1), min(t.tries[b].crashes, 1)), cmp.Compare(a, b))
	})
}

// squeeze writes as much as room has place for.
func (t *table) squeeze(at time.Time, room int) []byte {
	most := func(n int, fits func(n int) bool) int {
		lo, hi := 0, n
		for lo < hi {
			if mid := (lo + hi + 1) / 2; fits(mid) {
				lo = mid
			} else {
				hi = mid - 1
			}
		}
		return lo
	}
	base, tried, done := t.base, t.positions(), t.done
	lifted := t.lifted[:most(len(t.lifted), func(n int) bool { return len(t.write(at, t.base, t.lifted[:n], nil, 0, nil)) <= room })]
	if len(lifted) < len(t.lifted) {
		// What is not told of is open from here on.
		base = t.lifted[len(lifted)]
	}
	tried = tried[:most(len(tried), func(n int) bool { return len(t.write(at, base, lifted, tried[:n], 0, nil)) <= room })]
	done = done[:most(len(done), func(n int) bool { return len(t.write(at, base, lifted, tried, 0, done[:n])) <= room })]
	return t.write(at, base, lifted, tried, 0, done)
}

// write is the layout: numbers are varints, positions the distance to the one before.
func (t *table) write(at time.Time, base int64, lifted, tried []int64, mostError int, done []span) []byte {
	b := make([]byte, 0, 256)
	number := func(n int64) { b = binary.AppendVarint(b, n) }
	text := func(s string) { number(int64(len(s))); b = append(b, s...) }
	number(int64(t.token.Epoch))
	text(string(t.token.Session))
	number(base)
	number(t.writes)
	number(t.gate)
	number(t.suspects)
	number(t.alone)
	text(t.life)
	number(at.UnixMilli())

	last := base
	next := func(x int64) { number(x - last); last = x }
	number(int64(len(lifted)))
	for _, x := range lifted {
		next(x)
	}
	number(int64(len(tried)))
	for _, x := range tried {
		was := t.tries[x]
		next(x)
		if was.waits > 0 { // few have them: a number below zero says that another follows
			number(int64(-was.tries))
			number(int64(was.waits))
		} else {
			number(int64(was.tries))
		}
		number(int64(was.crashes))
		number(max(0, was.due.Sub(at)).Milliseconds())
		if len(was.why) > mostError {
			was.why = strings.ToValidUTF8(was.why[:mostError], "") // not in the middle of a character
		}
		text(was.why)
	}
	last = base
	number(int64(len(done)))
	for _, s := range done {
		next(s.from)
		next(s.to)
	}
	return b
}

var errCut = errors.New("the metadata of the offset is cut off")

// decode reads what encode wrote. A metadata that is not ours is no error and no table.
// now is the present instant: of a delay that was written by another clock no more is left
// than there was.
func decode(metadata string, now time.Time) (*table, error) {
	rest, ours := strings.CutPrefix(metadata, mark)
	if !ours {
		return nil, nil //nolint:nilnil // nothing is known, and nothing is wrong
	}
	rest, ours = strings.CutPrefix(rest, version)
	if !ours {
		return nil, fmt.Errorf("the metadata of the offset, %.32q, is of another version of countoff", metadata)
	}
	epoch, coded, _ := strings.Cut(rest, ":")
	e, err := strconv.ParseUint(epoch, 10, 64)
	if err != nil {
		return nil, errCut
	}
	b, err := base64.RawStdEncoding.DecodeString(coded)
	if err != nil {
		return nil, errCut
	}
	r := reader{b: b}
	t := newTable(0)
	t.epoch = partition.Epoch(e)
	t.token = partition.Token{Epoch: partition.Epoch(r.number()), Session: partition.Session(r.text())}
	t.base, t.writes, t.gate, t.suspects, t.alone = r.number(), r.number(), r.number(), r.number(), r.number()
	t.life = r.text()
	at := time.UnixMilli(r.number())

	last := t.base
	next := func() int64 { last += r.number(); return last }
	for n := r.count(); n > 0; n-- {
		t.lifted = append(t.lifted, next())
	}
	for n := r.count(); n > 0; n-- {
		x := next()
		was := tried{tries: int(r.number())}
		if was.tries < 0 {
			was.tries, was.waits = -was.tries, int(r.number())
		}
		was.crashes = int(r.number())
		wait := time.Duration(r.number()) * time.Millisecond
		if left := min(at.Add(wait).Sub(now), wait); left > 0 {
			was.due = now.Add(left)
		}
		was.why = r.text()
		t.tries[x] = was
	}
	last = t.base
	for n := r.count(); n > 0; n-- {
		t.done = append(t.done, span{next(), next()})
	}
	if r.bad || len(r.b) > 0 || t.alone < progress.None {
		return nil, errCut
	}
	return t, nil
}

// A reader takes apart what write put together.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) number() int64 {
	n, size := binary.Varint(r.b)
	if size <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

// count is a number of things of a byte or more each.
func (r *reader) count() int64 {
	n := r.number()
	if n < 0 || n > int64(len(r.b)) {
		r.bad, r.b = true, nil
		return 0
	}
	return n
}

func (r *reader) text() string {
	n := r.count()
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}
