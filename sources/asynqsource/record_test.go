package asynqsource

import (
	"fmt"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
)

// What becomes of a task is said in asynq's own words where it has said something that fits,
// else in ours.
func TestInWhoseWords(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	word := func(k kind, failed bool) *native {
		return &native{kind: k, script: new(script), args: []any{"id", []byte("asynq's"), int64(0), 0, failed}, attempt: 2}
	}
	unsaid := &native{kind: kindRetry, args: []any{"id", []byte("asynq's")}, attempt: 2}
	names := map[string]string{
		"": "-", "raw": "as it was", "asynq's": "asynq's", completed("raw", now): "completed",
		failed("raw", 2, "why", now): "failed", archived("raw", "why", now): "archived",
	}
	for _, c := range []struct {
		name string
		it   item
		o    sources.Outcome
		want string // native, message, quiet, keep, lock; what the message is now, and whether asynq's word is still known
	}{
		{"done", item{}, sources.Done, "false - false 0  as it was"},
		{"done and kept", item{retention: 60}, sources.Done, "false completed false 60  as it was"},
		{"done and unique", item{uniqueKey: "lock"}, sources.Done, "false - false 0 lock as it was"},
		{"done, asynq keeps it", item{retention: 60, native: word(kindComplete, true)}, sources.Done, "true - false 60  as it was, said"},
		{"done, asynq ends its lock", item{uniqueKey: "lock", native: word(kindDone, true)}, sources.Done, "true - false 0 lock as it was, said"},
		{"done, asynq says so", item{native: word(kindDone, true)}, sources.Done, "false - false 0  as it was, said"},
		{"done, asynq revokes it", item{retention: 60, native: word(kindDone, true)}, sources.Done, "false completed false 0  as it was, said"},
		{"done, asynq wanted it again", item{native: word(kindRetry, true)}, sources.Done, "false - false 0  as it was, said"},
		{"retried", item{}, sources.Retry, "false failed false 0  failed"},
		{"retried, asynq says so", item{native: word(kindRetry, true)}, sources.Retry, "false asynq's false 0  asynq's"},
		{"retried, asynq calls it no failure", item{native: word(kindRetry, false)}, sources.Retry, "false asynq's true 0  asynq's"},
		{"retried, asynq gives it back", item{native: word(kindRequeue, true)}, sources.Retry, "false as it was true 0  as it was"},
		{"retried, asynq was done", item{native: word(kindDone, true)}, sources.Retry, "false failed false 0  failed"},
		{"gives way", item{}, sources.Requeue, "false failed false 0  as it was"},
		{"gives way, asynq retries it", item{native: word(kindRetry, true)}, sources.Requeue, "true asynq's false 0  as it was, said"},
		{"gives way, asynq would have retried it", item{native: unsaid}, sources.Requeue, "false asynq's false 0  as it was, said"},
		{"gives way, asynq gives it back", item{native: word(kindRequeue, true)}, sources.Requeue, "false as it was true 0  as it was, said"},
		{"dead", item{}, sources.Dead, "false archived false 0  as it was"},
		{"dead, asynq says so", item{native: word(kindArchive, true)}, sources.Dead, "true archived false 0  as it was, said"},
		{"dead, asynq retries it", item{native: word(kindRetry, true)}, sources.Dead, "false archived false 0  as it was, said"},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, it := bare(), c.it
			it.raw = "raw"
			st.items[0] = &it
			st.Log.Add(0, 0)
			task := sources.Task{Delivery: &sources.Delivery{Attempt: 2}}
			s := sources.Settlement{Task: &task, Outcome: c.o, Attempt: 2, Delay: time.Minute, Reason: "why"}
			seq, err := st.Record(&s, now)
			if err != nil || seq != 1 {
				t.Fatal(seq, err)
			}
			said := st.content[seq]
			if c.o == sources.Done {
				said = it.end
			} else if c.o != sources.Dead && (said.delay != time.Minute || said.reason != "why") {
				t.Errorf("it waits %v because of %q", said.delay, said.reason)
			}
			got := fmt.Sprintln(said.native != nil, names[said.message], said.quiet, said.keep, said.lock, names[it.raw])
			if got = got[:len(got)-1]; it.native != nil {
				got += ", said"
			}
			if got != c.want {
				t.Errorf("it is said as %s, want %s", got, c.want)
			}
			// The same once more, in other words: what was said stands.
			raw, end, before := it.raw, it.end, st.content[seq]
			it.native = word(kindComplete, true)
			s.Reason = "another"
			if seq, err := st.Record(&s, now.Add(time.Hour)); err != nil || seq != 1 || it.raw != raw || it.end != end || st.content[1] != before || it.native == nil {
				t.Errorf("said again it is %d, %v: %+v, %+v of %q", seq, err, it.end, st.content[1], it.raw)
			}
		})
	}
}

