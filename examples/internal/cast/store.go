package cast

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/examples/mail-sender/embedded"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/transition/redisledger"
)

// A Store is where a play keeps what it plays with: an embedded one that is known to be new, or the
// user's, under a name of its own that is removed again.
type Store struct {
	URL    string
	Name   string
	Client redis.UniversalClient

	theirs bool // the user's
	stop   func()
}

// Open opens the store at url, or an embedded one that listens at listen, and makes a name in it,
// so that its first peers begin at once.
func Open(ctx context.Context, url, listen, name string, cfg partition.Config) (*Store, error) {
	s := &Store{URL: url, Name: name, theirs: url != "", stop: func() {}}
	if s.theirs {
		s.Name = fmt.Sprintf("%s-demo-%d-%d", name, time.Now().Unix(), os.Getpid())
	}
	if err := partition.CheckName(s.Name); err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	if !s.theirs {
		r, err := embedded.Start(listen)
		if err != nil {
			return nil, err
		}
		s.stop, s.URL = r.Close, r.URL()
	}
	var err error
	if s.Client, err = redisurl.Open(s.URL); err != nil {
		s.stop()
		return nil, exit.With(exit.Usage, err)
	}
	if err = redisurl.Reach(ctx, s.Client, s.URL); err == nil {
		_, err = redisledger.Init(ctx, s.Client, s.Name, cfg)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Store) close() {
	_ = s.Client.Close()
	s.stop()
}

// Close closes the store. From one that is the user's it removes what was played with: raze that of
// the sources, then the name. For that it waits until the lease of a killed peer has ended, but not
// longer than ctx; its error says what was left, and what to do.
func (s *Store) Close(ctx context.Context, raze func(context.Context) error) error {
	defer s.close()
	if !s.theirs {
		return nil
	}
	const again = 500 * time.Millisecond
	err := redisledger.Idle(ctx, s.Client, s.Name)
	for errors.Is(err, redisledger.ErrInUse) && ctx.Err() == nil {
		time.Sleep(again)
		err = redisledger.Idle(ctx, s.Client, s.Name)
	}
	if err == nil {
		err = raze(ctx)
	}
	if err == nil {
		err = redisledger.Destroy(ctx, s.Client, s.Name)
	}
	if err != nil {
		return fmt.Errorf("%s was left on the store (%w): countoff destroy %s --yes", s.Name, err, s.Name)
	}
	return nil
}
