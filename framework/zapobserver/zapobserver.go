// Package zapobserver writes what happens to a consumer to a zap logger: what goes
// wrong as warnings and errors, what people want to follow as info, what each task
// does as debug. Payloads are never logged, and of a key, an id, a type or a unit that is very long
// only the beginning.
//
// An outage of the store is told by its first call that failed, again every ten seconds, and
// by its end: the calls between are debug, and so is each partition that is lost with the lease
// while nothing of it runs. Of a start that fails again and again, for one reason, it is the same.
// Where the tasks alone are out of reach, calls for hundreds of partitions fail: each kind of call is
// told once in ten seconds for each reason, with the partition whose call it was and how many have
// failed since.
package zapobserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"
	"unicode"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/transition"
)

// New returns an observer that writes to l; to nowhere if that is nil.
func New(l *zap.Logger) framework.Observer {
	l = cmp.Or(l, zap.NewNop()).WithOptions(zap.AddStacktrace(zapcore.DPanicLevel)) // that of who writes the line says nothing of what went wrong
	return &observer{log: l, silences: make(map[string]*silence), failures: make(map[call]*failures), configs: make(map[string]partition.Config)}
}

type observer struct {
	log *zap.Logger

	mu       sync.Mutex
	silences map[string]*silence // by consumer; none: the ledger has answered the last call
	failures map[call]*failures
	configs  map[string]partition.Config // by consumer
}

// Observe writes e.
func (o *observer) Observe(e framework.Event) {
	if !o.trip(e) && !o.consumer(e) && !o.tasks(e) && !o.grant(e) && !o.units(e) {
		o.log.DPanic("an event that the observer does not know", zap.Any("event", e))
	}
}

// ObserveHandled writes e.
func (o *observer) ObserveHandled(e framework.Handled) { o.handled(e) }

// trip writes what each round trip tells; it reports whether e is that. It is asked first, and its
// frame is small: a goroutine that lives for a trip need not grow its stack to the kilobytes
// of the others to say nothing.
func (o *observer) trip(e framework.Event) bool {
	switch e := e.(type) {
	case framework.Fetched:
		if o.debugs() {
			o.fetched(e)
		}
	case framework.Settled:
		if o.debugs() {
			o.settled(e)
		}
	default:
		return false
	}
	return true
}

func (o *observer) debugs() bool { return o.log.Core().Enabled(zapcore.DebugLevel) }

func (o *observer) fetched(e framework.Fetched) {
	o.at(zapcore.DebugLevel, "fetched", e.Where, zap.Int("tasks", e.Tasks), zap.Int("limit", e.Limit))
}

func (o *observer) settled(e framework.Settled) {
	o.at(zapcore.DebugLevel, "settled", e.Where, zap.Int("done", e.Done), zap.Int("retried", e.Retried),
		zap.Int("requeued", e.Requeued), zap.Int("dead", e.Dead), took(e.Took))
}

// consumer writes the events of a consumer; it reports whether e is one.
func (o *observer) consumer(e framework.Event) bool {
	switch e := e.(type) {
	case framework.Started:
		o.answered(e.Consumer)
		o.mu.Lock()
		o.configs[e.Consumer] = e.Config
		o.mu.Unlock()
		o.log.Info("peer started", name(e.Consumer), zap.String("peer", e.Peer), zap.String("session", string(e.Session)),
			zap.Int("partitions", e.Config.Total), zap.Strings("units", e.Config.Units), zap.Duration("takeover_bound", e.Takeover))
	case framework.StartFailed:
		level, s := o.unanswered(e.Consumer, withoutDigits(fmt.Sprint(e.Err)))
		fields := []zap.Field{name(e.Consumer), zap.Error(e.Err), again(e.Again), zap.Int("failed", s.calls)}
		o.log.Log(level, "not started yet", stack(fields, e.Err)...)
	case framework.Warned:
		o.log.Warn(e.Warning, name(e.Consumer))
	case framework.Stopping:
		o.log.Info("stopping", name(e.Consumer), zap.Duration("within", e.Within))
	case framework.Stopped:
		level := zapcore.InfoLevel
		if e.Err != nil {
			level = zapcore.ErrorLevel
		}
		o.log.Log(level, "stopped", stack([]zap.Field{name(e.Consumer), took(e.Took), zap.Error(e.Err)}, e.Err)...)
	case framework.Coordinated:
		o.coordinated(e)
	case framework.Miscounted:
		o.log.Warn("not counted", name(e.Consumer), zap.Uint64("interval", e.Interval), zap.Error(e.Err))
	case framework.Checked:
		if e.Err != nil {
			o.log.Warn("the health check fails", name(e.Consumer), zap.Error(e.Err))
		} else {
			o.log.Info("the health check passes", name(e.Consumer))
		}
	case framework.MajorityMissed:
		o.log.Error("no majority for epochs: nothing is gained", name(e.Consumer), zap.Error(e.Err))
	case framework.MajorityBack:
		o.log.Info("a majority for epochs again", name(e.Consumer))
	case framework.Limited:
		o.log.Info("tasks wait for the rate", name(e.Consumer), zap.Stringer("rate", e.Rate), zap.Float64("here_per_second", e.Share))
	case framework.Unlimited:
		o.log.Info("no task waits for the rate any more", name(e.Consumer))
	case framework.Uncovered:
		f := e.Finding
		o.log.Error("coverage: "+string(f.Kind), name(e.Consumer), zap.String("where", f.Where()),
			zap.String("what", f.Text), zap.Duration("for", f.For))
	case framework.Covered:
		o.log.Info("coverage restored: "+string(e.Kind), name(e.Consumer), took(e.Took))
	case framework.Relieved:
		o.log.Debug("coverage: another peer looks now", name(e.Consumer))
	default:
		return false
	}
	return true
}

