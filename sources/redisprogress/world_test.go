package redisprogress_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/progress/progresstest"
	"github.com/countoff/countoff/sources/redisprogress"
)

var (
	seeds = flag.Uint64("progress.seeds", 12, "how many seeds each mix runs")
	seed  = flag.Uint64("progress.seed", 0, "the one seed to run, with its transcript; 0: all")
)

// The scripts keep what the reference in memory keeps, in the same worlds.
func TestScriptsInTheWorld(t *testing.T) {
	client := redistest.New(t)
	for _, list := range []bool{true, false} {
		for _, mix := range progresstest.Mixes {
			name := string(mix)
			if !list {
				name += ", log elsewhere"
				if mix == progresstest.Failover {
					continue
				}
			}
			t.Run(name, func(t *testing.T) {
				for n := uint64(1); n <= *seeds; n++ {
					if *seed != 0 {
						n = *seed
					}
					transcript, violated := progresstest.Run(mix, n, newStore(t, client, list), list)
					if violated != "" {
						t.Fatalf("%s\n%s\nagain with -progress.seed=%d", transcript, violated, n)
					}
					if *seed != 0 {
						return
					}
				}
			})
		}
	}
}

// store is a log in Redis as a progresstest.Store.
type store struct {
	t      *testing.T
	ctx    context.Context
	client redis.UniversalClient
	keys   redisprogress.Keys
	list   bool
}

func newStore(t *testing.T, client redis.UniversalClient, list bool) *store {
	return &store{t: t, ctx: t.Context(), client: client, keys: newKeys(t, list), list: list}
}

func newKeys(t *testing.T, list bool) redisprogress.Keys {
	tag := "{" + redistest.Name(t) + "}"
	k := redisprogress.Keys{Fence: tag + ":fence", Done: tag + ":done", Lifted: tag + ":lifted", Tries: tag + ":tries"}
	if list {
		k.Pending, k.Delayed, k.Dead = tag+":pending", tag+":delayed", tag+":dead"
	}
	return k
}

func (s *store) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) log(tok partition.Token) *redisprogress.Log {
	return redisprogress.New(s.client, s.keys, partition.Grant{Epoch: tok.Epoch}, tok)
}

func (s *store) Push(element string) { s.must(s.client.RPush(s.ctx, s.keys.Pending, element).Err()) }

func (s *store) Move() []string {
	if !s.list {
		return nil
	}
	before, err := s.client.LLen(s.ctx, s.keys.Pending).Result()
	s.must(err)
	pipe := s.client.Pipeline()
	cmd := s.log(partition.Token{Epoch: 1}).Move(s.ctx, pipe, 1000, true)
	pipe.Exec(s.ctx) // the command has the error
	_, _, err = redisprogress.Moved(cmd)
	s.must(err)
	moved, err := s.client.LRange(s.ctx, s.keys.Pending, before, -1).Result()
	s.must(err)
	return moved
}

func (s *store) Open(tok partition.Token) progresstest.Opened {
	o, err := s.log(tok).Open(s.ctx, 0)
	if errors.Is(err, sources.ErrFenced) {
		return progresstest.Opened{Refused: true}
	}
	s.must(err)
	w := progresstest.Opened{Opened: o.Opened, Tried: map[int64]progresstest.Tried{}}
	for pos, t := range o.Tried {
		w.Tried[pos] = progresstest.Tried{Tries: t.Tries, Crashes: t.Crashes}
	}
	for _, l := range o.Lifted {
		w.Lifted = append(w.Lifted, progresstest.Lifted{Position: l.Position, Element: l.Envelope})
	}
	return w
}

func (s *store) Read(from, n int64) []string {
	r, err := s.client.LRange(s.ctx, s.keys.Pending, from, from+n-1).Result()
	s.must(err)
	return r
}