// To asynq a run that waited is no failure: its message says what it said, and the day has none more. It is none either in
// the message of a failure that comes later.
func TestAWaitIsNoFailureToAsynq(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, o := range []sources.Outcome{sources.Retry, sources.Requeue} {
		st := bare()
		st.items[0] = &item{raw: "raw"}
		st.Log.Add(0, 0)
		record := func(o sources.Outcome, before, waits, attempt int) content {
			t.Helper()
			task := &sources.Task{Delivery: &sources.Delivery{Attempt: attempt - before, Waits: before}}
			seq, err := st.Record(&sources.Settlement{Task: task, Outcome: o, Attempt: attempt, Waits: waits, Reason: "why"}, now)
			if err != nil {
				t.Fatal(err)
			}
			return st.content[seq]
		}
		if o == sources.Requeue {
			record(sources.Retry, 0, 1, 1)
		}
		if c := record(o, 1, 2, 2); c.message != "raw" || c.tries(2) != "-2-2" {
			t.Errorf("%v: a wait is said as %q, runs %s, want the message as it was, and -2-2", o, c.message, c.tries(2))
		}
		if o == sources.Requeue {
			continue // it is another delivery now
		}
		if c := record(o, 2, 2, 3); c.message != failed("raw", 1, "why", now) || c.tries(3) != "3-2" {
			t.Errorf("a failure after two waits is said as %q, runs %s, want that of one failure, and 3-2", c.message, c.tries(3))
		}
	}
}

// What goes on elsewhere is neither kept where it was nor, if its lock goes with it, freed.
// A source that uses nothing but asynq's scripts lets asynq say that a task is done. What
// has ended is not settled again, and a retry says how often its task has run.
func TestInWhoseWordsElsewhere(t *testing.T) {
	record := func(st *stream, it item, s sources.Settlement) (content, error) {
		it.raw = "raw"
		st.items[0] = &it
		st.Log.Add(0, 0)
		s.Task = &sources.Task{Delivery: &sources.Delivery{}}
		_, err := st.Record(&s, time.Now())
		return it.end, err
	}
	done := sources.Settlement{Outcome: sources.Done, Attempt: 1}
	for _, keepLocks := range []bool{false, true} {
		st := bare()
		st.keepLocks = keepLocks
		st.Stream = logstream.New(st, partition.Grant{ID: partition.FirstUnit, Epoch: 5}, progress.New(progress.Config{}, progress.Opened{Gate: everything}), &st.source.permit)
		if end, err := record(st, item{retention: 60, uniqueKey: "lock"}, done); err != nil || end.keep != 0 || end.message != "" || (end.lock == "") != keepLocks {
			t.Errorf("locks go on: %v; it ends as %+v, %v", keepLocks, end, err)
		}
	}
	modest := bare()
	modest.source.modest.Store(true)
	if end, err := record(modest, item{native: &native{kind: kindDone, attempt: 1}}, done); err != nil || end.native == nil {
		t.Errorf("a modest source ends it as %+v, %v", end, err)
	}
	if _, err := record(bare(), item{}, sources.Settlement{Outcome: sources.Retry}); err == nil {
		t.Error("a retry of a task that has not run is taken")
	}
	if _, err := record(bare(), item{}, sources.Settlement{Attempt: 1}); err == nil {
		t.Error("a settlement without an outcome is taken")
	}
	if seq, err := bare().Record(&sources.Settlement{Task: &sources.Task{}, Outcome: sources.Dead}, time.Now()); seq != 0 || err != nil {
		t.Errorf("what has ended is settled as %d, %v", seq, err)
	}
}
