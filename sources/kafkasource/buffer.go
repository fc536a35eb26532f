package kafkasource

import "github.com/twmb/franz-go/pkg/kgo"

// A buffer holds what was read of a partition and not taken in. It is paused when it
// has most bytes and goes on at half of that: the client throws away what it had
// fetched of a paused partition, so this should not happen with every record.
type buffer struct {
	most    int
	records []*kgo.Record
	bytes   int
	paused  bool
}

func (b *buffer) put(records []*kgo.Record) {
	b.records = append(b.records, records...)
	for _, r := range records {
		b.bytes += weight(r)
	}
}

// full reports whether the partition is to be paused, and notes that it is.
func (b *buffer) full() bool {
	if b.bytes >= b.most {
		b.paused = true
	}
	return b.paused
}

// thirsty reports whether a paused partition is to go on, and notes that it does.
func (b *buffer) thirsty() bool {
	if b.paused && b.bytes <= b.most/2 {
		b.paused = false
		return true
	}
	return false
}

// next takes out the oldest records, limit at most. They are in the buffer's memory: who
// has done with them clears it, before anything is put in.
func (b *buffer) next(limit int) []*kgo.Record {
	n := min(limit, len(b.records))
	records := b.records[:n]
	b.records = b.records[n:]
	for _, r := range records {
		b.bytes -= weight(r)
	}
	return records
}

// weight is about what a record takes.
func weight(r *kgo.Record) int {
	n := 128 + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}
