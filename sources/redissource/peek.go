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
	"strings"
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

// Peek returns what is open in partition id of name, oldest first. Of the log it returns the first
// limit at most, or all if limit is 0. Many or large elements are read a few at a time; what they
// show is then no single moment, and what ends or comes meanwhile may be among them or not. It reads
// payloads and so costs what they weigh: for people and observers. Through a client that reads from
// replicas, what it knows of crashed and retried tasks may be older than the rest.
func Peek(ctx context.Context, client redis.UniversalClient, name string, id partition.ID, limit int) ([]Queued, error) {
	var open []Queued
	err := eachOpen(ctx, client, KeysOf(name, id), limit, func(page []element) (bool, error) {
		for _, e := range page {
			q, _ := e.read()
			open = append(open, q)
		}
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("redissource: what is open in %s, partition %v: %w", name, id, redisconfig.Explain(err))
	}
	return open, nil
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
// returns false. Of each log it takes the first depth at most, or all if depth is 0. A partition is looked at like [Peek]
// does, and only the payloads and headers that are read at once are in memory. Partitions that cannot be read, or not to
// the end, are an error after all others.
func OpenTasks(ctx context.Context, client redis.UniversalClient, name string, ids []partition.ID, depth int, each func(Open) bool) error {
	var away unanswered
	for _, id := range ids {
		more, err := openIn(ctx, client, name, id, depth, each)
		away.add(id, err)
		if !more {
			break
		}
	}
	return away.err("open tasks", name)
}

// openIn reports whether more is wanted.
func openIn(ctx context.Context, client redis.UniversalClient, name string, id partition.ID, depth int, each func(Open) bool) (more bool, err error) {
	k, keys := KeysOf(name, id), make(map[string]bool)
	more = true
	err = eachOpen(ctx, client, k, depth, func(page []element) (bool, error) {
		if len(page) == 0 {
			return true, nil
		}
		fields := make([]string, len(page))
		for i, e := range page {
			fields[i] = strconv.FormatInt(e.position, 10)
		}
		pipe := client.Pipeline()
		fence, tries := pipe.HMGet(ctx, k.Fence, gateFields...), pipe.HMGet(ctx, k.Tries, fields...)
		redisconfig.Exec(ctx, pipe)
		if err := errors.Join(fence.Err(), tries.Err()); err != nil {
			return false, err
		}
		gate, err := readGate(fence.Val())
		if err != nil {
			return false, err
		}
		for i, e := range page {
			stands, _ := tries.Val()[i].(string)
			was, err := gate.tried(e.position, stands)
			if err != nil {
				return false, fmt.Errorf("position %d: %w", e.position, err)
			}
			o := Open{Partition: id}
			var whole envelope
			if o.Queued, whole = e.read(); o.Unread {
				o.Payload = []byte(e.text)
			} else {
				o.Payload, o.Headers = slices.Clone(whole.payload), whole.headers
			}
			if o.Behind = keys[o.Key]; o.Key != "" {
				keys[o.Key] = true
			}
			// Both are of one task: see delivery.
			was.Tries, was.Crashes, was.FirstError = max(whole.tries, was.Tries), whole.crashes+was.Crashes, cmp.Or(strings.Clone(whole.firstError), was.FirstError)
			o.Tried = was
			if more = each(o); !more {
				return false, nil
			}
		}
		return true, nil
	})
	return more, err
}

// An element of a log or of what was lifted.
type element struct {
	position int64
	text     string
}

// read returns what it says in short, which does not keep its text in memory, and all of it, which does.
func (e element) read() (Queued, envelope) {
	whole, err := parseEnvelope(e.text)
	if err != nil {
		return Queued{Position: e.position, Unread: true}, envelope{}
	}
	return Queued{
		Position: e.position, ID: strings.Clone(whole.id), Type: strings.Clone(whole.typ), Key: strings.Clone(whole.key), Born: whole.born.Time(),
	}, whole
}

// eachOpen calls take for the open elements of a partition, some at a time, in the order of their
// positions, until it returns false: for those that were lifted, and the first limit of the log.
func eachOpen(ctx context.Context, client redis.UniversalClient, k Keys, limit int, take func([]element) (more bool, err error)) error {
	if limit == 0 {
		limit = math.MaxInt32
	}
	p, base, next := unweighed, int64(0), int64(0) // where the log began, and what is read next
	ended := 0                                     // among what stands in the log: more has to be read to find limit
	for limit > 0 {
		n, from := p.of(limit+ended), max(0, next-base)
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
		if next < base { // what the base has passed unseen has ended, or is lifted
			if more, err := liftedFrom(ctx, client, k, next, base, take); err != nil || !more {
				return err
			}
			next = base
		}
		if from > 0 && base != was {
			continue // what is next stands further to the front now
		}
		finished := make(map[string]bool, len(done))
		for _, position := range done {
			finished[position] = true
		}
		page := make([]element, 0, len(log))
		for i, text := range log {
			if at := base + from + int64(i); limit > 0 && !finished[strconv.FormatInt(at, 10)] {
				page = append(page, element{at, text})
				limit--
			}
		}
		if more, err := take(page); err != nil || !more || len(log) < n {
			return err
		}
		p.weigh(log)
		next, ended = base+from+int64(n), len(done)
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

// liftedFrom calls take for what a partition has lifted of the positions from first on and below end, in
// their order, and reports whether more is wanted.
func liftedFrom(ctx context.Context, client redis.UniversalClient, k Keys, first, end int64, take func([]element) (bool, error)) (more bool, err error) {
	fields, err := client.HKeys(ctx, k.Lifted).Result()
	if err != nil {
		return false, err
	}
	var positions []int64
	for _, field := range fields {
		at, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return false, fmt.Errorf("position %q: %w", field, err)
		}
		if at >= first && at < end {
			positions = append(positions, at)
		}
	}
	slices.Sort(positions)
	fields = fields[:0]
	for _, at := range positions {
		fields = append(fields, strconv.FormatInt(at, 10))
	}
	at := 0
	more = true
	err = eachLifted(ctx, client, k, fields, func(texts []any) (_ bool, err error) {
		var page []element
		for _, v := range texts {
			if text, there := v.(string); there {
				page = append(page, element{positions[at], text})
			}
			at++
		}
		more, err = take(page)
		return more, err
	})
	return more, err
}

// eachLifted calls take for what a partition has lifted of the positions that fields name, some at a time, until it
// returns false: for nil where one has ended meanwhile. A hash has no order to go by: its fields are named.
func eachLifted(ctx context.Context, client redis.UniversalClient, k Keys, fields []string, take func(texts []any) (more bool, err error)) error {
	end, more := int64(len(fields)), true
	return pages(movePage, func(from, to int64) ([]string, error) {
		page := fields[min(from, end):min(to+1, end)]
		if len(page) == 0 || !more {
			return nil, nil
		}
		values, err := client.HMGet(ctx, k.Lifted, page...).Result()
		if err != nil {
			return nil, err
		}
		more, err = take(values)
		return texts(values), err
	})
}
