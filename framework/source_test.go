package framework

import (
	"context"
	"fmt"
	"sync"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
)

// A spy is a source that writes down the calls and lets a test spoil them: a hook
// that returns an error answers instead of the source.
type spy struct {
	sources.Source

	onOpen, onFetch, onClose func(ctx context.Context) error
	onSettle                 func(ctx context.Context, done []sources.Settlement) error
	afterSettle              func() error // the source has done it, the reply may be lost
	afterFetch               func() error // what was fetched comes with it
	deaf                     bool         // fetches do not hear that their context ended
	bare                     bool         // tasks come without a Delivery
	hollow                   bool         // fetches return nothing, and no error says so

	mu     sync.Mutex
	calls  []string
	limits []int
	told   []sources.Settlement
}

func (s *spy) over(store *memsource.Store) sources.Source { s.Source = store; return s }

func (s *spy) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

func (s *spy) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.calls...)
}

// asked returns the limits of the fetches.
func (s *spy) asked() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.limits...)
}

func (s *spy) Open(ctx context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	s.note("open %v", g)
	if s.onOpen != nil {
		if err := s.onOpen(ctx); err != nil {
			return nil, err
		}
	}
	stream, err := s.Source.Open(ctx, g, tok)
	return &spyStream{s, g, stream}, err
}

// opens is a source whose streams are all this one.
type opens struct{ stream sources.Stream }

func (opens) Layout(context.Context) (partition.Config, error) { return partition.Config{}, nil }

func (o opens) Open(context.Context, partition.Grant, partition.Token) (sources.Stream, error) {
	return o.stream, nil
}

type spyStream struct {
	s *spy
	g partition.Grant
	sources.Stream
}

func (s *spyStream) Fetch(ctx context.Context, limit int) ([]sources.Task, error) {
	if s.s.onFetch != nil {
		if err := s.s.onFetch(ctx); err != nil {
			return nil, err
		}
	}
	if s.s.hollow {
		s.s.note("fetch nothing")
		if len(s.s.log()) > 1000 { // asked without a pause: no time would pass any more
			<-ctx.Done()
		}
		return nil, nil
	}
	if s.s.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	tasks, err := s.Stream.Fetch(ctx, limit)
	s.s.mu.Lock()
	s.s.limits = append(s.s.limits, limit)
	s.s.mu.Unlock()
	for i := range tasks {
		if s.s.bare {
			tasks[i].Delivery = nil
		}
	}
	if err == nil && s.s.afterFetch != nil {
		err = s.s.afterFetch()
	}
	return tasks, err
}

func (s *spyStream) Settle(ctx context.Context, done ...sources.Settlement) error {
	s.s.note("settle %d of %v", len(done), s.g)
	if s.s.onSettle != nil {
		if err := s.s.onSettle(ctx, done); err != nil {
			return err
		}
	}
	s.s.mu.Lock()
	s.s.told = append(s.s.told, done...)
	s.s.mu.Unlock()
	if err := s.Stream.Settle(ctx, done...); err != nil {
		return err
	}
	if s.s.afterSettle != nil {
		return s.s.afterSettle()
	}
	return nil
}

func (s *spyStream) Close(ctx context.Context) error {
	if ctx.Err() != nil {
		s.s.note("close %v, silently", s.g)
	} else {
		s.s.note("close %v", s.g)
	}
	if s.s.onClose != nil {
		if err := s.s.onClose(ctx); err != nil {
			return err
		}
	}
	return s.Stream.Close(ctx)
}
