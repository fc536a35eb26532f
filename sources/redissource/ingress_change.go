package redissource

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
)

// ChangeIngress gives name the ingress lists to and returns those it had. Stop all peers first: set, as
// redisledger.SetUnits, writes the new ones, and has to refuse while anybody may work under the
// name. Lines in a list that goes stay where they are. It returns [ErrPlanned] if a batch of such a
// list is under way, an error that wraps partition.ErrConfig while the number of partitions is being
// changed, and one if the key of a list that comes holds something else than a list.
func ChangeIngress(ctx context.Context, client redis.UniversalClient, name string, to []string,
	set func(ctx context.Context, client redis.UniversalClient, name string, from, to []string) error,
) (from []string, err error) {
	if err := CheckIngress(name, to); err != nil {
		return nil, err
	}
	cfg, err := redisconfig.Read(ctx, client, name)
	if err != nil {
		return nil, err
	}
	for _, list := range to {
		if slices.Contains(cfg.Units, list) {
			continue // that it is no list any more is no reason to keep others out, and is told elsewhere
		}
		is, err := client.Type(ctx, list).Result()
		if err != nil {
			return cfg.Units, fmt.Errorf("redissource: ingress lists of %s: %w", name, redisconfig.Explain(err))
		}
		if is != "list" && is != "none" {
			return cfg.Units, fmt.Errorf("redissource: ingress %s: it is a %s and no list: take another name for the list", list, is)
		}
	}
	gone := slices.DeleteFunc(slices.Clone(cfg.Units), func(list string) bool { return slices.Contains(to, list) })
	if err := closeUnits(ctx, client, gone); err != nil {
		return cfg.Units, fmt.Errorf("redissource: ingress lists of %s: %w", name, redisconfig.Explain(err))
	}
	return cfg.Units, set(ctx, client, name, cfg.Units, to)
}

// CheckIngress returns all that is wrong with lists as the ingress lists of a name, before any store is asked.
func CheckIngress(name string, lists []string) error {
	all := make([]Ingress, len(lists))
	for i, list := range lists {
		all[i].List = list
	}
	return errors.Join(validateIngress(all), ownLists(name, all))
}
