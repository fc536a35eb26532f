package redissource

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
)

var (
	//go:embed cancel_give.lua
	cancelGiveSource string
	//go:embed cancel_mark.lua
	cancelMarkSource string
	//go:embed cancel_undo.lua
	cancelUndoSource string
	//go:embed cancel_read.lua
	cancelReadSource string

	cancelGive = redis.NewScript(cancelGiveSource)
	cancelMark = redis.NewScript(cancelMarkSource)
	cancelUndo = redis.NewScript(cancelUndoSource)
	cancelRead = redis.NewScript(cancelReadSource)
)

// CancelKey is the HASH of what is to be cancelled under name, and the channel on which that is told.
func CancelKey(name string) string { return "{" + name + "}:cancel" }

const (
	// MaxCancellations is how many may stand under a name.
	MaxCancellations = 256
	// MaxCancelFor is the longest for which one may stand.
	MaxCancelFor = 7 * 24 * time.Hour
	// maxCancelWhy bounds what is said of one, in bytes.
	maxCancelWhy = 500
)

// ErrCancellations means that as many stand as there may be.
var ErrCancellations = fmt.Errorf("redissource: at most %d tasks of a name can be about to be cancelled", MaxCancellations)

// A CancelState is how far a [Cancellation] is.
type CancelState string

// The states.
const (
	CancelWaits CancelState = "waits" // no owner of a partition has met the task
	CancelRuns  CancelState = "runs"  // the context of its handler has ended, and the handler has not returned
	CancelDead  CancelState = "dead"  // it became a dead letter
	CancelDone  CancelState = "done"  // its handler did it all the same
)

// Over reports whether nothing more will come of it.
func (s CancelState) Over() bool { return s == CancelDead || s == CancelDone }

// A Cancellation says that the task of an ID is to be taken out of the way, wherever it is: it becomes
// a dead letter, whole, and the later tasks of its key go on.
type Cancellation struct {
	ID, Why      string
	Since, Until time.Time // by the store's clock; a task that is met later than Until is run
	State        CancelState
	Where        string // the grant whose owner has met it, as in 17@4021; empty: none has
}

// GiveCancel lets whoever holds the tasks ids of name take them out of the way: a handler's context ends, and
// what waits for its turn or its next try, or is read within the time lasts, becomes a dead letter with why as
// the reason. What waits in a set of delayed tasks no owner holds: see [BuryDelayed]. Owners whose build does
// not know of it do nothing. It stands, once for each ID, until the task is a dead letter or done, the time is
// over or [UndoCancel] takes it back; given again it stands for lasts from then on, for another why. The errors are
// [ErrCancellations], those of [CheckCancel] and those of the store.
func GiveCancel(ctx context.Context, client redis.UniversalClient, name, why string, lasts time.Duration, ids ...string) error {
	if err := errors.Join(partition.CheckName(name), CheckCancel(why, lasts, ids...)); err != nil {
		return err
	}
	args := []any{lasts.Milliseconds(), MaxCancellations, why}
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := cancelGive.Run(ctx, client, []string{CancelKey(name)}, args...).Slice()
	if err != nil {
		return fmt.Errorf("redissource: cancel tasks of %s: %w", name, redisconfig.Explain(err))
	}
	if reply[0] == int64(0) {
		return fmt.Errorf("%w: %v of %s are", ErrCancellations, reply[1], name)
	}
	return nil
}

// CheckCancel returns all that is wrong with the arguments of [GiveCancel].
func CheckCancel(why string, lasts time.Duration, ids ...string) error {
	var errs []error
	if len(ids) == 0 || slices.Contains(ids, "") {
		errs = append(errs, errors.New("redissource: cancel: want the IDs of tasks, none of them empty"))
	}
	if len(why) > maxCancelWhy {
		errs = append(errs, fmt.Errorf("redissource: cancel: %d bytes that say why: want %d at most", len(why), maxCancelWhy))
	}
	if lasts < time.Second || lasts > MaxCancelFor {
		errs = append(errs, fmt.Errorf("redissource: cancel for %v: want 1s to %v", lasts, MaxCancelFor))
	}
	return errors.Join(errs...)
}

// UndoCancel takes back what [GiveCancel] gave, and returns how far each was; empty: it was not there. A
// handler whose context has ended is ended all the same.
func UndoCancel(ctx context.Context, client redis.UniversalClient, name string, ids ...string) ([]CancelState, error) {
	return undoCancel(ctx, client, name, "", ids)
}

