package redisledger

import (
	"context"
	_ "embed" // the script is a file

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed grow.lua
	growLua    string
	growScript = redis.NewScript(shared + growLua)
)

// Grow says that the broker has got more partitions, total in all: the number that
// stands is raised to it and a roll becomes due that shares out the new ones. A
// smaller number changes nothing, so any peer may say it, any number of times. The
// ledger's Config must allow growth; see [Config.Grows].
func (l *Ledger) Grow(ctx context.Context, total int) error {
	// Nothing is doubted: unlike that of a Sync, this script may be unknown to the
	// server although that forgot nothing.
	args := append(l.common(), "0", events(l.name), total)
	_, err := strs(growScript.Run(ctx, l.client, l.keys, args...))
	if err != nil {
		return l.explain(ctx, "grow", err)
	}
	return nil
}
