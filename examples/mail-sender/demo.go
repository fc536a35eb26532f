package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/examples/mail-sender/demo"
	"github.com/countoff/countoff/examples/mail-sender/service"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/program/signals"
	"github.com/countoff/countoff/framework/status/partitionmap"
)

func demoCommand() *cobra.Command {
	var cfg demo.Config
	var plain, asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "peers come, leave and are killed while mails flow, and everything is counted",
		Long: `Runs an SMTP server, a Redis and peers as processes of their own, shows who owns which
partition, and counts what arrived. It takes half a minute and ends by itself; the
exit code is 0 only if nothing was lost, nothing left out of order, and nothing was
doubled but what ran in the killed peer.`,
		Args: cobra.NoArgs,
		RunE: exit.Run(func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(service.Apply(cmd), cfg.Validate()); err != nil {
				return exit.With(exit.Usage, err)
			}
			ctx, stop := signals.Context(cmd.Context())
			defer stop()
			cfg.Show = demo.Show{Out: cmd.OutOrStdout()}
			if !plain {
				cfg.Show.Screen = partitionmap.NewScreen(os.Stdout)
			}
			return runDemo(ctx, cmd, cfg, asJSON)
		}),
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Peers, "peers", 3, "peers at the beginning, at least 2")
	f.IntVar(&cfg.Mails, "mails", 3000, "mails to send")
	f.Uint64Var(&cfg.Seed, "seed", 1, "decides the order of the recipients")
	f.DurationVar(&cfg.Pace, "pace", demo.Pace, "the mails are enqueued over this time, in which peers come and go")
	f.StringVar(&cfg.Redis, "redis", "", "use this Redis (default: one inside the process)")
	f.StringVar(&cfg.Listen, "listen", "", "address of the embedded Redis, for countoff status from elsewhere (default a free port of 127.0.0.1)")
	f.StringVar(&cfg.Dashboard, "dashboard", "127.0.0.1:0", "address of the page with the live map, as long as the demo runs; port 0 is any free one, --dashboard= is none")
	f.BoolVar(&plain, "plain", false, "lines instead of a live map")
	f.BoolVar(&asJSON, "json", false, "the last line is the report as one JSON object")
	return cmd
}

func runDemo(ctx context.Context, cmd *cobra.Command, cfg demo.Config, asJSON bool) error {
	report, err := demo.Run(ctx, cfg)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	verdict := report.Verdict()
	if asJSON {
		line, err := report.JSON()
		if err != nil {
			return err
		}
		fmt.Fprintln(out, line)
		return exit.With(exit.Verdict, verdict)
	}
	fmt.Fprintln(out)
	for _, l := range report.Lines() {
		fmt.Fprintln(out, "  "+l)
	}
	if verdict == nil {
		fmt.Fprintln(out, "\n  nothing lost, nothing out of order, nothing doubled but what ran in the killed peer")
	}
	return exit.With(exit.Verdict, verdict)
}
