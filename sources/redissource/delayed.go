package redissource

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
)

//go:embed delayed.lua
var delayedSource string

var delayedScript = redis.NewScript(bellSource + takeSource + delayedSource)

// A Delayed is a task that waits for its time: it is scheduled, or, where a later task may pass it, for its
// next try.
type Delayed struct {
	Partition partition.ID
	Due       time.Time // by the store's clock

	ID, Type, Key string
	Payload       []byte
	Headers       map[string]string
	Born          time.Time
	Attempts      int    // runs that failed
	FirstError    string // of the first of them
	// Raw says that nobody can read it as a task: Payload is what was found. It becomes a dead
	// letter once it is due.
	Raw bool

	element, lock string // as it stands in its set; the value of its lock, if it is unique
}

// DelayedTasks calls each for the delayed tasks of the partitions ids of name, the first to be due first
// within each partition, until each returns false; with an ID for those that have it, in no order. Tasks that come or go meanwhile
// may be missed or told twice. Partitions that cannot be read are an error after all others. Nodes of a cluster have half
// of the time of ctx to say whether there are any. To look for an ID costs the store some 0.8 ms for each thousand delayed tasks.
func DelayedTasks(ctx context.Context, client redis.UniversalClient, name string, ids []partition.ID, id string, each func(Delayed) bool) error {
	keys := eachKey(name, ids, func(k Keys) string { return k.Delayed })
	counts := make([]*redis.IntCmd, len(ids))
	redisconfig.EachNode(ctx, client, keys, func(pipe redis.Pipeliner, i int) {
		pipe.Eval(ctx, "return 0", keys[i:i+1]) // a script is the master's, and so is what shares its pipeline: a replica that lags knows of no such task
		counts[i] = pipe.ZCard(ctx, keys[i])
	})
	var away unanswered
	more := true
	for i, p := range ids {
		n, err := counts[i].Result()
		if n > 0 && more {
			take := func(z redis.Z) bool {
				if d := readDelayed(p, z); id == "" || d.ID == id {
					more = each(d)
				}
				return more
			}
			if id == "" {
				err = eachDelayed(ctx, client, keys[i], take)
			} else {
				err = delayedOf(ctx, client, keys[i], id, take)
			}
		}
		away.add(p, err)
	}
	return away.err("delayed tasks", name)
}

// eachDelayed reads all of a set, in order.
func eachDelayed(ctx context.Context, client redis.UniversalClient, key string, take func(redis.Z) bool) error {
	return pages(deadPage, func(from, to int64) ([]string, error) {
		var read *redis.ZSliceCmd
		if err := redisconfig.FromMaster(ctx, client, func(c redis.Cmdable) { read = c.ZRangeWithScores(ctx, key, from, to) }); err != nil {
			return nil, err
		}
		page, err := read.Result()
		if err != nil {
			return nil, err // a part may be there
		}
		elements := make([]string, len(page))
		for i, z := range page {
			if elements[i] = z.Member.(string); !take(z) {
				return nil, nil
			}
		}
		return elements, nil
	})
}

