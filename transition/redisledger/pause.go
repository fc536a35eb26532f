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
	//go:embed pause.lua
	pauseLua    string
	pauseScript = redis.NewScript(shared + pauseLua)
)

// Pause implements transition.Pauser. The configuration of the ledger does not matter, and peers
// need not live. It does not wait for replicas: what a fail-over forgets has to be said again. Peers
// of builds that do not know of it work on.
//
// It returns an error that wraps redisconfig.ErrNone if nobody has made the name yet.
func (l *Ledger) Pause(ctx context.Context, p partition.Pause) error {
	if err := p.Check(); err != nil {
		return err
	}
	args := append(l.nobody(), p.String())
	reply, err := strs(pauseScript.Run(ctx, l.client, l.keys, args...))
	if err == nil && reply[0] == "none" {
		err = redisconfig.ErrNone
	}
	if err != nil {
		return l.explain(ctx, "pause", err)
	}
	return nil
}

var _ transition.Pauser = (*Ledger)(nil)

// nobody returns the first arguments of a script whose caller is no peer: nothing is doubted, as in
// Grow, and the times are those of the peers, see require.lua.
func (l *Ledger) nobody() []any {
	common := l.common()
	common[0], common[1] = int64(0), anyStep.Milliseconds()
	return append(common, "0", events(l.name))
}
