package redisconfig

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
)

// ClaimTopic is [Kind.Claim] for peers that work a topic and keep in progress what is done of it: they
// agree on both as well. With two topics nobody would do the rest of each; with two places an owner
// does not know what the one before it has done, nor does either fence the other.
func ClaimTopic(ctx context.Context, client redis.UniversalClient, name string, layout partition.Config, topic, progress string) error {
	if err := Topic.Claim(ctx, client, name, layout.Hash); err != nil {
		return err
	}
	fields, err := read(ctx, client, name)
	if err != nil {
		return err
	}
	if _, known := fields[fieldTopic]; !known && mayClaimTopic(fields, layout) {
		pipe := client.TxPipeline() // of two first peers one wins whole
		pipe.HSetNX(ctx, Key(name), fieldTopic, topic)
		pipe.HSetNX(ctx, Key(name), fieldProgress, progress)
		all := pipe.HGetAll(ctx, Key(name))
		if cmds, err := pipe.Exec(ctx); err != nil {
			if err = why(cmds, err); redis.IsOOMError(err) || Forbidden(err) {
				return nil // as with the kind: the next one writes it
			}
			return failed("write", name, err)
		}
		fields = all.Val()
	}
	err = differsInTopic(name, fields, topic, progress)
	NoteRefused(ctx, client, name, err)
	return err
}

// mayClaimTopic reports whether who has layout may say which topic it is. One that the ledger will refuse
// must not: it would keep out those that follow the peers at work.
func mayClaimTopic(fields map[string]string, layout partition.Config) bool {
	if fields[fieldKind] != string(Topic) {
		return false
	}
	total, err := strconv.Atoi(fields[fieldTotal])
	return fields[fieldTotal] == "" || err == nil && total <= layout.Total // a topic grows
}

// differsInTopic is the refusal if another topic or place of progress stands among fields.
func differsInTopic(name string, fields map[string]string, topic, progress string) error {
	for _, f := range [...]struct{ field, is, want string }{{"topic", fields[fieldTopic], topic}, {"place of progress", fields[fieldProgress], progress}} {
		if f.is != "" && f.is != f.want {
			return fmt.Errorf("redisconfig: %s: the %s %q stands there, this program wants %q (all peers of a name have the same; "+
				"to change it, stop all of them, then countoff destroy %s --yes: the next ones begin where the group stands): %w",
				Key(name), f.field, f.is, f.want, name, partition.ErrConfig)
		}
	}
	return nil
}
