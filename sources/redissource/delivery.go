package redissource

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/redisprogress"
)

// keyHash is what package progress knows of a key: 0 is no key.
func keyHash(key string) uint64 {
	if key == "" {
		return 0
	}
	return max(1, xxhash.Sum64String(key))
}

// deliver makes t, which is zero, the task of an envelope at a position that was tried
// before, or not. Its strings share the memory of the envelope.
//
// It is written where it stays, and nothing that is zero anyway: while garbage is
// collected each pointer that is written costs more than all the rest of its field.
func deliver(t *sources.Task, e *envelope, pos int64, tried redisprogress.Tried, g partition.Grant, tok partition.Token) {
	t.ID, t.Key, t.Born = e.id, e.key, e.born
	if e.typ != "" {
		t.Type = e.typ
	}
	if len(e.payload) > 0 {
		t.Payload = e.payload
	}
	if e.headers != nil {
		t.Headers = e.headers
	}
	t.Attempt, t.Crashes = max(e.tries, tried.Tries)+1, e.crashes+tried.Crashes
	if !tried.NotBefore.IsZero() {
		t.NotBefore = tried.NotBefore
	}
	t.Grant, t.Token, t.Receipt = g, tok, sources.Receipt(pos)
	if e.firstError != "" {
		t.FirstError = e.firstError
	} else if tried.FirstError != "" {
		t.FirstError = tried.FirstError
	}
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
	return appendLetter(nil, &letter{
		position: int64(t.Receipt), attempts: attempts, crashes: t.Crashes, at: now,
		reason: s.Reason, firstError: logstream.FirstError(t, s.Reason),
		body: string(enclose(t, 0, "", false)),
	})
}

// buryUnread makes the dead letter of an element that is not run: nobody can read
// it, or it crashes its peers.
func buryUnread(pos int64, element string, t redisprogress.Tried, cause error, raw bool, now time.Time) []byte {
	return appendLetter(nil, &letter{
		position: pos, attempts: t.Tries, crashes: t.Crashes, at: now,
		reason: cause.Error(), firstError: t.FirstError, raw: raw, body: element,
	})
}

// lockOf is the lock that the unique task at pos holds.
func lockOf(pos int64, keys Keys, e *envelope) redisprogress.Lock {
	return redisprogress.Lock{Position: pos, Key: keys.Unique(e.id), Value: e.lockValue()}
}
