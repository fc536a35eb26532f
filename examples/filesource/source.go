//go:build unix

package filesource

import (
	"context"
	"errors"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// A Source is a directory, which must exist. Its methods may be called concurrently,
// also by other processes on the machine.
type Source struct {
	Dir        string
	Partitions int // the same for all peers and producers
}

// Layout says how keys find their partition.
func (s *Source) Layout(context.Context) (partition.Config, error) {
	return partition.Config{Total: s.Partitions}.WithDefaults(), nil
}

// Open installs tok as the fence.
func (s *Source) Open(_ context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	err := s.Change(g.ID, func(f *File) error {
		if f.Token != tok && tok.Epoch <= f.Epoch {
			return &sources.FencedError{Grant: g, Stored: f.Epoch}
		}
		f.Token, f.Epoch = tok, tok.Epoch
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &stream{src: s, g: g, tok: tok}, nil
}

// A stream is one ownership of one partition.
type stream struct {
	src  *Source
	g    partition.Grant
	tok  partition.Token
	next sources.Receipt // what is not after it was handed out; only Fetch uses it
}

// change is that of the source, behind the fence.
func (s *stream) change(op string, do func(f *File)) error {
	err := s.src.Change(s.g.ID, func(f *File) error {
		if f.Token != s.tok {
			return sources.ErrFenced
		}
		do(f)
		return nil
	})
	if err != nil {
		return &sources.Error{Op: op, Grant: s.g, Err: err}
	}
	return nil
}

func (s *stream) Fetch(ctx context.Context, limit int) ([]sources.Task, error) {
	for ctx.Err() == nil {
		var tasks []sources.Task
		err := s.change("fetch", func(f *File) {
			for len(f.Later) > 0 && !f.Later[0].NotBefore.After(time.Now()) {
				f.append(f.Later[0])
				f.Later = f.Later[1:]
			}
			for _, t := range f.Tasks {
				if t.Receipt > s.next && len(tasks) < limit {
					c := t.Copy() // that of the file stays as it is
					c.Grant, c.Token = s.g, s.tok
					c.Attempt++
					tasks = append(tasks, *c)
				}
			}
		})
		if err != nil {
			return nil, err
		}
		if len(tasks) > 0 {
			s.next = tasks[len(tasks)-1].Receipt
			return tasks, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil, ctx.Err()
}

func (s *stream) Settle(_ context.Context, done ...sources.Settlement) error {
	return s.change("settle", func(f *File) {
		for _, d := range done {
			f.settle(d)
		}
	})
}

func (s *stream) Close(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err // the ownership was lost: nothing is written, and this process holds nothing
	}
	err := s.change("close", func(f *File) { f.Token = partition.Token{} })
	if errors.Is(err, sources.ErrFenced) {
		return nil // it is another's, or nobody's: there is nothing to give back
	}
	return err
}
