package asynqsource

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countoff/countoff/sources/asynqsource/internal/wire"
)

// The headers that [Client] adds to a task. Handlers of asynq see them, a
// sources.Task does not.
const (
	// HeaderKey holds the key of a task.
	HeaderKey = "countoff-key"
	// HeaderBorn holds when it was enqueued, in milliseconds since 1970.
	HeaderBorn = "countoff-born"
)

// The numbers of the fields of asynq's TaskMessage (internal/proto/asynq.proto) that
// are read or appended here. In proto3 a field that comes again replaces the former.
const (
	fieldType        = 1
	fieldPayload     = 2
	fieldID          = 3
	fieldQueue       = 4
	fieldMost        = 5
	fieldRetried     = 6
	fieldError       = 7
	fieldUniqueKey   = 10
	fieldFailedAt    = 11
	fieldRetention   = 12
	fieldCompletedAt = 13
	fieldGroup       = 14
	fieldHeaders     = 15
)

// A message is what is read of a TaskMessage.
type message struct {
	id, typ, queue string
	payload        []byte
	headers        map[string]string // without ours
	key            string
	born           time.Time
	uniqueKey      string
	retried, most  int   // how often it was tried again, and may be
	retention      int64 // seconds
}

var errMessage = errors.New("asynqsource: a task's message cannot be read")

// parseMessage reads an encoded TaskMessage. Fields that are not known are passed over.
func parseMessage(raw string) (m message, err error) {
	err = wire.Fields(raw, func(field int, n uint64, s string) error {
		switch field {
		case fieldType, fieldID, fieldQueue, fieldError, fieldUniqueKey, fieldGroup:
			// asynq refuses a message with text that is none, and says so to nobody.
			if !utf8.ValidString(s) {
				return errMessage
			}
		}
		switch field {
		case fieldType:
			m.typ = s
		case fieldPayload:
			m.payload = []byte(s)
		case fieldID:
			m.id = s
		case fieldQueue:
			m.queue = s
		case fieldMost:
			m.most = int(int32(n))
		case fieldRetried:
			m.retried = int(int32(n))
		case fieldUniqueKey:
			m.uniqueKey = s
		case fieldRetention:
			m.retention = int64(n)
		case fieldHeaders:
			return m.header(s)
		}
		return nil
	})
	if err != nil || m.id == "" {
		return m, errMessage
	}
	return m, nil
}

// header takes in one entry of the map of headers.
func (m *message) header(entry string) error {
	var name, value string
	err := wire.Fields(entry, func(field int, _ uint64, s string) error {
		if !utf8.ValidString(s) {
			return errMessage
		}
		switch field {
		case 1:
			name = s
		case 2:
			value = s
		}
		return nil
	})
	switch name {
	case HeaderKey:
		m.key = value
	case HeaderBorn:
		if ms, err := strconv.ParseInt(value, 10, 64); err == nil {
			m.born = time.UnixMilli(ms)
		}
	default:
		if m.headers == nil {
			m.headers = make(map[string]string)
		}
		m.headers[name] = value
	}
	return err
}

func appendNumber(b []byte, field int, n uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(field)<<3), n)
}

func appendText(b []byte, field int, s string) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(field)<<3|2), uint64(len(s)))
	return append(b, s...)
}

func appendHeader(b []byte, name, value string) []byte {
	return appendText(b, fieldHeaders, string(appendText(appendText(nil, 1, name), 2, value)))
}

// headersOf returns the headers of raw, as they are encoded.
func headersOf(raw string) (headers []byte) {
	_ = wire.Fields(raw, func(field int, _ uint64, s string) error { // what cannot be read has none
		if field == fieldHeaders {
			headers = appendText(headers, fieldHeaders, s)
		}
		return nil
	})
	return headers
}

// retriedOf is how often the task of raw was tried again.
func retriedOf(raw string) (times int) {
	_ = wire.Fields(raw, func(field int, n uint64, _ string) error { // what cannot be read was not
		if field == fieldRetried {
			times = int(int32(n))
		}
		return nil
	})
	return times
}

// failed is raw after one more run that failed: retried as often as given, with its
// error and when that was.
func failed(raw string, retried int, reason string, at time.Time) string {
	return string(withError(appendNumber(wire.Without(raw, fieldRetried, fieldError, fieldFailedAt), fieldRetried, uint64(max(retried, 0))), reason, at))
}

// archived is raw as a dead letter: asynq does not count the last failure as a retry.
func archived(raw, reason string, at time.Time) string {
	return string(withError(wire.Without(raw, fieldError, fieldFailedAt), reason, at))
}

// withError is b, which says nothing of an error, with one: of what is only added to, a task that
// is tried for long would become larger with each run.
func withError(b []byte, reason string, at time.Time) []byte {
	return appendNumber(appendText(b, fieldError, strings.ToValidUTF8(reason, "?")), fieldFailedAt, uint64(at.Unix()))
}

// completed is raw as a result that is kept.
func completed(raw string, at time.Time) string {
	return string(appendNumber([]byte(raw), fieldCompletedAt, uint64(at.Unix())))
}
