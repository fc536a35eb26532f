package play

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
)

// A Line is one thing that a peer says it did. The peers of the demo write them on
// stdout, one a line.
type Line struct {
	At   time.Time       `json:"at"`
	What string          `json:"what"` // begin, end, opened, lost or refused
	Peer string          `json:"peer,omitempty"`
	ID   partition.ID    `json:"partition"`
	By   partition.Epoch `json:"epoch"`
	Order
	Why string `json:"why,omitempty"`
}

// What lines say.
const (
	Begin   = "begin"   // a handler was started
	End     = "end"     // a handler has done its work
	Opened  = "opened"  // the partition is worked on
	Lost    = "lost"    // the partition is the peer's no more
	Refused = "refused" // the store refused what it had to say of the partition
)

// A Journal writes lines. Its methods may be called concurrently.
type Journal struct {
	mu  sync.Mutex
	out io.Writer
}

// NewJournal returns a journal that writes to w.
func NewJournal(w io.Writer) *Journal { return &Journal{out: w} }

// Begin says that the order of t is begun.
func (j *Journal) Begin(t *framework.Task) { j.order(Begin, t) }

// End says that the order of t is done.
func (j *Journal) End(t *framework.Task) { j.order(End, t) }

func (j *Journal) order(what string, t *framework.Task) {
	l := Line{What: what, ID: t.Grant.ID, By: t.Grant.Epoch}
	if err := json.Unmarshal(t.Payload, &l.Order); err != nil {
		l.Why = err.Error()
	}
	j.write(l)
}

// Observe writes what a peer's events say of its partitions.
func (j *Journal) Observe(e framework.Event) {
	say := func(what string, w framework.Where, why error) {
		j.write(Line{What: what, ID: w.Grant.ID, By: w.Grant.Epoch, Why: fmt.Sprint(why)})
	}
	switch e := e.(type) {
	case framework.Opened:
		say(Opened, e.Where, nil)
	case framework.Lost:
		say(Lost, e.Where, e.Cause)
	case framework.SettleFailed:
		say(Refused, e.Where, e.Err)
	case framework.FetchFailed:
		say(Refused, e.Where, e.Err)
	}
}

// write writes a line at once: who is killed next has written what it did.
func (j *Journal) write(l Line) {
	l.At = time.Now()
	body, err := json.Marshal(l)
	if err != nil {
		return // cannot be: a line has nothing that does not marshal
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = j.out.Write(append(body, '\n')) // who reads it may be gone: the peer works on
}

// read reads the lines of peer until r ends.
func read(r io.Reader, peer string, each func(Line)) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var l Line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue // cut off by a kill
		}
		l.Peer = peer
		each(l)
	}
}
