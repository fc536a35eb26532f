package command

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/countoff/countoff/sources/redissource"
)

// A farther says now and then how far a command is.
type farther struct {
	out io.Writer

	mu    sync.Mutex
	said  time.Time
	moved time.Time // when it got farther
}

func newFarther(out io.Writer) *farther {
	return &farther{out: out, said: time.Now(), moved: time.Now()}
}

// silent is how long a command may be at work without a word.
const silent = 5 * time.Second

// tell is of a resize.
func (f *farther) tell(at redissource.Resized, waits bool) {
	because := ""
	if waits {
		because = "; a replica does not answer, and is waited for until its server gives it up (repl-timeout)"
	}
	f.say("%d tasks, %d delayed, %d dead so far%s", at.Tasks, at.Delayed, at.Dead, because)
}

// say says it if nothing was said for long.
func (f *farther) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moved = time.Now()
	f.aloud(format, args...)
}

// begin says at once what it begins to wait for.
func (f *farther) begin(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moved, f.said = time.Now(), time.Time{}
	f.aloud(format, args...)
}

func (f *farther) aloud(format string, args ...any) {
	if time.Since(f.said) < silent {
		return
	}
	f.said = time.Now()
	fmt.Fprintf(f.out, format+"\n", args...)
}

// watch says now and then that it gets no farther, as where the store stands still, until done is called.
func (f *farther) watch() (done func()) {
	return every(silent, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if stands := time.Since(f.moved); stands >= silent {
			f.aloud("no farther for %v now: it goes on when the store answers", stands.Round(time.Second))
		}
	})
}

// meanwhile says now and then that something is still under way, until done is called. It is for a walk
// through all keys of a store, of which nobody knows how far it is.
func meanwhile(out io.Writer, what string) (done func()) {
	began := time.Now()
	return every(silent, func() { fmt.Fprintf(out, "%s, for %v so far\n", what, time.Since(began).Round(time.Second)) })
}

// every calls do that often until done is called.
func every(often time.Duration, do func()) (done func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(often)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				do()
			}
		}
	}()
	return func() { close(stop); <-ended }
}
