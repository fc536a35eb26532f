package sources

import (
	"strconv"
	"testing"
	"time"
	"unsafe"
)

// What a task costs is memory before all: one more word in each is felt.
func TestATaskIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Task{}); strconv.IntSize == 64 && size > 96 {
		t.Errorf("a Task has %d bytes, want 96: what most tasks have in common belongs to Delivery", size)
	}
}

func TestACopyIsChangedAlone(t *testing.T) {
	shared := &Delivery{Attempt: 1, Headers: map[string]string{"trace": "a"}}
	task, other := &Task{ID: "task", Delivery: shared}, &Task{ID: "other", Delivery: shared}
	c := task.Copy()
	if c.ID != "task" || c.Attempt != 1 || c.Headers["trace"] != "a" {
		t.Errorf("the copy is %+v of %+v", c, c.Delivery)
	}
	c.Attempt, c.Headers = 2, nil
	if task.Attempt != 1 || other.Headers["trace"] != "a" {
		t.Errorf("a change of the copy is in %+v", shared)
	}
	if c = (&Task{ID: "bare"}).Copy(); c.ID != "bare" || c.Attempt != 0 {
		t.Errorf("of a task without a Delivery: %+v", c)
	}
}

func TestMoment(t *testing.T) {
	at := time.Date(2026, 7, 1, 3, 0, 0, 123_456_789, time.UTC)
	m := MomentOf(at)
	if got := m.Time(); !got.Equal(at.Truncate(time.Microsecond)) || m.IsZero() {
		t.Errorf("%v is %v", at, got)
	}
	if m.String() != "2026-07-01T03:00:00.123456Z" {
		t.Errorf("it is told as %v", m)
	}
	if early := MomentOf(time.UnixMicro(-1)); early.IsZero() || early.Time().UnixMicro() != -1 {
		t.Errorf("before 1970: %v", early)
	}
	// The zero time as somebody else counts it, in microseconds since 1970.
	for _, unknown := range []Moment{0, MomentOf(time.Time{}), Moment(time.Time{}.UnixMicro())} {
		if !unknown.IsZero() || !unknown.Time().IsZero() || unknown.String() != "unknown" {
			t.Errorf("%d is %v, a time that is known", int64(unknown), unknown)
		}
	}
}
