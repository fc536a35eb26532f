// Command asynq-migration shows what becomes of a program of asynq when countoff shares
// out its queues: the same tasks and the same mux, first with a plain asynq.Server, then
// with three peers, one of which is killed.
//
//	go run ./examples/asynq-migration            the demo; it brings its own Redis
//	asynq-migration work --redis URL --name N    one peer of it, until SIGTERM
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/examples/internal/cast"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/asynqfx"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/program/signals"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/transition"
)

// lease is short, so that the demo is.
const lease = 3 * time.Second

func main() {
	redisurl.Quiet()
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	flags := flag.NewFlagSet("asynq-migration", flag.ContinueOnError)
	url := flags.String("redis", "", "URL of Redis; the demo brings its own, and leaves nothing on yours")
	name := flags.String("name", "accounts", "name of the task processing")
	id := flags.String("id", "", "id of the peer")
	withStdin := flags.Bool("exit-with-stdin", false, "stop at once when stdin ends: for the demo, whose peers must not outlive it")
	command := "demo"
	if len(args) > 0 && args[0] == "work" {
		command, args = args[0], args[1:]
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return frameworkfx.ExitOK
	case err != nil:
		return frameworkfx.ExitWrong
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "asynq-migration: %q: want work, or nothing for the demo\n", flags.Arg(0))
		return frameworkfx.ExitWrong
	}
	if command == "work" && *url == "" {
		fmt.Fprintln(os.Stderr, "asynq-migration: work: want --redis URL, as in redis://localhost:6379")
		return frameworkfx.ExitWrong
	}
	if command == "work" {
		if *withStdin {
			go cast.EndWith(os.Stdin)
		}
		return work(*url, *name, *id)
	}
	ctx, stop := signals.Context(context.Background())
	defer stop()
	err := exit.From(demo(ctx, *url, *name, os.Stdout))
	if coded, ok := errors.AsType[*exit.Error](err); ok {
		fmt.Fprintln(os.Stderr, "asynq-migration:", err)
		return coded.Code
	}
	return exit.OK
}

// work is all there is to change in a program: where it made an asynq.Server and ran the
// mux, it does this.
func work(url, name, id string) int {
	return frameworkfx.Run(
		redisfx.Client(url),
		asynqfx.Mux(name, asynqfx.Config{Server: serverConfig()}, func(client redis.UniversalClient) *asynq.ServeMux {
			return newMux(client, journal(name))
		}),
		frameworkfx.Configure(name, framework.Config{
			Concurrency: 10,
			Timing:      transition.Timing{Lease: lease, Settle: 200 * time.Millisecond},
			PodGrace:    time.Minute,
		}, framework.WithPeer(id, 1)),
	)
}
