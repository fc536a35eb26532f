package redissource

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
)

//go:embed take.lua
var takeSource string

//go:embed requeue.lua
var requeueSource string

var requeueScript = redis.NewScript(bellSource + takeSource + requeueSource)

// A DeadLetter is a task that will not be run again unless a person says so, whole,
// with the reason.
type DeadLetter struct {
	Partition partition.ID
	Position  int64 // where it was in its log

	ID, Type, Key string
	Payload       []byte
	Headers       map[string]string
	Born          time.Time

	Reason     string
	FirstError string // of its first failed run; may be empty
	Attempts   int    // runs that failed
	Crashes    int    // runs that a crash of their peer ended
	Died       time.Time
	// Raw says that nobody could read it as a task: Payload is what was found. It can be
	// requeued only if it is a line of an [Ingress].
	Raw bool

	element string // as it stands in its list
}

// Name tells d from other letters that have its ID, or none: it is its partition and position, as
// in 3/17. A letter that nobody could read has no position in the log: a line has that in its
// list, which another line may have had as well. Part of a hash of its text tells those apart:
// 0/17-9f86d081.
func (d DeadLetter) Name() string {
	place := fmt.Sprintf("%v/%d", d.Partition, d.Position)
	if d.ID != "" || d.element == "" {
		return place
	}
	return fmt.Sprintf("%s-%08x", place, uint32(xxhash.Sum64String(d.element)))
}

// Same reports whether d and e stand as one and the same text in the list of one partition, so
// that either may be taken for the other.
func (d DeadLetter) Same(e DeadLetter) bool {
	return d.Partition == e.Partition && d.element == e.element
}

// ErrRaw means that a dead letter is no task that could be run.
var ErrRaw = errors.New("the dead letter is no task: nobody could read it, and it is no line of an ingress list")

// deadPage is how many dead letters are read at once, at most.
const deadPage = 500

// DeadLetters calls each for the dead letters of the partitions ids of name, oldest
// first within each partition, until each returns false. Letters that come or go
// meanwhile may be missed or told twice. Partitions that cannot be read are an error
// after all others. Nodes of a cluster have half of the time of ctx to say whether there are any.
func DeadLetters(ctx context.Context, client redis.UniversalClient, name string, ids []partition.ID, each func(DeadLetter) bool) error {
	keys := eachKey(name, ids, func(k Keys) string { return k.Dead })
	counts := make([]*redis.IntCmd, len(ids))
	redisconfig.EachNode(ctx, client, keys, func(pipe redis.Pipeliner, i int) { counts[i] = pipe.LLen(ctx, keys[i]) })
	var away unanswered
	more := true
	for i, id := range ids {
		n, err := counts[i].Result()
		if n > 0 && more {
			err = pages(deadPage, func(from, to int64) ([]string, error) {
				elements, err := client.LRange(ctx, keys[i], from, to).Result()
				if err != nil {
					return nil, err // a part may be there
				}
				for _, e := range elements {
					if more = each(readLetter(id, e)); !more {
						return nil, nil
					}
				}
				return elements, nil
			})
		}
		away.add(id, err)
	}
	return away.err("dead letters", name)
}

// readLetter decodes an element of a list of dead letters. One that cannot be read is
// a dead letter too: it must be possible to see it and to drop it.
func readLetter(id partition.ID, element string) DeadLetter {
	d := DeadLetter{Partition: id, element: element}
	l, err := parseLetter(element)
	if err != nil {
		d.Raw, d.Reason, d.Payload = true, err.Error(), []byte(element)
		return d
	}
	d.Position, d.Attempts, d.Crashes, d.Died = l.position, l.attempts, l.crashes, l.at
	d.Reason, d.FirstError = l.reason, l.firstError
	e, err := parseEnvelope(l.body)
	if d.Raw = l.raw || err != nil; d.Raw {
		d.Payload = []byte(l.body)
		return d
	}
	d.ID, d.Type, d.Key, d.Born, d.Headers, d.Payload = e.id, e.typ, e.key, e.born.Time(), e.headers, slices.Clone(e.payload)
	return d
}

// Requeue puts the task of d at the end of its partition's log, as if it had never
// run, and reports whether it did: false if somebody else has taken the letter.
// Tasks of its key that came meanwhile stay before it. A line of an [Ingress] is pushed to its
// list again, for peers that read it in another way by now; broken off, or called twice at
// once, it may be there twice. Requeue returns [ErrRaw] for what else is no task, and an error
// that wraps partition.ErrConfig while the number of partitions is being changed.
func Requeue(ctx context.Context, client redis.UniversalClient, name string, d DeadLetter) (bool, error) {
	if d.Raw {
		return requeueLine(ctx, client, name, d)
	}
	return remove(ctx, client, name, d, string(appendEnvelope(nil, &envelope{
		id: d.ID, typ: d.Type, key: d.Key, born: sources.MomentOf(d.Born), headers: d.Headers, payload: d.Payload,
	})))
}

// requeueLine pushes the line that d is to its list. The letter goes after it: it is of another
// slot of a cluster, and a line that is there twice is better than one that is nowhere.
func requeueLine(ctx context.Context, client redis.UniversalClient, name string, d DeadLetter) (bool, error) {
	what := fmt.Sprintf("redissource: partition %v, position %d", d.Partition, d.Position)
	cfg, err := redisconfig.Read(ctx, client, name)
	if err != nil && !errors.Is(err, redisconfig.ErrNone) {
		return false, err
	}
	var push func(context.Context, string, ...any) *redis.IntCmd
	var to string
	for _, list := range cfg.Units {
		switch {
		case strings.HasPrefix(d.Reason, lineReason(list, Right)):
			push, to = client.LPush, list
		case strings.HasPrefix(d.Reason, lineReason(list, Left)):
			push, to = client.RPush, list
		}
	}
	if push == nil {
		return false, fmt.Errorf("%s: %w", what, ErrRaw)
	}
	switch err := client.LPos(ctx, KeysOf(name, d.Partition).Dead, d.element, redis.LPosArgs{}).Err(); {
	case errors.Is(err, redis.Nil):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s: %w", what, err)
	}
	if err := push(ctx, to, d.Payload).Err(); err != nil {
		return false, fmt.Errorf("%s: push it to %s again: %w", what, to, err)
	}
	return remove(ctx, client, name, d, "")
}

// Drop throws d away and reports whether it did: false if somebody else has taken
// it. Its errors are those of Requeue, but for ErrRaw.
func Drop(ctx context.Context, client redis.UniversalClient, name string, d DeadLetter) (bool, error) {
	return remove(ctx, client, name, d, "")
}

func remove(ctx context.Context, client redis.UniversalClient, name string, d DeadLetter, envelope string) (bool, error) {
	k := KeysOf(name, d.Partition)
	n, err := requeueScript.Run(ctx, client, []string{k.Dead, k.Pending, k.Fence}, d.element, envelope).Int()
	if err != nil {
		return false, fmt.Errorf("redissource: dead letter %s of %s: %w", d.ID, name, redisconfig.Explain(err))
	}
	if n == 2 {
		return false, changing("dead letter", d.ID, name)
	}
	return n == 1, nil
}

// changing is why a task is not taken from where it is now.
func changing(what, id, name string) error {
	return fmt.Errorf("redissource: %s %s of %s: the number of partitions is being changed: "+
		"wait until that has ended, or finish it: countoff resize: %w", what, id, name, partition.ErrConfig)
}
