package sourcetest

import (
	"context"
	"maps"
	"sync"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// cancelling makes the streams of b hear of what is to be cancelled, but for what is wrong with that.
func cancelling(b *bench, deaf, forgetful, stubborn bool) hooks {
	c := &cancellations{why: map[string]string{}, tell: map[*cancelStream]func(map[string]string) []string{}, deaf: deaf, stubborn: stubborn}
	b.h.Cancel = func(_ context.Context, why string, ids ...string) error {
		c.change(func() {
			for _, id := range ids {
				c.why[id] = why
			}
		})
		return nil
	}
	return hooks{open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
		st, err := src.Open(ctx, g, tok)
		if err != nil {
			return nil, err
		}
		if forgetful {
			c.why = map[string]string{}
		}
		return &cancelStream{st, c}, nil
	}}
}

type cancellations struct {
	mu             sync.Mutex
	why            map[string]string
	tell           map[*cancelStream]func(map[string]string) []string
	deaf, stubborn bool
}

func (c *cancellations) change(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
	for _, tell := range c.tell {
		if !c.deaf {
			tell(maps.Clone(c.why))
		}
	}
}

type cancelStream struct {
	sources.Stream
	c *cancellations
}

func (s *cancelStream) Cancelled(_ context.Context, tell func(map[string]string) []string) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.tell[s] = tell
	tell(maps.Clone(s.c.why))
}

func (s *cancelStream) Settle(ctx context.Context, done ...sources.Settlement) error {
	err := s.Stream.Settle(ctx, done...)
	if err == nil && !s.c.stubborn {
		s.c.change(func() {
			for _, d := range done {
				if d.Outcome == sources.Done || d.Outcome == sources.Dead {
					delete(s.c.why, d.Task.ID)
				}
			}
		})
	}
	return err
}

func cancelBreaches() []breach {
	const clause = "what is to be cancelled is heard until it is over"
	return []breach{
		{"a stream hears of no task that is to be cancelled", []string{clause}, func(b *bench) hooks {
			cancelling(b, false, false, false)
			return hooks{}
		}},
		{"a stream hears of what is to be cancelled at first, and never again", []string{clause}, func(b *bench) hooks {
			return cancelling(b, true, false, false)
		}},
		{"the next owner does not hear what is to be cancelled", []string{clause}, func(b *bench) hooks {
			return cancelling(b, false, true, false)
		}},
		{"what was cancelled is to be cancelled for ever", []string{clause}, func(b *bench) hooks {
			return cancelling(b, false, false, true)
		}},
	}
}

func (s *brokenStream) Cancelled(ctx context.Context, tell func(map[string]string) []string) {
	if c, can := s.inner.Stream.(sources.Cancelable); can {
		c.Cancelled(ctx, tell)
	}
}
