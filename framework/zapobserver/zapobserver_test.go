package zapobserver_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/zapobserver"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/transition"
)

// A new type of event must be given a line; until then Observe panics in
// development, and so here.
func TestWritesEveryEventThereIs(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	o := zapobserver.New(zap.New(core, zap.Development()))
	var all []framework.Event
	for _, e := range framework.Events() {
		if _, ok := e.(framework.Coordinated); !ok {
			all = append(all, e)
		}
	}
	for _, e := range transition.Events() {
		all = append(all, framework.Coordinated{Event: e})
	}
	for _, e := range all {
		t.Run(fmt.Sprintf("%T", e), func(t *testing.T) {
			o.Observe(e)
			if got := lines.TakeAll(); len(got) != 1 {
				t.Errorf("wrote %d lines, want 1", len(got))
			}
		})
	}
}

// The grant of an ingress list has a number, which tells nobody which list it is.
func TestAnIngressListHasItsName(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	o := zapobserver.New(zap.New(core))
	o.Observe(framework.Started{Consumer: "mails", Config: partition.Config{Units: []string{"inbox", "outbox"}}})
	for id, want := range map[partition.ID]any{1: nil, partition.FirstUnit + 1: "outbox", partition.FirstUnit + 2: nil} {
		lines.TakeAll()
		o.Observe(framework.FetchFailed{Where: framework.Where{Consumer: "mails", Grant: partition.Grant{ID: id, Epoch: 1}}, Err: errors.New("WRONGTYPE")})
		if got := lines.All()[0].ContextMap()["ingress"]; got != want {
			t.Errorf("%v: the list is %v, want %v", id, got, want)
		}
	}
}

func TestLevels(t *testing.T) {
	task := &framework.Task{ID: "7", Key: "ann", Payload: []byte("secret"), Delivery: &framework.Delivery{Attempt: 1}}
	for _, c := range []struct {
		name  string
		event framework.Event
		want  zapcore.Level
	}{
		{"done", framework.Handled{Task: task, Outcome: sources.Done}, zapcore.DebugLevel},
		{"failed", framework.Handled{Task: task, Outcome: sources.Retry, Err: errors.New("451")}, zapcore.WarnLevel},
		{"failed, and says when to run again", framework.Handled{Task: task, Outcome: sources.Retry, Err: framework.RetryAfter(time.Hour, errors.New("451"))}, zapcore.WarnLevel},
		{"asks to run again", framework.Handled{Task: task, Outcome: sources.Retry, Err: fmt.Errorf("not there yet: %w", framework.RetryAfter(time.Hour, nil))}, zapcore.InfoLevel},
		{"asks to run again, and something failed", framework.Handled{Task: task, Outcome: sources.Retry, Err: errors.Join(framework.RetryAfter(time.Hour, nil), errors.New("451"))}, zapcore.WarnLevel},
		{"dead", framework.Handled{Task: task, Outcome: sources.Dead, Err: errors.New("550")}, zapcore.ErrorLevel},
		{"dead by itself", framework.Buried{Buried: sources.Buried{Tasks: 2, Reason: "no"}}, zapcore.ErrorLevel},
		{"cancelled", framework.Cancelled{Task: task, Why: "a test"}, zapcore.WarnLevel},
		{"cancelled while it runs", framework.Cancelled{Task: task, Runs: true}, zapcore.WarnLevel},
		{"interrupted", framework.Handled{Task: task, Err: context.Canceled}, zapcore.WarnLevel},
		{"left to the next owner", framework.Handled{Task: task, Err: fmt.Errorf("at row 7: %w", framework.ErrHandedOver)}, zapcore.InfoLevel},
		{"the store is away", framework.SettleFailed{Err: errors.New("refused"), Again: time.Second}, zapcore.WarnLevel},
		{"the partition is another's", framework.SettleFailed{Err: sources.ErrFenced}, zapcore.ErrorLevel},
		{"another fetches now", framework.FetchFailed{Err: &sources.Error{Op: "fetch", Err: sources.ErrFenced}}, zapcore.WarnLevel},
		{"the store forgot", framework.FetchFailed{Err: sources.ErrForgot}, zapcore.ErrorLevel},
		{"the source breaks its contract", framework.FetchFailed{Err: errors.New("bare")}, zapcore.ErrorLevel},
		{"the store is away from fetches", framework.FetchFailed{Err: errors.New("refused"), Again: time.Second}, zapcore.WarnLevel},
		{"the strategy breaks its contract", framework.Coordinated{Event: transition.StrategyFailed{Strategy: "own", What: "Assign panicked"}}, zapcore.ErrorLevel},
		{"stopped", framework.Stopped{}, zapcore.InfoLevel},
		{"ended", framework.Stopped{Err: errors.New("no")}, zapcore.ErrorLevel},
	} {
		t.Run(c.name, func(t *testing.T) {
			core, lines := observer.New(zapcore.DebugLevel)
			zapobserver.New(zap.New(core)).Observe(c.event)
			got := lines.TakeAll()
			if len(got) != 1 || got[0].Level != c.want {
				t.Fatalf("wrote %v, want one line of level %v", got, c.want)
			}
			if strings.Contains(fmt.Sprint(got[0].ContextMap()), "secret") {
				t.Error("the payload is in the log")
			}
		})
	}
}

