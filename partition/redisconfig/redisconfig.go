package redisconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
)

// The fields of the hash.
const (
	fieldProtocol  = "protocol"
	fieldTotal     = "total"
	fieldHash      = "hash"
	fieldUnits     = "units"
	fieldUnitNames = "unitnames"
	fieldRequires  = "requires"
	fieldPaused    = "paused"
	fieldDrained   = "drained"
	fieldList      = "list"
	fieldKind      = "kind"
	fieldQueues    = "queues" // of asynq; see sources/asynqsource/queuestat
	fieldTopic     = "topic"
	fieldProgress  = "progress"
	fieldGroup     = "group"
)

// ErrNone means that nobody has written a configuration under the name yet.
var ErrNone = errors.New("the name has no configuration yet: it is written by its first peer or producer, or by: countoff init (countoff names lists those that are there)")

// Tag returns the name as a cluster's hash tag, "{name}": every key of the name
// that begins with it is of one slot.
func Tag(name string) string { return "{" + name + "}" }

// Key returns the key of the configuration, "{name}:config".
func Key(name string) string { return Tag(name) + ":config" }

// Agree returns the configuration that stands under name, for a peer. Where there is
// none it writes want; a Total of 0 or an empty Hash in want takes what stands, else
// the default. No Units in want means that there are none.
//
// If something else stands, the error wraps partition.ErrConfig and names both
// values. It may be called concurrently, by any number of peers at once: the first
// wins whole.
func Agree(ctx context.Context, client redis.UniversalClient, name string, want partition.Config) (partition.Config, error) {
	return Kind("").Agree(ctx, client, name, want)
}

// AgreePartitions is [Agree] for producers: they have no say in the units, and
// neither compare nor write them. The Units it returns are those that stand. It fails on a
// replica, also where there is nothing to write: who produces for one would be refused with each
// task.
func AgreePartitions(ctx context.Context, client redis.UniversalClient, name string, want partition.Config) (partition.Config, error) {
	return Kind("").AgreePartitions(ctx, client, name, want)
}

// AgreeList has the peers of name agree on the key of the list of their work units: the first
// writes it, and for who has another the error wraps partition.ErrConfig. With two lists each
// peer would work on what it has of one, and the rest of both be nobody's.
func AgreeList(ctx context.Context, client redis.UniversalClient, name, list string) error {
	fields, err := read(ctx, client, name)
	if err != nil {
		return err
	}
	stands, known := fields[fieldList]
	if !known {
		pipe := client.Pipeline()
		pipe.HSetNX(ctx, Key(name), fieldList, list)
		field := pipe.HGet(ctx, Key(name), fieldList) // behind a write, so where that went
		_, err := pipe.Exec(ctx)
		if redis.IsOOMError(err) {
			return nil // a peer must be able to start there; the next one writes it
		}
		if err != nil {
			return failed("write", name, err)
		}
		stands = field.Val()
	}
	if stands == list {
		return nil
	}
	err = fmt.Errorf("redisconfig: %s: the list of units %s stands there, this program wants %s (to change it, stop all peers, then HDEL %[1]s %[4]s): %[5]w",
		Key(name), stands, list, fieldList, partition.ErrConfig)
	NoteRefused(ctx, client, name, err)
	return err
}

// List returns the key of the list of work units that AgreeList has written; empty: none.
func List(ctx context.Context, client redis.UniversalClient, name string) (string, error) {
	fields, err := read(ctx, client, name)
	return fields[fieldList], err
}

// Read returns the configuration that stands under name, or ErrNone.
func Read(ctx context.Context, client redis.UniversalClient, name string) (partition.Config, error) {
	fields, err := read(ctx, client, name)
	if err != nil {
		return partition.Config{}, err
	}
	if fields[fieldTotal] == "" {
		return partition.Config{}, fmt.Errorf("redisconfig: %s: %w", name, ErrNone)
	}
	return parse(name, fields)
}

// UnitNames returns the names of the units that stand under name, and looks at nothing else: also while the
// number of partitions is being changed, and where Read refuses what stands. There may be none.
func UnitNames(ctx context.Context, client redis.UniversalClient, name string) ([]string, error) {
	fields, err := read(ctx, client, name)
	if err != nil {
		return nil, err
	}
	return unitNames(fields), nil
}

func (k Kind) agree(ctx context.Context, client redis.UniversalClient, name string, want partition.Config, units bool) (partition.Config, error) {
	// A plain read first: a full store refuses writes, also those that would
	// change nothing, and a peer must be able to start there.
	fields, err := read(ctx, client, name)
	if err != nil {
		return partition.Config{}, err
	}
	// What this program knows of the rest means nothing where another kind stands.
	if err := k.differs(name, fields); err != nil {
		NoteRefused(ctx, client, name, err)
		return partition.Config{}, err
	}
	_, hasUnits := fields[fieldUnits]
	fresh := fields[fieldTotal] == ""
	if fresh || units && !hasUnits {
		if fields, err = write(ctx, client, name, want, units); err != nil {
			return partition.Config{}, err
		}
	} else if !units {
		// It removes nothing, and is refused by no server that is only full.
		if err := client.HDel(ctx, Key(name), "-").Err(); redis.IsReadOnlyError(err) {
			return partition.Config{}, failed("write", name, err)
		}
	}
	got, err := parse(name, fields)
	if err == nil {
		err = k.differsIn(name, got, want, units, fields[fieldUnits])
	}
	if err == nil {
		return got, k.claim(ctx, client, name, fields, fresh)
	}
	NoteRefused(ctx, client, name, err)
	return got, err
}

