package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/fx"

	"github.com/countoff/countoff/examples/internal/cast"
	"github.com/countoff/countoff/examples/orders/play"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/kafkafx"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/sources/kafkasource"
	"github.com/countoff/countoff/transition"
)

func workCommand() *cobra.Command {
	var cfg kafkafx.Config
	var name, id, reset, progress string
	var concurrency int
	var lease, takes time.Duration
	var withStdin bool
	cmd := &cobra.Command{
		Use:   "work",
		Short: "one peer: works the orders of its share, until told to stop",
		Args:  cobra.NoArgs,
		RunE: exit.Run(func(cmd *cobra.Command, _ []string) error {
			if withStdin {
				go cast.EndWith(cmd.InOrStdin())
			}
			cfg.Progress = kafkafx.Progress(progress)
			cfg.Source.OutOfRange = kafkasource.Place(reset)
			journal := play.NewJournal(os.Stdout)
			desk := desk{takes: takes, journal: journal}
			return exit.Coded(frameworkfx.Run(
				kafkafx.Source(name, cfg),
				frameworkfx.Configure(name, framework.Config{Concurrency: concurrency, Timing: transition.Timing{Lease: lease}},
					peerID(id)...),
				frameworkfx.Otherwise(name, desk.work),
				fx.Supply(journal),
				frameworkfx.Observe(func(j *play.Journal) framework.ObserverFunc { return j.Observe }),
			))
		}),
	}
	f := cmd.Flags()
	f.StringVar(&cfg.URL, "kafka", "kafka://127.0.0.1:9092", "the brokers, as kafka://[user:password@]host:port[,host:port][?sasl=…], kafkas:// for TLS")
	f.StringVar(&cfg.Redis, "redis", "redis://127.0.0.1:6379", "the store of the ledger, and of what is done if --progress does not say otherwise")
	f.StringVar(&cfg.Source.Topic, "topic", "orders", "topic of the orders; dead letters go to TOPIC.dead")
	f.StringVar(&cfg.Source.Group, "group", "", "Kafka group that shows how far the orders are (default the name)")
	f.StringVar(&reset, "out-of-range", string(kafkasource.Fail), "earliest, latest or fail: where to go on if the topic has lost the stored position")
	f.StringVar(&progress, "progress", string(kafkafx.InRedis), "redis or kafka: where it is kept what is done; the same for all peers")
	f.StringVar(&name, "name", "orders", "name of the task processing; all its peers share it")
	f.StringVar(&id, "id", "", "peer id (default the host's name, with the process id or the beginning of the session where that is taken)")
	f.IntVar(&concurrency, "concurrency", 16, "orders being worked at once")
	f.DurationVar(&lease, "lease", 10*time.Second, "how long others wait for a silent peer; the same for all peers")
	f.DurationVar(&cfg.Source.Look, "look", 10*time.Second, "how often the topic is asked whether it has grown, and where it ends, for countoff status")
	f.DurationVar(&takes, "takes", 20*time.Millisecond, "how long an order takes")
	f.BoolVar(&withStdin, "exit-with-stdin", false, "stop at once when stdin ends")
	_ = f.MarkHidden("exit-with-stdin") // for the demo, whose peers must not outlive it
	return cmd
}

func peerID(id string) []framework.Option {
	if id == "" {
		return nil
	}
	return []framework.Option{framework.WithPeer(id, 1)}
}

// A desk works orders: it takes its time and writes in the journal.
type desk struct {
	takes   time.Duration
	journal *play.Journal
}

func (d desk) work(ctx context.Context, t *framework.Task) error {
	d.journal.Begin(t)
	timer := time.NewTimer(d.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if strings.Contains(string(t.Payload), `"refuse":true`) {
		return framework.Dead(errors.New("the customer is unknown"))
	}
	d.journal.End(t)
	return nil
}
