package kafkasource

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
)

// TestShelf compares it with a map, over positions with and without gaps, of which one
// stays while all others come and go.
func TestShelf(t *testing.T) {
	t.Parallel()
	for _, gap := range []int64{1, 3} {
		var s shelf
		want := map[int64]*kgo.Record{}
		var open []int64
		random := rand.New(rand.NewPCG(1, uint64(gap)))
		pos := int64(100)
		for i := range 20_000 {
			if len(open) < 50 && random.IntN(2) == 0 {
				pos += 1 + random.Int64N(gap)
				r := &kgo.Record{Offset: pos}
				s.put(r)
				want[pos] = r
				open = append(open, pos)
			} else if len(open) > 1 {
				at := 1 + random.IntN(min(len(open)-1, 8)) // the first one stays
				s.remove(open[at])
				s.remove(open[at]) // what is not there may be removed
				delete(want, open[at])
				open = append(open[:at], open[at+1:]...)
			}
			if s.open != len(want) {
				t.Fatalf("gap %d, step %d: %d are open, want %d", gap, i, s.open, len(want))
			}
			for _, near := range []int64{open0(open), pos - random.Int64N(60), pos + 1, 99} {
				if got := s.at(near); got != want[near] {
					t.Fatalf("gap %d, step %d: at %d is %v, want %v", gap, i, near, got, want[near])
				}
			}
		}
		if most := 256; cap(s.row) > most {
			t.Errorf("gap %d: %d places for at most 50 records", gap, cap(s.row))
		}
	}
}

func open0(open []int64) int64 {
	if len(open) == 0 {
		return 0
	}
	return open[0]
}

// TestTakeAllocations holds the price of a record on its way through a stream: what is
// taken in together shares its memory, and tasks without a past and without headers share
// one Delivery.
func TestTakeAllocations(t *testing.T) {
	const batch = 256
	s := &stream{source: new(Source), Stream: &logstream.Stream{Log: progress.New(progress.Config{}, progress.Opened{})}, prefix: "orders-7-", first: &sources.Delivery{Attempt: 1}}
	records, all, next := make([]*kgo.Record, batch), make([]int64, batch), int64(0)
	var tasks []sources.Task
	through := func() {
		for i := range records {
			records[i] = &kgo.Record{Key: []byte("customer"), Value: []byte("order"), Offset: next}
			all[i] = next
			next++
		}
		s.take(records, false)
		tasks = s.Held.Take(nil, all)
		for i := range tasks {
			s.settle(int64(tasks[i].Receipt), progress.Done, 1, progress.Content{})
		}
		var r progress.Request
		s.Log.Compose(0, false, s.Log.Seq(), &r)
		s.Log.Apply(&r, progress.Answer{Status: progress.Admitted, Base: next, Gate: next})
	}
	made := testing.AllocsPerRun(1, func() {
		for i := range records {
			records[i] = &kgo.Record{Key: []byte("customer"), Value: []byte("order")}
		}
	})
	through() // rings and rows grow to their size
	if got := testing.AllocsPerRun(20, through) - made; got > batch/20 {
		t.Errorf("%v allocations for %d records", got, batch)
	}
	for i, task := range tasks {
		id := fmt.Sprint("orders-7-", next-batch+int64(i))
		if task.ID != id || task.Key != "customer" || string(task.Payload) != "order" || task.Delivery != s.first {
			t.Fatalf("task %d is %+v, want the ID %s", i, task, id)
		}
	}
}

// A buffer is full when its share is used up, and not before. One that was paused goes on when half of it
// is free, once.
func TestBuffer(t *testing.T) {
	t.Parallel()
	header := kgo.RecordHeader{Key: "key", Value: make([]byte, 97)}
	r := &kgo.Record{Key: make([]byte, 100), Value: make([]byte, 572), Headers: []kgo.RecordHeader{header, header}} // 1,000 bytes
	b := buffer{most: 4000}
	b.put([]*kgo.Record{r, r, r})
	if b.full() || b.thirsty() {
		t.Errorf("with %d of %d bytes it is full, or goes on without a pause", b.bytes, b.most)
	}
	b.put([]*kgo.Record{r})
	if !b.full() || b.thirsty() {
		t.Errorf("with %d of %d bytes it is not full, or goes on without a pause", b.bytes, b.most)
	}
	if _, paused := b.judge(b.bytes, patience); !paused {
		t.Errorf("with %d of %d bytes it is not paused", b.bytes, b.most)
	}
	if b.next(1); b.thirsty() {
		t.Errorf("with %d of %d bytes it goes on", b.bytes, b.most)
	}
	if b.next(1); !b.thirsty() || b.thirsty() {
		t.Errorf("with %d of %d bytes it does not go on, or twice", b.bytes, b.most)
	}
	if b := (&buffer{}); b.full() {
		t.Error("there is nothing in it, and it is full")
	}
}

