//go:build unix

package filesource

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// A File is a partition.
type File struct {
	Token partition.Token // who owns it; zero: nobody
	Epoch partition.Epoch // the newest that owned it
	Last  sources.Receipt // the newest position; positions are never used again
	Tasks []sources.Task  // open, in order; Receipt is the position
	Later []sources.Task  // requeued; appended when NotBefore has come
	Dead  []Dead
}

// A Dead is a task that will not run again.
type Dead struct {
	Task   sources.Task
	Reason string
}

// Append adds tasks to a partition, in order.
func (s *Source) Append(id partition.ID, tasks ...sources.Task) error {
	return s.Change(id, func(f *File) error { f.append(tasks...); return nil })
}

// Change does something with a partition that nobody else does anything with. If do
// returns an error, nothing has happened.
func (s *Source) Change(id partition.ID, do func(f *File) error) error {
	path := filepath.Join(s.Dir, id.String()+".json")
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // which unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	var f File
	before, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(before, &f)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := do(&f); err != nil {
		return err
	}
	after, err := json.Marshal(f)
	if err != nil || string(after) == string(before) {
		return err
	}
	if err := os.WriteFile(path+".new", after, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (f *File) append(tasks ...sources.Task) {
	for _, t := range tasks {
		c := t.Copy() // whatever the caller gave, and does with it
		f.Last++
		c.Receipt, c.NotBefore = f.Last, time.Time{}
		f.Tasks = append(f.Tasks, *c)
	}
}

// settle does what a settlement says, if its task is still open.
func (f *File) settle(d sources.Settlement) {
	i := slices.IndexFunc(f.Tasks, func(t sources.Task) bool { return t.Receipt == d.Task.Receipt })
	if i < 0 {
		return // settled before
	}
	t := &f.Tasks[i]
	if d.Outcome != sources.Done && t.FirstError == "" {
		t.FirstError = cmp.Or(d.Task.FirstError, d.Reason)
	}
	if d.Outcome == sources.Requeue || d.Attempt > t.Run() {
		t.NotBefore = time.Now().Add(d.Delay)
	}
	if d.Attempt > t.Run() {
		t.Attempt, t.Waits = d.Attempt-d.Waits, d.Waits
	}
	switch d.Outcome {
	case sources.Retry:
		return // it stays where it is
	case sources.Requeue:
		f.Later = append(f.Later, *t)
		slices.SortStableFunc(f.Later, func(a, b sources.Task) int { return a.NotBefore.Compare(b.NotBefore) })
	case sources.Dead:
		f.Dead = append(f.Dead, Dead{Task: *t, Reason: d.Reason})
	case sources.Done:
	}
	f.Tasks = slices.Delete(f.Tasks, i, i+1)
}
