package kafkasource

import (
	"cmp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A shelf holds the records of positions that were taken in and are open. They are put
// there by position and mostly taken away in about that order, so that a row does, of
// which what is taken away first becomes free. Where positions have no gaps the first
// guess finds one.
type shelf struct {
	row   []shelved
	first int // of the row: those before are free
	open  int // so many of the row were not taken away
}

type shelved struct {
	pos    int64
	record *kgo.Record // nil: taken away
}

// put adds a record whose position is above all others.
func (s *shelf) put(r *kgo.Record) {
	if len(s.row) == cap(s.row) && 2*s.open <= len(s.row) {
		s.tidy()
	}
	s.row = append(s.row, shelved{r.Offset, r})
	s.open++
}

// at returns the record of a position, or nil.
func (s *shelf) at(pos int64) *kgo.Record {
	if i, ok := s.find(pos); ok {
		return s.row[i].record
	}
	return nil
}

// longWait is the shortest wait for which a record is copied: what comes again sooner soon lets go
// of what was fetched with it.
const longWait = time.Second

// keep replaces the record of a position, if it is there, by one with memory of its own.
func (s *shelf) keep(pos int64) {
	if i, ok := s.find(pos); ok && s.row[i].record != nil {
		s.row[i].record = apart(s.row[i].record)
	}
}

// apart returns a copy of r with memory of its own. The client's records lie in that of their batch,
// and so do their keys, their values and those of their headers: one that waits for an hour would keep
// all of it, a megabyte for a record of a hundred bytes, and no limit counts that.
func apart(r *kgo.Record) *kgo.Record {
	size := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		size += len(r.Headers[i].Value)
	}
	own := make([]byte, 0, size)
	take := func(b []byte) []byte {
		if b == nil {
			return nil // a tombstone stays one
		}
		at := len(own)
		own = append(own, b...)
		return own[at:len(own):len(own)]
	}
	c := *r
	c.Context = nil // who gives the client a pool finds the batch there
	c.Key, c.Value, c.Headers = take(r.Key), take(r.Value), slices.Clone(r.Headers)
	for i := range c.Headers {
		c.Headers[i].Value = take(c.Headers[i].Value)
	}
	return &c
}

// remove takes the record of a position away, if it is there.
func (s *shelf) remove(pos int64) {
	i, ok := s.find(pos)
	if !ok || s.row[i].record == nil {
		return
	}
	s.row[i].record = nil
	s.open--
	for s.first < len(s.row) && s.row[s.first].record == nil {
		s.first++
	}
}

func (s *shelf) find(pos int64) (i int, ok bool) {
	row := s.row[s.first:]
	if len(row) == 0 || pos < row[0].pos {
		return 0, false
	}
	if i := pos - row[0].pos; i < int64(len(row)) && row[i].pos == pos {
		return s.first + int(i), true
	}
	i, ok = slices.BinarySearchFunc(row, pos, func(e shelved, pos int64) int { return cmp.Compare(e.pos, pos) })
	return s.first + i, ok
}

// tidy closes the gaps.
func (s *shelf) tidy() {
	row := s.row[:0]
	for _, e := range s.row[s.first:] {
		if e.record != nil {
			row = append(row, e)
		}
	}
	clear(s.row[len(row):])
	s.row, s.first = row, 0
}
