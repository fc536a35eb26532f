package kafkasource

import (
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

// keyHash is what package progress knows of a key: 0 is no key.
func keyHash(key []byte) uint64 {
	if len(key) == 0 {
		return 0
	}
	return max(1, xxhash.Sum64(key))
}

// delivery makes the task of a record that was tried before, or not. Of a header that
// is there more than once the last counts.
func delivery(r *kgo.Record, t progress.Tried, g partition.Grant, tok partition.Token) sources.Task {
	task := sources.Task{
		Key: string(r.Key), Payload: r.Value, Born: r.Timestamp,
		Attempt: t.Tries + 1, Crashes: t.Crashes, NotBefore: t.NotBefore, FirstError: t.FirstError,
		Grant: g, Token: tok, Receipt: sources.Receipt(r.Offset),
	}
	for _, h := range r.Headers {
		switch h.Key {
		case HeaderID:
			task.ID = string(h.Value)
		case HeaderType:
			task.Type = string(h.Value)
		default:
			if task.Headers == nil {
				task.Headers = make(map[string]string, len(r.Headers))
			}
			task.Headers[h.Key] = string(h.Value)
		}
	}
	if task.ID == "" {
		var id [64]byte // one allocation for all of it
		b := append(append(id[:0], r.Topic...), '-')
		b = append(strconv.AppendInt(b, int64(r.Partition), 10), '-')
		task.ID = string(strconv.AppendInt(b, r.Offset, 10))
	}
	return task
}

// firstOf is the first error of a task whose last run ended with reason.
func firstOf(t *sources.Task, reason string) string {
	if t.FirstError != "" {
		return t.FirstError
	}
	return reason
}

// maxError is how much of a first error the store keeps.
const maxError = 1024

func short(reason string) string {
	if len(reason) > maxError {
		return reason[:maxError]
	}
	return reason
}

// A death is why a task will not run again.
type death struct {
	reason, first     string
	attempts, crashes int
}

// bury makes the dead letter of a record: the record, with headers that say where it
// was and why it is dead. Those of an earlier death are taken off. Its time is that of
// the death: retention counts from it, and would take away at once what was born long ago.
func bury(r *kgo.Record, d death, topic string) *kgo.Record {
	l := &kgo.Record{Key: r.Key, Value: r.Value, Partition: r.Partition}
	l.Headers = append(l.Headers, Alive(r.Headers)...)
	for _, h := range [...]struct{ key, value string }{
		{HeaderDeadTopic, topic},
		{HeaderDeadPartition, strconv.Itoa(int(r.Partition))},
		{HeaderDeadOffset, strconv.FormatInt(r.Offset, 10)},
		{HeaderDeadBorn, r.Timestamp.UTC().Format(time.RFC3339Nano)},
		{HeaderDeadReason, d.reason},
		{HeaderDeadAttempts, strconv.Itoa(d.attempts)},
		{HeaderDeadCrashes, strconv.Itoa(d.crashes)},
		{HeaderDeadFirstError, d.first},
	} {
		l.Headers = append(l.Headers, kgo.RecordHeader{Key: h.key, Value: []byte(h.value)})
	}
	return l
}

// Alive returns headers without those that a dead letter adds: what the record had
// when it was alive.
func Alive(headers []kgo.RecordHeader) []kgo.RecordHeader {
	var alive []kgo.RecordHeader
	for _, h := range headers {
		if !strings.HasPrefix(h.Key, "countoff-dead-") {
			alive = append(alive, h)
		}
	}
	return alive
}
