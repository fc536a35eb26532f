package sourcetest

import (
	"context"
	"fmt"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/relay"
	"github.com/countoff/countoff/sources"
)

// watched is a source none of whose calls the suite waits for in vain: of one that does not return, although its
// context has ended, the test of its package would say nothing until its own time is over.
type watched struct {
	sources.Source
	s *scene
}

func (w watched) Layout(ctx context.Context) (partition.Config, error) {
	return await(ctx, w.s, "layout", func() (partition.Config, error) { return w.Source.Layout(ctx) })
}

func (w watched) Open(ctx context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	st, err := await(ctx, w.s, fmt.Sprint("open ", g), func() (sources.Stream, error) { return w.Source.Open(ctx, g, tok) })
	if err != nil || partition.Absent(st) {
		return nil, err
	}
	return watchedStream{st, w.s, g}, nil
}

type watchedStream struct {
	sources.Stream
	s *scene
	g partition.Grant
}

func (w watchedStream) Fetch(ctx context.Context, limit int) ([]sources.Task, error) {
	return await(ctx, w.s, fmt.Sprint("fetch ", w.g), func() ([]sources.Task, error) { return w.Stream.Fetch(ctx, limit) })
}

func (w watchedStream) Settle(ctx context.Context, done ...sources.Settlement) error {
	_, err := await(ctx, w.s, fmt.Sprint("settle ", w.g), func() (struct{}, error) { return struct{}{}, w.Stream.Settle(ctx, done...) })
	return err
}

func (w watchedStream) Close(ctx context.Context) error {
	_, err := await(ctx, w.s, fmt.Sprint("close ", w.g), func() (struct{}, error) { return struct{}{}, w.Stream.Close(ctx) })
	return err
}

// await returns what call does, and fails the clause if it has not returned Patience after ctx has ended.
func await[T any](ctx context.Context, s *scene, what string, call func() (T, error)) (T, error) {
	ended, end := relay.Start(what, call)
	select {
	case <-ended:
	case <-ctx.Done():
		select {
		case <-ended:
		case <-time.After(s.h.Patience):
			late := fmt.Errorf("%s has not returned %v after its context had ended", what, s.h.Patience)
			s.Errorf("%v", late)
			var none T
			return none, late
		}
	}
	return end()
}
