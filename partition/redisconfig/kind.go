package redisconfig

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
)

// A Kind is what the partitions of a name hold. Peers of two kinds under one name would share
// its ledger, and each would have a part of the partitions, whose other tasks nobody does.
type Kind string

// The kinds. The zero Kind says nothing of it: it is neither compared nor written.
const (
	Lists Kind = "lists"
	Asynq Kind = "asynq"
	Topic Kind = "kafka"
	Units Kind = "units"
)

// String is for people.
func (k Kind) String() string {
	switch k {
	case Lists:
		return "tasks in Redis lists"
	case Asynq:
		return "tasks in queues of asynq"
	case Topic:
		return "a topic of Kafka"
	case Units:
		return "work units"
	}
	return fmt.Sprintf("kind %q", string(k))
}

// Agree is [Agree] for a peer of this kind: where another stands the error wraps
// partition.ErrConfig, and where none does it is written once all else is agreed on.
func (k Kind) Agree(ctx context.Context, client redis.UniversalClient, name string, want partition.Config) (partition.Config, error) {
	want.Units = want.WithDefaults().Units
	return k.agree(ctx, client, name, want, true)
}

// AgreePartitions is [AgreePartitions] for a producer of this kind; see [Kind.Agree].
func (k Kind) AgreePartitions(ctx context.Context, client redis.UniversalClient, name string, want partition.Config) (partition.Config, error) {
	want.Units = nil
	return k.agree(ctx, client, name, want, false)
}

// Claim is for peers whose ledger compares the rest: it compares the kind, and writes it where
// none stands. Where another hash stands it leaves that to the ledger, which will refuse them.
func (k Kind) Claim(ctx context.Context, client redis.UniversalClient, name string, hash partition.Hash) error {
	fields, err := read(ctx, client, name)
	if err != nil {
		return err
	}
	if err := k.differs(name, fields); err != nil {
		NoteRefused(ctx, client, name, err)
		return err
	}
	if stands, known := fields[fieldHash]; known && stands != string(hash) {
		return nil
	}
	return k.claim(ctx, client, name, fields, false)
}

// KindOf returns the kind that stands under name, empty if none does.
func KindOf(ctx context.Context, client redis.UniversalClient, name string) (Kind, error) {
	fields, err := read(ctx, client, name)
	return Kind(fields[fieldKind]), err
}

// claim writes k if no kind stands among fields. Another may have been faster. fresh says that nobody had
// used the name, so that no older build has either.
func (k Kind) claim(ctx context.Context, client redis.UniversalClient, name string, fields map[string]string, fresh bool) error {
	if _, known := fields[fieldKind]; known || k == "" || !fresh && !k.may(fields) {
		return nil
	}
	pipe := client.Pipeline()
	pipe.HSetNX(ctx, Key(name), fieldKind, string(k))
	field := pipe.HGet(ctx, Key(name), fieldKind) // behind a write, so where that went
	_, err := pipe.Exec(ctx)
	if err != nil && (redis.IsOOMError(err) || Forbidden(err)) {
		return nil // who could start before there were kinds must be able to; the next one writes it
	}
	if err != nil {
		return failed("write", name, err)
	}
	err = k.differs(name, map[string]string{fieldKind: field.Val()})
	NoteRefused(ctx, client, name, err)
	return err
}

// may reports whether k may be what the peers of an older build have, who wrote no kind. One of
// another kind that was given their name by mistake must not write its own, which would keep out
// those that follow them.
func (k Kind) may(fields map[string]string) bool {
	_, ofAsynq := fields[fieldQueues]
	_, ofUnits := fields[fieldList]
	ofTopic := fields[fieldHash] == string(partition.Murmur2)
	return (!ofAsynq || k == Asynq) && (!ofUnits || k == Units) && (!ofTopic || k == Topic)
}

// differs is the refusal if another kind stands among fields.
func (k Kind) differs(name string, fields map[string]string) error {
	stands := Kind(fields[fieldKind])
	if k == "" || stands == "" || stands == k {
		return nil
	}
	return fmt.Errorf("redisconfig: %s: it is a name of %v, this program has %v (a name has one kind of work, so one of the two needs another name; "+
		"if what stands is not in use any more, stop all its peers and producers, then HDEL %[1]s %[4]s %[5]s %[6]s %[7]s %[8]s %[9]s): %[10]w",
		Key(name), stands, k, fieldKind, fieldQueues, fieldList, fieldTopic, fieldProgress, fieldGroup, partition.ErrConfig)
}
