package framework

import (
	"bytes"
	"strings"
)

// A slot is the place of an entry among those of its lane, counted from 1; 0 is none.
type slot uint32

// An entry is a task in a lane, from Fetch until it is finished.
type entry struct {
	task  *Task // as Fetch returned it
	again *Task // a copy that counts later tries; nil before the first retry

	// Where its newest settlement stands: pending[place-1] while the lane's batch
	// is still batch. A newer one takes its place there.
	batch uint64
	place int32

	hash    uint32 // of its key
	waiting queue  // the later tasks of its key; only the earliest has them
	next    slot   // in its queue, or among the spare ones
	keyed   bool
	parked  bool // and what waits behind it with it
	active  bool
	kept    bool // task has memory of its own
}

// keep gives a task that will stay for a while memory of its own: Fetch returned it as one of
// a slice of hundreds, of which the last to go would keep all payloads.
func (e *entry) keep() {
	if !e.kept {
		own := *e.task
		e.task, e.kept = &own, true
	}
}

// detach gives a task that will stay for long its text and its payload to itself, too: as the
// source read them they may lie in a buffer with all that was read beside them. Others may still
// have the task as it was, so it is copied, and not changed.
func (e *entry) detach() {
	own := *e.task
	own.ID, own.Type, own.Key = strings.Clone(own.ID), strings.Clone(own.Type), strings.Clone(own.Key)
	own.Payload = bytes.Clone(own.Payload)
	e.task, e.kept = &own, true
	if e.again != nil {
		e.again.ID, e.again.Type, e.again.Key, e.again.Payload = own.ID, own.Type, own.Key, own.Payload
	}
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
	head, tail slot
	n          int
}

// entries are those of a lane, and spare ones to use again, so that a task costs no
// allocation on its way through.
//
// They lie in one piece of memory and name each other by their place in it: a worker
// finds the next ones beside the last, and no pointer is written when one goes from list
// to list, which while garbage is collected costs more than all the rest. A *entry is
// good until the next take.
type entries struct {
	all   []entry
	spare slot
}

func (s *entries) at(i slot) *entry { return &s.all[i-1] }

// take makes an entry for t.
func (s *entries) take(t *Task) slot {
	i := s.spare
	if i == 0 {
		s.all = append(s.all, entry{task: t})
		return slot(len(s.all))
	}
	e := s.at(i)
	s.spare, e.next = e.next, 0
	e.task = t
	return i
}

// free takes back an entry in no queue, and leaves nothing of its task in it.
func (s *entries) free(i slot) {
	e := s.at(i)
	e.task = nil
	if e.again != nil {
		e.again = nil
	}
	e.batch, e.place, e.hash, e.waiting = 0, 0, 0, queue{}
	e.keyed, e.parked, e.active, e.kept = false, false, false, false
	e.next, s.spare = s.spare, i
}

func (s *entries) push(q *queue, i slot) {
	s.at(i).next = 0
	if q.tail == 0 {
		q.head = i
	} else {
		s.at(q.tail).next = i
	}
	q.tail = i
	q.n++
}

func (s *entries) pushFront(q *queue, i slot) {
	s.at(i).next = q.head
	q.head = i
	if q.tail == 0 {
		q.tail = i
	}
	q.n++
}

// unlink takes i out of the queue, wherever it is.
func (s *entries) unlink(q *queue, i slot) {
	before := slot(0)
	for j := q.head; j != i; j = s.at(j).next {
		before = j
	}
	next := s.at(i).next
	if before == 0 {
		q.head = next
	} else {
		s.at(before).next = next
	}
	if q.tail == i {
		q.tail = before
	}
	s.at(i).next = 0
	q.n--
}

func (s *entries) pop(q *queue) slot {
	i := q.head
	if i == 0 {
		return 0
	}
	e := s.at(i)
	q.head, e.next = e.next, 0
	if q.head == 0 {
		q.tail = 0
	}
	q.n--
	return i
}
