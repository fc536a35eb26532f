package framework

import (
	"container/heap"
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
	spares *spares
	ready  queue
	keys   keyTable
	parked parking
	held   int // all of them
	active int
	asleep int // parked, or waiting behind a parked one: nothing to start soon
	over   bool
}

func newBook(s *spares) book {
	return book{spares: s, keys: newKeyTable()}
}

// add takes in a fetched task. It must not be called after shed.
func (b *book) add(t *Task, now time.Time) {
	e := b.spares.entry(t)
	b.held++
	if t.Key == "" {
		b.admit(e, now)
		return
	}
	hash := b.keys.hash(t.Key)
	if k := b.keys.find(t.Key, hash); k != nil {
		e.key = k
		k.waiting.push(e)
		if k.parked {
			b.asleep++
		}
		return
	}
	e.key = b.spares.keyQueue(t.Key, hash)
	b.keys.add(e.key)
	b.admit(e, now)
}

// admit lets e, the earliest of its key, be started, or parks it until it may.
func (b *book) admit(e *entry, now time.Time) {
	if e.task.NotBefore.After(now) {
		b.lay(e, e.task.NotBefore)
		return
	}
	b.ready.push(e)
}

// lay parks e and its key until due.
func (b *book) lay(e *entry, due time.Time) {
	e.due = due
	heap.Push(&b.parked, e)
	b.asleep++
	if e.key != nil {
		e.key.parked = true
		b.asleep += e.key.waiting.n
	}
}

// next takes a task that is ready, or nil.
func (b *book) next() *entry {
	e := b.ready.pop()
	if e != nil {
		b.active++
	}
	return e
}

// back puts e, which was not started after all, where it came from.
func (b *book) back(e *entry) {
	b.active--
	if b.over {
		b.held--
		b.spares.free(e)
		return
	}
	b.ready.pushFront(e)
}

// finish removes e, which is done, requeued or dead, and lets the next task of its
// key go.
func (b *book) finish(e *entry, now time.Time) {
	b.active--
	b.held--
	k := e.key
	b.spares.free(e)
	if k == nil || b.over {
		return
	}
	if first := k.waiting.pop(); first != nil {
		b.admit(first, now)
		return
	}
	b.keys.remove(k)
	b.spares.freeKey(k)
}

// park keeps e for a later try: nothing of its key starts before.
func (b *book) park(e *entry, due time.Time) {
	if b.over { // the next owner tries again
		b.active--
		b.held--
		b.spares.free(e)
		return
	}
	b.active--
	b.lay(e, due)
}

// unpark makes ready what is due.
func (b *book) unpark(now time.Time) {
	for len(b.parked) > 0 && !b.parked[0].due.After(now) {
		e := heap.Pop(&b.parked).(*entry)
		b.asleep--
		if e.key != nil {
			e.key.parked = false
			b.asleep -= e.key.waiting.n
		}
		b.ready.push(e)
	}
}

// due is when the next parked task may start; zero if none is parked.
func (b *book) due() time.Time {
	if len(b.parked) == 0 {
		return time.Time{}
	}
	return b.parked[0].due
}

// shed forgets all tasks but the active ones and takes in no more. It returns how
// many it forgot.
func (b *book) shed() int {
	n := b.held - b.active
	b.over = true
	b.held, b.asleep = b.active, 0
	b.ready, b.keys, b.parked = queue{}, keyTable{}, nil
	return n
}

// keyMostWaited is the key that most tasks wait for.
func (b *book) keyMostWaited() string {
	var most *keyQueue
	for k := range b.keys.all {
		if most == nil || k.waiting.n > most.waiting.n {
			most = k
		}
	}
	if most == nil {
		return ""
	}
	return most.key
}
