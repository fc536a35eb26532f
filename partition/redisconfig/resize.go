package redisconfig

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
)

const (
	// resizing stands in place of the protocol while tasks are moved to another number
	// of partitions: peers and producers, of any version, refuse to start.
	resizing    = "resizing"
	fieldResize = "resize" // "from to id", and from when tasks are moved on "mover"
)

//go:embed resize_change.lua
var resizeChangeSource string

var resizeChangeScript = redis.NewScript(resizeChangeSource)

// ErrTaken means that another call has taken a change over, or has ended it.
var ErrTaken = errors.New("another call goes on with this change of the number of partitions, or has ended it")

// A Resize is a change of the number of partitions that is under way.
type Resize struct {
	Config   partition.Config // as it was; Total is what it comes from
	To       int
	ID       string // names this change among all of the name
	Standing bool   // it was begun before
	// Mover names the call that moves, or has moved, what the partitions hold. "" if nothing was
	// moved yet.
	Mover string
}

// field is what stands while it is under way.
func (r Resize) field() string {
	text := fmt.Sprintf("%d %d %s", r.Config.Total, r.To, r.ID)
	if r.Mover != "" {
		text += " " + r.Mover
	}
	return text
}

// BeginResize closes name to peers and producers that start, until [EndResize] or
// [CancelResize]. If a change is under way, it returns that one: with another goal the
// error wraps partition.ErrConfig. id names the change if it is new: of calls at once one begins it.
func BeginResize(ctx context.Context, client redis.UniversalClient, name string, to int, id string) (r Resize, err error) {
	err = unlessChanged(ctx, client, name, func(tx *redis.Tx) error {
		r, err = beginResize(ctx, tx, name, to, id)
		return err
	})
	return r, err
}

func beginResize(ctx context.Context, tx *redis.Tx, name string, to int, id string) (Resize, error) {
	fields, err := read(ctx, tx, name)
	if err != nil {
		return Resize{}, err
	}
	standing := fields[fieldProtocol] == resizing
	if standing {
		fields[fieldProtocol] = strconv.Itoa(partition.Protocol)
	}
	if fields[fieldTotal] == "" {
		return Resize{}, fmt.Errorf("redisconfig: %s: %w", name, ErrNone)
	}
	c, err := parse(name, fields)
	if err != nil {
		return Resize{}, err
	}
	if err := (partition.Config{Total: to, Hash: c.Hash}).Validate(); err != nil {
		return Resize{}, err
	}
	r := Resize{Config: c, To: to, Standing: standing}
	if !standing {
		if c.Total == to {
			return r, nil
		}
		r.ID = id
		cmds, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, Key(name), fieldResize, r.field(), fieldProtocol, resizing)
			return nil
		})
		if err != nil {
			return r, failed("write", name, Why(cmds, err))
		}
		return r, nil
	}
	n, err := fmt.Sscanf(fields[fieldResize], "%d %d %s %s", &r.Config.Total, &r.To, &r.ID, &r.Mover)
	if n < 3 {
		return Resize{}, fmt.Errorf("redisconfig: %s: resize is %q: %w", Key(name), fields[fieldResize], err)
	}
	if r.To != to {
		return Resize{}, fmt.Errorf("redisconfig: %s: a change from %d to %d partitions is under way (finish it first: countoff resize %s --partitions %[3]d): %[5]w",
			Key(name), r.Config.Total, r.To, name, partition.ErrConfig)
	}
	return r, nil
}

// MoveResize says that mover moves from here on, and nobody else: it can be cancelled no more, and
// who moved before is refused its end. It returns r with this Mover, or ErrTaken if r is not what stands.
func MoveResize(ctx context.Context, client redis.UniversalClient, name string, r Resize, mover string) (Resize, error) {
	next := r
	next.Mover = mover
	return next, whileStands(ctx, client, name, r, next.field(), 0, 0)
}

// EndResize opens name with the new number of partitions. It returns ErrTaken if r is not what stands.
func EndResize(ctx context.Context, client redis.UniversalClient, name string, r Resize) error {
	return reopen(ctx, client, name, r, r.To)
}

// CancelResize opens name as it was. Where another call moves already, or has cancelled or ended
// it, it is left alone.
func CancelResize(ctx context.Context, client redis.UniversalClient, name string, r Resize) error {
	if err := reopen(ctx, client, name, r, r.Config.Total); !errors.Is(err, ErrTaken) {
		return err
	}
	return nil
}

func reopen(ctx context.Context, client redis.UniversalClient, name string, r Resize, total int) error {
	protocol := partition.Protocol
	if len(r.Config.Requires) > 0 {
		protocol = partition.TagsProtocol
	}
	return whileStands(ctx, client, name, r, "", protocol, total)
}

// whileStands changes the field, or reopens the name with these, if r is what stands then, and
// returns ErrTaken otherwise. It takes no memory: who moves, or gives up, does so in a full store too.
func whileStands(ctx context.Context, client redis.UniversalClient, name string, r Resize, field string, protocol, total int) error {
	n, err := resizeChangeScript.Run(ctx, client, []string{Key(name), RefusedKey(name)}, r.field(), field, protocol, total).Int()
	if err != nil {
		return failed("write", name, err)
	}
	if n != 1 {
		return fmt.Errorf("redisconfig: %s: %w", Key(name), ErrTaken)
	}
	return nil
}

// unlessChanged reads and writes the configuration, and does so anew if somebody else has written
// it between the two.
func unlessChanged(ctx context.Context, client redis.UniversalClient, name string, change func(*redis.Tx) error) error {
	for {
		if err := client.Watch(ctx, change, Key(name)); !errors.Is(err, redis.TxFailedErr) {
			return err
		}
	}
}

// errResizing is what those are told who start while a change is under way.
func errResizing(name string, fields map[string]string) error {
	from, to := "?", "N" // where it does not say
	_, _ = fmt.Sscan(fields[fieldResize], &from, &to)
	return fmt.Errorf("redisconfig: %s: the number of partitions is being changed, %s to %s (if that was broken off, finish it: countoff resize %s --partitions %[3]s): %[5]w",
		Key(name), from, to, name, partition.ErrConfig)
}
