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
	fence := pipe.HMGet(ctx, k.Fence, "t", "h", "s", "a")
	tries := pipe.HGet(ctx, k.Tries, strconv.FormatInt(position, 10))
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return Tried{}, fmt.Errorf("redissource: tries of %s, partition %v, position %d: %w", name, id, position, err)
	}
	var t Tried
	token, _ := fence.Val()[0].(string)
	gate, err := number(fence.Val()[1])
	if err != nil {
		return t, fmt.Errorf("redissource: start gate of %s, partition %v: %w", name, id, err)
	}
	suspects, err := number(fence.Val()[2])
	if err != nil {
		return t, fmt.Errorf("redissource: suspects of %s, partition %v: %w", name, id, err)
	}
	t.Started, t.Suspect = token != "" && position < gate, position < suspects
	if t.Suspect {
		t.Started = t.Started && fence.Val()[3] == strconv.FormatInt(position, 10)
	}
	if tries.Val() == "" {
		return t, nil
	}
	was, err := progress.ParseTried(tries.Val(), time.UnixMilli(0), 0) // the store's time as it stands: this machine's says nothing of it
	if err != nil {
		return t, fmt.Errorf("redissource: tries of %s, partition %v, position %d: %w", name, id, position, err)
	}
	t.Tries, t.Waits, t.Crashes, t.NotBefore, t.FirstError = was.Attempts(), was.Waits, was.Crashes, was.NotBefore, was.FirstError
	return t, nil
}
