package kafkasource

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
)

// A stream is one ownership of one partition. The reader brings records; the round trips
// go to the store (stream_io.go).
type stream struct {
	*logstream.Stream
	source *Source
	token  partition.Token
	opened time.Time
	first  *sources.Delivery // of all tasks without a past and without headers
	prefix string            // of the ids of its tasks
	life   string            // of the topic that it reads

	// Of the goroutine, and of Close after it.
	trip     trip
	unburied error // why Close could not bury what is dead; nil: it could

	dead   chan struct{} // holds a value if there may be something to bury
	buried chan struct{} // closed when only Close does

	// The stream's lock guards the rest.
	buffer  buffer                      // read and not taken in
	content map[uint64]progress.Content // of verdicts that are not answered
	letters map[uint64]*letter          // of dead tasks that are not answered
	tried   map[int64]progress.Tried    // of positions that were not taken in yet
	records shelf                       // of open positions that were taken in
	passed  redeliveries                // tasks that come again
	said    time.Time                   // when the store last answered
	corpses []*corpse                   // not on the dead topic, ascending
	ahead   []*corpse                   // those of them that were not taken in, ascending
	readErr error                       // why nothing is read; told to the next Fetch
	gone    bool                        // the topic has not got any more what was read
}

func newStream(src *Source, g partition.Grant, tok partition.Token, f progress.Found, lifted []*kgo.Record, corpses []*corpse) *stream {
	s := &stream{
		source: src, token: tok, opened: time.Now(), first: &sources.Delivery{Grant: g, Token: tok, Attempt: 1}, prefix: fmt.Sprintf("%s-%d-", src.cfg.Topic, g.ID),
		life:    f.Life,
		content: make(map[uint64]progress.Content),
		letters: make(map[uint64]*letter),
		tried:   f.Tried,
		said:    time.Now(),
		dead:    make(chan struct{}, 1), buried: make(chan struct{}),
	}
	s.Stream = logstream.New(s, g, progress.New(src.limits(), f.Opened), &src.permit)
	s.corpses, s.ahead = slices.Clone(corpses), slices.Clone(corpses)
	s.take(lifted, true)
	s.withhold(f.Base-1, true)
	s.Start(s.burials)
	return s
}

// take takes in records of the log, by position. The caller holds the lock, or nobody else
// knows s.
func (s *stream) take(records []*kgo.Record, lifted bool) {
	s.Held.Grow(len(records))
	n := names{prefix: s.prefix}
	n.grow(records)
	for _, r := range records {
		s.takeOne(r, lifted, &n)
	}
}

// withhold takes in what nobody may start up to pos, and reports whether pos is of it.
func (s *stream) withhold(pos int64, lifted bool) (is bool) {
	for len(s.ahead) > 0 && s.ahead[0].pos <= pos {
		c := s.ahead[0]
		s.ahead = s.ahead[1:]
		delete(s.tried, c.pos)
		if lifted {
			s.Log.AddLifted(c.pos, logstream.KeyHash(c.record.Key))
		} else {
			s.Log.Add(c.pos, logstream.KeyHash(c.record.Key))
		}
		s.Log.Withhold(c.pos)
		c.taken, is = true, c.pos == pos
	}
	return is
}

func (s *stream) takeOne(r *kgo.Record, lifted bool, n *names) {
	if len(s.tried) > 0 && !lifted && r.Offset > s.Log.Read() {
		s.miss(r.Offset)
	}
	if len(s.ahead) > 0 && s.withhold(r.Offset, lifted) {
		return
	}
	if r.Attrs.IsControl() || foreign(r, s.source.name) {
		s.Log.Skip(r.Offset + 1)
		return
	}
	var tried progress.Tried
	had := false
	if len(s.tried) > 0 {
		tried, had = s.tried[r.Offset]
		delete(s.tried, r.Offset)
	}
	if lifted {
		s.Log.AddLifted(r.Offset, logstream.KeyHash(r.Key))
	} else if !s.Log.Add(r.Offset, logstream.KeyHash(r.Key)) {
		return // finished by an earlier owner
	}
	if had {
		s.Log.Tried(r.Offset, tried.Tries, tried.NotBefore)
		if time.Until(tried.NotBefore) >= longWait {
			r = apart(r)
		}
	}
	if tried.Crashes > 0 {
		s.Log.Accused(r.Offset)
	}
	s.records.put(r)
	d := s.first
	if headers := headersOf(r); had || headers != nil {
		d = &sources.Delivery{
			Grant: s.Grant, Token: s.token, Attempt: tried.Attempts() + 1, Waits: tried.Waits, Crashes: tried.Crashes,
			FirstError: tried.FirstError, NotBefore: tried.NotBefore, Headers: headers,
		}
	}
	deliver(s.Held.Next(), r, d, n)
}

// arrive takes what the reader brings, and returns how many bytes are held if the share is full, or
// whether the partition is to be paused at once.
func (s *stream) arrive(f *kgo.FetchPartition, share int) (full int, pause bool) {
	s.Mu.Lock()
	expected := s.Log.Read()
	if n := len(s.buffer.records); n > 0 {
		expected = s.buffer.records[n-1].Offset + 1
	}
	if f.LogStartOffset > expected {
		// The client does not tell of a position that is gone if it did not know the
		// topic yet when it was added: it goes on where the topic begins now.
		s.Mu.Unlock()
		s.readFailed(kerr.OffsetOutOfRange)
		return 0, true
	}
	s.buffer.most = share
	s.buffer.put(f.Records)
	if s.buffer.full() {
		full = s.buffer.bytes
	}
	s.Mu.Unlock()
	s.Nudge()
	return full, false
}

// judge is that of its buffer.
func (s *stream) judge(from int, passed time.Duration) (wait, pause bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.buffer.judge(from, passed)
}

// paused takes in that the reader has paused the partition.
func (s *stream) paused() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.buffer.paused = true
}

// readFailed takes in that the reader cannot read the partition.
func (s *stream) readFailed(err error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if gone(err) {
		s.gone = true
		s.End(&goneError{s.source.cfg.Topic, err})
		return
	}
	s.readErr = explain(err)
	if s.TellFetch(s.readErr) && !final(err) {
		s.readErr = nil
	}
}

// Trouble returns why nothing is read. What the reader has met is told once, and tried
// again, if the client does so. The caller holds the lock.
func (s *stream) Trouble() error {
	err := s.readErr
	if !final(err) {
		s.readErr = nil
	}
	if err == nil && s.buffer.thirsty() {
		s.source.reader.resume(s)
	}
	return err
}

// Beside hands out what comes again. The caller holds the lock.
func (s *stream) Beside(now time.Time, limit int) (tasks []sources.Task, due time.Time) {
	tasks = s.passed.take(now, limit)
	return tasks, s.passed.due()
}

// Close ends the ownership: what was settled is said to the end, then the fence is
// cleared. Before that nothing of the partition is read any more.
func (s *stream) Close(ctx context.Context) error {
	first := s.Stop()
	s.Wait(ctx)
	if first {
		s.source.reader.remove(ctx, s)
		defer s.source.mirror.remove(ctx, s)
	}
	return s.Finish(ctx)
}
