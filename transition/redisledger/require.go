package redisledger

import (
	"context"
	_ "embed" // the script is a file
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
)

var (
	//go:embed require.lua
	requireLua    string
	requireScript = redis.NewScript(shared + requireLua)
)

// Require says which tags the partitions and units of name ask of their owners, in place of
// all that was said before, and makes a roll due that goes by it; none ask for nothing. It
// may be called while peers work. Peers and producers of builds that do not know of tags
// are refused from then on, those that work already with their next change: bring all up
// to date first.
//
// It returns an error that wraps redisconfig.ErrNone if nobody has made the name yet, and
// one that wraps partition.ErrConfig while its number of partitions is being changed.
func Require(ctx context.Context, client redis.UniversalClient, name string, requires []partition.Requirement) error {
	l, err := New(client, name, Config{})
	if err = errors.Join(err, partition.CheckRequirements(requires)); err != nil {
		return err
	}
	protocol := partition.Protocol
	if len(requires) > 0 {
		protocol = partition.TagsProtocol
	}
	return l.say(ctx, "require", requireScript, protocol, redisconfig.PrintRequires(requires))
}
