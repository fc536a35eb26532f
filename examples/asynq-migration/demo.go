package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/examples/internal/cast"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/asynqsource"
)

const (
	accounts = 10
	steps    = 40 // of each account
	atOnce   = 10 // handlers
	queues   = 8
	peers    = 3
)

// serverConfig is what both ways of running the mux have in common.
func serverConfig() asynq.Config {
	return asynq.Config{
		Concurrency: atOnce,
		Logger:      silent{log.New(io.Discard, "", 0)},
	}
}

// silent is a logger of asynq that says nothing: the demo speaks for itself.
type silent struct{ *log.Logger }

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}

// journal is where the handlers of a name write down what they did.
func journal(name string) string { return name + ":journal:" }

func account(i int) string { return fmt.Sprintf("account-%d", i) }

// A tally is what the journals say.
type tally struct{ steps, lost, twice, disorder int }

func (t tally) String() string {
	return fmt.Sprintf("%d steps: %d lost, %d done twice, %d out of order", t.steps, t.lost, t.twice, t.disorder)
}

// count reads the journals of a name. A step is out of order if a later one of its
// account was done before it; one that is done again is not counted again.
func count(ctx context.Context, client redis.UniversalClient, name string) (t tally, err error) {
	for i := range accounts {
		lines, err := client.LRange(ctx, journal(name)+account(i), 0, -1).Result()
		if err != nil {
			return t, err
		}
		var seen []int
		for _, line := range lines {
			n, err := strconv.Atoi(line)
			if err != nil {
				return t, err
			}
			switch {
			case slices.Contains(seen, n):
				t.twice++
				continue
			case len(seen) > 0 && slices.Max(seen) > n:
				t.disorder++
			}
			seen = append(seen, n)
		}
		t.steps += steps
		t.lost += steps - len(seen)
	}
	return t, nil
}

// demo runs both ways and says what came of them. It fails if countoff lost something or
// changed the order of an account. On a store that is the user's it leaves nothing.
func demo(ctx context.Context, url, name string, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "asynq-migration-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	store, err := cast.Open(ctx, url, "", name, partition.Config{Total: queues})
	if err != nil {
		return told(ctx, err)
	}
	defer func() {
		err = told(ctx, err)
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		left := store.Close(ending, func(ctx context.Context) error { return raze(ctx, store) })
		if left != nil { // countoff destroy leaves what is asynq's
			left = fmt.Errorf("%w; then redis-cli --scan --pattern '*%s*' | xargs redis-cli UNLINK, and redis-cli SREM asynq:queues %s",
				left, store.Name, strings.Join(queuesOf(store.Name), " "))
		}
		err = errors.Join(err, left)
	}()

	fmt.Fprintf(out, "1. a plain asynq.Server, %d at once\n", atOnce)
	before, err := plain(ctx, store.Client, store.Name+"-plain")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "   %v\n", before)

	fmt.Fprintf(out, "2. the same tasks and the same mux with countoff: %d peers, %d queues, one peer is killed\n", peers, queues)
	after, err := shared(ctx, store, dir, out)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "   %v\n", after)
	if after.lost > 0 || after.disorder > 0 {
		return exit.With(exit.Verdict, errors.New("something was lost or out of order"))
	}
	return nil
}

