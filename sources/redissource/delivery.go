package redissource

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/redisprogress"
)

// keyHash is what package progress knows of a key: 0 is no key.
func keyHash(key string) uint64 {
	if key == "" {
		return 0
	}
	return max(1, xxhash.Sum64String(key))
}

// delivery makes the task of an envelope at a position that was tried before, or
// not. Its strings share the memory of the envelope.
func delivery(e *envelope, pos int64, t redisprogress.Tried, g partition.Grant, tok partition.Token) sources.Task {
	first := e.firstError
	if first == "" {
		first = t.FirstError
	}
	return sources.Task{
		ID: e.id, Type: e.typ, Key: e.key, Payload: e.payload, Headers: e.headers, Born: e.born,
		Attempt: max(e.tries, t.Tries) + 1, Crashes: e.crashes + t.Crashes, NotBefore: t.NotBefore,
		Grant: g, Token: tok, Receipt: sources.Receipt(pos), FirstError: first,
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

// firstOf is the first error of a task whose last run ended with reason.
func firstOf(t *sources.Task, reason string) string {
	if t.FirstError != "" {
		return t.FirstError
	}
	return reason
}

// maxError is how much of a first error is kept in :tries.
const maxError = 1024

func short(reason string) string {
	if len(reason) > maxError {
		return reason[:maxError]
	}
	return reason
}

// bury makes the dead letter of a task whose run ended with s, after so many attempts.
func bury(s *sources.Settlement, attempts int, now time.Time) []byte {
	t := s.Task
	return appendLetter(nil, &letter{
		position: int64(t.Receipt), attempts: attempts, crashes: t.Crashes, at: now,
		reason: s.Reason, firstError: firstOf(t, s.Reason),
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
