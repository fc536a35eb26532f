package logstream

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

var (
	errNo      = errors.New("no")
	errLasting = fmt.Errorf("%w, and it lasts", errNo)
)

// A memory is a store with one log, and the driver of its stream. It admits whatever is
// said, unless it is to fail.
type memory struct {
	*Stream
	permit  Permit
	request progress.Request
	trouble error
	due     time.Time
	beside  []sources.Task
	more    int           // elements behind what was read
	takes   time.Duration // of a trip
	fail    error
	said    []string
	trips   int
	lifted  int
	asked   int         // calls of Compose
	tended  int         // calls of Tend
	began   []time.Time // trips
}

func start(more int) *memory {
	m := open(more, progress.New(progress.Config{}, progress.Opened{}))
	m.Start()
	return m
}

func open(more int, log *progress.Log) *memory {
	m := &memory{more: more}
	m.Stream = New(m, partition.Grant{Epoch: 1}, log, &m.permit)
	return m
}

// suspect is a log with one task, which may have ended the owner before.
func suspect() *progress.Log {
	log := progress.New(progress.Config{}, progress.Opened{Suspects: 1, Gate: 1})
	log.Add(0, 0)
	return log
}

func (m *memory) Trouble() error { return m.trouble }

func (m *memory) Beside(time.Time, int) ([]sources.Task, time.Time) { return m.beside, m.due }

func (m *memory) Record(d *sources.Settlement, _ time.Time) (uint64, error) {
	if d.Outcome != sources.Done {
		return 0, errNo
	}
	return m.Log.Settle(int64(d.Task.Receipt), progress.Done, d.Attempt), nil
}

func (m *memory) Compose(now time.Time) bool {
	m.asked++
	limit, read := m.Wants(now, m.more > 0 || m.Fresh())
	if limit == 0 && m.Log.Seq() == m.Log.Answered() {
		return false
	}
	m.Log.Compose(limit, read, m.Log.Seq(), &m.request)
	return true
}

func (m *memory) Tend(context.Context) time.Duration {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	m.tended++
	return 0
}

func (m *memory) Trip(context.Context) error {
	m.Mu.Lock()
	m.began = append(m.began, time.Now())
	takes := m.takes
	m.Mu.Unlock()
	time.Sleep(takes)
	m.Mu.Lock()
	defer m.Mu.Unlock()
	m.trips++
	if m.fail != nil {
		return m.fail
	}
	r := &m.request
	m.lifted += len(r.Lift)
	m.said = append(m.said, fmt.Sprintf("read %d of %d, base %d", r.Fetch, r.Read, r.Base))
	gate := max(r.Gate, m.Log.Read()+int64(min(r.Fetch, m.more)))
	m.Log.Apply(r, progress.Answer{Status: progress.Admitted, Before: r.Before, Base: r.Base, Gate: gate})
	for range min(r.Fetch, m.more) {
		m.more--
		pos := m.Log.Read()
		m.Log.Add(pos, 0)
		m.Held.Next().Receipt = sources.Receipt(pos)
	}
	m.Admitted()
	return nil
}

func (m *memory) Clear(context.Context) error {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	m.said = append(m.said, "close")
	return nil
}

func (m *memory) Lasting(err error) bool { return errors.Is(err, errLasting) }

func (m *memory) Close(ctx context.Context) error {
	m.Stop()
	m.Wait(ctx)
	return m.Finish(ctx)
}

// set has whatever is asked fail, or not any more.
func (m *memory) set(fail error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	m.fail = fail
}

func (m *memory) fetch(t *testing.T, limit int) []sources.Task {
	t.Helper()
	tasks, err := m.Fetch(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

func done(tasks ...sources.Task) (all []sources.Settlement) {
	for i := range tasks {
		all = append(all, sources.Settlement{Task: &tasks[i], Outcome: sources.Done, Attempt: 1})
	}
	return all
}
