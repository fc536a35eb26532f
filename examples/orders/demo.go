package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/examples/orders/play"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/program/signals"
	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition/redisurl"
)

// demoPatience is how long the demo may take in all.
const demoPatience = 3 * time.Minute

func demoCommand() *cobra.Command {
	var cfg play.Config
	load := play.Load{Customers: 100, Each: 40, Pause: 100 * time.Millisecond}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "three peers, of which one is killed while it works",
		Long: `Starts a broker and a store inside this process (unless --kafka and --redis name
others), three peers in processes of their own, and sends orders. In the middle it
kills a peer, as kill -9 does. Then it counts.`,
		Args: cobra.NoArgs,
		RunE: exit.Run(func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(cfg.Validate(), load.Validate()); err != nil {
				return exit.With(exit.Usage, err)
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			cfg.Program, cfg.Errors = self, cmd.ErrOrStderr()
			told, stop := signals.Context(cmd.Context())
			defer stop()
			ctx, cancel := context.WithTimeout(told, demoPatience)
			defer cancel()
			report, err := demo(ctx, cfg, load, cmd.OutOrStdout())
			if told.Err() != nil {
				return context.Cause(told) // which signal it was, not what was cut off
			}
			if err == nil {
				err = report.Write(cmd.OutOrStdout())
			}
			if err == nil && report.Bad() {
				return exit.With(exit.Verdict, fmt.Errorf("the numbers do not hold"))
			}
			return err
		}),
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Kafka, "kafka", "", "a broker to play on, as kafka://host:port (default: one in this process)")
	f.StringVar(&cfg.Redis, "redis", "", "a store to play on, as redis://host:port (default: one in this process); without --kafka nothing stays in it")
	f.StringVar(&cfg.Progress, "progress", "redis", "redis or kafka: where the peers keep what is done")
	f.StringVar(&cfg.Topic, "topic", "orders", "topic of the orders; created if it is not there")
	f.StringVar(&cfg.Name, "name", "orders", "name of the task processing")
	f.IntVar(&cfg.Partitions, "partitions", 6, "of the topic")
	f.DurationVar(&cfg.Lease, "lease", 3*time.Second, "how long others wait for a silent peer")
	f.IntVar(&load.Customers, "customers", load.Customers, "how many customers order")
	f.IntVar(&load.Each, "each", load.Each, "how many orders each of them has")
	return cmd
}

// demo plays: peers, orders, and a kill when half of the time is over.
func demo(ctx context.Context, cfg play.Config, load play.Load, out io.Writer) (play.Report, error) {
	p, err := play.Start(ctx, cfg)
	if err != nil {
		return play.Report{}, err
	}
	defer p.Close()
	fmt.Fprintf(out, "kafka at %s, redis at %s\n", p.Kafka(), p.Redis())
	var victim *play.Peer
	for _, id := range []string{"ann", "bob", "cat"} {
		if victim, err = p.Peer(id); err != nil {
			return play.Report{}, err
		}
	}
	if err := shared(ctx, p, 3); err != nil {
		return play.Report{}, err
	}
	sending, cut := context.WithCancelCause(ctx)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if err := p.Send(sending, load); err != nil {
			cut(err)
		}
	}()
	defer func() {
		cut(nil)
		<-sent
	}()
	await := func(orders int, all bool) error { // what could not be sent is not waited for
		err := p.Await(sending, orders, all)
		if cause := context.Cause(sending); err != nil && ctx.Err() == nil && cause != nil {
			return cause
		}
		return err
	}
	// Half-way by what is done, however fast the machine is.
	if err := await(load.Customers*load.Each/2, false); err != nil {
		return play.Report{}, err
	}
	at := time.Now()
	victim.Kill()
	fmt.Fprintln(out, "killed cat")
	if err := await(load.Customers*load.Each, true); err != nil {
		return play.Report{}, err
	}
	return p.Report(ctx, load, victim, at)
}

// shared waits until so many peers or more own all partitions, each some: on a busy machine the
// orders might be done before the last one comes, and nothing be taken over from it. One that ends instead, because
// of what it was told, does not come.
func shared(ctx context.Context, p *play.Play, peers int) error {
	client, err := redisurl.Open(p.Redis())
	if err != nil {
		return err
	}
	defer client.Close()
	return play.Until(ctx, func() (bool, error) {
		if err := p.Ended(); err != nil {
			return false, err
		}
		seen, err := status.Read(ctx, client, p.Name())
		owners := map[string]bool{}
		for _, part := range seen.Partitions {
			if part.State != status.Owned {
				return false, err
			}
			owners[part.Owner] = true
		}
		return len(owners) >= peers, err
	})
}