// tasks writes the events of tasks; it reports whether e is one.
func (o *observer) tasks(e framework.Event) bool {
	switch e := e.(type) {
	case framework.FetchFailed:
		if errors.Is(e.Err, sources.ErrFenced) { // another has it, as Lost has said: as after every pause that outlasts the lease
			o.at(zapcore.WarnLevel, "fetch failed", e.Where, zap.Error(e.Err))
		} else {
			o.failed("fetch failed", e.Where, e.Err, e.Again)
		}
	case framework.Blocked:
		o.at(zapcore.WarnLevel, "fetching stopped: too many tasks wait for their key or their next try", e.Where,
			text("key", e.Key), zap.Int("waiting_for_key", e.Waiting), zap.Int("parked", e.Parked), zap.Int("held", e.Held))
	case framework.Unblocked:
		o.at(zapcore.InfoLevel, "fetching goes on", e.Where)
	case framework.Buried:
		id := text("first_id", e.ID)
		if e.ID == "" { // a line of an ingress list that is no task has none
			id = zap.Skip()
		}
		o.at(zapcore.ErrorLevel, "dead letters that no handler was given", framework.Where{Consumer: e.Consumer, Grant: e.Grant},
			zap.Int("tasks", e.Tasks), id, zap.Int64("first_position", e.Position), zap.String("first_reason", e.Reason))
	case framework.Cancelled:
		what := "cancelled: a dead letter without another run"
		if e.Runs {
			what = "cancelled: the context of its handler has ended"
		}
		o.at(zapcore.WarnLevel, what, e.Where, append(task(e.Task), zap.String("why", e.Why))...)
	case framework.JobTicked:
		level := zapcore.DebugLevel
		if e.Passed {
			level = zapcore.WarnLevel
		}
		o.at(level, "job ticked", e.Where, zap.String("job", e.Job), zap.Time("tick", e.Tick), zap.Duration("late", e.Late),
			zap.Int("fired", e.Fired), zap.Bool("missed_passed_over", e.Passed))
	case framework.JobsFailed:
		o.at(zapcore.WarnLevel, "jobs cannot be fired", e.Where, zap.Error(e.Err), again(e.Again))
	case framework.Handled:
		o.handled(e)
	case framework.SettleFailed:
		o.failed("settle failed", e.Where, e.Err, e.Again, zap.Int("tasks", e.Tasks))
	case framework.Halted:
		o.at(zapcore.WarnLevel, "nothing starts: the source does not answer for what ended", e.Where, zap.Duration("for", e.For))
	case framework.Resumed:
		o.at(zapcore.InfoLevel, "the source has answered: starts go on", e.Where, took(e.For))
	case framework.HandlerStuck:
		o.at(zapcore.ErrorLevel, "a handler ignores the end of its context", e.Where, append(task(e.Task), zap.Duration("for", e.For), zap.Error(e.Cause))...)
	default:
		return false
	}
	return true
}

