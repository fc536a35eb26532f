package command

import (
	"fmt"
	"io"
	"time"

	"github.com/countoff/countoff/sources/redissource"
)

// A farther says now and then how far a command is.
type farther struct {
	out  io.Writer
	said time.Time
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
	if time.Since(f.said) < silent {
		return
	}
	f.said = time.Now()
	fmt.Fprintf(f.out, format+"\n", args...)
}

// meanwhile says now and then that something is still under way, until done is called. It is for a walk
// through all keys of a store, of which nobody knows how far it is.
func meanwhile(out io.Writer, what string) (done func()) {
	began, stop, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(silent)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				fmt.Fprintf(out, "%s, for %v so far\n", what, time.Since(began).Round(time.Second))
			}
		}
	}()
	return func() { close(stop); <-ended }
}
