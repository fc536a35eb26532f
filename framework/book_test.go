package framework

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever the order of what happens: a key's tasks come out in the order they went
// in, one at a time, and the counts are right.
func TestBookKeepsTheOrderOfKeysAndItsCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s spares
		b := newBook(&s)
		now := time.Unix(0, 0)
		added := map[string][]string{}   // by key, not finished, in order
		active := map[*entry]string{}    // with its id
		parked := map[string]time.Time{} // by id
		loose := 0                       // tasks without a key that are ready or parked
		serial := 0
		total := func() int {
			n := loose
			for _, ids := range added {
				n += len(ids)
			}
			for e := range active {
				if e.task.Key == "" {
					n++
				}
			}
			return n
		}
		pick := func(t *rapid.T) *entry {
			if len(active) == 0 {
				t.Skip("nothing runs")
			}
			all := make([]string, 0, len(active))
			byID := map[string]*entry{}
			for e, id := range active {
				all = append(all, id)
				byID[id] = e
			}
			return byID[rapid.SampledFrom(slices.Sorted(slices.Values(all))).Draw(t, "task")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				serial++
				task := &Task{ID: fmt.Sprint(serial), Key: rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key")}
				if rapid.IntRange(0, 4).Draw(t, "later") == 0 {
					task.NotBefore = now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "in")) * time.Second)
				}
				if task.Key == "" {
					loose++
				} else {
					added[task.Key] = append(added[task.Key], task.ID)
				}
				b.add(task, now)
			},
			"next": func(t *rapid.T) {
				e := b.next()
				if e == nil {
					t.Skip("nothing is ready")
				}
				if e.task.NotBefore.After(now) {
					t.Fatalf("task %s starts before its time", e.task.ID)
				}
				if until, ok := parked[e.task.ID]; ok && until.After(now) {
					t.Fatalf("task %s starts again before its time", e.task.ID)
				}
				delete(parked, e.task.ID)
				for other := range active {
					if other.task.Key != "" && other.task.Key == e.task.Key {
						t.Fatalf("tasks %s and %s of key %s at once", other.task.ID, e.task.ID, e.task.Key)
					}
				}
				if e.task.Key == "" {
					loose--
				} else if first := added[e.task.Key][0]; first != e.task.ID {
					t.Fatalf("task %s of key %s before %s", e.task.ID, e.task.Key, first)
				}
				active[e] = e.task.ID
			},
			"finish": func(t *rapid.T) {
				e := pick(t)
				key := e.task.Key
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
				parked[e.task.ID] = due
				if e.task.Key == "" {
					loose++
				}
				b.park(e, due)
			},
			"back": func(t *rapid.T) {
				e := pick(t)
				delete(active, e)
				if e.task.Key == "" {
					loose++
				}
				b.back(e)
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
				for k := range b.keys.all {
					waiting += k.waiting.n
					if k.parked {
						asleep += k.waiting.n
					}
				}
				if b.asleep != asleep {
					t.Fatalf("asleep %d, want %d", b.asleep, asleep)
				}
				if n := b.ready.n + b.active + len(b.parked) + waiting; n != b.held {
					t.Fatalf("the parts are %d, the whole %d", n, b.held)
				}
				for k := range b.keys.all {
					if len(added[k.key]) == 0 {
						t.Fatalf("key %s is kept for nothing", k.key)
					}
				}
			},
		})
		if shed := b.shed(); shed != total()-len(active) || b.held != len(active) {
			t.Fatalf("shed %d, held %d; want %d, %d", shed, b.held, total()-len(active), len(active))
		}
		for e := range active {
			b.finish(e, now)
		}
		if b.held != 0 || b.active != 0 || b.next() != nil {
			t.Fatalf("held %d, active %d after the end", b.held, b.active)
		}
	})
}

// A lane that is to end keeps nothing but what runs, and of that nothing when it returns,
// whatever it came to.
func TestABookThatIsOverKeepsNothing(t *testing.T) {
	now := time.Unix(0, 0)
	b := newBook(&spares{})
	for i := range 5 {
		key := ""
		if i > 3 {
			key = "a"
		}
		b.add(&Task{ID: fmt.Sprint(i), Key: key}, now)
	}
	later := now.Add(time.Second)
	b.add(&Task{ID: "later", NotBefore: later}, now)
	b.add(&Task{ID: "behind", Key: "a"}, now)
	var active []*entry
	for e := b.next(); e != nil; e = b.next() {
		active = append(active, e)
	}
	b.back(active[0])
	if n := b.shed(); n != 3 {
		t.Errorf("%d tasks are given up, want what is ready, what is parked and what waits for its key", n)
	}
	b.back(active[1])
	b.park(active[2], later)
	b.finish(active[3], now)
	b.finish(active[4], now)
	b.unpark(later)
	if e := b.next(); e != nil || b.held != 0 || b.active != 0 || b.asleep != 0 || !b.due().IsZero() {
		t.Errorf("after the end %d are held, %d active, %d asleep; ready is %v, due %v", b.held, b.active, b.asleep, e, b.due())
	}
}

// What was called back before it was started starts before what came behind it.
func TestWhatIsCalledBackIsFirst(t *testing.T) {
	now := time.Unix(0, 0)
	b := newBook(&spares{})
	for i := range 4 {
		b.add(&Task{ID: fmt.Sprint(i)}, now)
	}
	taken := []*entry{b.next(), b.next(), b.next()}
	b.back(taken[2])
	b.back(taken[1])
	var order []string
	for e := b.next(); e != nil; e = b.next() {
		order = append(order, e.task.ID)
	}
	if !slices.Equal(order, []string{"1", "2", "3"}) {
		t.Errorf("they start in the order %v", order)
	}
}

// Entries and key queues are used again: nothing of the former task is left in them, which
// would be handed out as another.
func TestSparesAreAsNew(t *testing.T) {
	var s spares
	first := &Task{ID: "first"}
	e, k := s.entry(first), s.keyQueue("key", 7)
	e.key, e.again, e.due, e.batch, e.place = k, again(first, nil), time.Unix(1, 0), 3, 4
	k.parked = true
	s.free(e)
	s.freeKey(k)
	second := &Task{ID: "second"}
	if got := s.entry(second); got != e || *got != (entry{task: second}) {
		t.Errorf("the entry of the next task is %+v", got)
	}
	if got := s.keyQueue("other", 8); got != k || *got != (keyQueue{key: "other", hash: 8}) {
		t.Errorf("the queue of the next key is %+v", got)
	}
}

func TestTheFirstErrorStands(t *testing.T) {
	task := again(again(&Task{Attempt: 1}, errors.New("first")), errors.New("second"))
	if task.Attempt != 3 || task.FirstError != "first" {
		t.Errorf("the third try is told %+v", task)
	}
}
