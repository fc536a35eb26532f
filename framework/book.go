package framework

import (
	"container/heap"
	"slices"
	"time"
)

// A book knows where each fetched task of a lane is:
//
//	ready    may start now
//	active   with a worker
//	waiting  behind an earlier task of its key
//	parked   until a time, and its key with it
//
// It keeps the order of a key: of each key at most one task is ready, active or
// parked, and that is the earliest. It has no lock and no clock; the pool's lock
// guards it.
type book struct {
	entries entries
	ready   queue
	keys    keyTable
	parked  parking
	held    int // all of them
	active  int
	asleep  int // parked, or waiting behind a parked one: nothing to start soon
	over    bool
}

func newBook() book { return book{keys: newKeyTable()} }

// grow makes place for n more tasks at once.
func (b *book) grow(n int) {
	if more := n - (len(b.entries.all) - b.held); more > 0 {
		b.entries.all = slices.Grow(b.entries.all, more)
	}
}

// add takes in a fetched task. It must not be called after shed.
func (b *book) add(t *Task, now time.Time) {
	i := b.entries.take(t)
	b.held++
	if t.Key != "" {
		e := b.entries.at(i)
		e.keyed, e.hash = true, b.keys.hash(t.Key)
		if first := b.keys.find(t.Key, e.hash, &b.entries); first != 0 {
			b.wait(i, first)
			return
		}
		b.keys.add(e.hash, i)
	}
	b.admit(i, now)
}

// wait puts i behind first, the earliest of its key.
func (b *book) wait(i, first slot) {
	f := b.entries.at(first)
	b.entries.push(&f.waiting, i)
	if f.parked {
		b.asleep++
		b.entries.at(i).keep()
	}
}

// admit lets i, the earliest of its key, be started, or parks it until it may.
func (b *book) admit(i slot, now time.Time) {
	if due := b.entries.at(i).task.NotBefore; due.After(now) {
		b.lay(i, now, due)
		return
	}
	b.entries.push(&b.ready, i)
}

// longWait is the shortest wait for which a payload is copied.
const longWait = time.Second

// lay parks i and its key until due.
func (b *book) lay(i slot, now, due time.Time) {
	heap.Push(&b.parked, parked{due, i})
	e := b.entries.at(i)
	if due.Sub(now) >= longWait {
		e.detach()
	}
	e.parked = true
	b.asleep += 1 + e.waiting.n
	e.keep()
	for j := e.waiting.head; j != 0; j = b.entries.at(j).next {
		b.entries.at(j).keep()
	}
}

// next takes a task that is ready, or 0.
func (b *book) next() slot {
	i := b.entries.pop(&b.ready)
	if i != 0 {
		b.active++
		b.entries.at(i).active = true
	}
	return i
}

// back puts i, which was not started after all, where it came from.
func (b *book) back(i slot) {
	b.active--
	if b.over {
		b.drop(i)
		return
	}
	b.entries.at(i).active = false
	b.entries.pushFront(&b.ready, i)
}

// finish removes i, which is done, requeued or dead, and lets the next task of its
// key go.
func (b *book) finish(i slot, now time.Time) {
	b.active--
	e := b.entries.at(i)
	if !e.keyed || b.over {
		b.drop(i)
		return
	}
	next := b.entries.pop(&e.waiting)
	if next == 0 {
		b.keys.remove(e.hash, i)
		b.drop(i)
		return
	}
	b.keys.succeed(e.hash, i, next)
	b.entries.at(next).waiting = e.waiting
	b.drop(i)
	b.admit(next, now)
}

// waiting goes over those that are not with a worker. yield may withdraw them.
func (b *book) waiting(yield func(slot) bool) {
	for i := range b.entries.all {
		if b.held == 0 {
			return // drop may have forgotten the entries
		}
		if e := &b.entries.all[i]; e.task != nil && !e.active && !yield(slot(i+1)) {
			return
		}
	}
}

// withdraw removes i, which is not with a worker, from where it waits. What waits behind it goes on.
func (b *book) withdraw(i slot, now time.Time) {
	e := b.entries.at(i)
	if e.keyed {
		if first := b.keys.find(e.task.Key, e.hash, &b.entries); first != i {
			f := b.entries.at(first)
			b.entries.unlink(&f.waiting, i)
			if f.parked {
				b.asleep--
			}
			b.drop(i)
			return
		}
	}
	if e.parked {
		heap.Remove(&b.parked, slices.IndexFunc(b.parked, func(p parked) bool { return p.slot == i }))
		e.parked = false
		b.asleep -= 1 + e.waiting.n
	} else {
		b.entries.unlink(&b.ready, i)
	}
	b.active++ // as if a worker had it
	b.finish(i, now)
}

// park keeps i for a later try, as the task again, which nobody else has: nothing of its key starts before.
func (b *book) park(i slot, again *Task, now, due time.Time) {
	b.active--
	if b.over { // the next owner tries again
		b.drop(i)
		return
	}
	e := b.entries.at(i)
	e.active, e.again = false, again
	b.lay(i, now, due)
}

// mostSpare is how many entries a lane without tasks keeps. Where keys were stuck it held
// thousands.
const mostSpare = 1024

func (b *book) drop(i slot) {
	b.entries.free(i)
	if b.held--; b.held == 0 && len(b.entries.all) > mostSpare {
		b.entries, b.keys = entries{}, keyTable{seed: b.keys.seed}
	}
}

// unpark makes ready what is due.
func (b *book) unpark(now time.Time) {
	for len(b.parked) > 0 && !b.parked[0].due.After(now) {
		i := heap.Pop(&b.parked).(parked).slot
		e := b.entries.at(i)
		e.parked = false
		b.asleep -= 1 + e.waiting.n
		b.entries.push(&b.ready, i)
	}
}

// due is when the next parked task may start; zero if none is parked.
func (b *book) due() time.Time {
	if len(b.parked) == 0 {
		return time.Time{}
	}
	return b.parked[0].due
}

// shed forgets all tasks but the active ones and takes in no more.
func (b *book) shed() {
	b.over = true
	b.held, b.asleep = b.active, 0
	b.ready, b.keys, b.parked = queue{}, keyTable{}, nil
	for i := range b.entries.all {
		if e := &b.entries.all[i]; !e.active {
			*e = entry{}
		} else {
			e.waiting = queue{}
		}
	}
	b.entries.spare = 0
}

// mostWaited is the key that most tasks wait for, and how many do; none if no task waits behind another.
func (b *book) mostWaited() (key string, n int) {
	for i := range b.keys.all {
		if e := b.entries.at(i); e.waiting.n > n {
			key, n = e.task.Key, e.waiting.n
		}
	}
	return key, n
}

// parked is a task that may start when it is due.
type parked struct {
	due  time.Time
	slot slot
}

// parking is a heap of what is parked, the first due on top; see container/heap.
type parking []parked

func (p parking) Len() int           { return len(p) }
func (p parking) Less(i, j int) bool { return p[i].due.Before(p[j].due) }
func (p parking) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }

func (p *parking) Push(x any) { *p = append(*p, x.(parked)) }

func (p *parking) Pop() any {
	last := len(*p) - 1
	e := (*p)[last]
	*p = (*p)[:last]
	return e
}