// grant writes the events of a grant; it reports whether e is one.
func (o *observer) grant(e framework.Event) bool {
	switch e := e.(type) {
	case framework.Opened:
		o.at(zapcore.DebugLevel, "partition served", e.Where, took(e.Took))
	case framework.OpenFailed:
		o.failed("open failed", e.Where, e.Err, e.Again)
	case framework.Draining:
		o.at(zapcore.DebugLevel, "partition drains", e.Where, zap.Int("running", e.Running), zap.Duration("within", e.Within))
	case framework.DrainOverdue:
		o.at(zapcore.ErrorLevel, "drain overdue: handlers were cancelled", e.Where, zap.Int("running", e.Running), zap.Duration("after", e.After))
	case framework.CloseFailed:
		o.failed("close failed", e.Where, e.Err, e.Again)
	case framework.Drained:
		o.at(zapcore.DebugLevel, "partition drained", e.Where, took(e.Took), zap.Int("given_back", e.GivenBack))
	case framework.Lost:
		level := zapcore.WarnLevel
		if e.Running == 0 && (errors.Is(e.Cause, transition.ErrLapsed) || errors.Is(e.Cause, framework.ErrStopped)) {
			level = zapcore.DebugLevel // Lapsed has said how many there are, or Stopped says that it was hard
		}
		o.at(level, "partition lost", e.Where, zap.NamedError("cause", e.Cause), zap.Int("running", e.Running))
	case framework.Dropped:
		level := zapcore.InfoLevel
		if e.Tasks == 0 {
			level = zapcore.DebugLevel
		}
		o.at(level, "lost partition is quiet", e.Where, took(e.Took), zap.Int("tasks", e.Tasks))
	default:
		return false
	}
	return true
}

// units writes the events of units; it reports whether e is one.
func (o *observer) units(e framework.Event) bool {
	switch e := e.(type) {
	case framework.UnitStarted:
		o.at(zapcore.DebugLevel, "unit started", e.Where, text("unit", e.Unit))
	case framework.UnitEnded:
		level, message := zapcore.DebugLevel, "unit ended"
		if e.Cause == nil && e.Err != nil {
			level, message = zapcore.WarnLevel, "unit failed"
		}
		fields := []zap.Field{text("unit", e.Unit), took(e.Took), zap.NamedError("cause", e.Cause), zap.Error(e.Err), ifAgain(e.Again)}
		o.at(level, message, e.Where, stack(fields, e.Err)...)
	case framework.UnitsChanged:
		o.log.Info("the list of units changed", name(e.Consumer), zap.Int("units", e.Units), zap.Int("added", e.Added), zap.Int("removed", e.Removed))
	case framework.UnitsTroubled:
		o.log.Warn("units: what runs goes on", name(e.Consumer), zap.Error(e.Err))
	default:
		return false
	}
	return true
}

func (o *observer) handled(e framework.Handled) {
	if e.Outcome == sources.Done && !o.debugs() {
		return // the path of every task
	}
	fields := append(task(e.Task), took(e.Took))
	switch e.Outcome {
	case sources.Done:
		o.at(zapcore.DebugLevel, "task done", e.Where, fields...)
		return
	case sources.Dead:
		fields = append(fields, zap.Error(e.Err))
		o.at(zapcore.ErrorLevel, "task is a dead letter", e.Where, stack(fields, e.Err)...)
	case sources.Retry, sources.Requeue:
		fields = append(fields, zap.Error(e.Err), again(e.Delay))
		if !repeats(e) {
			fields = stack(fields, e.Err)
		}
		level, message := zapcore.WarnLevel, "task failed"
		if sources.Waits(e.Err) {
			level, message = zapcore.InfoLevel, "task runs again, as its handler asked"
		}
		o.at(level, message, e.Where, fields...)
	default:
		level := zapcore.WarnLevel
		if errors.Is(e.Err, framework.ErrHandedOver) {
			level = zapcore.InfoLevel // it was asked to
		}
		o.at(level, "task was interrupted and runs again at the next owner", e.Where, append(fields, zap.Error(e.Err))...)
	}
}

func (o *observer) at(level zapcore.Level, message string, w framework.Where, fields ...zap.Field) {
	if c := o.log.Check(level, message); c != nil {
		c.Write(append([]zap.Field{name(w.Consumer), zap.Stringer("grant", w.Grant), o.list(w)}, fields...)...)
	}
}

// A call is one of a kind, of any partition of a consumer, that failed for a reason.
type call struct{ consumer, kind, why string }

// mostReasons is how many reasons of a kind of call are told apart; those that come then are one.
const mostReasons = 16

// failures are calls that failed since that was told last.
type failures struct {
	calls int
	told  time.Time
}

