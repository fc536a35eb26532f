package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/examples/mail-sender/embedded"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources/asynqsource"
	"github.com/countoff/countoff/transition/redisledger"
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
// changed the order of an account.
func demo(ctx context.Context, url, name string, out io.Writer) (err error) {
	if url == "" {
		server, err := embedded.Start("")
		if err != nil {
			return err
		}
		defer server.Close()
		url = server.URL()
	}
	client, err := redisurl.Open(url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := redisurl.Reach(ctx, client, url); err != nil {
		return err
	}

	fmt.Fprintf(out, "1. a plain asynq.Server, %d at once\n", atOnce)
	before, err := plain(ctx, client, name+"-plain")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "   %v\n", before)

	fmt.Fprintf(out, "2. the same tasks and the same mux with countoff: %d peers, %d queues, one peer is killed\n", peers, queues)
	after, err := shared(ctx, client, url, name, out)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "   %v\n", after)
	if after.lost > 0 || after.disorder > 0 {
		return exit.With(exit.Verdict, errors.New("something was lost or out of order"))
	}
	return nil
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
	return done(ctx, client, queue)
}

// done waits until nothing is lost, or nothing changes any more.
func done(ctx context.Context, client redis.UniversalClient, name string) (t tally, err error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if t, err = count(ctx, client, name); err != nil || t.lost == 0 {
			return t, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return t, ctx.Err()
		}
	}
	return t, nil
}

// shared runs it with countoff. The producer names a key; the mux does not change.
func shared(ctx context.Context, client redis.UniversalClient, url, name string, out io.Writer) (t tally, err error) {
	if _, err := redisledger.Init(ctx, client, name, partition.Config{Total: queues}); err != nil {
		return t, err
	}
	producer, err := asynqsource.NewClient(ctx, client, name, asynqsource.ClientConfig{})
	if err != nil {
		return t, err
	}
	var running []*exec.Cmd
	defer func() {
		for _, cmd := range running {
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may be gone
		}
		for _, cmd := range running {
			_ = cmd.Wait() // so does the killed one
		}
	}()
	for i := range peers {
		cmd, err := spawn(url, name, fmt.Sprintf("peer-%d", i+1))
		if err != nil {
			return t, err
		}
		running = append(running, cmd)
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
			if err := busy(ctx, client, name); err != nil {
				return t, err
			}
			if err := running[0].Process.Kill(); err != nil {
				return t, err
			}
			fmt.Fprintln(out, "   peer-1 is killed without goodbye")
		}
	}
	return done(ctx, client, name)
}

// busy waits until the peers are at work.
func busy(ctx context.Context, client redis.UniversalClient, name string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		t, err := count(ctx, client, name)
		if err != nil {
			return err
		}
		if t.steps-t.lost >= accounts {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// childVariable says to the program that it is a peer of the demo.
const childVariable = "ASYNQ_MIGRATION_CHILD"

// spawn starts a peer as a process of its own, so that a kill is a kill.
func spawn(url, name, id string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "peer", "--redis", url, "--name", name, "--id", id)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	return cmd, cmd.Start()
}
