package redissource

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/progress"
)

// A Tried says how far an open task has come.
type Tried struct {
	Tries, Waits, Crashes int       // runs that failed, that waited, that a crash ended
	NotBefore             time.Time // by the store's clock, also if it is past; zero: at once
	FirstError            string
	// Started says that an owner may have started it: its start gate is above.
	Started bool
	// Suspect says that it may have ended a former owner: it is started when nothing else of
	// the partition runs, and Started says whether it was.
	Suspect bool
}

// TriedOf reads how far the open task at position of partition id of name has come,
// without the fence: for people and observers.
func TriedOf(ctx context.Context, client redis.UniversalClient, name string, id partition.ID, position int64) (Tried, error) {
	k := KeysOf(name, id)
	pipe := client.Pipeline() // a full server takes no transaction, and then one looks
	fence := pipe.HMGet(ctx, k.Fence, gateFields...)
	tries := pipe.HGet(ctx, k.Tries, strconv.FormatInt(position, 10))
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return Tried{}, fmt.Errorf("redissource: tries of %s, partition %v, position %d: %w", name, id, position, err)
	}
	gate, err := readGate(fence.Val())
	if err != nil {
		return Tried{}, fmt.Errorf("redissource: %s, partition %v: %w", name, id, err)
	}
	t, err := gate.tried(position, tries.Val())
	if err != nil {
		return Tried{}, fmt.Errorf("redissource: tries of %s, partition %v, position %d: %w", name, id, position, err)
	}
	return t, nil
}

// A gate is what a fence says of where its owner has come.
type gate struct {
	owned          bool
	start, suspect int64  // what is below was perhaps started; may have ended a former owner
	alone          string // position of the suspect that was started
}

// gateFields are the fields of a fence that readGate reads.
var gateFields = []string{"t", "h", "s", "a"}

func readGate(fields []any) (g gate, err error) {
	token, _ := fields[0].(string)
	g.owned = token != ""
	if g.start, err = number(fields[1]); err != nil {
		return g, fmt.Errorf("start gate: %w", err)
	}
	if g.suspect, err = number(fields[2]); err != nil {
		return g, fmt.Errorf("suspects: %w", err)
	}
	g.alone, _ = fields[3].(string)
	return g, nil
}

// tried says how far the task at a position has come, of which that stands among the tries; empty: nothing does.
func (g gate) tried(position int64, stands string) (Tried, error) {
	t := Tried{Started: g.owned && position < g.start, Suspect: position < g.suspect}
	if t.Suspect {
		t.Started = t.Started && g.alone == strconv.FormatInt(position, 10)
	}
	if stands == "" {
		return t, nil
	}
	was, err := progress.ParseTried(stands, time.UnixMilli(0), 0) // the store's time as it stands: this machine's says nothing of it
	if err != nil {
		return t, err
	}
	t.Tries, t.Waits, t.Crashes, t.NotBefore, t.FirstError = was.Attempts(), was.Waits, was.Crashes, was.NotBefore, was.FirstError
	return t, nil
}
