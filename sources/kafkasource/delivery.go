package kafkasource

import (
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
)

// born is when a record was made: 0 of one without a time, which Kafka says as -1 ms.
func born(r *kgo.Record) sources.Moment {
	if r.Timestamp.UnixMilli() == -1 {
		return 0
	}
	return sources.MomentOf(r.Timestamp)
}

// deliver makes t, which is zero, the task of a record. The plain fields come first, as
// those of every task are written: see redissource.
func deliver(t *sources.Task, r *kgo.Record, d *sources.Delivery, n *names) {
	t.Born, t.Receipt = born(r), sources.Receipt(r.Offset)
	t.Key, t.Payload, t.Delivery = n.text(r.Key), r.Value, d
	for i := range r.Headers {
		switch h := &r.Headers[i]; h.Key {
		case HeaderID:
			t.ID = n.text(h.Value)
		case HeaderType:
			t.Type = n.text(h.Value)
		}
	}
	if t.ID == "" {
		t.ID = n.id(r.Offset)
	}
}

// headersOf returns the headers of a record that say neither the id nor the type of its
// task; nil if there are none. Of one that is there more than once the last counts.
func headersOf(r *kgo.Record) map[string]string {
	var headers map[string]string
	for i := range r.Headers {
		h := &r.Headers[i]
		if h.Key == HeaderID || h.Key == HeaderType || h.Key == HeaderFor {
			continue
		}
		if headers == nil {
			headers = make(map[string]string, len(r.Headers))
		}
		headers[h.Key] = string(h.Value)
	}
	return headers
}

// names are the keys and ids of tasks that are taken in together, in one piece of memory.
// Like the tasks themselves and the payloads it is kept as long as somebody has one of them.
type names struct {
	prefix string
	b      strings.Builder
}

// grow makes room for those of records, which have not got ids of their own.
func (n *names) grow(records []*kgo.Record) {
	if len(records) == 0 {
		return
	}
	var digits [20]byte
	size := len(records) * (len(n.prefix) + len(strconv.AppendInt(digits[:0], records[len(records)-1].Offset, 10)))
	for _, r := range records {
		size += len(r.Key)
	}
	n.b.Grow(size)
}

func (n *names) text(b []byte) string {
	at := n.b.Len()
	n.b.Write(b)
	return n.b.String()[at:]
}

// id is that of a record that does not say one.
func (n *names) id(offset int64) string {
	at := n.b.Len()
	var digits [20]byte
	n.b.WriteString(n.prefix)
	n.b.Write(strconv.AppendInt(digits[:0], offset, 10))
	return n.b.String()[at:]
}

// A death is why a task will not run again.
type death struct {
	reason, first     string
	attempts, crashes int
	gone              bool // the topic has not got the record any more
}

// bury makes the dead letter of a record: the record, with headers that say where it
// was and why it is dead. Those of an earlier death are taken off. Its time is that of
// the death: retention counts from it, and would take away at once what was born long ago.
func (s *Source) bury(r *kgo.Record, d death) *kgo.Record {
	when := ""
	if !born(r).IsZero() {
		when = r.Timestamp.UTC().Format(time.RFC3339Nano)
	}
	l := &kgo.Record{Key: r.Key, Value: r.Value, Partition: r.Partition}
	l.Headers = append(l.Headers, Alive(r.Headers)...)
	if d.gone {
		l.Headers = append(l.Headers, kgo.RecordHeader{Key: HeaderDeadGone, Value: []byte("true")})
	}
	for _, h := range [...]struct{ key, value string }{
		{HeaderDeadName, s.name},
		{HeaderDeadTopic, s.cfg.Topic},
		{HeaderDeadPartition, strconv.Itoa(int(r.Partition))},
		{HeaderDeadOffset, strconv.FormatInt(r.Offset, 10)},
		{HeaderDeadBorn, when},
		{HeaderDeadReason, logstream.Cut(d.reason, mostReason)},
		{HeaderDeadAttempts, strconv.Itoa(d.attempts)},
		{HeaderDeadCrashes, strconv.Itoa(d.crashes)},
		{HeaderDeadFirstError, logstream.Cut(d.first, mostReason)},
	} {
		l.Headers = append(l.Headers, kgo.RecordHeader{Key: h.key, Value: []byte(h.value)})
	}
	return l
}

// mostReason is how much of an error a letter has: the dead topic has no more room than
// letterRoom beside the record, and a letter that it refuses would hold up the partition for ever.
const mostReason = letterRoom / 4

// foreign reports whether r was requeued for another name than this, which is done with it, or has
// it where it was before.
func foreign(r *kgo.Record, name string) bool {
	for i := range r.Headers {
		if h := &r.Headers[i]; h.Key == HeaderFor {
			return string(h.Value) != name
		}
	}
	return false
}

// Alive returns headers without those that a dead letter adds, and a requeue: what the record
// had when it was alive.
func Alive(headers []kgo.RecordHeader) []kgo.RecordHeader {
	var alive []kgo.RecordHeader
	for _, h := range headers {
		if !strings.HasPrefix(h.Key, "countoff-dead-") && h.Key != HeaderFor {
			alive = append(alive, h)
		}
	}
	return alive
}
