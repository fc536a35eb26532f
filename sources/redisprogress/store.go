package redisprogress

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

var (
	//go:embed reset.lua
	resetSource string
	resetScript = redis.NewScript(resetSource)
	//go:embed end.lua
	endSource string
	endScript = redis.NewScript(endSource)
)

// A Store keeps what is done of the logs of one name whose elements lie elsewhere,
// such as the partitions of a topic. It keeps no state in the process; its methods
// may be called concurrently.
//
// Its keys are those of a list's log without the list: whoever reads fences reads
// these.
type Store struct {
	client redis.UniversalClient
	name   string
}

// NewStore returns the store of name. It does not talk to the server.
func NewStore(client redis.UniversalClient, name string) (*Store, error) {
	if err := partition.CheckName(name); err != nil {
		return nil, err
	}
	if err := redisconfig.Fits(client); err != nil {
		return nil, fmt.Errorf("redisprogress: %w", err)
	}
	return &Store{client: client, name: name}, nil
}

// Name implements [partition.Named].
func (s *Store) Name() string { return s.name }

// Elsewhere returns the keys of partition id of name, where its log is no list.
func Elsewhere(name string, id partition.ID) Keys {
	tag := "{" + name + ":" + id.String() + "}"
	return Keys{Fence: tag + ":fence", Done: tag + ":done", Lifted: tag + ":lifted", Tries: tag + ":tries"}
}

// Ready says nothing: the ledger is in the same store, and has been asked.
func (s *Store) Ready(context.Context) error { return nil }

// Commits says no: nothing is committed to a Kafka group.
func (s *Store) Commits(string) bool { return false }

func (s *Store) log(g partition.Grant, tok partition.Token) *Log {
	return New(s.client, Elsewhere(s.name, g.ID), g, tok)
}

// Stands returns where a partition stands, and in which life of its log, -1 if it was never opened.
func (s *Store) Stands(ctx context.Context, id partition.ID) (base int64, life string, err error) {
	fence := Elsewhere(s.name, id).Fence
	pipe := s.client.Pipeline()
	pipe.HDel(ctx, fence, "") // to the master, see Open
	stands := pipe.HMGet(ctx, fence, "b", "i")
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, "", err
	}
	var fields struct {
		Base *int64 `redis:"b"`
		Life string `redis:"i"`
	}
	if err := stands.Scan(&fields); err != nil {
		return 0, "", err
	}
	if fields.Base == nil {
		return -1, "", nil
	}
	return *fields.Base, fields.Life, nil
}

// Open installs the fence and reads what earlier owners left. begin is the base of a
// log nobody has ever opened. See [Log.Open].
func (s *Store) Open(ctx context.Context, g partition.Grant, tok partition.Token, begin int64) (progress.Found, error) {
	l := s.log(g, tok)
	o, err := l.Open(ctx, begin)
	if err != nil {
		return progress.Found{}, err
	}
	f := progress.Found{Opened: o.Opened, Tried: o.Tried}
	for _, lifted := range o.Lifted {
		f.Lifted = append(f.Lifted, lifted.Position)
	}
	// Behind a write that changes nothing: a client of a cluster that reads from replicas
	// sends both to the master. By one that lags another topic's positions would be ours.
	pipe := s.client.Pipeline()
	pipe.HDel(ctx, l.keys.Fence, "")
	life := pipe.HGet(ctx, l.keys.Fence, "i")
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return progress.Found{}, err
	}
	f.Life = life.Val()
	return f, nil
}

// Reset says where the log goes on, and which life of it that is, after Open
// and before anything else under the token but what Settle carries past base. seen is the
// number of writes as answered last; it returns the number now. Said again it changes nothing.
//
// Going back, or on in another life, forgets what is known of the log, since its
// positions come again. Going forward forgets what is known below base, except what
// was lifted.
func (s *Store) Reset(ctx context.Context, g partition.Grant, tok partition.Token, seen, base int64, life string) (writes int64, err error) {
	l := s.log(g, tok)
	k := l.keys
	n, err := numbers(resetScript.Run(ctx, s.client, []string{k.Fence, k.Done, k.Lifted, k.Tries}, l.token, seen, base, life))
	switch {
	case err != nil:
		return 0, err
	case n[0] == 1 && n[1] == base:
		return n[2], nil
	case n[0] == 1:
		return 0, fmt.Errorf("redisprogress: the base of %v is %d and not %d: something was said before the reset", g, n[1], base)
	}
	return 0, refusal(g, n[0], partition.Epoch(n[1]))
}

// Settle says r. content goes with the verdicts of r.Others, one by one. An error is
// ErrFenced or ErrForgot, or it says that nothing is known of the request. A verdict that
// is a Requeue is refused: who has written the task to the end of its log says that this
// position is Dead.
func (s *Store) Settle(ctx context.Context, g partition.Grant, tok partition.Token, r *progress.Request, content []Content) (progress.Answer, error) {
	for _, v := range r.Others {
		if v.Outcome == progress.Requeue {
			return progress.Answer{}, fmt.Errorf("redisprogress: position %d: a Requeue of a log elsewhere: write its task to the end of the log, then settle it as Dead", v.Position)
		}
	}
	l := s.log(g, tok)
	var cmd *redis.Cmd
	for _, source := range [...]bool{false, true} {
		pipe := s.client.Pipeline()
		cmd = l.Settle(ctx, pipe, r, content, nil, source)
		redisconfig.Exec(ctx, pipe)
		if !NoScript(cmd.Err()) {
			break
		}
	}
	reply, err := l.Answer(cmd)
	switch {
	case err != nil:
		return progress.Answer{}, err
	case reply.Status == progress.Stale:
		return progress.Answer{}, refusal(g, 0, reply.Epoch)
	case reply.Status == progress.Forgot:
		return progress.Answer{}, sources.ErrForgot
	}
	return reply.Answer, nil
}

// Ends notes where the logs of partitions end, so that people see how much is open. It
// needs no right, and decides nothing.
func (s *Store) Ends(ctx context.Context, ends map[partition.ID]int64) error {
	pipe := s.client.Pipeline()
	for id, end := range ends {
		endScript.Eval(ctx, pipe, []string{Elsewhere(s.name, id).Fence}, end)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// Close ends the ownership. See [Log.Close].
func (s *Store) Close(ctx context.Context, g partition.Grant, tok partition.Token) error {
	return s.log(g, tok).Close(ctx)
}

// refusal is the error of a script that answered status and epoch: a smaller epoch
// than ours stands only where the store has forgotten that ours stood.
func refusal(g partition.Grant, status int64, epoch partition.Epoch) error {
	if status == 0 && epoch >= g.Epoch {
		return &sources.FencedError{Grant: g, Stored: epoch}
	}
	return sources.ErrForgot
}
