package logstream

import (
	"math/rand/v2"
	"time"
)

// What a round trip that fails leads to: it is repeated until it is answered, more and
// more slowly, and who waits for it is told the error when there is something a person
// must do, or when it has lasted.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
	// patience is how long nobody is told of a trouble that may pass by itself.
	patience = time.Second
)

// A Trouble is a row of round trips that failed. The zero value is none.
type Trouble struct {
	since time.Time // zero: none
	pause time.Duration
}

// Lasted returns how long it has lasted by now; 0 if there is none.
func (t *Trouble) Lasted(now time.Time) time.Duration {
	if t.since.IsZero() {
		return 0
	}
	return now.Sub(t.since)
}

// Next takes in a failure and returns how long to wait before the next attempt, and
// whether to tell who waits: at once if lasting says that it does not pass by itself.
func (t *Trouble) Next(now time.Time, lasting bool) (pause time.Duration, tell bool) {
	if t.since.IsZero() {
		t.since, t.pause = now, firstPause
	}
	pause = t.pause/2 + rand.N(t.pause)
	t.pause = min(2*t.pause, lastPause)
	return pause, lasting || now.Sub(t.since) >= patience
}
