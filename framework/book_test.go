package framework

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
	"weak"

	"pgregory.net/rapid"
)

// Whatever the order of what happens: a key's tasks come out in the order they went
// in, one at a time, and the counts are right.
func TestBookKeepsTheOrderOfKeysAndItsCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBook()
		task := func(i slot) *Task { return b.entries.at(i).task }
		now := time.Unix(0, 0)
		added := map[string][]string{}   // by key, not finished, in order
		active := map[slot]string{}      // with its id
		parked := map[string]time.Time{} // by id
		loose := 0                       // tasks without a key that are ready or parked
		serial := 0
		total := func() int {
			n := loose
			for _, ids := range added {
				n += len(ids)
			}
			for e := range active {
				if task(e).Key == "" {
					n++
				}
			}
			return n
		}
		pick := func(t *rapid.T) slot {
			if len(active) == 0 {
				t.Skip("nothing runs")
			}
			all := make([]string, 0, len(active))
			byID := map[string]slot{}
			for e, id := range active {
				all = append(all, id)
				byID[id] = e
			}
			return byID[rapid.SampledFrom(slices.Sorted(slices.Values(all))).Draw(t, "task")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				serial++
				fresh := &Task{ID: fmt.Sprint(serial), Key: rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key"), Delivery: &Delivery{}}
				if rapid.IntRange(0, 4).Draw(t, "later") == 0 {
					fresh.NotBefore = now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "in")) * time.Second)
				}
				if fresh.Key == "" {
					loose++
				} else {
					added[fresh.Key] = append(added[fresh.Key], fresh.ID)
				}
				b.add(fresh, now)
			},
			"next": func(t *rapid.T) {
				e := b.next()
				if e == 0 {
					t.Skip("nothing is ready")
				}
				started := task(e)
				if started.NotBefore.After(now) {
					t.Fatalf("task %s starts before its time", started.ID)
				}
				if until, ok := parked[started.ID]; ok && until.After(now) {
					t.Fatalf("task %s starts again before its time", started.ID)
				}
				delete(parked, started.ID)
				for other := range active {
					if key := task(other).Key; key != "" && key == started.Key {
						t.Fatalf("tasks %s and %s of key %s at once", task(other).ID, started.ID, key)
					}
				}
				if started.Key == "" {
					loose--
				} else if first := added[started.Key][0]; first != started.ID {
					t.Fatalf("task %s of key %s before %s", started.ID, started.Key, first)
				}
				active[e] = started.ID
			},
			"finish": func(t *rapid.T) {
				e := pick(t)
				key := task(e).Key
				delete(active, e)
				if key != "" {
					added[key] = added[key][1:]
				}
				b.finish(e, now)
			},
			"park": func(t *rapid.T) {
				e := pick(t)
				delete(active, e)
				due := now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "for")) * time.Second)
				parked[task(e).ID] = due
				if task(e).Key == "" {
					loose++
				}
				b.park(e, nil, now, due)
			},
			"back": func(t *rapid.T) {
				e := pick(t)
				delete(active, e)
				if task(e).Key == "" {
					loose++
				}
				b.back(e)
			},
			"withdraw": func(t *rapid.T) {
				all := slices.Collect(b.waiting)
				if len(all) == 0 {
					t.Skip("nothing waits")
				}
				e := rapid.SampledFrom(all).Draw(t, "slot")
				if key, id := task(e).Key, task(e).ID; key == "" {
					loose--
				} else {
					added[key] = slices.DeleteFunc(added[key], func(other string) bool { return other == id })
				}
				b.withdraw(e, now)
			},
			"time passes": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "s")) * time.Second)
				b.unpark(now)
				if due := b.due(); !due.IsZero() && !due.After(now) {
					t.Fatal("something due is still parked")
				}
			},
			"": func(t *rapid.T) {
				if b.held != total() || b.active != len(active) {
					t.Fatalf("held %d, active %d; want %d, %d", b.held, b.active, total(), len(active))
				}
				asleep, waiting := len(b.parked), 0
				for i := range b.keys.all {
					first := b.entries.at(i)
					waiting += first.waiting.n
					if first.parked {
						asleep += first.waiting.n
					}
				}
				if b.asleep != asleep {
					t.Fatalf("asleep %d, want %d", b.asleep, asleep)
				}
				if n := b.ready.n + b.active + len(b.parked) + waiting; n != b.held {
					t.Fatalf("the parts are %d, the whole %d", n, b.held)
				}
				for i := range b.keys.all {
					if key := task(i).Key; len(added[key]) == 0 {
						t.Fatalf("key %s is kept for nothing", key)
					}
				}
			},
		})
		if b.shed(); b.held != len(active) {
			t.Fatalf("held %d, want %d", b.held, len(active))
		}
		for e := range active {
			b.finish(e, now)
		}
		if b.held != 0 || b.active != 0 || b.next() != 0 {
			t.Fatalf("held %d, active %d after the end", b.held, b.active)
		}
	})
}

