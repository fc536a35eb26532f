package redisconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
)

// own are the keys that a name has in the store itself, beside those of its partitions, without its tag and the colon.
var own = []string{"config", "meta", "sessions", "leases", "roll", "transition", "history", "peers", "refused", "table", "cancel", "epochs"}

// CheckLists refuses each of lists that is a key of the ledger of name, or of what goes with it: the one would be
// taken for the other.
func CheckLists(name string, lists ...string) error {
	var errs []error
	for _, list := range lists {
		if what, is := strings.CutPrefix(list, Tag(name)+":"); is && slices.Contains(own, what) {
			errs = append(errs, fmt.Errorf("redisconfig: list %s: the name %s has that key itself: take another name for the list", list, name))
		}
	}
	return errors.Join(errs...)
}

// Names returns the names that have a configuration in the store, ascending; of a cluster, on
// all masters. It walks through all keys of the store, a thousand a call. What the user may not
// read is among them, as it may be one. Where a master does not answer, the error says so, and
// the names on the others are there. A name whose slot moves meanwhile, from a master that was not
// looked at yet to one that was, may be missing.
func Names(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	all, away := candidates(ctx, client)
	if away != nil {
		away = fmt.Errorf("redisconfig: look for names: %w", Explain(away))
	}
	slices.Sort(all)
	all = slices.Compact(all)
	var names []string
	for _, name := range all {
		// Not of the node that told of it: the slot may have moved meanwhile.
		fields, err := client.HMGet(ctx, Key(name), fieldProtocol, fieldTotal).Result()
		switch {
		case redis.HasErrorPrefix(err, "WRONGTYPE"):
		case err != nil && !Forbidden(err):
			return names, fmt.Errorf("redisconfig: look at %s: %w", Key(name), Explain(err))
		case !slices.Contains(fields, nil): // other programs may call a hash so, too
			names = append(names, name)
		}
	}
	return names, away
}

// candidates are the names whose configuration would be called like a key of the store. One may
// be told twice.
func candidates(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	ctx, cancel := Half(ctx, client)
	defer cancel()
	var mu sync.Mutex
	var all []string
	err := EachMaster(ctx, client, func(ctx context.Context, node redis.UniversalClient, _ string) error {
		names, err := candidatesOn(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, names...)
		return err
	})
	return all, err
}

func candidatesOn(ctx context.Context, node redis.Cmdable) ([]string, error) {
	var names []string
	for cursor := uint64(0); ; {
		keys, next, err := node.ScanType(ctx, cursor, Key("*"), 1000, "hash").Result()
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			name := strings.TrimSuffix(strings.TrimPrefix(key, "{"), "}:config")
			if partition.CheckName(name) == nil && Key(name) == key {
				names = append(names, name)
			}
		}
		if cursor = next; cursor == 0 {
			return names, nil
		}
	}
}
