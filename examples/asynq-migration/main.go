// Command asynq-migration shows what becomes of a program of asynq when countoff shares
// out its queues: the same tasks and the same mux, first with a plain asynq.Server, then
// with three peers, one of which is killed.
//
//	go run ./examples/asynq-migration            the demo; it brings its own Redis
//	asynq-migration peer --redis URL --name N    one peer of it, until SIGTERM
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
	url := flags.String("redis", "", "URL of Redis; the demo has one of its own")
	name := flags.String("name", "accounts", "name of the task processing")
	id := flags.String("id", "", "id of the peer")
	command := "demo"
	if len(args) > 0 && args[0] == "peer" {
		command, args = args[0], args[1:]
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return frameworkfx.ExitOK
	case err != nil:
		return frameworkfx.ExitWrong
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "asynq-migration: %q: want peer, or nothing for the demo\n", flags.Arg(0))
		return frameworkfx.ExitWrong
	}
	if command == "peer" && *url == "" {
		fmt.Fprintln(os.Stderr, "asynq-migration: peer: want --redis URL, as in redis://localhost:6379")
		return frameworkfx.ExitWrong
	}
	if command == "peer" {
		return peer(*url, *name, *id)
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

// peer is all there is to change in a program: where it made an asynq.Server and ran the
// mux, it does this.
func peer(url, name, id string) int {
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
