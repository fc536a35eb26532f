package kafkasource

import (
	"time"

	"github.com/countoff/countoff/partition"
)

// Stuck says that a partition is read no further, or again.
type Stuck struct {
	Grant partition.Grant
	// Key is the key of the task at the head, and Position its offset.
	Key      string
	Position int64
	Over     bool // it is read again
}

// watch tells when a Fetch begins to wait because too much is stuck behind one
// task, and when that is over.
func (s *stream) watch() {
	if s.source.cfg.Stuck == nil {
		return
	}
	s.Mu.Lock()
	pos, stuck, news := s.Stuck(time.Now())
	e := Stuck{Grant: s.Grant, Position: pos, Over: !stuck}
	if r := s.records.at(pos); stuck && r != nil {
		e.Key = string(r.Key)
	}
	s.Mu.Unlock()
	if news {
		s.source.cfg.Stuck(e)
	}
}