func (s *store) Settle(tok partition.Token, r *progress.Request, content []string) progress.Answer {
	var c []redisprogress.Content
	for _, body := range content {
		c = append(c, redisprogress.Content{Body: []byte(body), Error: "no luck"})
	}
	l := s.log(tok)
	pipe := s.client.Pipeline()
	cmd := l.Settle(s.ctx, pipe, r, c, nil, true)
	pipe.Exec(s.ctx) // the command has the error
	reply, err := l.Answer(cmd)
	s.must(err)
	return reply.Answer
}

func (s *store) Close(tok partition.Token) { s.must(s.log(tok).Close(s.ctx)) }

func (s *store) State() progresstest.State {
	pipe := s.client.Pipeline()
	fence := pipe.HMGet(s.ctx, s.keys.Fence, "b", "h")
	done := pipe.ZRange(s.ctx, s.keys.Done, 0, -1)
	tries := pipe.HLen(s.ctx, s.keys.Tries)
	lifted := pipe.HGetAll(s.ctx, s.keys.Lifted)
	var pending, dead, delayed *redis.StringSliceCmd
	if s.list {
		pending = pipe.LRange(s.ctx, s.keys.Pending, 0, -1)
		dead = pipe.LRange(s.ctx, s.keys.Dead, 0, -1)
		delayed = pipe.ZRange(s.ctx, s.keys.Delayed, 0, -1)
	}
	_, err := pipe.Exec(s.ctx)
	s.must(err)
	var numbers [2]int64
	for i, v := range fence.Val() {
		if v, ok := v.(string); ok {
			numbers[i] = s.number(v)
		}
	}
	st := progresstest.State{Base: numbers[0], Gate: numbers[1], Tries: int(tries.Val())}
	for _, x := range done.Val() {
		st.Done = append(st.Done, s.number(x))
	}
	for _, x := range slices.Sorted(maps.Keys(lifted.Val())) {
		st.Lifted = append(st.Lifted, progresstest.Lifted{Position: s.number(x), Element: lifted.Val()[x]})
	}
	if s.list {
		st.Pending, st.Dead, st.Delayed = pending.Val(), dead.Val(), delayed.Val()
	}
	return st
}

func (s *store) number(v string) int64 {
	n, err := strconv.ParseInt(v, 10, 64)
	s.must(err)
	return n
}

// Snapshot copies the log; restore puts the copy back.
func (s *store) Snapshot() (restore func()) {
	k := s.keys
	all := []string{k.Fence, k.Done, k.Lifted, k.Tries, k.Pending, k.Delayed, k.Dead}
	st := s.State()
	pipe := s.client.Pipeline()
	fence, tries := pipe.HGetAll(s.ctx, k.Fence), pipe.HGetAll(s.ctx, k.Tries)
	delayed := pipe.ZRangeWithScores(s.ctx, k.Delayed, 0, -1)
	_, err := pipe.Exec(s.ctx)
	s.must(err)
	return func() {
		_, err := s.client.TxPipelined(s.ctx, func(p redis.Pipeliner) error {
			p.Del(s.ctx, all...)
			for key, h := range map[string]map[string]string{k.Fence: fence.Val(), k.Tries: tries.Val()} {
				for f, v := range h {
					p.HSet(s.ctx, key, f, v)
				}
			}
			for _, l := range st.Lifted {
				p.HSet(s.ctx, k.Lifted, fmt.Sprint(l.Position), l.Element)
			}
			for _, x := range st.Done {
				p.ZAdd(s.ctx, k.Done, redis.Z{Score: float64(x), Member: fmt.Sprint(x)})
			}
			for _, z := range delayed.Val() {
				p.ZAdd(s.ctx, k.Delayed, z)
			}
			for _, e := range st.Pending {
				p.RPush(s.ctx, k.Pending, e)
			}
			for _, e := range st.Dead {
				p.RPush(s.ctx, k.Dead, e)
			}
			return nil
		})
		s.must(err)
	}
}