// A full buffer is waited for as long as it may be taken from in time, and paused if not: at the first glance if
// nobody takes anything, or too slowly.
func TestFullIsWaitedFor(t *testing.T) {
	t.Parallel()
	const most, from = 4000, 5000 // 1,001 bytes are wanted
	for _, c := range []struct {
		what        string
		taken       int
		passed      time.Duration
		wait, pause bool
	}{
		{"nothing is taken yet", 0, glance - 1, true, false},
		{"nobody takes anything", 0, glance, false, true},
		{"it is taken from too slowly", 200, glance, false, true},
		{"it is taken from fast enough", 201, glance, true, false},
		{"it has slowed down", 500, patience / 2, false, true},
		{"there is one byte too much", 1000, patience, false, true},
		{"it is not full any more", 1001, patience, false, false},
	} {
		b := buffer{most: most, bytes: from - c.taken}
		if wait, pause := b.judge(from, c.passed); wait != c.wait || pause != c.pause || b.paused != c.pause {
			t.Errorf("%s: wait %v, pause %v, and it is noted %v", c.what, wait, pause, b.paused)
		}
	}
}

// Something to do that comes while the last stream goes is done all the same.
func TestAnOrderAtTheEnd(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	r := &s.source(Config{}).reader
	done := make(chan struct{})
	_ = r.carryOut(t.Context(), func() { r.order(order{func() {}, done}) })
	select {
	case <-done:
	case <-s.soon().Done():
		t.Error("it was never carried out")
	}
}

// However much a peer may read ahead, one partition gets no more of it than it can use.
func TestMostOfABuffer(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 1)
	st := s.open(s.source(Config{}), 0)
	s.take(st, 1)
	st.Mu.Lock()
	defer st.Mu.Unlock()
	if st.buffer.most != mostBuffered {
		t.Errorf("the only partition may have %d bytes, want %d", st.buffer.most, mostBuffered)
	}
}

// Whoever takes from a full buffer says so if it is not full any more, and the wait for it is over then: the client has
// the next fetch already.
func TestTakenFromWhileFull(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	src := s.source(Config{})
	st := s.open(src, 0)
	r := &src.reader
	s.push(0, "t", 1)
	s.until("it is read", func() bool {
		st.Mu.Lock()
		defer st.Mu.Unlock()
		st.buffer.most = 1
		return st.buffer.full()
	})
	ctx, told, left := s.soon(), false, -1
	if err := r.carryOut(ctx, func() { // meanwhile nobody else hears it
		if _, err := st.Fetch(ctx, 1); err != nil || len(r.ebbed) == 0 {
			return
		}
		told = true
		r.brim, r.since = []brimming{{st, 1}}, time.Now().Add(time.Hour) // its patience does not end
		r.wait(context.Background())
		left = len(r.brim)
	}); err != nil || !told || left != 0 {
		t.Errorf("it was told: %v; the reader waits for %d streams: %v", told, left, err)
	}
}

// A fetch brings a quarter of what a partition may hold, so that whoever is too slow for the patience with a full
// buffer has enough in half of it.
func TestAFetchBringsAQuarter(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	for _, c := range []struct {
		streams int
		want    int32
	}{{1, mostBuffered / 4}, {64, 64 << 20 / 64 / 4}, {10_000, leastFetched}} {
		r := newReader(s.client, &Config{Topic: s.topic, Buffer: 64 << 20})
		for p := range int32(c.streams) {
			r.streams[p] = nil
		}
		r.each = mostFetched
		if r.bound(); s.client.OptValue(kgo.FetchMaxPartitionBytes) != c.want {
			t.Errorf("with %d partitions a fetch brings %v bytes of each, want %d", c.streams, s.client.OptValue(kgo.FetchMaxPartitionBytes), c.want)
		}
	}
}

// A partition that is given away while the reader waits for its full buffer is not paused after that: whoever
// has it next would read nothing.
func TestGivenAwayWhileFull(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	src := s.source(Config{})
	st, left := s.open(src, 0), -1
	if err := src.reader.carryOut(s.soon(), func() {
		src.reader.brim = []brimming{{st, mostBuffered}}
		src.reader.drop(0)
		left = len(src.reader.brim)
	}); err != nil || left != 0 {
		t.Errorf("the reader waits for %d streams that it has not got: %v", left, err)
	}
}
