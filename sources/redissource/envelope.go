package redissource

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unsafe"

	"github.com/countoff/countoff/sources"
)

// An envelope is one element of a log: a task and what is known of its past. Its
// layout stands in docs/protocol.md under "Envelope".
type envelope struct {
	id, typ, key string
	born         sources.Moment
	headers      map[string]string
	tries        int    // runs that failed before it was put here
	crashes      int    // runs that a crash ended before it was put here
	firstError   string // the error of the first of those runs
	// unique says that the key :unique:<id> of its partition is held for it, with
	// the value lockValue, until it is done or dead.
	unique  bool
	payload []byte
}

// lockValue is what the key :unique:<id> holds for e. Who releases it compares
// first: a release that runs late, after the lock expired and was taken for the
// next task of this id, must leave it alone.
func (e *envelope) lockValue() string { return strconv.FormatInt(int64(e.born), 10) }

// tried reports whether e has a past.
func (e *envelope) tried() bool { return e.tries > 0 || e.crashes > 0 || e.firstError != "" }

const (
	envelopeVersion = 2

	// What most tasks do not have takes no byte, and no time to read.
	flagUnique    = 1 << 0 // :unique:<id> is held
	flagTried     = 1 << 1 // the counts and the first error follow
	flagHeaders   = 1 << 2 // headers follow
	envelopeFlags = flagUnique | flagTried | flagHeaders
)

// errEnvelope means that bytes found in a log are no envelope this build can read.
var errEnvelope = errors.New("not an envelope")

// appendEnvelope appends the encoding of e to dst. It allocates only where dst is
// too small, or e has more than eight headers.
func appendEnvelope(dst []byte, e *envelope) []byte {
	var flags byte
	if e.unique {
		flags |= flagUnique
	}
	if e.tried() {
		flags |= flagTried
	}
	if len(e.headers) > 0 {
		flags |= flagHeaders
	}
	dst = append(dst, envelopeVersion, flags)
	dst = appendString(dst, e.id)
	dst = appendString(dst, e.typ)
	dst = appendString(dst, e.key)
	dst = binary.AppendVarint(dst, int64(e.born))
	if flags&flagHeaders != 0 {
		dst = appendHeaders(dst, e.headers)
	}
	if flags&flagTried != 0 {
		dst = binary.AppendUvarint(dst, uint64(e.tries))
		dst = binary.AppendUvarint(dst, uint64(e.crashes))
		dst = appendString(dst, e.firstError)
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.payload)))
	return append(dst, e.payload...)
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// appendHeaders writes the headers sorted by name, so that equal envelopes have
// equal bytes.
func appendHeaders(dst []byte, headers map[string]string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(headers)))
	var few [8]string
	names := slices.AppendSeq(few[:0], maps.Keys(headers))
	slices.Sort(names)
	for _, name := range names {
		dst = appendString(appendString(dst, name), headers[name])
	}
	return dst
}

// parseEnvelope reads what appendEnvelope wrote. The strings of the result share
// the memory of s, and so does the payload: nothing is copied. The client has made s
// for this one element, and no other string lies over its last bytes, so that a
// handler that breaks the rule and writes to its payload spoils only that.
func parseEnvelope(s string) (envelope, error) {
	var e envelope
	err := e.parse(s)
	return e, err
}

// parse is parseEnvelope into e, which is zero, and is so again after an error.
func (e *envelope) parse(s string) error {
	r := reader{s: s}
	if v := r.byte("version"); r.err == nil && v != envelopeVersion {
		return fmt.Errorf("%w: version %d, this build reads version %d", errEnvelope, v, envelopeVersion)
	}
	flags := r.byte("flags")
	if r.err == nil && flags&^envelopeFlags != 0 {
		return fmt.Errorf("%w: unknown flags %#x", errEnvelope, flags)
	}
	e.unique = flags&flagUnique != 0
	e.id = r.string("id")
	e.typ = r.string("type")
	e.key = r.string("key")
	e.born = sources.Moment(r.varint("born"))
	if flags&flagHeaders != 0 {
		e.headers = r.headers()
	}
	if flags&flagTried != 0 {
		e.tries = r.count("tries")
		e.crashes = r.count("crashes")
		e.firstError = r.string("first error")
	}
	if p := r.string("payload"); p != "" {
		e.payload = unsafe.Slice(unsafe.StringData(p), len(p))
	}
	if left := len(s) - r.at; r.err == nil && left > 0 {
		r.fail("end", "%d bytes too many", left)
	}
	if r.err != nil {
		*e = envelope{}
	}
	return r.err
}

// A reader reads the fields of s one after the other. After the first fault it only
// returns zero values.
//
// It counts instead of cutting s: what it changes is no pointer then, and needs no
// write barrier, ten times a task, while garbage is collected.
type reader struct {
	s   string
	at  int // what is before is read
	err error
}

func (r *reader) fail(field, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s: %s", errEnvelope, field, fmt.Sprintf(format, args...))
	}
	r.at = len(r.s)
}

func (r *reader) byte(field string) byte {
	if r.at >= len(r.s) {
		r.fail(field, "cut short")
		return 0
	}
	b := r.s[r.at]
	r.at++
	return b
}

func (r *reader) uvarint(field string) uint64 {
	var v uint64
	for i, rest := 0, r.s[r.at:]; i < len(rest) && i < binary.MaxVarintLen64; i++ {
		b := rest[i]
		if b < 0x80 {
			if i == binary.MaxVarintLen64-1 && b > 1 {
				break // over 64 bits
			}
			r.at += i + 1
			return v | uint64(b)<<(7*i)
		}
		v |= uint64(b&0x7f) << (7 * i)
	}
	r.fail(field, "no number")
	return 0
}

func (r *reader) varint(field string) int64 {
	u := r.uvarint(field)
	v := int64(u >> 1)
	if u&1 != 0 {
		v = ^v
	}
	return v
}

// maxCount bounds counts so that they fit an int on every machine.
const maxCount = 1<<31 - 1

func (r *reader) count(field string) int {
	v := r.uvarint(field)
	if v > maxCount {
		r.fail(field, "%d is too large", v)
		return 0
	}
	return int(v)
}

func (r *reader) string(field string) string {
	// Nearly all are short, and there.
	if at := r.at + 1; at <= len(r.s) {
		if end := at + int(r.s[at-1]); end < at+0x80 && end <= len(r.s) {
			r.at = end
			if end == at {
				return "" // and not a pointer to follow
			}
			return r.s[at:end]
		}
	}
	return r.long(field)
}

func (r *reader) long(field string) string {
	n := r.uvarint(field)
	if left := len(r.s) - r.at; n > uint64(left) {
		r.fail(field, "%d bytes announced, %d left", n, left)
		return ""
	}
	if n == 0 {
		return "" // and not a pointer to follow
	}
	s := r.s[r.at : r.at+int(n)]
	r.at += int(n)
	return s
}

func (r *reader) headers() map[string]string {
	n := r.uvarint("headers")
	if n == 0 {
		return nil
	}
	if left := len(r.s) - r.at; n > uint64(left)/2 { // a header takes two bytes at least
		r.fail("headers", "%d announced, %d bytes left", n, left)
		return nil
	}
	headers := make(map[string]string, n)
	for range n {
		name := r.string("header name")
		headers[name] = r.string("header value")
	}
	return headers
}
