package redisledger

import (
	"context"
	_ "embed" // the script is a file
	"fmt"

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
	what := "pause"
	if p == (partition.Pause{}) {
		what = "resume"
	}
	return l.say(ctx, what, pauseScript, p.String())
}

var _ transition.Pauser = (*Ledger)(nil)

// refusals are what a script that say runs may reply, and what it means.
var refusals = map[string]error{
	"none":     redisconfig.ErrNone,
	"many":     partition.ErrDrains,
	"resizing": fmt.Errorf("its number of partitions is being changed: %w", partition.ErrConfig),
}

// say runs a script whose caller is no peer, with args after the common ones: nothing is doubted, as in Grow, and the
// times are those of the peers, see require.lua.
func (l *Ledger) say(ctx context.Context, what string, script *redis.Script, args ...any) error {
	common := l.common()
	common[0], common[1] = int64(0), anyStep.Milliseconds()
	args = append(append(common, "0", events(l.name)), args...)
	reply, err := strs(script.Run(ctx, l.client, l.keys, args...))
	if err == nil {
		err = refusals[reply[0]]
	}
	if err != nil {
		return l.explain(ctx, what, err)
	}
	return nil
}
