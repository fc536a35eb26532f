package jobs

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/jobs/ticks"
)

// An Entry is one periodic task. All peers of a name are given the same ones.
type Entry struct {
	// Name names it within the task processing: letters, digits, '.', '_' and '-', at most
	// 64. What was fired is remembered under Name and Key.
	Name string
	// Spec is a cron expression of five fields (minute, hour, day of month, month, day of
	// week) or six, with the second before them; or @hourly, @daily, @weekly, @monthly,
	// @yearly; or @every and a duration of whole seconds, as in "@every 90s", which is
	// counted from 1970-01-01 00:00 UTC, so that all peers agree on it.
	Spec string
	// Zone is the time zone of Spec, as in "UTC" or "Europe/Berlin". It must be given, and
	// the system must know it (or the program import time/tzdata).
	Zone string
	// Missed says what becomes of ticks that nobody fired in time: Skip, Once or All. It
	// must be given.
	Missed Missed
	// Grace is how late a tick may be fired and is not missed, whatever Missed says: it
	// should be longer than a take-over. Default 1 min, at most 15 min.
	Grace time.Duration

	// The task. Type picks the handler; default Name. Key chooses the partition, and its
	// tasks run one at a time; default Name, so that the runs of an entry do not overlap.
	Type    string
	Key     string
	Payload []byte
	Headers map[string]string
}

// Missed is how many of the ticks that nobody fired in time are fired later: the newest so
// many, less those that are on time. Any number up to All may be given.
type Missed int

const (
	// Skip fires none of them.
	Skip Missed = -1
	// Once fires the newest of them, unless another tick is due at the same time.
	Once Missed = 1
	// All fires all of them, up to 1,000.
	All Missed = 1000
)

const (
	defaultGrace = time.Minute
	mostGrace    = 15 * time.Minute
)

// The headers of a fired task.
const (
	HeaderJob  = "countoff-job"  // the entry's name
	HeaderTick = "countoff-tick" // the instant, RFC 3339 in UTC
)

// Tick returns the entry and the instant that t was fired for.
func Tick(t *sources.Task) (entry string, at time.Time, ok bool) {
	if t.Delivery == nil {
		return "", time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339, t.Headers[HeaderTick])
	entry = t.Headers[HeaderJob]
	return entry, at, err == nil && entry != ""
}

// A Job is an entry that was checked, defaults filled in.
type Job struct {
	Entry
	schedule ticks.Schedule
}

// Compile checks entries and returns their jobs, or all that is wrong with them.
func Compile(entries ...Entry) ([]*Job, error) {
	all := make([]*Job, 0, len(entries))
	seen := make(map[string]bool, len(entries))
	var errs []error
	for _, e := range entries {
		j, faults := e.compile()
		if seen[e.Name] {
			faults = append(faults, errors.New("another job has the name"))
		}
		for _, fault := range faults { // one by one: who lists them puts more before each
			errs = append(errs, fmt.Errorf("job %q: %w", e.Name, fault))
		}
		seen[e.Name] = true
		all = append(all, j)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return all, nil
}

func (e Entry) compile() (*Job, []error) {
	var errs []error
	if err := partition.CheckName(e.Name); err != nil {
		errs = append(errs, err)
	}
	location, err := parseZone(e.Zone)
	if err != nil {
		errs = append(errs, err)
	}
	schedule, err := parseSpec(e.Spec, location)
	if err != nil {
		errs = append(errs, err)
	}
	if e.Missed != Skip && (e.Missed < Once || e.Missed > All) {
		errs = append(errs, fmt.Errorf("missed %d: say what becomes of missed ticks: Skip, Once, All or a number up to %d", e.Missed, All))
	}
	if e.Grace < 0 || e.Grace > mostGrace {
		errs = append(errs, fmt.Errorf("grace %v: want up to %v", e.Grace, mostGrace))
	}
	for h := range e.Headers {
		if h == HeaderJob || h == HeaderTick {
			errs = append(errs, fmt.Errorf("header %q is set by the tick", h))
		}
	}
	if e.Grace == 0 {
		e.Grace = defaultGrace
	}
	if e.Type == "" {
		e.Type = e.Name
	}
	if e.Key == "" {
		e.Key = e.Name
	}
	return &Job{Entry: e, schedule: schedule}, errs
}

// Next returns the first tick after t, in any location, the zero time if there is none.
func (j *Job) Next(t time.Time) time.Time { return j.schedule.Next(t) }

// Due decides at now what is to be done about the ticks after the instant after.
func (j *Job) Due(after, now time.Time) ticks.Plan {
	return ticks.Due(j.schedule, ticks.Policy{Grace: j.Grace, Missed: max(0, int(j.Missed))}, after, now)
}

// A Task is what is enqueued for one tick. It is the same whoever fires it.
type Task struct {
	ID      string // NAME@2026-03-01T03:00:00Z
	Headers map[string]string
	Born    time.Time // the tick
}

// Task returns the task of the tick at.
func (j *Job) Task(at time.Time) Task {
	at = at.UTC()
	text := at.Format(time.RFC3339)
	headers := maps.Clone(j.Headers)
	if headers == nil {
		headers = make(map[string]string, 2)
	}
	headers[HeaderJob], headers[HeaderTick] = j.Name, text
	return Task{ID: j.Name + "@" + text, Headers: headers, Born: at}
}
