package redisconfig

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
)

// A Work is a topic, and where it is kept what is done of it.
type Work struct {
	Topic    string
	Progress string
	Group    string // of Kafka, where it keeps the progress; empty: it does not
}

// ClaimTopic is [Kind.Claim] for peers that work a topic: they agree on their work as well. With two
// topics nobody would do the rest of each; with two places, or groups, an owner does not know what the
// one before it has done, nor do places fence each other.
func ClaimTopic(ctx context.Context, client redis.UniversalClient, name string, layout partition.Config, w Work) error {
	if err := Topic.Claim(ctx, client, name, layout.Hash); err != nil {
		return err
	}
	fields, err := read(ctx, client, name)
	if err != nil {
		return err
	}
	if mayClaimTopic(name, fields, layout, w) {
		pipe := client.TxPipeline() // of two first peers one wins whole
		pipe.HSetNX(ctx, Key(name), fieldTopic, w.Topic)
		pipe.HSetNX(ctx, Key(name), fieldProgress, w.Progress)
		if w.Group != "" {
			pipe.HSetNX(ctx, Key(name), fieldGroup, w.Group)
		}
		all := pipe.HGetAll(ctx, Key(name))
		if cmds, err := pipe.Exec(ctx); err != nil {
			if err = Why(cmds, err); redis.IsOOMError(err) || Forbidden(err) {
				return nil // as with the kind: the next one writes it
			}
			return failed("write", name, err)
		}
		fields = all.Val()
	}
	err = differsInTopic(name, fields, w)
	NoteRefused(ctx, client, name, err)
	return err
}

// mayClaimTopic reports whether who has layout may say what of its work is not said: all of it, or only the
// group, of which an older build said nothing. One that the ledger will refuse must not: it would keep out those
// that follow the peers at work.
func mayClaimTopic(name string, fields map[string]string, layout partition.Config, w Work) bool {
	_, said := fields[fieldTopic]
	_, whole := fields[fieldGroup]
	if said && (whole || w.Group == "" || differsInTopic(name, fields, w) != nil) {
		return false
	}
	if fields[fieldKind] != string(Topic) {
		return false
	}
	total, err := strconv.Atoi(fields[fieldTotal])
	return fields[fieldTotal] == "" || err == nil && total <= layout.Total // a topic grows
}

// differsInTopic is the refusal if other work stands among fields.
func differsInTopic(name string, fields map[string]string, w Work) error {
	group := fields[fieldGroup]
	if w.Group == "" {
		group = "" // it decides nothing
	}
	for _, f := range [...]struct{ field, is, want string }{
		{"topic", fields[fieldTopic], w.Topic}, {"place of progress", fields[fieldProgress], w.Progress}, {"group with the progress", group, w.Group},
	} {
		if f.is != "" && f.is != f.want {
			return fmt.Errorf("redisconfig: %s: the %s %q stands there, this program wants %q (all peers of a name have the same; "+
				"to change it, stop all of them, then countoff destroy %s --yes: the next ones begin where the group stands): %w",
				Key(name), f.field, f.is, f.want, name, partition.ErrConfig)
		}
	}
	return nil
}
