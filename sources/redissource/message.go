package redissource

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/countoff/countoff/partition"
)

// A Message is what a producer says of one task.
type Message struct {
	// ID names the task within the name. Default: 20 characters, random and ordered
	// by time.
	ID      string
	Type    string // picks the handler; may be empty
	Key     string // partition and order; empty: any partition (one of its ID if it is Unique), no order
	Payload []byte
	Headers map[string]string
	// At is when the task may first be handled, by the store's clock; Delay is the same, counted
	// from when the store hears of it. If both are zero that is at once; only one may be set. A
	// scheduled task comes after those that were enqueued meanwhile, also of its key. At, Delay
	// and UniqueFor may be 100 years ahead at most.
	At    time.Time
	Delay time.Duration
	// Unique asks that no other unique task with this ID waits or runs in the partition of this
	// Key, or without a Key in that of this ID: if one does, this message is a duplicate. The
	// lock ends when the task is done or dead, at the latest UniqueFor after it was due. It needs
	// an ID. A task that was enqueued without Unique is not seen.
	Unique bool
	// UniqueFor bounds Unique. Default 24 h, at least 1 ms.
	UniqueFor time.Duration
}

const (
	defaultUnique = 24 * time.Hour
	// maxAhead bounds all times of a message: the milliseconds of a Duration overflow, and what the
	// store then says of one message would be said of all that travel with it.
	maxAhead = 100 * 365 * 24 * time.Hour
	// maxBody is the most that Redis takes as one argument, unless it is configured otherwise. It hangs up on who
	// sends more: no answer would ever come, and all that waits behind it would be held up meanwhile.
	maxBody = 512 << 20
)

// A Result is what became of a Message.
type Result struct {
	ID        string
	Partition partition.ID
	// Duplicate says that nothing was enqueued, since a unique task with this ID is
	// there: also where the producer's Replicas must have it.
	Duplicate bool
	// Err is nil if the task was enqueued or is a duplicate. It wraps ErrBacklog,
	// ErrUnknown (also as a *ReplicasError), partition.ErrConfig, sources.ErrClosed, the context's error or what
	// the store said; but for ErrUnknown the task was not enqueued.
	Err error
}

var (
	// ErrBacklog means that the log of the message's partition is as long as the
	// producer's MaxBacklog allows.
	ErrBacklog = errors.New("the backlog is full")
	// ErrUnknown means that the message was sent and not answered: it may have been enqueued, or
	// may still be. To enqueue it again may double it: if it is unique, under the same ID, both
	// times, only where the first was handled before the second comes.
	ErrUnknown = errors.New("unknown whether it was enqueued")
)

// homeOfUnique is the partition, of total, of a unique task without a key: always the same, since
// it is there that the lock of its ID is looked for.
func homeOfUnique(id string, total int) partition.ID { return partition.Of(id, total) }

// check says what is wrong with m. now is about the time.
func (m *Message) check(hash partition.Hash, now time.Time) error {
	var errs []error
	if !m.At.IsZero() && m.Delay != 0 {
		errs = append(errs, errors.New("both At and Delay are set"))
	}
	if m.Delay < 0 || m.Delay > maxAhead {
		errs = append(errs, fmt.Errorf("a delay of %v: want from 0 to 100 years", m.Delay))
	}
	if m.At.Sub(now) > maxAhead {
		errs = append(errs, fmt.Errorf("at %v: want at most 100 years ahead", m.At))
	}
	if m.Unique && m.ID == "" {
		errs = append(errs, errors.New("unique without an ID"))
	}
	if m.UniqueFor < 0 || m.UniqueFor > 0 && m.UniqueFor < time.Millisecond || m.UniqueFor > maxAhead {
		errs = append(errs, fmt.Errorf("unique for %v: want from 1 ms to 100 years", m.UniqueFor))
	}
	if m.Key != "" {
		if _, err := hash.Of(m.Key, 1); err != nil {
			errs = append(errs, err)
		}
	}
	if size := m.size(); size > maxBody {
		errs = append(errs, fmt.Errorf("%d bytes: want at most 512 MB, with key, type and headers: put the data elsewhere, and where it is into the payload", size))
	}
	return errors.Join(errs...)
}

// size is about how many bytes the envelope of m has, never less.
func (m *Message) size() int {
	size := 96 + len(m.ID) + len(m.Type) + len(m.Key) + len(m.Payload)
	for name, value := range m.Headers {
		size += 20 + len(name) + len(value)
	}
	return size
}

// ids are the characters of base64 for URLs, in an order in which they sort as their values do.
var ids = base64.NewEncoding("-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")

// noDash makes the first character of an ID, which would be a dash before the year 2109, a 0: what
// begins with a dash is a flag to a shell's commands.
const noDash = 1 << 42

// newID returns 120 bits as 20 characters that sort by time: 48 bits of milliseconds and
// 72 random ones. A million in one millisecond have one chance in ten thousand million
// that two are the same.
func newID(now time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli()|noDash)<<16|rand.Uint64()&0xffff)
	binary.BigEndian.PutUint64(b[8:], rand.Uint64())
	return ids.EncodeToString(b[:15])
}