// told is which signal it was, where one has cut off what failed with err.
func told(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// raze removes what asynq, the source and the handlers have written, but not what is the ledger's: NAME:journal:*,
// {NAME:0}:*, asynq:{NAME:0}:* and so on, and the same with NAME-plain. The name of another demo may begin with this
// one's, or end with it.
func raze(ctx context.Context, store *cast.Store) error {
	ours := regexp.MustCompile(`^(asynq:)?\{?` + regexp.QuoteMeta(store.Name) + `(-plain)?[:}]`)
	err := redisconfig.EachMaster(ctx, store.Client, func(ctx context.Context, node redis.UniversalClient, _ string) error {
		keys := node.Scan(ctx, 0, "*"+store.Name+"*", 1000).Iterator()
		for keys.Next(ctx) {
			if !ours.MatchString(keys.Val()) || strings.HasPrefix(keys.Val(), "{"+store.Name+"}") {
				continue
			}
			if err := node.Unlink(ctx, keys.Val()).Err(); err != nil {
				return err
			}
		}
		return keys.Err()
	})
	return errors.Join(err, store.Client.SRem(ctx, "asynq:queues", queuesOf(store.Name)).Err())
}

// queuesOf are the queues of a demo.
func queuesOf(name string) []string {
	all := []string{name + "-plain"}
	for i := range queues {
		all = append(all, fmt.Sprintf("%s:%d", name, i))
	}
	return all
}

// plain runs the program as it was.
func plain(ctx context.Context, client redis.UniversalClient, queue string) (tally, error) {
	producer := asynq.NewClientFromRedisClient(client)
	for n := range steps {
		for i := range accounts {
			task, err := newStep(account(i), n)
			if err == nil {
				_, err = producer.EnqueueContext(ctx, task, asynq.Queue(queue))
			}
			if err != nil {
				return tally{}, err
			}
		}
	}
	cfg := serverConfig()
	cfg.Queues = map[string]int{queue: 1}
	server := asynq.NewServerFromRedisClient(client, cfg)
	if err := server.Start(newMux(client, journal(queue))); err != nil {
		return tally{}, err
	}
	defer server.Shutdown()
	return done(ctx, client, queue, nil)
}

// done waits until nothing is lost, but not for ever, nor for peers that have ended by themselves.
func done(ctx context.Context, client redis.UniversalClient, name string, troupe []*cast.Peer) (t tally, err error) {
	return t, until(ctx, func() (bool, error) {
		t, err = count(ctx, client, name)
		return t.lost == 0, errors.Join(err, fallen(troupe))
	})
}

// busy waits until the peers are at work.
func busy(ctx context.Context, client redis.UniversalClient, name string, troupe []*cast.Peer) error {
	return until(ctx, func() (bool, error) {
		t, err := count(ctx, client, name)
		return t.steps-t.lost >= accounts, errors.Join(err, fallen(troupe))
	})
}

// until looks again and again whether something is so, for a minute.
func until(ctx context.Context, so func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if ok, err := so(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func fallen(troupe []*cast.Peer) error {
	for _, p := range troupe {
		if err := p.Fallen(); err != nil {
			return err
		}
	}
	return nil
}

// shared runs it with countoff. The producer names a key; the mux does not change.
func shared(ctx context.Context, store *cast.Store, dir string, out io.Writer) (t tally, err error) {
	producer, err := asynqsource.NewClient(ctx, store.Client, store.Name, asynqsource.ClientConfig{})
	if err != nil {
		return t, err
	}
	var troupe []*cast.Peer
	defer func() {
		for _, p := range troupe {
			p.Dismiss()
		}
	}()
	for i := range peers {
		p, err := cast.Enter(dir, fmt.Sprintf("peer-%d", i+1), nil, "--redis", store.URL, "--name", store.Name)
		if err != nil {
			return t, err
		}
		troupe = append(troupe, p)
	}
	for n := range steps {
		for i := range accounts {
			task, err := newStep(account(i), n)
			if err == nil {
				_, err = producer.EnqueueContext(ctx, account(i), task)
			}
			if err != nil {
				return t, err
			}
		}
		if n == steps/2 {
			if err := busy(ctx, store.Client, store.Name, troupe); err != nil {
				return t, err
			}
			troupe[0].Kill()
			fmt.Fprintln(out, "   peer-1 is killed without goodbye")
		}
	}
	if t, err = done(ctx, store.Client, store.Name, troupe); err != nil {
		return t, err
	}
	for _, p := range troupe[1:] {
		if err := p.Leave(); err != nil {
			return t, err
		}
	}
	return count(ctx, store.Client, store.Name) // with what was running still
}
