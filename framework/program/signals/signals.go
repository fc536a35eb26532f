// Package signals is for programs in which a second signal says more than the first.
package signals

import (
	"context"
	"os"
	"time"
)

// Together is within what time of a signal another one is the same. coreutils' timeout
// signals its child and then the child's whole group, a terminal signals the group and npm
// passes it on to its child: who is stopped once is signalled twice, within milliseconds.
// A person who presses Ctrl-C again takes longer.
const Together = 200 * time.Millisecond

// Apart passes on what comes from in, but not what comes within [Together] of the signal
// before, until ctx ends. What nobody takes is kept, as many as in keeps.
func Apart(ctx context.Context, in <-chan os.Signal) <-chan os.Signal {
	out := make(chan os.Signal, cap(in))
	go func() {
		var last time.Time
		for {
			select {
			case s := <-in:
				now := time.Now()
				if !last.IsZero() && now.Sub(last) < Together {
					continue
				}
				last = now
				select {
				case out <- s:
				default:
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
