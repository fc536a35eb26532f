package redisledger

import (
	"context"
	_ "embed" // the script is a file
	"encoding/json"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
)

//go:embed table.lua
var tableLua string

var tableScript = redis.NewScript(tableLua)

// Nobody is the row of a table where the units stand that nobody owns. No peer may be called so:
// see partition.CheckPeer.
const Nobody = "_"

// TableKey returns the key of the table of name, "{name}:table".
func TableKey(name string) string { return redisconfig.Tag(name) + ":table" }

// WriteTable writes the table of name: a hash, peer -> its units as a JSON list. It is made
// from the grants as they stand in that moment, by one script: a caller that is late, or
// owns nothing any more, writes what is true all the same. list is the key of the units,
// a set or a list, and units are all that the caller found there, sorted. If the list has
// others by now, nothing is written and written is false. On a cluster list must have the
// tag {name}.
func WriteTable(ctx context.Context, client redis.UniversalClient, name, list string, cfg partition.Config, units []string) (written bool, err error) {
	args := make([]any, 0, 2*len(units))
	for _, u := range units {
		id, err := cfg.Hash.Of(u, cfg.Total)
		if err != nil {
			return false, err
		}
		args = append(args, u, id.String())
	}
	k := keys(name)
	n, err := tableScript.Run(ctx, client, []string{k[2], k[5], list, TableKey(name)}, args...).Int()
	if err != nil {
		return false, explain(ctx, name, "write the table of units", err)
	}
	return n == 1, nil
}

// ReadTable returns the table of name: peer -> its units; nil if there is none. The units
// of [Nobody] have no owner.
func ReadTable(ctx context.Context, client redis.UniversalClient, name string) (map[string][]string, error) {
	rows, err := client.HGetAll(ctx, TableKey(name)).Result()
	if err != nil {
		return nil, explain(ctx, name, "read "+TableKey(name), err)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	table := make(map[string][]string, len(rows))
	for peer, row := range rows {
		units := []string{}
		if err := json.Unmarshal([]byte(row), &units); err != nil {
			return nil, fmt.Errorf("redisledger: %s %s: %w", TableKey(name), peer, err)
		}
		slices.Sort(units)
		table[peer] = units
	}
	return table, nil
}
