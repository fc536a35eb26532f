package peer

import (
	"context"
	"errors"

	"github.com/countoff/countoff/cmd/countoff-chaos/journal"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// A spy is a source that writes down what it was asked and what it answered, from
// before the call to after its answer.
type spy struct {
	sources.Source
	out *journal.Writer
}

func (s spy) Open(ctx context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	r := journal.Record{
		Kind: journal.Opened, Time: journal.Now(), Part: int(g.ID), Epoch: uint64(g.Epoch), Session: string(tok.Session),
	}
	stream, err := s.Source.Open(ctx, g, tok)
	r.Until, r.Outcome = journal.Now(), answer(err)
	s.out.Write(r)
	if err != nil {
		return nil, err
	}
	return spyStream{stream, s.out, r}, nil
}

type spyStream struct {
	sources.Stream
	out   *journal.Writer
	whose journal.Record
}

func (s spyStream) Settle(ctx context.Context, done ...sources.Settlement) error {
	r := s.whose
	r.Kind, r.Time = journal.Settled, journal.Now()
	for i := range done {
		r.Tasks = append(r.Tasks, journal.Verdict{Task: done[i].Task.ID, Outcome: done[i].Outcome.String()})
	}
	err := s.Stream.Settle(ctx, done...)
	r.Until, r.Outcome = journal.Now(), answer(err)
	s.out.Write(r)
	return err
}

func (s spyStream) Close(ctx context.Context) error {
	r := s.whose
	r.Kind, r.Time = journal.Closed, journal.Now()
	if ctx.Err() != nil {
		return s.Stream.Close(ctx) // nothing is sent
	}
	err := s.Stream.Close(ctx)
	r.Until, r.Outcome = journal.Now(), answer(err)
	s.out.Write(r)
	return err
}

func answer(err error) string {
	switch {
	case err == nil:
		return journal.OK
	case errors.Is(err, sources.ErrFenced):
		return journal.Fenced
	case errors.Is(err, sources.ErrForgot):
		return journal.Forgot
	}
	return journal.Unknown
}
