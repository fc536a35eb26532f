package redissource

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
)

//go:embed peek.lua
var peekSource string

var peekScript = redis.NewScript(peekSource)

// A Queued is a task that stands in a partition's log and is not finished.
type Queued struct {
	Position int64
	ID       string
	Type     string
	Key      string
	Born     time.Time
	// Unread says that nobody can read the element: the rest is empty.
	Unread bool
}

// Peek returns what is open in partition id of name, oldest first. Of the log it looks at the
// first limit elements at most, or at all if limit is 0. Many or large elements are read a few at
// a time; what they show is then no single moment, and what ends or comes meanwhile may be among
// them or not. It reads payloads and so costs what they weigh: for people and observers. Through
// a client that reads from replicas, what it knows of crashed and retried tasks may be older than
// the rest.
func Peek(ctx context.Context, client redis.UniversalClient, name string, id partition.ID, limit int) ([]Queued, error) {
	open, err := peek(ctx, client, name, id, limit, func(at int64, element string) Queued {
		e, err := parseEnvelope(element)
		if err != nil {
			return Queued{Position: at, Unread: true}
		}
		return Queued{Position: at, ID: e.id, Type: e.typ, Key: e.key, Born: e.born.Time()}
	})
	if err != nil {
		return nil, fmt.Errorf("redissource: what is open in %s, partition %v: %w", name, id, redisconfig.Explain(err))
	}
	return open, nil
}

// peek returns what read makes of the open elements of a partition, in the order of their positions.
func peek[T any](ctx context.Context, client redis.UniversalClient, name string, id partition.ID, limit int, read func(position int64, element string) T) ([]T, error) {
	k, elements := KeysOf(name, id), make(map[string]string)
	take := func(position, element string) { elements[position] = element }
	if err := peekLog(ctx, client, k, limit, take); err != nil {
		return nil, err
	}
	// After the log: what the base passes meanwhile is here.
	if err := eachLifted(ctx, client, k, take); err != nil {
		return nil, err
	}
	positions := make([]int64, 0, len(elements))
	for position := range elements {
		at, err := strconv.ParseInt(position, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("position %q: %w", position, err)
		}
		positions = append(positions, at)
	}
	slices.Sort(positions)
	out := make([]T, len(positions))
	for i, at := range positions {
		out[i] = read(at, elements[strconv.FormatInt(at, 10)])
	}
	return out, nil
}

// An Open is a [Queued], whole, and how far it has come, runs before it was put into this log among them.
type Open struct {
	Partition partition.ID
	Queued
	Tried
	Behind  bool   // an earlier one of its key is open: it does not run before that has ended
	Payload []byte // of what nobody can read: all that was found
	Headers map[string]string
}

// OpenTasks calls each for what is open in the partitions ids of name, oldest first within each partition, until each
// returns false. Of each log it looks at the first depth elements at most, or at all if depth is 0. A partition is
// looked at like [Peek] does, and is held in memory meanwhile. Partitions that cannot be read are an error after all others.
func OpenTasks(ctx context.Context, client redis.UniversalClient, name string, ids []partition.ID, depth int, each func(Open) bool) error {
	var away unanswered
	for _, id := range ids {
		open, err := openIn(ctx, client, name, id, depth)
		away.add(id, err)
		for _, o := range open {
			if !each(o) {
				return away.err("open tasks", name)
			}
		}
	}
	return away.err("open tasks", name)
}

func openIn(ctx context.Context, client redis.UniversalClient, name string, id partition.ID, depth int) ([]Open, error) {
	open, err := peek(ctx, client, name, id, depth, func(at int64, element string) Open {
		o := Open{Partition: id, Queued: Queued{Position: at}}
		e, err := parseEnvelope(element)
		if err != nil {
			o.Unread, o.Payload = true, []byte(element)
			return o
		}
		o.ID, o.Type, o.Key, o.Born, o.Payload, o.Headers = e.id, e.typ, e.key, e.born.Time(), slices.Clone(e.payload), e.headers
		o.Tries, o.Crashes, o.FirstError = e.tries, e.crashes, e.firstError
		return o
	})
	if err != nil || len(open) == 0 {
		return nil, err
	}
	k := KeysOf(name, id)
	pipe := client.Pipeline()
	fence, tries := pipe.HMGet(ctx, k.Fence, gateFields...), pipe.HGetAll(ctx, k.Tries) // of those alone that have a past
	redisconfig.Exec(ctx, pipe)
	if err := errors.Join(fence.Err(), tries.Err()); err != nil {
		return nil, err
	}
	gate, err := readGate(fence.Val())
	if err != nil {
		return nil, err
	}
	keys := make(map[string]bool)
	for i := range open {
		o := &open[i]
		if o.Behind = keys[o.Key]; o.Key != "" {
			keys[o.Key] = true
		}
		was, err := gate.tried(o.Position, tries.Val()[strconv.FormatInt(o.Position, 10)])
		if err != nil {
			return nil, fmt.Errorf("position %d: %w", o.Position, err)
		}
		// Both are of one task: see delivery.
		was.Tries, was.Crashes, was.FirstError = max(o.Tries, was.Tries), o.Crashes+was.Crashes, cmp.Or(o.FirstError, was.FirstError)
		o.Tried = was
	}
	return open, nil
}

// peekLog calls take for the first open elements of a log.
func peekLog(ctx context.Context, client redis.UniversalClient, k Keys, limit int, take func(position, element string)) error {
	if limit == 0 {
		limit = math.MaxInt32
	}
	p, base, next := unweighed, int64(0), int64(0) // where the log began, and what is read next
	for limit > 0 {
		n, from := p.of(limit), max(0, next-base)
		answer, err := peekScript.Run(ctx, client, []string{k.Fence, k.Pending, k.Done}, from, from+int64(n)-1).Slice()
		if p.late(n, err) {
			continue
		}
		if err != nil {
			return err
		}
		log, done := texts(answer[1]), texts(answer[2])
		was := base
		if base, err = number(answer[0]); err != nil {
			return fmt.Errorf("base: %w", err)
		}
		if from > 0 && base != was {
			continue // what is next stands further to the front now
		}
		finished := make(map[string]bool, len(done))
		for _, position := range done {
			finished[position] = true
		}
		for i, element := range log {
			if position := strconv.FormatInt(base+from+int64(i), 10); !finished[position] {
				take(position, element)
			}
		}
		if len(log) < n {
			return nil
		}
		p.weigh(log)
		next, limit = base+from+int64(n), limit-n
	}
	return nil
}

// texts are the elements of a list in the answer of a script.
func texts(list any) []string {
	all, _ := list.([]any)
	out := make([]string, len(all))
	for i, e := range all {
		out[i], _ = e.(string)
	}
	return out
}

// eachLifted calls take for what a partition has lifted. A hash has no order to go by: its fields are
// named.
func eachLifted(ctx context.Context, client redis.UniversalClient, k Keys, take func(position, element string)) error {
	positions, err := client.HKeys(ctx, k.Lifted).Result()
	if err != nil {
		return err
	}
	end := int64(len(positions))
	return pages(movePage, func(from, to int64) ([]string, error) {
		page := positions[min(from, end):min(to+1, end)]
		if len(page) == 0 {
			return nil, nil
		}
		values, err := client.HMGet(ctx, k.Lifted, page...).Result()
		if err != nil {
			return nil, err
		}
		elements := make([]string, len(page))
		for i, v := range values {
			if element, there := v.(string); there { // else it has ended meanwhile
				elements[i] = element
				take(page[i], element)
			}
		}
		return elements, nil
	})
}