// A lane that is to end keeps nothing but what runs, and of that nothing when it returns,
// whatever it came to.
func TestABookThatIsOverKeepsNothing(t *testing.T) {
	now := time.Unix(0, 0)
	b := newBook()
	for i := range 5 {
		key := ""
		if i > 3 {
			key = "a"
		}
		b.add(&Task{ID: fmt.Sprint(i), Key: key, Delivery: &Delivery{}}, now)
	}
	later := now.Add(time.Second)
	b.add(&Task{ID: "later", Delivery: &Delivery{NotBefore: later}}, now)
	b.add(&Task{ID: "behind", Key: "a", Delivery: &Delivery{}}, now)
	var active []slot
	for e := b.next(); e != 0; e = b.next() {
		active = append(active, e)
	}
	b.back(active[0])
	b.shed()
	for i := range b.entries.all {
		if e := &b.entries.all[i]; e.task != nil && !e.active || e.waiting.n > 0 {
			t.Errorf("%q is kept", e.task.ID)
		}
	}
	b.back(active[1])
	b.park(active[2], nil, now, later)
	b.finish(active[3], now)
	b.finish(active[4], now)
	b.unpark(later)
	if e := b.next(); e != 0 || b.held != 0 || b.active != 0 || b.asleep != 0 || !b.due().IsZero() {
		t.Errorf("after the end %d are held, %d active, %d asleep; ready is %v, due %v", b.held, b.active, b.asleep, e, b.due())
	}
}

// What was called back before it was started starts before what came behind it.
func TestWhatIsCalledBackIsFirst(t *testing.T) {
	now := time.Unix(0, 0)
	b := newBook()
	for i := range 4 {
		b.add(&Task{ID: fmt.Sprint(i), Delivery: &Delivery{}}, now)
	}
	taken := []slot{b.next(), b.next(), b.next()}
	b.back(taken[2])
	b.back(taken[1])
	var order []string
	for e := b.next(); e != 0; e = b.next() {
		order = append(order, b.entries.at(e).task.ID)
	}
	if !slices.Equal(order, []string{"1", "2", "3"}) {
		t.Errorf("they start in the order %v", order)
	}
}

// Entries are used again: nothing of the former task is left in them, which would be
// handed out as another, or counted as parked.
func TestAnEntryIsAsNew(t *testing.T) {
	var s entries
	first := &Task{ID: "first", Key: "key", Delivery: &Delivery{Attempt: 1}}
	i := s.take(first)
	*s.at(i) = entry{
		task: first, again: again(first, ""), batch: 3, place: 4, hash: 7,
		waiting: queue{1, 2, 3}, keyed: true, parked: true, active: true, kept: true,
	}
	s.free(i)
	second := &Task{ID: "second"}
	if got := s.take(second); got != i || *s.at(got) != (entry{task: second}) {
		t.Errorf("the entry of the next task is %+v at %d, was at %d", *s.at(got), got, i)
	}
}

// A lane that held thousands of tasks keeps no room for them, and works on.
func TestALaneWithoutTasksKeepsLittle(t *testing.T) {
	now := time.Unix(0, 0)
	b := newBook()
	for round := range 3 {
		for i := range 5 * mostSpare {
			b.add(&Task{Key: fmt.Sprint(i % 100), Delivery: &Delivery{}}, now)
		}
		n := 0
		for e := b.next(); e != 0; e = b.next() {
			b.finish(e, now)
			n++
		}
		if n != 5*mostSpare || b.held != 0 {
			t.Fatalf("round %d: %d of %d tasks were handed out, %d are held", round, n, 5*mostSpare, b.held)
		}
		if kept := cap(b.entries.all) + cap(b.keys.cells); kept > 2*mostSpare {
			t.Errorf("round %d: room is kept for %d entries and %d keys", round, cap(b.entries.all), cap(b.keys.cells))
		}
	}
}