// What whoever enqueues chooses may have megabytes. A line has the beginning of it, whole characters only.
func TestALongTextIsClipped(t *testing.T) {
	for what, c := range map[string]struct{ text, want string }{
		"as long as may be":   {strings.Repeat("é", 256), strings.Repeat("é", 256)},
		"a character longer":  {strings.Repeat("é", 257), strings.Repeat("é", 256) + "… (514 bytes)"},
		"a megabyte":          {strings.Repeat("k", 1<<20), strings.Repeat("k", 256) + "… (1048576 bytes)"},
		"of several lengths":  {"a" + strings.Repeat("世", 300), "a" + strings.Repeat("世", 255) + "… (901 bytes)"},
		"shorter than a line": {"ann", "ann"},
	} {
		task := &framework.Task{ID: c.text, Type: c.text, Key: c.text, Delivery: &framework.Delivery{Attempt: 1}}
		for event, fields := range map[framework.Event][]string{
			framework.Handled{Task: task, Outcome: sources.Dead}: {"task", "type", "key"},
			framework.Cancelled{Task: task}:                      {"task", "type", "key"},
			framework.HandlerStuck{Task: task}:                   {"task", "type", "key"},
			framework.Blocked{Key: c.text}:                       {"key"},
			framework.Buried{Buried: sources.Buried{ID: c.text}}: {"first_id"},
			framework.UnitStarted{Unit: c.text}:                  {"unit"},
			framework.UnitEnded{Unit: c.text}:                    {"unit"},
		} {
			core, lines := observer.New(zapcore.DebugLevel)
			zapobserver.New(zap.New(core)).Observe(event)
			for _, field := range fields {
				if got := lines.All()[0].ContextMap()[field]; got != c.want {
					t.Errorf("%s: %T: the %s is %.300q, want %.300q", what, event, field, got, c.want)
				}
			}
		}
	}
}

// Dead letters without an ID are not said to have an empty one.
func TestBuriedWithoutAnID(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	o := zapobserver.New(zap.New(core))
	for _, id := range []string{"", "7"} {
		o.Observe(framework.Buried{Buried: sources.Buried{Tasks: 1, ID: id, Reason: "no"}})
		if got, said := lines.TakeAll()[0].ContextMap()["first_id"]; said != (id != "") || said && got != id {
			t.Errorf("%q: wrote %v, %v", id, got, said)
		}
	}
}

// What is never tried again does not say that it is at once.
func TestNeverAgain(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	o := zapobserver.New(zap.New(core))
	for _, again := range []time.Duration{0, time.Second} {
		for _, e := range []framework.Event{
			framework.OpenFailed{Again: again}, framework.FetchFailed{Again: again}, framework.SettleFailed{Again: again}, framework.CloseFailed{Again: again},
			framework.UnitEnded{Again: again},
		} {
			o.Observe(e)
			if got, said := lines.TakeAll()[0].ContextMap()["again"]; said != (again > 0) {
				t.Errorf("%T after %v: it says %v", e, again, got)
			}
		}
	}
}

