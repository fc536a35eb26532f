package redisledger

import (
	"context"
	_ "embed" // the script is a file

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition"
)

var (
	//go:embed drain.lua
	drainLua    string
	drainScript = redis.NewScript(shared + drainLua)
)

// Drain implements transition.Drainer. As with Pause the configuration of the ledger does not matter, peers need
// not live, and it does not wait for replicas. Who seals a roll with a build that does not know of it
// gives the peer its share all the same.
//
// It returns an error that wraps redisconfig.ErrNone if nobody has made the name yet.
func (l *Ledger) Drain(ctx context.Context, d partition.Drain) error {
	if err := d.Check(); err != nil {
		return err
	}
	return l.drain(ctx, d.Peer, d.String())
}

// Recall implements transition.Drainer.
func (l *Ledger) Recall(ctx context.Context, peer string) error { return l.drain(ctx, peer, "") }

func (l *Ledger) drain(ctx context.Context, peer, line string) error {
	reply, err := strs(drainScript.Run(ctx, l.client, l.keys, append(l.nobody(), peer, line, partition.MaxDrains)...))
	switch {
	case err != nil:
	case reply[0] == "none":
		err = redisconfig.ErrNone
	case reply[0] == "many":
		err = partition.ErrDrains
	}
	if err != nil {
		return l.explain(ctx, "drain", err)
	}
	return nil
}

var _ transition.Drainer = (*Ledger)(nil)
