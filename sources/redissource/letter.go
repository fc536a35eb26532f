package redissource

import (
	"encoding/binary"
	"fmt"
	"time"
)

// A letter is one element of a :dead list: a task that will not be run again
// unless a person says so, whole, with the reason. Its layout stands in
// docs/protocol.md under "Dead letters".
type letter struct {
	position   int64 // where it was in its log
	attempts   int   // runs that failed
	crashes    int   // runs that a crash ended
	at         time.Time
	reason     string
	firstError string
	// raw says that body is no envelope but bytes that nobody could read, such as
	// an ingress line without the key.
	raw  bool
	body string
}

const (
	letterVersion = 1
	letterRaw     = 1 << 0
)

// encodeLetter returns the encoding of l. The body comes last and has no
// length, so that a script can put a prefix before an envelope it holds.
func encodeLetter(l *letter) []byte {
	var flags byte
	if l.raw {
		flags |= letterRaw
	}
	dst := []byte{letterVersion, flags}
	dst = binary.AppendUvarint(dst, uint64(l.position))
	dst = binary.AppendUvarint(dst, uint64(l.attempts))
	dst = binary.AppendUvarint(dst, uint64(l.crashes))
	dst = binary.AppendVarint(dst, l.at.UnixMicro())
	dst = appendString(dst, l.reason)
	dst = appendString(dst, l.firstError)
	return append(dst, l.body...)
}

// parseLetter reads what encodeLetter wrote.
func parseLetter(s string) (letter, error) {
	r := reader{s: s}
	if v := r.byte("version"); r.err == nil && v != letterVersion {
		return letter{}, fmt.Errorf("%w: dead letter version %d, this build reads version %d", errEnvelope, v, letterVersion)
	}
	flags := r.byte("flags")
	if r.err == nil && flags&^letterRaw != 0 {
		return letter{}, fmt.Errorf("%w: unknown dead letter flags %#x", errEnvelope, flags)
	}
	l := letter{raw: flags&letterRaw != 0}
	l.position = int64(r.uvarint("position"))
	if l.position < 0 {
		r.fail("position", "too large")
	}
	l.attempts = r.count("attempts")
	l.crashes = r.count("crashes")
	l.at = time.UnixMicro(r.varint("time"))
	l.reason = r.string("reason")
	l.firstError = r.string("first error")
	if r.err != nil {
		return letter{}, r.err
	}
	l.body = r.s[r.at:]
	return l, nil
}
