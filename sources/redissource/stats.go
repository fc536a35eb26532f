package redissource

import (
	"cmp"
	"context"
	_ "embed"
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

// A Stat is how much of each kind a partition holds. It is read without the fence:
// for people and observers, not for decisions.
type Stat struct {
	ID partition.ID
	// Fence is the token that may fetch and settle now; zero while nobody may.
	Fence partition.Token
	// Epoch is the newest that was ever installed.
	Epoch partition.Epoch
	// Pending tasks wait in the log, and InFlight ones may have been started: the
	// owner has raised its start gate over them, somewhat ahead of its handlers.
	// Together they are all that is open.
	Pending, InFlight int
	Delayed           int // scheduled, or waiting for a retry that gave up its place
	Dead              int // dead letters
	// Err is why nothing else is known of the partition: a node of a cluster does not answer,
	// or another program has written one of its keys.
	Err error
}

// Stats reads what the partitions ids of name hold, in one round trip: six small
// reads a partition, none of which grows with its length. Each partition is a
// moment of its own; one that cannot be read says so in its Err. If none can, that
// is an error. Nodes of a cluster have half of the time of ctx to answer.
func Stats(ctx context.Context, client redis.UniversalClient, name string, ids []partition.ID) ([]Stat, error) {
	keys := eachKey(name, ids, func(k Keys) string { return k.Fence })
	asked := redisconfig.EachNode(ctx, client, keys, func(pipe redis.Pipeliner, i int) {
		k := KeysOf(name, ids[i])
		pipe.HMGet(ctx, k.Fence, "t", "e", "b", "h", "x")
		pipe.LLen(ctx, k.Pending)
		pipe.ZCard(ctx, k.Done)
		pipe.HLen(ctx, k.Lifted)
		pipe.ZCard(ctx, k.Delayed)
		pipe.LLen(ctx, k.Dead)
	})
	out, unread := make([]Stat, len(ids)), 0
	for i, cmds := range asked {
		var err error
		if out[i], err = stat(ids[i], cmds); err != nil {
			out[i] = Stat{ID: ids[i], Err: redisconfig.Explain(err)}
			unread++
		}
	}
	if unread > 0 && unread == len(ids) {
		return nil, fmt.Errorf("redissource: stats of %s: %w", name, out[unread-1].Err)
	}
	return out, nil
}

func stat(id partition.ID, cmds []redis.Cmder) (Stat, error) {
	s := Stat{ID: id}
	fence, err := cmds[0].(*redis.SliceCmd).Result()
	if err != nil {
		return s, err
	}
	token, _ := fence[0].(string)
	if token != "" {
		if s.Fence, err = partition.ParseToken(token); err != nil {
			return s, err
		}
	}
	var numbers [4]int64
	for i, field := range fence[1:] {
		if numbers[i], err = number(field); err != nil {
			return s, err
		}
	}
	epoch, base, gate, end := numbers[0], numbers[1], numbers[2], numbers[3]
	s.Epoch = partition.Epoch(epoch)
	var n [5]int
	for i, cmd := range cmds[1:] {
		count, err := cmd.(*redis.IntCmd).Result()
		if err != nil {
			return s, err
		}
		n[i] = int(count)
	}
	length, done, lifted := n[0], n[1], n[2]
	length = max(length, int(end-base)) // end: of a log that is no list
	s.Delayed, s.Dead = n[3], n[4]
	open := max(0, length-done) + lifted
	if token != "" {
		// Finished positions behind the base are below the gate.
		s.InFlight = min(open, max(0, min(int(gate-base), length)-done)+lifted)
	}
	s.Pending = open - s.InFlight
	return s, nil
}

// number reads a field of a hash that may be missing.
func number(field any) (int64, error) {
	text, _ := field.(string)
	if text == "" {
		return 0, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

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
	k, elements := KeysOf(name, id), make(map[string]string)
	take := func(position, element string) { elements[position] = element }
	err := peekLog(ctx, client, k, limit, take)
	if err == nil { // after the log: what the base passes meanwhile is here
		err = eachLifted(ctx, client, k, take)
	}
	if err != nil {
		return nil, fmt.Errorf("redissource: what is open in %s, partition %v: %w", name, id, redisconfig.Explain(err))
	}
	return queued(elements)
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

// queued decodes elements by their position and sorts them.
func queued(elements map[string]string) ([]Queued, error) {
	out := make([]Queued, 0, len(elements))
	for position, element := range elements {
		at, err := strconv.ParseInt(position, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("redissource: position %q: %w", position, err)
		}
		e, err := parseEnvelope(element)
		if err != nil {
			out = append(out, Queued{Position: at, Unread: true})
			continue
		}
		out = append(out, Queued{Position: at, ID: e.id, Type: e.typ, Key: e.key, Born: e.born.Time()})
	}
	slices.SortFunc(out, func(a, b Queued) int { return cmp.Compare(a.Position, b.Position) })
	return out, nil
}