// delayedOf looks for those of an ID. The server compares: of others it copies nothing. Where a scan goes on only the node
// knows that began it.
func delayedOf(ctx context.Context, client redis.UniversalClient, key, id string, take func(redis.Z) bool) error {
	pattern := headPattern(appendString(nil, id))
	seen := map[string]bool{} // a scan may tell of one twice
	for cursor := uint64(0); ; {
		var scan *redis.ScanCmd
		if err := redisconfig.FromMaster(ctx, client, func(c redis.Cmdable) { scan = c.ZScan(ctx, key, cursor, pattern, scanPage) }); err != nil {
			return err
		}
		found, next, err := scan.Result()
		if err != nil {
			return err
		}
		for pair := range slices.Chunk(found, 2) {
			due, err := strconv.ParseFloat(pair[1], 64)
			if err != nil {
				return fmt.Errorf("the time of %q: %w", pair[0], err)
			}
			if !seen[pair[0]] && !take(redis.Z{Member: pair[0], Score: due}) {
				return nil
			}
			seen[pair[0]] = true
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// headPattern is a pattern of envelopes whose ID stands there as head. Any byte may stand in place of one that is no
// text, as the length of a long one: not every store takes such a pattern.
func headPattern(head []byte) string {
	pattern := []byte("??")
	for len(head) > 0 {
		r, n := utf8.DecodeRune(head)
		switch {
		case r == utf8.RuneError && n == 1:
			pattern = append(pattern, '?')
		case strings.ContainsRune(`*?[]\`, r):
			pattern = append(pattern, '\\', head[0])
		default:
			pattern = append(pattern, head[:n]...)
		}
		head = head[n:]
	}
	return string(append(pattern, '*'))
}

// scanPage is how many delayed tasks the store looks at in one call.
const scanPage = 1000

func readDelayed(id partition.ID, z redis.Z) Delayed {
	d := Delayed{Partition: id, Due: time.UnixMilli(int64(min(max(z.Score, 0), 1<<53))), element: z.Member.(string)}
	e, err := parseEnvelope(d.element)
	if err != nil {
		d.Raw, d.Payload = true, []byte(d.element)
		return d
	}
	d.ID, d.Type, d.Key, d.Born, d.Headers, d.Payload = e.id, e.typ, e.key, e.born.Time(), e.headers, slices.Clone(e.payload)
	d.Attempts, d.FirstError = e.tries, e.firstError
	if e.unique {
		d.lock = e.lockValue()
	}
	return d
}

// Cancel takes d away, so that it never runs, and reports whether it did: false if it is due, and so
// runs or has run, or if somebody else has taken it. What is taken away holds its ID no longer. The error wraps partition.ErrConfig
// while the number of partitions is being changed. A fail-over of the store may forget it: the task then runs after all.
func Cancel(ctx context.Context, client redis.UniversalClient, name string, d Delayed) (bool, error) {
	return d.take(ctx, client, name, "drop", "")
}

// RunNow puts d at the end of its partition's log, and reports whether it did, as [Cancel] does, with its errors.
func RunNow(ctx context.Context, client redis.UniversalClient, name string, d Delayed) (bool, error) {
	return d.take(ctx, client, name, "now", "")
}

func (d Delayed) take(ctx context.Context, client redis.UniversalClient, name, what, letter string) (bool, error) {
	k := KeysOf(name, d.Partition)
	keys := []string{k.Delayed, k.Pending, k.Fence, k.Fence}
	if letter != "" {
		keys[1] = k.Dead
	}
	if d.lock != "" {
		keys[3] = k.Unique(d.ID)
	}
	n, err := delayedScript.Run(ctx, client, keys, d.element, what, d.lock, letter).Int()
	if err != nil {
		return false, fmt.Errorf("redissource: delayed task %s of %s: %w", d.ID, name, redisconfig.Explain(err))
	}
	if n == 2 {
		return false, changing("delayed task", d.ID, name)
	}
	return n == 1, nil
}

// Cancel takes back the tasks of an ID that wait for their time, so that they never run, and returns how many. An empty id is an
// error. key is that of the message; without one all partitions are looked through. None is no error: then the task is due, has run, or was never there;
// or the store has heard of this call twice, since its answer was lost. See the function [Cancel]. The error wraps partition.ErrConfig
// also once the number of partitions has changed: the tasks are where this producer does not look.
func (p *Producer) Cancel(ctx context.Context, key, id string) (int, error) {
	m := Message{ID: id, Key: key}
	if id == "" {
		return 0, errors.New("redissource: cancel without an ID")
	}
	if err := m.check(p.config.Hash, time.Now()); err != nil {
		return 0, fmt.Errorf("redissource: cancel: %w", err)
	}
	layout := p.config
	layout.Units = nil
	ids := layout.IDs()
	if key != "" {
		ids = []partition.ID{p.place(&m)}
	}
	var found []Delayed
	err := DelayedTasks(ctx, p.client, p.name, ids, id, func(d Delayed) bool {
		found = append(found, d)
		return true
	})
	n := 0
	for _, d := range found {
		if key != "" && d.Key != key {
			continue
		}
		ok, failed := Cancel(ctx, p.client, p.name, d)
		if failed != nil {
			return n, failed
		}
		if ok {
			n++
		}
	}
	return n, errors.Join(err, p.unmoved(ctx))
}

// unmoved returns an error if what was enqueued before now may be, or have been, moved to other partitions.
func (p *Producer) unmoved(ctx context.Context) error {
	now, err := redisconfig.Read(ctx, p.client, p.name)
	switch {
	case errors.Is(err, redisconfig.ErrNone): // nothing is there
		return nil
	case err != nil:
		return fmt.Errorf("redissource: cancel: %w", err)
	case now.Total != p.config.Total:
		return fmt.Errorf("redissource: cancel: %s has %d partitions now, this producer counts %d: make a new one: %w",
			p.name, now.Total, p.config.Total, partition.ErrConfig)
	}
	return nil
}