// What waits for long lets go of the memory that it was read into, with all that was read beside it,
// whether it has run before or waits from the start.
func TestWhatWaitsForLongKeepsNoBuffer(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name string
		wait func(b *book, task *Task)
	}{
		{"after its first run", func(b *book, task *Task) {
			b.add(task, now)
			i := b.next()
			b.park(i, again(task, "down"), now, now.Add(time.Hour))
		}},
		{"after a run that waited a moment", func(b *book, task *Task) {
			b.add(task, now)
			i := b.next()
			b.park(i, again(task, "down"), now, now.Add(time.Millisecond))
			b.unpark(now.Add(time.Second))
			i = b.next()
			b.park(i, again(b.entries.at(i).run(), "down"), now, now.Add(time.Second))
		}},
		{"from the start", func(b *book, task *Task) {
			task.NotBefore = now.Add(time.Hour)
			b.add(task, now)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBook()
			buffer, text := make([]byte, 4096), strings.Repeat("idtypekey", 1024)
			read, said := weak.Make(&buffer[0]), weak.Make(unsafe.StringData(text))
			buffer[9] = 'x'
			c.wait(&b, &Task{ID: text[:2], Type: text[2:6], Key: text[6:9], Payload: buffer[9:10], Delivery: &Delivery{}})
			runtime.GC()
			if read.Value() != nil || said.Value() != nil {
				t.Error("what was read with it is still there")
			}
			b.unpark(now.Add(2 * time.Hour))
			task := b.entries.at(b.next()).run()
			if task.ID != "id" || task.Type != "type" || task.Key != "key" || string(task.Payload) != "x" {
				t.Errorf("it runs as %+v", task)
			}
		})
	}
}

// A task is copied for its wait, and not changed: others have it as it was, and so does who settles it.
func TestWhatWaitsForLongIsLeftToOthers(t *testing.T) {
	now := time.Now()
	b := newBook()
	payload := []byte("x")
	task := &Task{Payload: payload, Delivery: &Delivery{NotBefore: now.Add(time.Minute)}}
	b.add(task, now)
	b.unpark(task.NotBefore)
	i := b.next()
	first := b.entries.at(i).run()
	mine := &first.Payload[0]
	b.park(i, again(first, "down"), task.NotBefore, task.NotBefore.Add(time.Minute))
	if &task.Payload[0] != &payload[0] || &first.Payload[0] != mine {
		t.Error("the payload of a task that was handed out was replaced")
	}
	if b.entries.at(i).task == first {
		t.Error("what the handler had is what waits")
	}
}

func TestTheFirstErrorStands(t *testing.T) {
	shared := &Delivery{Attempt: 1}
	task := again(again(&Task{Delivery: shared}, "first"), "second")
	if task.Attempt != 3 || task.FirstError != "first" {
		t.Errorf("the third try is told %+v", task.Delivery)
	}
	if shared.Attempt != 1 || shared.FirstError != "" {
		t.Errorf("a task with the same delivery that never ran is told %+v", shared)
	}
}

// What is done is let go, also while others that were fetched with it wait for their time.
func TestWhatIsParkedKeepsNoOther(t *testing.T) {
	now := time.Now()
	b := newBook()
	tasks := make([]Task, 64)
	for i := range tasks {
		tasks[i] = Task{Key: fmt.Sprint(i / 2), Delivery: &Delivery{}}
	}
	fetched := weak.Make(&tasks[0])
	for i := range tasks[:63] {
		b.add(&tasks[i], now)
	}
	var active []slot
	for i := b.next(); i != 0; i = b.next() {
		active = append(active, i)
	}
	for n, i := range active {
		if n == 0 {
			b.park(i, again(b.entries.at(i).task, ""), now, now.Add(longWait/2)) // another of its key waits behind it
		} else {
			b.finish(i, now)
		}
	}
	b.add(&tasks[63], now) // behind one that is done by now
	late := tasks[1]
	late.Key = "0"
	b.add(&late, now) // behind the one that is parked
	for i := b.next(); i != 0; i = b.next() {
		b.finish(i, now)
	}
	if b.held != 3 {
		t.Fatalf("%d tasks are held", b.held)
	}
	runtime.GC()
	if fetched.Value() != nil {
		t.Error("what was fetched with them is still there")
	}
	runtime.KeepAlive(&b)
}

// Who waits for a key that is stuck is told which: the one that most wait for. None is, if no task waits for another.
func TestTheKeyThatMostWaitFor(t *testing.T) {
	t.Parallel()
	b := newBook()
	if key, n := b.mostWaited(); key != "" || n != 0 {
		t.Errorf("with no task %d wait for %q", n, key)
	}
	b.add(&Task{ID: "alone", Key: "alone", Delivery: &Delivery{}}, time.Now())
	if key, n := b.mostWaited(); key != "" || n != 0 {
		t.Errorf("with one task %d wait for %q", n, key)
	}
	for key, n := range map[string]int{"a": 3, "b": 6, "c": 1, "d": 2, "": 9} {
		for i := range n {
			b.add(&Task{ID: fmt.Sprint(key, i), Key: key, Delivery: &Delivery{}}, time.Now())
		}
	}
	if key, n := b.mostWaited(); key != "b" || n != 5 {
		t.Errorf("most, %d, wait for %q, want 5 for b", n, key)
	}
}
