package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"

	"github.com/countoff/countoff/examples/internal/cast"
	"github.com/countoff/countoff/examples/scraper/website"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/framework/frameworkfx/unitfx"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources/unitsource"
	"github.com/countoff/countoff/transition"
)

// A watcher visits a site again and again, while it is this peer's.
type watcher struct {
	peer  string
	every time.Duration
	web   *http.Client
}

func (w watcher) watch(ctx context.Context, site framework.Unit) error {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for site.Owned() {
		if err := website.Visit(ctx, w.web, site.Name, w.peer, site.Token); err != nil {
			return err // it is watched again after a pause
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	<-ctx.Done() // it soon ends: the lease is over
	return nil
}

func workCommand() *cobra.Command {
	var redis, name, id string
	var lease, every time.Duration
	var withStdin bool
	cmd := &cobra.Command{
		Use:   "work",
		Short: "one peer: watches the sites that are its own until it is told to stop",
		Args:  cobra.NoArgs,
		RunE: exit.Run(func(cmd *cobra.Command, _ []string) error {
			timing := transition.Timing{Lease: lease}
			errs := []error{partition.CheckName(name)}
			if lease <= 0 {
				errs = append(errs, fmt.Errorf("--lease %v: want more than 0", lease))
			} else {
				errs = append(errs, timing.Validate())
			}
			if id != "" {
				errs = append(errs, partition.CheckPeer(id))
			}
			if every <= 0 {
				errs = append(errs, fmt.Errorf("--every %v: want more than 0", every))
			}
			client, err := redisurl.Open(redis)
			if err == nil {
				err = client.Close() // the peer opens its own
			}
			if err := errors.Join(append(errs, err)...); err != nil {
				return exit.With(exit.Usage, err)
			}
			if withStdin {
				go cast.EndWith(cmd.InOrStdin())
			}
			w := watcher{peer: id, every: every, web: &http.Client{Timeout: 10 * time.Second}}
			return exit.Coded(frameworkfx.Run(
				redisfx.Client(redis),
				frameworkfx.Logger(zapcore.WarnLevel),
				unitfx.Units(name, unitfx.Config{Units: framework.UnitsConfig{Timing: timing, Peer: id}}, w.watch),
			))
		}),
	}
	f := cmd.Flags()
	f.StringVar(&redis, "redis", "redis://127.0.0.1:6379", "the store")
	f.StringVar(&name, "name", "scraper", "what the peers share")
	f.StringVar(&id, "id", "", "peer id (default the host's name, with the process id or the beginning of the session where that is taken)")
	f.DurationVar(&lease, "lease", 10*time.Second, "how long others wait for a silent peer")
	f.DurationVar(&every, "every", time.Minute, "how often a site is visited")
	f.BoolVar(&withStdin, "exit-with-stdin", false, "stop at once when stdin ends")
	_ = f.MarkHidden("exit-with-stdin") // for the demo, whose peers must not outlive it
	return cmd
}

func loadCommand() *cobra.Command {
	var redis, name string
	cmd := &cobra.Command{
		Use:   "load FILE",
		Short: "put the sites of a file, one a line, in the list",
		Args:  cobra.ExactArgs(1),
		RunE: exit.Run(func(cmd *cobra.Command, args []string) error {
			sites, unread := website.Read(args[0])
			client, err := redisurl.Open(redis)
			if err := errors.Join(unread, partition.CheckName(name), err); err != nil {
				return exit.With(exit.Usage, err)
			}
			defer client.Close()
			list, err := unitsource.New(client, name, unitsource.Config{})
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			if err := list.Add(cmd.Context(), sites...); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d sites in %s\n", len(sites), list.Key())
			return nil
		}),
	}
	cmd.Flags().StringVar(&redis, "redis", "redis://127.0.0.1:6379", "the store")
	cmd.Flags().StringVar(&name, "name", "scraper", "what the peers share")
	return cmd
}