// failed writes that a call failed: as an error if it is not tried again, since the partition is lost
// then, else as a warning, unless the same was told of this or another partition just now.
func (o *observer) failed(kind string, w framework.Where, err error, after time.Duration, fields ...zap.Field) {
	fields = stack(append(fields, zap.Error(err)), err)
	if after == 0 {
		o.at(zapcore.ErrorLevel, kind, w, fields...)
		return
	}
	level, calls := o.failing(call{w.Consumer, kind, withoutDigits(fmt.Sprint(err))})
	o.at(level, kind, w, append(fields, again(after), zap.Int("failed", calls))...)
}

// failing counts a call and returns the level at which it is told, and how many there were.
func (o *observer) failing(c call) (zapcore.Level, int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.failures[c] == nil {
		c = o.reason(c, now)
	}
	f := o.failures[c]
	if f == nil {
		f = &failures{}
		o.failures[c] = f
	}
	f.calls++
	calls := f.calls
	if now.Sub(f.told) < tellAgain {
		return zapcore.DebugLevel, calls
	}
	f.calls, f.told = 0, now
	return zapcore.WarnLevel, calls
}

// reason is c, or the one that stands for all others of its kind if there are many. What has not
// failed for long is forgotten. The caller holds mu.
func (o *observer) reason(c call, now time.Time) call {
	reasons := 0
	maps.DeleteFunc(o.failures, func(other call, f *failures) bool {
		over := now.Sub(f.told) >= 2*tellAgain
		if !over && other.consumer == c.consumer && other.kind == c.kind {
			reasons++
		}
		return over
	})
	if reasons >= mostReasons {
		c.why = ""
	}
	return c
}

// list names the ingress list of w, whose grant is of a number.
func (o *observer) list(w framework.Where) zap.Field {
	if !w.Grant.ID.IsUnit() {
		return zap.Skip()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if list := o.configs[w.Consumer].Unit(w.Grant.ID); list != "" {
		return zap.String("ingress", list)
	}
	return zap.Skip()
}

// Log returns a middleware that writes each run of a handler to l: done as debug,
// everything else as info, since the consumer's observer decides what is a
// warning. With a nil l it writes nothing.
func Log(l *zap.Logger) framework.Middleware {
	if l == nil {
		return framework.Log(nil)
	}
	return framework.Log(func(_ context.Context, t *framework.Task, d time.Duration, err error) {
		level := zapcore.DebugLevel
		if err != nil {
			level = zapcore.InfoLevel
		}
		if c := l.Check(level, "handled"); c != nil {
			c.Write(append(task(t), zap.Stringer("grant", t.Grant), took(d), zap.Error(err))...)
		}
	})
}

func task(t *framework.Task) []zap.Field {
	if t == nil {
		return nil
	}
	return []zap.Field{text("task", t.ID), text("type", t.Type), text("key", t.Key), zap.Int("attempt", t.Attempt)}
}

// mostText is how many characters are written of a text that whoever enqueues chooses, as the key of a task. A source
// may take megabytes.
const mostText = 256

// text is a field of such a text: of a longer one its beginning, and how long it is.
func text(field, s string) zap.Field {
	if len(s) > mostText {
		if cut := fmt.Sprintf("%.*s", mostText, s); len(cut) < len(s) {
			s = fmt.Sprintf("%s… (%d bytes)", cut, len(s))
		}
	}
	return zap.String(field, s)
}

// repeats reports whether the task failed as in its first try, whose line had the stack: kilobytes for
// each try of each task would hide the rest of the log. A source may keep the beginning of the error only.
func repeats(e framework.Handled) bool {
	return e.Err != nil && e.Task != nil && e.Task.Delivery != nil && e.Task.FirstError != "" && strings.HasPrefix(e.Err.Error(), e.Task.FirstError)
}

func stack(fields []zap.Field, err error) []zap.Field {
	if p, ok := errors.AsType[*framework.PanicError](err); ok {
		return append(fields, zap.ByteString("stack", p.Stack))
	}
	return fields
}

// withoutDigits is the text of an error without those that differ with each connection: its port.
func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, s)
}

func name(consumer string) zap.Field      { return zap.String("consumer", consumer) }
func took(d time.Duration) zap.Field      { return zap.Duration("took", d) }
func again(after time.Duration) zap.Field { return zap.Duration("again", after) }

// ifAgain is again of what may never be tried again.
func ifAgain(after time.Duration) zap.Field {
	if after == 0 {
		return zap.Skip()
	}
	return again(after)
}