// An outage of a minute under which a peer loses all of its partitions is some lines, and not
// hundreds, and its end is told.
func TestAnOutageIsSomeLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zapcore.InfoLevel)
		o := zapobserver.New(zap.New(core))
		coordinated := func(e transition.Event) { o.Observe(framework.Coordinated{Consumer: "n", Event: e}) }
		coordinated(transition.Synced{})
		for i := range 120 {
			coordinated(transition.SyncFailed{Err: errors.New("connection refused")})
			if i == 8 {
				coordinated(transition.Lapsed{Grants: 256})
				for range 256 {
					o.Observe(framework.Lost{Cause: fmt.Errorf("lost: %w", transition.ErrLapsed)})
					o.Observe(framework.Dropped{})
				}
				o.Observe(framework.Lost{Cause: fmt.Errorf("lost: %w", transition.ErrLapsed), Running: 1})
				o.Observe(framework.Dropped{Tasks: 1})
			}
			time.Sleep(time.Second / 2)
		}
		coordinated(transition.Synced{})
		coordinated(transition.Synced{})
		var told []string
		for _, l := range lines.TakeAll() {
			told = append(told, l.Level.String()+" "+l.Message)
			if strings.HasPrefix(l.Message, "synced again") && (l.ContextMap()["failed"] != int64(120) || l.ContextMap()["after"] != time.Minute) {
				t.Errorf("the end says %v", l.ContextMap())
			}
		}
		counts := map[string]int{}
		for _, line := range told {
			counts[line]++
		}
		want := map[string]int{
			"warn sync failed": 6,
			"error the lease may have run out: everything in work is aborted": 1,
			"warn partition lost":                   1,
			"info lost partition is quiet":          1,
			"info synced again: the ledger answers": 1,
		}
		if !maps.Equal(counts, want) {
			t.Errorf("wrote %v, want %v", counts, want)
		}
		coordinated(transition.SyncFailed{})
		o.Observe(framework.Lost{Cause: transition.ErrTaken})
		if got := lines.FilterLevelExact(zapcore.WarnLevel).Len(); got != 2 {
			t.Errorf("another outage, and a partition that another has: %d warnings, want 2", got)
		}
	})
}

// A hard stop of a peer that runs nothing is one line, however many partitions it has; what still runs has its own.
func TestAHardStopIsOneLine(t *testing.T) {
	core, lines := observer.New(zapcore.WarnLevel)
	o := zapobserver.New(zap.New(core))
	hard := fmt.Errorf("%w hard", framework.ErrStopped)
	for range 256 {
		o.Observe(framework.Lost{Cause: framework.ErrStopped})
		o.Observe(framework.Dropped{})
	}
	o.Observe(framework.Lost{Cause: framework.ErrStopped, Running: 1})
	o.Observe(framework.Stopped{Err: hard})
	var told []string
	for _, l := range lines.All() {
		told = append(told, l.Message)
	}
	if want := []string{"partition lost", "stopped"}; !slices.Equal(told, want) {
		t.Errorf("it writes %d lines, want %q", len(told), want)
	}
}

// What fills a partition is not always one key: the line says how many wait for the key that it names, and how many for their next try.
func TestWhatFillsAPartition(t *testing.T) {
	t.Parallel()
	core, lines := observer.New(zapcore.WarnLevel)
	o := zapobserver.New(zap.New(core))
	o.Observe(framework.Blocked{Key: "ann", Waiting: 3, Parked: 8000, Held: 8192})
	line := lines.All()[0]
	fields := line.ContextMap()
	if strings.Contains(line.Message, "one key") || fields["key"] != "ann" || fields["waiting_for_key"] != int64(3) || fields["parked"] != int64(8000) || fields["held"] != int64(8192) {
		t.Errorf("it says %q, %v", line.Message, fields)
	}
}

// Why it does not start is told again every ten seconds, and another reason at once.
func TestAStartThatFailsIsSomeLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zapcore.WarnLevel)
		o := zapobserver.New(zap.New(core))
		fails := func(why string) {
			o.Observe(framework.StartFailed{Consumer: "n", Err: errors.New(why), Again: 2 * time.Second})
		}
		for port := range 30 {
			fails(fmt.Sprintf("read tcp 10.0.0.1:%d->10.0.0.2:6379: i/o timeout", 40000+port))
			time.Sleep(2 * time.Second)
		}
		if n := lines.Len(); n != 6 {
			t.Errorf("%d lines in a minute, want 6", n)
		}
		fails("a plain server is there")
		fails("a plain server is there")
		fails("connection refused")
		o.Observe(framework.Started{Consumer: "n"})
		fails("connection refused")
		if n := lines.Len(); n != 9 {
			t.Errorf("%d lines, want 9: another reason is told at once, and so is another start", n)
		}
	})
}

