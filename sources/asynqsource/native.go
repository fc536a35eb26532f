package asynqsource

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/sources/asynqsource/internal/wire"
)

// A native is one of asynq's own scripts with asynq's own arguments: what it wanted to
// say of a task. The fence is put around it when it is sent.
type native struct {
	kind   kind
	script *script // nil: asynq said nothing, and this is the message that it would have written
	keys   []string
	args   []any
	// What it is said of, and what was said of the run before, where that is not recorded yet.
	attempt int
	former  *native
}

// is reports whether n is of this kind; a nil one is of none.
func (n *native) is(k kind) bool { return n != nil && n.kind == k }

// message is the task's message as asynq has changed it: the one argument that is
// encoded.
func (n *native) message() string {
	for _, a := range n.args {
		if b, ok := a.([]byte); ok {
			return string(b)
		}
	}
	return ""
}

// follows reports whether n may be said of a run that had the message raw. Of one whose handler has ended its
// goroutine asynq speaks when the time of the task is over: by then its retry may be under way, which has counted once more.
func (n *native) follows(raw string) bool {
	if !n.is(kindRetry) && !n.is(kindArchive) {
		return true
	}
	count := retriedOf(raw)
	if n.is(kindRetry) && n.failure() {
		count++
	}
	return retriedOf(n.message()) == count
}

// reason is the error in the task's message.
func (n *native) reason() (text string) {
	_ = wire.Fields(n.message(), func(field int, _ uint64, s string) error { // what cannot be read says nothing
		if field == fieldError {
			text = s
		}
		return nil
	})
	return text
}

// panicked is the error of a handler that panicked. The panic goes through to asynq, which
// alone says what it was and where it came from.
func (n *native) panicked() error {
	if n == nil {
		return errPanic
	}
	text := n.reason()
	if !strings.HasPrefix(text, "panic") { // said before it panicked, because its time was over
		return errPanic
	}
	return fmt.Errorf("%w: %s", errPanic, strings.TrimPrefix(text, "panic error cause by: "))
}

// restore puts the headers of raw back into the message. asynq before v0.26 does not know
// them and drops them from what it changes, and with them the key.
func (n *native) restore(raw string) {
	for i, a := range n.args {
		b, ok := a.([]byte)
		if !ok {
			continue
		}
		if kept := headersOf(raw); len(kept) > 0 && len(headersOf(string(b))) == 0 {
			n.args[i] = append(slices.Clip(b), kept...)
		}
		return
	}
}

// id is the task it settles.
func (n *native) id() string {
	if len(n.args) == 0 {
		return ""
	}
	id, ok := n.args[0].(string)
	if !ok {
		return ""
	}
	return id
}

// send sends a script of asynq under a token: as part of the round trip number, or of
// none (""). settles is the task that it ends, or "".
func (n *native) send(ctx context.Context, c redis.Scripter, k keys, token, number, settles string, source bool) *redis.Cmd {
	names := append(slices.Clip(n.keys), k.fence, k.tries, k.suspects)
	args := append(slices.Clip(n.args), token, number, settles, flag(n.kind == kindRetry))
	return n.script.send(ctx, c, names, args, source)
}

// failure reports whether a retry counts as a failure: Config.IsFailure of asynq may say
// that it does not.
func (n *native) failure() bool {
	if len(n.args) < 5 {
		return true
	}
	failed, ok := n.args[4].(bool)
	return !ok || failed
}

// after is how long a retry waits: asynq says when it is due, in whole seconds.
func (n *native) after(now time.Time) time.Duration {
	if len(n.args) < 3 {
		return 0
	}
	due, ok := n.args[2].(int64)
	if !ok {
		return 0
	}
	return max(0, time.Unix(due, 0).Sub(now))
}
