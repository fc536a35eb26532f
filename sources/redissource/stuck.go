package redissource

import (
	"context"
	"strconv"
	"time"

	"github.com/countoff/countoff/partition"
)

// Stuck says that a partition is read no further, or again.
type Stuck struct {
	Grant partition.Grant
	// Key is the key of the task at the head, and Position where that is in the
	// log.
	Key      string
	Position int64
	Over     bool // it is read again
}

// watch tells when a Fetch begins to wait because too much is stuck behind one
// task, and when that is over.
func (s *stream) watch(ctx context.Context) {
	if s.source.cfg.Stuck == nil {
		return
	}
	s.Mu.Lock()
	pos, stuck, news := s.Stuck(time.Now())
	s.Mu.Unlock()
	if !news {
		return
	}
	e := Stuck{Grant: s.Grant, Position: pos, Over: !stuck}
	if stuck {
		// The caller has the task; the key is worth a round trip of its own.
		element, err := s.source.client.HGet(ctx, s.keys.Lifted, strconv.FormatInt(pos, 10)).Result()
		if envelope, bad := parseEnvelope(element); err == nil && bad == nil {
			e.Key = envelope.key
		}
	}
	s.source.cfg.Stuck(e)
}
