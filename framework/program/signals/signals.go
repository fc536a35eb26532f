// Package signals turns SIGINT, SIGTERM and a closed terminal into the end of a context, for
// programs in which a second signal says more than the first.
package signals

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Together is within what time of a signal another one is the same. coreutils' timeout
// signals its child and then the child's whole group, a terminal signals the group and npm
// passes it on to its child: who is stopped once is signalled twice, within milliseconds.
// A person who presses Ctrl-C again takes longer.
const Together = 200 * time.Millisecond

// Listen returns the signals that come until ctx ends, SIGINT, SIGTERM and more. What nobody takes is kept, n of them.
func Listen(ctx context.Context, n int, more ...os.Signal) <-chan os.Signal {
	all := make(chan os.Signal, n)
	signal.Notify(all, append(more, os.Interrupt, syscall.SIGTERM)...)
	context.AfterFunc(ctx, func() { signal.Stop(all) })
	return apart(ctx, all)
}

// Hangup is SIGHUP, which comes when the terminal is closed, but not for a program that nohup started. A
// service may have a use of its own for it.
func Hangup() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return nil
	}
	return []os.Signal{syscall.SIGHUP}
}

// Context returns one that ends with the first signal, of which [Hangup] is one, or with parent. Another
// signal ends the process at once then, unless somebody else listens. stop frees what it holds.
func Context(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(parent, append(Hangup(), os.Interrupt, syscall.SIGTERM)...)
	context.AfterFunc(ctx, func() { time.AfterFunc(Together, stop) })
	return ctx, stop
}

// apart passes on what comes from in, but not what comes within Together of the signal
// before, until ctx ends.
func apart(ctx context.Context, in <-chan os.Signal) <-chan os.Signal {
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
