package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/examples/scraper/play"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/program/signals"
	"github.com/countoff/countoff/framework/status/partitionmap"
)

func demoCommand() *cobra.Command {
	var cfg play.Config
	var plain, asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "peers come, leave, are killed and stand still while they watch a website, and every visit is checked",
		Long: `Runs a website, a Redis and peers as processes of their own, changes the list and the peers, and
shows who watches what. It takes half a minute and ends by itself; the exit code is 0
only if each site was visited by one owner at a time, and the table said by whom.`,
		Args: cobra.NoArgs,
		RunE: exit.Run(func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Validate(); err != nil {
				return exit.With(exit.Usage, err)
			}
			ctx, stop := signals.Context(cmd.Context())
			defer stop()
			cfg.Out = cmd.OutOrStdout()
			if !plain {
				cfg.Screen = partitionmap.NewScreen(os.Stdout)
			}
			report, err := play.Run(ctx, cfg)
			if err != nil {
				return err
			}
			verdict := report.Verdict()
			lines := report.Lines()
			if asJSON {
				lines = []string{report.JSON()}
			}
			for _, l := range lines {
				fmt.Fprintln(cfg.Out, l)
			}
			return exit.With(exit.Verdict, verdict)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&cfg.File, "sites", "", "file with the sites, one a line (default: two dozen that come with it)")
	f.StringVar(&cfg.Redis, "redis", "", "use this Redis (default: one inside the process)")
	f.DurationVar(&cfg.Lease, "lease", 3*time.Second, "how long others wait for a silent peer")
	f.BoolVar(&plain, "plain", false, "lines instead of a live table")
	f.BoolVar(&asJSON, "json", false, "the last line is the report as one JSON object")
	return cmd
}
