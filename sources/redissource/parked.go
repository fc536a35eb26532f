package redissource

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
)

// A Tried says how far an open task has come.
type Tried struct {
	Tries, Crashes int
	NotBefore      time.Time // by the store's clock; zero: at once
	FirstError     string
	// Started says that an owner may have started it: its start gate is above.
	Started bool
}

// TriedOf reads how far the open task at position of partition id of name has come,
// without the fence: for people and observers.
func TriedOf(ctx context.Context, client redis.UniversalClient, name string, id partition.ID, position int64) (Tried, error) {
	k := KeysOf(name, id)
	pipe := client.TxPipeline()
	fence := pipe.HMGet(ctx, k.Fence, "t", "h")
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
	t.Started = token != "" && position < gate
	words := strings.SplitN(tries.Val(), " ", 4) // tries crashes notbefore error
	if len(words) < 3 {
		return t, nil
	}
	var errs [3]error
	var ms int64
	t.Tries, errs[0] = strconv.Atoi(words[0])
	t.Crashes, errs[1] = strconv.Atoi(words[1])
	ms, errs[2] = strconv.ParseInt(words[2], 10, 64)
	if ms > 0 {
		t.NotBefore = time.UnixMilli(ms)
	}
	if len(words) > 3 {
		t.FirstError = words[3]
	}
	if err := errors.Join(errs[:]...); err != nil {
		return t, fmt.Errorf("redissource: tries of %s, partition %v, position %d: %w", name, id, position, err)
	}
	return t, nil
}
