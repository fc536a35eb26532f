package asynqsource

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
)

// bare is a stream of epoch 5 that does nothing by itself.
func bare() *stream {
	src := &Source{}
	st := &stream{source: src, items: map[int64]*item{}, open: map[string]int64{}, content: map[uint64]content{}}
	st.Stream = logstream.New(st, partition.Grant{Epoch: 5}, progress.New(progress.Config{}, progress.Opened{Gate: everything}), &src.permit)
	return st
}

// answer is what a script has answered.
func answer(values ...any) *redis.Cmd {
	for i, v := range values {
		if n, ok := v.(int); ok {
			values[i] = int64(n)
		}
	}
	return redis.NewCmdResult(values, nil)
}

// A round trip that is not admitted says why: another has the queue, the store has lost what
// it had answered, or another stream of the same token was at work, behind which this one
// goes on.
func TestATripThatIsNotAdmitted(t *testing.T) {
	for _, c := range []struct {
		name        string
		head, taken *redis.Cmd
		over, err   error
		number      int64
	}{
		{"admitted", answer(1), nil, nil, nil, 7},
		{"a later epoch", answer(0, 6), nil, sources.ErrFenced, nil, 7},
		{"another session", answer(0, 5), nil, sources.ErrFenced, nil, 7},
		{"an earlier epoch", answer(0, 4), nil, sources.ErrForgot, nil, 7},
		{"no epoch", answer(0), nil, sources.ErrForgot, nil, 7},
		{"forgot", answer(2), nil, sources.ErrForgot, nil, 7},
		{"a later number", answer(3, 9), nil, nil, nil, 9},
		{"an earlier number", answer(3, 2), nil, nil, nil, 7},
		{"nothing", answer(), nil, nil, errReply, 7},
		{"less is active than was", answer(1), answer(2), sources.ErrForgot, nil, 7},
		{"a later trip takes", answer(1), answer(0), nil, nil, 7},
		{"half a task", answer(1), answer(1, -1, 0, "id"), nil, errReply, 7},
		{"nothing is said of tasks", answer(1), answer(), nil, errReply, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := bare()
			st.number = 7
			before := time.Now()
			err := st.apply(&trip{number: 7, head: c.head, taken: c.taken})
			if !errors.Is(err, c.err) || err != nil && c.err == nil {
				t.Errorf("it fails with %v, want %v", err, c.err)
			}
			if err := st.Settle(t.Context()); c.over == nil && err != nil || !errors.Is(err, c.over) || st.Lost() != (c.over != nil) {
				t.Errorf("the stream is over with %v, want %v", err, c.over)
			}
			if st.number != c.number {
				t.Errorf("the last number is %d, want %d", st.number, c.number)
			}
			admitted := c.head.Val() != nil && fmt.Sprint(c.head.Val()) == "[1]"
			if admitted != (st.seen == 7) || admitted == st.lease.Before(before.Add(leaseEvery)) {
				t.Errorf("the last number that was answered is %d, and leases are extended at %v", st.seen, st.lease)
			}
			if !st.look.IsZero() {
				t.Errorf("it looks again at %v", st.look)
			}
		})
	}
}

// When a queue is looked at again follows from what was found: at once if more is due, soon
// if it is paused or a backlog lies in it, and when the next task is due, if that is soon. A
// look that brings nothing forward does not put off the one that does.
func TestWhenToLookAgain(t *testing.T) {
	for _, c := range []struct {
		name    string
		taken   *redis.Cmd
		forward bool
		before  time.Duration // when it was to look again
		after   time.Duration
		atEnd   bool
		paused  bool
	}{
		{"nothing is due", answer(1, -1, 0), true, 0, lookEvery, true, false},
		{"something is due soon", answer(1, 3000, 0), true, 0, 3 * time.Second, true, false},
		{"something is due late", answer(1, 9000, 0), true, 0, lookEvery, true, false},
		{"more is due", answer(1, 9000, 2), true, 0, 0, true, false},
		{"a backlog", answer(1, -2, 0), true, 0, time.Second, false, false},
		{"paused", answer(1, 3000, 1), true, 0, pausedEvery, true, true},
		{"paused, and more is due", answer(1, 3000, 3), true, 0, 0, true, true},
		{"not brought forward, later", answer(1, 3000, 0), false, 2 * time.Second, 2 * time.Second, true, false},
		{"not brought forward, sooner", answer(1, 3000, 0), false, 4 * time.Second, 3 * time.Second, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := bare()
			began := time.Now()
			st.look = began.Add(c.before)
			if err := st.apply(&trip{head: answer(1), taken: c.taken, forward: c.forward}); err != nil {
				t.Fatal(err)
			}
			if wait := st.look.Sub(began); wait < c.after || st.look.After(time.Now().Add(c.after)) {
				t.Errorf("it looks again in %v, want %v", wait, c.after)
			}
			if st.atEnd != c.atEnd || st.paused != c.paused {
				t.Errorf("it is at the end: %v, and paused: %v", st.atEnd, st.paused)
			}
		})
	}
}