// Where the store of the tasks is away and the ledger answers, each of hundreds of partitions calls
// again and again: each kind of call is a line in ten seconds, and what is never tried again is told.
func TestTasksOutOfReachAreSomeLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zapcore.WarnLevel)
		o := zapobserver.New(zap.New(core))
		refused := errors.New("connection refused")
		for range 30 {
			for id := range partition.ID(256) {
				for _, consumer := range []string{"n", "m"} {
					w := framework.Where{Consumer: consumer, Grant: partition.Grant{ID: id, Epoch: 1}}
					for _, e := range []framework.Event{
						framework.OpenFailed{Where: w, Err: refused, Again: time.Second},
						framework.FetchFailed{Where: w, Err: refused, Again: time.Second},
						framework.SettleFailed{Where: w, Err: refused, Again: time.Second},
						framework.CloseFailed{Where: w, Err: refused, Again: time.Second},
					} {
						o.Observe(e)
					}
				}
			}
			time.Sleep(2 * time.Second)
		}
		told := lines.TakeAll()
		if len(told) != 6*2*4 {
			t.Errorf("%d lines in a minute, want 6 of each of four calls of two consumers", len(told))
		}
		if f := told[len(told)-1].ContextMap()["failed"]; f != int64(5*256) {
			t.Errorf("the last says that %v calls failed since the one before, want %d", f, 5*256)
		}
		o.Observe(framework.FetchFailed{Where: framework.Where{Consumer: "n"}, Err: sources.ErrForgot})
		if n := lines.Len(); n != 1 {
			t.Errorf("%d lines of what is never tried again, want 1", n)
		}
	})
}

// What fails in another way is told at once: two partitions that are each tried again every two seconds
// would keep their turn, and one of them would never be told.
func TestAnotherReasonIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zapcore.WarnLevel)
		o := zapobserver.New(zap.New(core))
		fails := func(id partition.ID, why string) {
			o.Observe(framework.OpenFailed{
				Where: framework.Where{Consumer: "n", Grant: partition.Grant{ID: id, Epoch: 1}}, Err: errors.New(why), Again: 2 * time.Second,
			})
		}
		for port := range 30 {
			fails(3, fmt.Sprintf("read tcp 10.0.0.1:%d->10.0.0.2:6379: i/o timeout", 40000+port))
			fails(4, fmt.Sprintf("read tcp 10.0.0.1:%d->10.0.0.2:6379: i/o timeout", 50000+port))
			time.Sleep(time.Second)
			fails(9, "WRONGTYPE Operation against a key holding the wrong kind of value")
			time.Sleep(time.Second)
		}
		told := map[string]int{}
		for _, l := range lines.All() {
			told[fmt.Sprint(l.ContextMap()["grant"], " failed ", l.ContextMap()["failed"])]++
		}
		want := map[string]int{"3@1 failed 1": 1, "3@1 failed 10": 5, "9@1 failed 1": 1, "9@1 failed 5": 5}
		if !maps.Equal(told, want) {
			t.Errorf("told are %v, want %v", told, want)
		}
	})
}

// Where each call fails with a text of its own there are still some lines, and what is over is forgotten.
func TestReasonsWithoutEndAreSomeLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zapcore.WarnLevel)
		o := zapobserver.New(zap.New(core))
		fails := func(i int) {
			why := strings.Repeat("x", i+1)
			o.Observe(framework.FetchFailed{Where: framework.Where{Consumer: "n"}, Err: errors.New(why), Again: time.Second})
		}
		for range 2 {
			for i := range 1000 {
				fails(i)
			}
			if n := len(lines.TakeAll()); n != 17 {
				t.Errorf("%d lines, want 16 and one for all others", n)
			}
			time.Sleep(time.Minute)
		}
	})
}

// An ingress list is granted like a partition, and is none: countoff status counts as much.
func TestAViewCountsPartitions(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	view := partition.View{Index: 1, Replicas: 3, Wish: []partition.ID{7, 8, partition.FirstUnit}}
	zapobserver.New(zap.New(core)).Observe(framework.Coordinated{Event: transition.RollSeen{View: view}})
	if got := lines.All()[0].ContextMap(); got["partitions"] != int64(2) || got["units"] != int64(1) {
		t.Errorf("%v", got)
	}
}

