package redisledger

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
)

// explain says what an error of the server or the network means and what to do.
func (l *Ledger) explain(ctx context.Context, op string, err error) error {
	wrong := ""
	if strings.Contains(err.Error(), "WRONGTYPE") { // scripts do not say of which key
		wrong = overwritten(ctx, l.client, l.name)
	}
	err = explain(ctx, l.name, op, err)
	if wrong != "" {
		err = fmt.Errorf("%w: %s", err, wrong)
	}
	if errors.Is(err, context.DeadlineExceeded) && l.crowded() {
		err = fmt.Errorf("%w (other calls hold all connections of its client: give the ledger one of its own, as of redisurl.OpenControl)", err)
	}
	return err
}

// overwritten says which keys of name are not of the type that the ledger wrote; "": none, or the store does not tell.
func overwritten(ctx context.Context, client redis.UniversalClient, name string) string {
	types := []string{"hash", "hash", "hash", "zset", "hash", "hash", "list", "hash"} // of keys
	var wrong []string
	for i, key := range keys(name) {
		if is, err := client.Type(ctx, key).Result(); err == nil && is != types[i] && is != "none" {
			wrong = append(wrong, fmt.Sprintf("%s is a %s, and was a %s", key, is, types[i]))
		}
	}
	return strings.Join(wrong, ", ")
}

// crowded reports whether no connection is left for a call of the ledger, which may have waited for
// nothing else. That of a call that came late has been given up.
func (l *Ledger) crowded() bool {
	single, ok := l.client.(interface{ Options() *redis.Options })
	stats := l.client.PoolStats()
	return ok && stats.IdleConns == 0 && int(stats.TotalConns) >= single.Options().PoolSize
}

func explain(ctx context.Context, name, op string, err error) error {
	advice := advice(err)
	if cause := context.Cause(ctx); cause != nil && advice == "" {
		err = cause // what go-redis makes of it differs from place to place
	}
	return fmt.Errorf("redisledger: %s: %s: %w", name, op, redisconfig.Advised(err, advice))
}

// advice returns what to do about err, or "" if the error says it all.
func advice(err error) string {
	switch {
	case redisconfig.Forbidden(err):
		return "the user of the URL needs, for the keys ~{name}:* and the channels &{name}:events*, " +
			"the commands of the ledger's scripts: +@read +@write +@scripting +@transaction +@pubsub +time +info"
	case redis.HasErrorPrefix(err, "MISCONF"):
		return "the server refuses every write because it could not save to disk: free its disk or mend " +
			"its permissions. No lease can be renewed until then, so all peers stop working"
	}
	return redisconfig.Advice(err)
}
