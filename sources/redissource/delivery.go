package redissource

import (
	"time"

	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/redisprogress"
)

// deliver makes t, which is zero, the task of an envelope at a position. Its strings share
// the memory of the envelope.
//
// It is written where it stays, and nothing that is zero anyway: while garbage is
// collected each pointer that is written costs more than all the rest of its field. The
// plain fields come first: a pointer is read then before it is written, and memory that was
// never touched costs the system two faults, and a word to all processors, when it is read first.
func deliver(t *sources.Task, e *envelope, pos int64, d *sources.Delivery) {
	t.Born, t.Receipt = e.born, sources.Receipt(pos)
	t.ID, t.Key, t.Delivery = e.id, e.key, d
	if e.typ != "" {
		t.Type = e.typ
	}
	if len(e.payload) > 0 {
		t.Payload = e.payload
	}
}

// delivery is that of an envelope, which was tried before if had: first, which the stream
// has for all that run for the first time, unless there is something to tell.
func delivery(e *envelope, tried redisprogress.Tried, had bool, first *sources.Delivery) *sources.Delivery {
	if !had && !e.tried() && e.headers == nil {
		return first
	}
	d := &sources.Delivery{
		Grant: first.Grant, Token: first.Token,
		Attempt: max(e.tries, tried.Attempts()) + 1, Waits: tried.Waits, Crashes: e.crashes + tried.Crashes,
		FirstError: e.firstError, NotBefore: tried.NotBefore, Headers: e.headers,
	}
	if d.FirstError == "" {
		d.FirstError = tried.FirstError
	}
	return d
}

// enclose makes the envelope of a task that goes on elsewhere: to the end of the
// log, or to the dead letters.
func enclose(t *sources.Task, tries int, firstError string, unique bool) []byte {
	return appendEnvelope(nil, &envelope{
		id: t.ID, typ: t.Type, key: t.Key, born: t.Born, headers: t.Headers,
		tries: tries, crashes: t.Crashes, firstError: firstError, unique: unique, payload: t.Payload,
	})
}

// bury makes the dead letter of a task whose run ended with s, after so many attempts.
func bury(s *sources.Settlement, attempts int, now time.Time) []byte {
	t := s.Task
	return encodeLetter(&letter{
		position: int64(t.Receipt), attempts: attempts, crashes: t.Crashes, at: now,
		reason: s.Reason, firstError: logstream.FirstError(t, s.Reason),
		body: string(enclose(t, 0, "", false)),
	})
}

// buryUnread makes the dead letter of an element that is not run: nobody can read
// it, or it crashes its peers.
func buryUnread(pos int64, element string, t redisprogress.Tried, cause error, raw bool, now time.Time) []byte {
	return encodeLetter(&letter{
		position: pos, attempts: t.Attempts(), crashes: t.Crashes, at: now,
		reason: cause.Error(), firstError: t.FirstError, raw: raw, body: element,
	})
}

// lockOf is the lock that the unique task at pos holds.
func lockOf(pos int64, keys Keys, e *envelope) redisprogress.Lock {
	return redisprogress.Lock{Position: pos, Key: keys.Unique(e.id), Value: e.lockValue()}
}
