//go:build unix

package seat

import (
	"io"
	"os"
	"slices"
	"strings"
	"sync"
)

// A queue is lines for somebody who may not read: who puts one there does not wait for that.
type queue struct {
	mu     sync.Mutex
	wake   *sync.Cond
	lines  []string
	closed bool
}

func newQueue() *queue {
	q := &queue{}
	q.wake = sync.NewCond(&q.mu)
	return q
}

// put puts a line behind the others.
func (q *queue) put(text string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lines = append(q.lines, text)
	q.wake.Signal()
}

// instead puts o behind the others, and takes out what it makes needless: a peer gives such
// orders for as long as it lives, also to a guard that stands still.
func (q *queue) instead(o order) {
	q.mu.Lock()
	q.lines = slices.DeleteFunc(q.lines, func(text string) bool { return strings.HasPrefix(text, o.word+" ") })
	q.mu.Unlock()
	q.put(o.String())
}

// close ends write, once that does not wait for a reader.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Signal()
}

// write writes what is put into q, until that is closed or nobody listens any more.
func (q *queue) write(to *os.File) {
	for {
		q.mu.Lock()
		for len(q.lines) == 0 && !q.closed {
			q.wake.Wait()
		}
		lines, closed := q.lines, q.closed
		q.lines = nil
		q.mu.Unlock()
		if closed {
			return
		}
		if _, err := io.WriteString(to, strings.Join(lines, "\n")+"\n"); err != nil {
			return
		}
	}
}