// write fills in the fields that are missing, in one transaction with the read that
// follows: of two first peers that want different things one wins whole, and no
// mixture of both stands, which would refuse both for ever.
func write(ctx context.Context, client redis.UniversalClient, name string, want partition.Config, units bool) (map[string]string, error) {
	c := want.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	var all *redis.MapStringStringCmd
	cmds, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		kv := pairs(c, units)
		for i := 0; i < len(kv); i += 2 {
			p.HSetNX(ctx, Key(name), kv[i].(string), kv[i+1])
		}
		all = p.HGetAll(ctx, Key(name))
		return nil
	})
	if err != nil {
		return nil, failed("write", name, Why(cmds, err))
	}
	return all.Val(), nil
}

// Why returns the reason for the error of a transaction: EXECABORT hides it.
func Why(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		if own := cmd.Err(); redis.HasErrorPrefix(err, "EXECABORT") && own != nil && !redis.HasErrorPrefix(own, "EXECABORT") {
			return own
		}
	}
	return err
}

func read(ctx context.Context, client redis.Cmdable, name string) (map[string]string, error) {
	if err := errors.Join(partition.CheckName(name), Fits(client)); err != nil {
		return nil, err
	}
	var all *redis.MapStringStringCmd
	// From a replica a peer would begin with the number of partitions that was before a resize.
	err := FromMaster(ctx, client, func(c redis.Cmdable) { all = c.HGetAll(ctx, Key(name)) })
	if err == nil {
		err = all.Err()
	}
	if err != nil {
		return nil, failed("read", name, err)
	}
	return all.Val(), nil
}

func pairs(c partition.Config, units bool) []any {
	kv := []any{fieldProtocol, partition.Protocol, fieldTotal, c.Total, fieldHash, string(c.Hash)}
	if units {
		kv = append(kv, fieldUnits, c.UnitsHash(), fieldUnitNames, strings.Join(c.Units, "\n"))
	}
	return kv
}

// parse reads the fields and refuses another protocol: what follows might mean
// something else there.
func parse(name string, fields map[string]string) (partition.Config, error) {
	if fields[fieldProtocol] == resizing {
		return partition.Config{}, errResizing(name, fields)
	}
	if p := fields[fieldProtocol]; p != strconv.Itoa(partition.Protocol) && p != strconv.Itoa(partition.TagsProtocol) {
		return partition.Config{}, fmt.Errorf("redisconfig: %s: protocol %q stands there, this program speaks %d and %d: %w",
			Key(name), p, partition.Protocol, partition.TagsProtocol, partition.ErrConfig)
	}
	total, err := strconv.Atoi(fields[fieldTotal])
	c := partition.Config{Total: total, Hash: partition.Hash(fields[fieldHash])}
	c.Units = unitNames(fields)
	requires, errRequires := ParseRequires(fields[fieldRequires])
	c.Requires, c.Paused = requires, partition.ParsePause(fields[fieldPaused])
	c.Drained = partition.ParseDrains(fields[fieldDrained])
	if err = errors.Join(err, errRequires, c.Validate()); err != nil {
		return partition.Config{}, fmt.Errorf("redisconfig: %s cannot be read: %w", Key(name), err)
	}
	return c, nil
}

func unitNames(fields map[string]string) []string {
	if fields[fieldUnitNames] == "" {
		return nil
	}
	return strings.Split(fields[fieldUnitNames], "\n")
}

// PrintRequires prints requirements as the field has them, one a line.
func PrintRequires(all []partition.Requirement) string {
	lines := make([]string, len(all))
	for i, r := range all {
		lines[i] = r.String()
	}
	return strings.Join(lines, "\n")
}

// ParseRequires reads what [PrintRequires] printed.
func ParseRequires(text string) (all []partition.Requirement, err error) {
	for line := range strings.Lines(text) {
		r, wrong := partition.ParseRequirement(strings.TrimSuffix(line, "\n"))
		all, err = append(all, r), errors.Join(err, wrong)
	}
	return all, err
}

// differsIn says all that stands other than want.
func (k Kind) differsIn(name string, got, want partition.Config, units bool, gotUnits string) error {
	var errs []error
	anew := fmt.Sprintf("countoff destroy %s begins anew, without its tasks", name)
	resize := fmt.Sprintf("countoff resize %s --partitions %d", name, want.Total)
	ingress := ToChangeIngress(name, want.Units)
	if k == Asynq { // resize and ingress are refused there
		resize = toInitAsynq(name, cmp.Or(want.Total, got.Total), want.Units)
		ingress = "to change them, stop all peers: " + resize
	}
	differ := func(what string, got, want any, change string) {
		errs = append(errs, fmt.Errorf("redisconfig: %s: %s %v stands there, this program wants %v%s: %w",
			Key(name), what, got, want, change, partition.ErrConfig))
	}
	if want.Total != 0 && want.Total != got.Total {
		differ("total", got.Total, want.Total, fmt.Sprintf(" (to change it, stop all peers: %s)", resize))
	}
	if want.Hash != "" && want.Hash != got.Hash {
		differ("hash", strconv.Quote(string(got.Hash)), strconv.Quote(string(want.Hash)), fmt.Sprintf(" (it stays: give this program that one; %s)", anew))
	}
	if units && (gotUnits != want.UnitsHash() || !slices.Equal(got.Units, want.Units)) {
		differ("ingress lists", fmt.Sprintf("%q", got.Units), fmt.Sprintf("%q", want.Units),
			fmt.Sprintf(" (all programs of a name have the same ones, from its first peer or countoff init --unit LIST on; %s)", ingress))
	}
	return errors.Join(errs...)
}