func TestAPanicIsWrittenWithItsStack(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	zapobserver.New(zap.New(core)).Observe(framework.Handled{
		Outcome: sources.Retry,
		Err:     fmt.Errorf("render: %w", &framework.PanicError{Value: "boom", Stack: []byte("goroutine 7")}),
	})
	if got := lines.All()[0].ContextMap()["stack"]; got != "goroutine 7" {
		t.Errorf("stack %v", got)
	}
}

// A call of a source that panics is said with its stack, once in ten seconds as each that fails, and
// so is a start, and an observer for which a consumer has ended.
func TestAPanicOfASourceIsWrittenWithItsStack(t *testing.T) {
	boom := &framework.PanicError{What: "the source's Fetch", Value: "boom", Stack: []byte("goroutine 7")}
	for _, e := range []framework.Event{
		framework.FetchFailed{Err: boom, Again: time.Second},
		framework.CloseFailed{Err: boom},
		framework.StartFailed{Err: boom, Again: time.Second},
		framework.Stopped{Err: boom},
	} {
		core, lines := observer.New(zapcore.WarnLevel)
		o := zapobserver.New(zap.New(core))
		o.Observe(e)
		o.Observe(framework.Warned{Warning: "the last"})
		if got := lines.All()[0].ContextMap()["stack"]; got != "goroutine 7" {
			t.Errorf("%T: stack %v", e, got)
		}
	}
}

// A task that panics as in its first try is a line without the stack, which that one had; what panics
// otherwise, or for the last time, has its own.
func TestAPanicThatComesAgainHasNoStack(t *testing.T) {
	boom := func(value string) error {
		return fmt.Errorf("render: %w", &framework.PanicError{Value: value, Stack: []byte("goroutine 7")})
	}
	first := boom("boom").Error()
	for what, c := range map[string]struct {
		outcome sources.Outcome
		attempt int
		first   string
		err     error
		stack   bool
	}{
		"the first try":          {sources.Retry, 1, "", boom("boom"), true},
		"the second":             {sources.Retry, 2, first, boom("boom"), false},
		"the last":               {sources.Dead, 3, first, boom("boom"), true},
		"another panic":          {sources.Retry, 2, first, boom("bang"), true},
		"the first was none":     {sources.Retry, 2, "550", boom("boom"), true},
		"the first is not known": {sources.Retry, 2, "", boom("boom"), true},
	} {
		task := &framework.Task{Delivery: &sources.Delivery{Attempt: c.attempt, FirstError: c.first}}
		core, lines := observer.New(zapcore.DebugLevel)
		zapobserver.New(zap.New(core)).Observe(framework.Handled{Outcome: c.outcome, Task: task, Err: c.err})
		got := lines.All()[0].ContextMap()
		if _, has := got["stack"]; has != c.stack || got["error"] != c.err.Error() {
			t.Errorf("%s: it writes %v, want the stack: %t", what, got, c.stack)
		}
	}
}

// A logger for production adds the stack of who writes an error: here always the observer's.
func TestAnErrorHasNoStackOfTheObserver(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	zapobserver.New(zap.New(core, zap.AddStacktrace(zapcore.ErrorLevel))).Observe(framework.Handled{Outcome: sources.Dead, Err: errors.New("550")})
	if got := lines.All()[0]; got.Level != zapcore.ErrorLevel || got.Stack != "" {
		t.Errorf("%v with the stack %q", got.Level, got.Stack)
	}
}

// A logger that is missing costs no task, as a panic after each run would.
func TestNoLogger(t *testing.T) {
	zapobserver.New(nil).Observe(framework.Started{})
	h := framework.HandlerFunc(func(context.Context, *framework.Task) error { return nil })
	if err := zapobserver.Log(nil)(h).Handle(t.Context(), &framework.Task{}); err != nil {
		t.Error(err)
	}
}

func TestLogWritesEachRun(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	h := framework.Chain(framework.HandlerFunc(func(_ context.Context, t *framework.Task) error {
		if t.ID == "bad" {
			return errors.New("no")
		}
		return nil
	}), zapobserver.Log(zap.New(core)))
	_ = h.Handle(t.Context(), &framework.Task{ID: "good", Delivery: &framework.Delivery{Attempt: 1}})
	_ = h.Handle(t.Context(), &framework.Task{ID: "bad", Delivery: &framework.Delivery{Attempt: 1}})
	got := lines.All()
	if len(got) != 2 || got[0].Level != zapcore.DebugLevel || got[1].Level != zapcore.InfoLevel {
		t.Errorf("wrote %v", got)
	}
}
