package redisledger

import (
	"context"
	_ "embed" // the script is a file

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
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
	return l.say(ctx, "drain", drainScript, d.Peer, d.String(), partition.MaxDrains)
}

// Recall implements transition.Drainer.
func (l *Ledger) Recall(ctx context.Context, peer string) error {
	return l.say(ctx, "recall", drainScript, peer, "", partition.MaxDrains)
}

var _ transition.Drainer = (*Ledger)(nil)
