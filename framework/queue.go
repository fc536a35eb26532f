package framework

import "time"

// An entry is a task in a lane, from Fetch until it is finished.
type entry struct {
	task  *Task // as Fetch returned it
	again *Task // a copy that counts later tries; nil before the first retry
	key   *keyQueue
	next  *entry
	due   time.Time // parked until then

	// Where its newest settlement stands: pending[place-1] while the lane's batch
	// is still batch. A newer one takes its place there.
	batch uint64
	place int
}

// run is the task as the handler gets it.
func (e *entry) run() *Task {
	if e.again != nil {
		return e.again
	}
	return e.task
}

// A queue is a list of entries, first in, first out.
type queue struct {
	head, tail *entry
	n          int
}

func (q *queue) push(e *entry) {
	if e.next != nil {
		e.next = nil
	}
	if q.tail == nil {
		q.head = e
	} else {
		q.tail.next = e
	}
	q.tail = e
	q.n++
}

func (q *queue) pushFront(e *entry) {
	e.next = q.head
	q.head = e
	if q.tail == nil {
		q.tail = e
	}
	q.n++
}

func (q *queue) pop() *entry {
	e := q.head
	if e == nil {
		return nil
	}
	q.head = e.next
	if q.head == nil {
		q.tail = nil
	}
	e.next = nil
	q.n--
	return e
}

// A keyQueue exists in its lane while a task of the key is ready, running or
// parked; the later ones of the key wait in it.
type keyQueue struct {
	key     string
	hash    uint64
	waiting queue
	parked  bool
	next    *keyQueue // in its bucket of the lane's keys, or in the free list
}

// parking is a heap of parked entries, the first due on top; see container/heap.
type parking []*entry

func (p parking) Len() int           { return len(p) }
func (p parking) Less(i, j int) bool { return p[i].due.Before(p[j].due) }
func (p parking) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }

func (p *parking) Push(x any) { *p = append(*p, x.(*entry)) }

func (p *parking) Pop() any {
	last := len(*p) - 1
	e := (*p)[last]
	(*p)[last] = nil
	*p = (*p)[:last]
	return e
}

// spares are entries and key queues to use again, so that a task costs no
// allocation on its way through a lane. What comes here is made zero, but no pointer is
// written that is zero anyway: while garbage is collected each costs more than all the
// rest. The pool's lock guards them.
type spares struct {
	entries *entry
	keys    *keyQueue
}

func (s *spares) entry(t *Task) *entry {
	e := s.entries
	if e == nil {
		e = new(entry)
	} else {
		s.entries, e.next = e.next, nil
	}
	e.task = t
	return e
}

func (s *spares) free(e *entry) {
	e.task, e.next = nil, s.entries
	if e.key != nil {
		e.key = nil
	}
	if e.again != nil {
		e.again = nil
	}
	if !e.due.IsZero() {
		e.due = time.Time{}
	}
	e.batch, e.place = 0, 0
	s.entries = e
}

func (s *spares) keyQueue(key string, hash uint64) *keyQueue {
	k := s.keys
	if k == nil {
		k = new(keyQueue)
	} else {
		s.keys, k.next = k.next, nil
	}
	k.key, k.hash = key, hash
	return k
}

// freeKey takes back a queue in which nothing waits.
func (s *spares) freeKey(k *keyQueue) {
	k.key, k.hash, k.parked, k.next = "", 0, false, s.keys
	s.keys = k
}
