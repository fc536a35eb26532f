package redisconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
)

// How much of who was refused is kept, and for how long after the last.
const (
	refusedKept = 16
	refusedFor  = 24 * time.Hour
)

// A Refusal says that a program was turned away because it wanted another
// configuration than the one that stands, or that a peer may not open a partition as
// it is configured.
type Refusal struct {
	Who  string // host, process and program, for people
	What string // what it wanted instead, for people
	Ago  time.Duration
}

// RefusedKey returns the key of the last refusals, "{name}:refused": a LIST, newest
// first, of "time-in-ms who<tab>what".
func RefusedKey(name string) string { return Tag(name) + ":refused" }

// NoteRefused leaves a trace of a refusal for those who are in use of the name, if
// err wraps partition.ErrConfig. That it cannot be left is no error: the refused
// program has its own.
func NoteRefused(ctx context.Context, client redis.UniversalClient, name string, err error) {
	if !errors.Is(err, partition.ErrConfig) {
		return
	}
	if now, timeErr := client.Time(ctx).Result(); timeErr == nil {
		_, _ = client.TxPipelined(ctx, leave(ctx, name, now, err))
	}
}

// NoteRefusedOnce is [NoteRefused] of what all peers of a name may meet at once, and again and again: it leaves no trace
// while one stands for less than so long whose text begins with prefix, whoever left it, so that they do not push
// out those of others. Its own error says that the server did not take it.
func NoteRefusedOnce(ctx context.Context, client redis.UniversalClient, name, prefix string, long time.Duration, err error) error {
	if !errors.Is(err, partition.ErrConfig) {
		return nil
	}
	key := RefusedKey(name)
	said := error(redis.TxFailedErr)
	for errors.Is(said, redis.TxFailedErr) { // another left one meanwhile
		said = client.Watch(ctx, func(tx *redis.Tx) error {
			now, err1 := tx.Time(ctx).Result()
			lines, err2 := tx.LRange(ctx, key, 0, -1).Result()
			if slices.ContainsFunc(ParseRefused(lines, uint64(now.UnixMilli())), func(r Refusal) bool {
				return r.Ago < long && strings.HasPrefix(r.What, prefix)
			}) || err1 != nil || err2 != nil {
				return cmp.Or(err1, err2)
			}
			_, said := tx.TxPipelined(ctx, leave(ctx, name, now, err))
			return said
		}, key)
	}
	return said
}

// leave leaves the trace of err.
func leave(ctx context.Context, name string, now time.Time, err error) func(redis.Pipeliner) error {
	// Whoever reads it knows the name, and that it is a refusal.
	what := strings.TrimSuffix(strings.TrimPrefix(err.Error(), "redisconfig: "+Key(name)+": "), ": "+partition.ErrConfig.Error())
	line := fmt.Sprintf("%d %s\t%s", now.UnixMilli(), oneLine(self()), oneLine(what))
	return func(p redis.Pipeliner) error {
		p.LPush(ctx, RefusedKey(name), line)
		p.LTrim(ctx, RefusedKey(name), 0, refusedKept-1)
		p.Expire(ctx, RefusedKey(name), refusedFor)
		return nil
	}
}

// ParseRefused reads the elements of RefusedKey at the instant now, in ms, by the
// store's clock. What cannot be read is left out.
func ParseRefused(lines []string, now uint64) []Refusal {
	var all []Refusal
	for _, line := range lines {
		at, rest, _ := strings.Cut(line, " ")
		who, what, ok := strings.Cut(rest, "\t")
		ms, err := strconv.ParseInt(at, 10, 64)
		if err != nil || !ok {
			continue
		}
		all = append(all, Refusal{Who: who, What: what, Ago: time.Duration(int64(now)-ms) * time.Millisecond})
	}
	return all
}

// self says who we are.
func self() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s pid %d (%s)", host, os.Getpid(), filepath.Base(os.Args[0]))
}

// oneLine keeps a text from breaking the format.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}
