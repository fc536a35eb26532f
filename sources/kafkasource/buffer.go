package kafkasource

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A buffer holds what was read of a partition and not taken in. It is full when it has
// most bytes. A full one that is not taken from soon is paused, and goes on at half: the client
// throws away what it had fetched of a paused partition, and asks for one that goes on only
// with its next fetch, which waits for records of the others. So this should not happen often.
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

// full reports whether the share is used up, however small that is.
func (b *buffer) full() bool { return b.bytes >= max(b.most, 1) }

const (
	// patience is how long the reader waits at most for full buffers to be taken from. A fetch brings a
	// quarter of the share: whoever takes longer for that has enough in the half at which a
	// paused partition goes on for the time that this costs, which is fetchWait at most. Of shares so
	// small that leastFetched is more than a quarter this does not hold: those stand still for a part of it.
	patience = fetchWait / 2
	// glance is after how long it looks whether the rest of its patience will do.
	glance = patience / 5
)

// judge says of a buffer that had from bytes when the reader began to wait, passed ago, whether to
// wait on, or to pause it, which it notes; neither if it is not full any more.
func (b *buffer) judge(from int, passed time.Duration) (wait, pause bool) {
	if !b.full() {
		return false, false
	}
	taken, wanted := from-b.bytes, from-b.most+1
	inTime := int64(taken)*int64(patience) >= int64(wanted)*int64(passed)
	if passed < glance || inTime {
		return true, false
	}
	b.paused = true
	return false, true
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