// UndoCancelled does what [UndoCancel] does, and forgets those whose task became a dead letter: before it is requeued,
// so that it is run, and nobody is told any more that it is out of the way.
func UndoCancelled(ctx context.Context, client redis.UniversalClient, name string, ids ...string) ([]CancelState, error) {
	return undoCancel(ctx, client, name, CancelDead, ids)
}

func undoCancel(ctx context.Context, client redis.UniversalClient, name string, over CancelState, ids []string) ([]CancelState, error) {
	args := []any{string(over)}
	for _, id := range ids {
		args = append(args, id)
	}
	states, err := cancelUndo.Run(ctx, client, []string{CancelKey(name)}, args...).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("redissource: take back cancellations of %s: %w", name, redisconfig.Explain(err))
	}
	all := make([]CancelState, len(states))
	for i, s := range states {
		all[i] = CancelState(s)
	}
	return all, nil
}

// Cancellations returns what stands under name, and what was carried out and not forgotten yet, the oldest first.
func Cancellations(ctx context.Context, client redis.UniversalClient, name string) ([]Cancellation, error) {
	all, _, err := readCancels(ctx, client, CancelKey(name))
	return all, err
}

// readCancels returns what did not end by itself yet, and the time of the store.
func readCancels(ctx context.Context, client redis.UniversalClient, key string) (all []Cancellation, now time.Time, err error) {
	reply, err := cancelRead.Run(ctx, client, []string{key}).StringSlice()
	if err == nil {
		now, err = milliseconds(reply[0])
	}
	if err != nil {
		return nil, now, fmt.Errorf("redissource: read %s: %w", key, redisconfig.Explain(err))
	}
	for pair := range slices.Chunk(reply[1:], 2) {
		if c, ok := parseCancellation(pair[0], pair[1]); ok && c.Until.After(now) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b Cancellation) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID)) })
	return all, now, nil
}

// parseCancellation reads what a script wrote. What it did not is none: somebody else's key is no reason for an
// owner to do nothing.
func parseCancellation(id, text string) (c Cancellation, ok bool) {
	f := strings.SplitN(text, " ", 5)
	if len(f) != 5 {
		return c, false
	}
	since, errSince := milliseconds(f[0])
	until, errUntil := milliseconds(f[1])
	c = Cancellation{ID: id, Since: since, Until: until, State: CancelState(f[2]), Where: strings.TrimPrefix(f[3], "-"), Why: f[4]}
	return c, errSince == nil && errUntil == nil
}

func milliseconds(text string) (time.Time, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMilli(n), err
}

// markCancel writes down the state of c, and where.
func markCancel(ctx context.Context, client redis.UniversalClient, key string, c Cancellation) error {
	return cancelMark.Run(ctx, client, []string{key}, c.ID, c.Since.UnixMilli(), string(c.State), cmp.Or(c.Where, "-")).Err()
}

// BuryDelayed makes a dead letter of d, as the owner of its partition does with what it holds, and reports
// whether it did, as [Cancel] does, with its errors.
func BuryDelayed(ctx context.Context, client redis.UniversalClient, name string, d Delayed, why string) (bool, error) {
	l := letter{attempts: d.Attempts, at: time.Now(), reason: why, firstError: cmp.Or(d.FirstError, why), raw: d.Raw, body: d.element}
	if e, err := parseEnvelope(d.element); err == nil {
		l.crashes = e.crashes
		e.tries, e.crashes, e.firstError, e.unique = 0, 0, "", false
		l.body = string(appendEnvelope(nil, &e))
	}
	return d.take(ctx, client, name, "dead", string(encodeLetter(&l)))
}

// CancelledDelayed writes down that the task of a cancellation became a dead letter because of [BuryDelayed].
func CancelledDelayed(ctx context.Context, client redis.UniversalClient, name string, c Cancellation) error {
	c.State, c.Where = CancelDead, ""
	return markCancel(ctx, client, CancelKey(name), c)
}

// wanted is what of all is still to be carried out, by ID.
func wanted(all []Cancellation) map[string]Cancellation {
	orders := map[string]Cancellation{}
	for _, c := range all {
		if !c.State.Over() {
			orders[c.ID] = c
		}
	}
	return orders
}

// firstEnd is when the first of them ends by itself; zero: none does.
func firstEnd(orders map[string]Cancellation) time.Time {
	return slices.MinFunc(append(slices.Collect(maps.Values(orders)), Cancellation{Until: time.Unix(1<<40, 0)}),
		func(a, b Cancellation) int { return a.Until.Compare(b.Until) }).Until
}