// In asynq's words a queue is at its end when fewer tasks came than were asked for: else it is asked at once.
func TestTheEndInAsynqsWords(t *testing.T) {
	for most, atEnd := range map[int]bool{1: false, 2: true} {
		st := bare()
		one := redis.NewCmdResult(string(appendText(nil, fieldID, "a")), nil)
		none := redis.NewCmdResult(nil, redis.Nil)
		r := &trip{head: answer(1), taken: answer(1, -2, 0), most: most, single: []*redis.Cmd{one, none}[:most], pasts: []string{""}}
		if err := st.apply(r); err != nil {
			t.Fatal(err)
		}
		if st.atEnd != atEnd || len(st.items) != 1 {
			t.Errorf("of %d tasks came %d, and it is at the end: %v", most, len(st.items), st.atEnd)
		}
	}
}

// A task that gives way is forgotten with its verdict, and is looked for when it comes back. What
// is retried stays.
func TestWhatGivesWayComesBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      progress.Outcome
		native *native
		delay  time.Duration
		look   time.Duration
		atEnd  bool
		open   bool
		more   bool // waited before
	}{
		{"at once", progress.Requeue, nil, 0, 0, false, false, false},
		{"soon", progress.Requeue, nil, time.Second, time.Second, true, false, false},
		{"soon, and others wait", progress.Requeue, nil, time.Second, time.Second, false, false, true},
		{"late", progress.Requeue, nil, time.Hour, time.Minute, true, false, false},
		{"in asynq's words", progress.Requeue, &native{}, time.Second, time.Second, true, false, false},
		{"retried", progress.Retry, nil, time.Second, time.Minute, true, true, false},
		{"dead", progress.Dead, nil, 0, time.Minute, true, false, false},
		{"done", progress.Done, nil, 0, time.Minute, true, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := bare()
			began := time.Now()
			st.look, st.atEnd = began.Add(time.Minute), !c.more
			st.Log.Add(0, 0)
			st.Log.Named(0)
			st.items[0], st.open["a"] = &item{id: "a", crashes: 1}, 0
			st.note(0, c.o, 2, content{delay: c.delay, reason: "why", native: c.native})
			r := &trip{head: answer(1)}
			st.Log.Compose(0, false, st.Log.Seq(), &r.request)
			for _, v := range r.request.Others {
				r.content = append(r.content, st.content[v.Seq])
			}
			if err := st.apply(r); err != nil {
				t.Fatal(err)
			}
			if _, open := st.open["a"]; open != c.open || open != (st.items[0] != nil) {
				t.Errorf("it is open: %v, want %v", open, c.open)
			}
			if wait := st.look.Sub(began); wait < c.look || st.look.After(time.Now().Add(c.look)) || st.atEnd != c.atEnd {
				t.Errorf("it looks again in %v, at the end: %v; want %v, %v", wait, st.atEnd, c.look, c.atEnd)
			}
		})
	}
}

// A verdict that is too large for a round trip travels in one of its own: else it, and all behind it, would
// wait for ever.
func TestAVerdictThatIsTooLargeTravelsAlone(t *testing.T) {
	st := bare()
	large := strings.Repeat("x", tripBytes+1)
	for pos := range int64(2) {
		st.Log.Add(pos, 0)
		st.Log.Named(pos)
		st.items[pos] = &item{}
		st.note(pos, progress.Dead, 1, content{message: large})
	}
	if got := st.upto(); st.Log.Seq() != 2 || got != 1 {
		t.Errorf("of %d verdicts %d go with the next trip, want the first alone", st.Log.Seq(), got)
	}
}
