package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/cmd/countoff/doctor"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/program/flagenv"
	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

// besideTasks is what --ledger says of a record in the Redis of the tasks.
const besideTasks = "redis"

// A Store is where ledgers stand, if not in the Redis of the tasks.
type Store interface {
	// Ledger returns the ledger of name for a peer with those times, and what its peers
	// agree on. Where nobody has used the name yet, the error wraps [redisconfig.ErrNone].
	Ledger(ctx context.Context, name string, timing transition.Timing) (transition.Ledger, partition.Config, error)
	// Init makes name, unless it is there already with the same configuration.
	Init(ctx context.Context, name string, cfg partition.Config) (made bool, err error)
	// Require says which tags the partitions and units of name, which is there, ask of their
	// owners, in place of all that was said before.
	Require(ctx context.Context, name string, requires []partition.Requirement) error
	// Examine says what of the store may cost tasks or time.
	Examine(ctx context.Context) ([]doctor.Finding, error)
	// Reach returns nil once the store answers.
	Reach(ctx context.Context) error
	Close() error
}

// Stores open the store at a URL, by the scheme of the URL.
type Stores map[string]func(url string) (Store, error)

// open opens what --ledger names.
func (s Stores) open(url string) (*stand, error) {
	if url == besideTasks {
		return &stand{}, nil
	}
	scheme, _, _ := strings.Cut(url, "://") // the rest may have a password in it
	open := s[scheme]
	if open == nil {
		known := append([]string{besideTasks}, slices.Sorted(maps.Keys(s))...)
		return nil, fmt.Errorf("%q: this program knows %s (etcd: build transition/etcdledger/countoff)", scheme, strings.Join(known, ", "))
	}
	store, err := open(url)
	if err != nil {
		return nil, err
	}
	return &stand{store: store}, nil
}

// A stand is where a command finds what it looks at.
type stand struct {
	url    string                // of the client, as it was given
	client redis.UniversalClient // of the tasks; nil: nobody said where they are
	store  Store                 // of the ledger; nil: beside the tasks
}

func (at *stand) close() {
	if at.client != nil {
		_ = at.client.Close() // nothing was left in it
	}
	if at.store != nil {
		_ = at.store.Close()
	}
}

// reach says why one of the stores does not answer.
func (at *stand) reach(ctx context.Context) error {
	if at.client != nil {
		// A server that cannot save to its disk refuses PING like a write. Whoever only reads looks
		// for just that, and what writes is told more.
		if err := redisurl.Reach(ctx, at.client, at.url); err != nil && !redis.HasErrorPrefix(err, "MISCONF") {
			return err
		}
	}
	if at.store != nil {
		return at.store.Reach(ctx)
	}
	return nil
}

// of returns where name is looked at.
func (at *stand) of(ctx context.Context, name string) (status.Place, error) {
	if at.store == nil {
		return status.Place{Client: at.client}, nil
	}
	ledger, cfg, err := at.store.Ledger(ctx, name, transition.Timing{})
	return status.Place{Client: at.client, Ledger: ledger, Config: cfg}, err
}

// now is by the clock of the Redis that keeps the ledger of name, else by that of this process, which is as good as
// that of a peer. Of a cluster that is one node: another may not answer, or have another time.
func (at *stand) now(ctx context.Context, name string) (time.Time, error) {
	if at.store != nil {
		return time.Now(), nil
	}
	cluster, ok := at.client.(*redis.ClusterClient)
	if !ok {
		return at.client.Time(ctx).Result()
	}
	node, err := cluster.MasterForKey(ctx, redisconfig.Key(name))
	if err != nil {
		return time.Time{}, err
	}
	return node.Time(ctx).Result()
}

// read looks at name.
func (at *stand) read(ctx context.Context, name string) (status.Status, error) {
	place, err := at.of(ctx, name)
	if err != nil {
		return status.Status{}, err
	}
	return place.Read(ctx, name)
}

// ledger returns the ledger of name for a peer.
func (at *stand) ledger(ctx context.Context, name string, timing transition.Timing) (transition.Ledger, partition.Config, error) {
	if at.store != nil {
		return at.store.Ledger(ctx, name, timing)
	}
	cfg, err := redisconfig.Read(ctx, at.client, name)
	if err != nil {
		return nil, cfg, err
	}
	ledger, err := redisledger.New(at.client, name, redisledger.Config{Config: cfg, Timing: timing})
	if err != nil {
		return nil, cfg, exit.With(exit.Usage, err)
	}
	return ledger, cfg, nil
}

// onlyInRedis keeps a command from a name whose ledger stands elsewhere; instead says what
// to do there.
func onlyInRedis(instead string, do func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return exit.Run(func(cmd *cobra.Command, args []string) error {
		unread := flagenv.Apply(cmd) // do says it too, if it is run
		ledger, err := cmd.Flags().GetString("ledger")
		if err != nil {
			return err
		}
		if ledger != besideTasks {
			return exit.With(exit.Usage, errors.Join(unread, flagenv.Wrong(cmd, "ledger", errors.New(cmd.Name()+" works with a ledger in Redis only: "+instead))))
		}
		return do(cmd, args)
	})
}
