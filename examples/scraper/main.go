// Command scraper watches websites by peers that come and go: each site is one peer's at a
// time, for as long as that peer lives and the site is in the list.
//
//	scraper            the demo: a website, a Redis and peers, and everything is counted
//	scraper work       one peer
//	scraper load       put the sites of a file in the list
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition/redisurl"
)

func main() {
	redisurl.Quiet()
	os.Exit(exit.Main(context.Background(), root()))
}

func root() *cobra.Command {
	demo := demoCommand()
	cmd := &cobra.Command{
		Use:   "scraper",
		Short: "watches websites by peers that come and go",
		Long: `scraper watches the sites of a list in Redis. Each is watched by one peer at a time, whatever
peers come, leave or die, and anybody may change the list meanwhile:

  redis-cli SADD '{scraper}:units' http://127.0.0.1:8000/news
  redis-cli HGETALL '{scraper}:table'

Without a command it runs the demo.

` + exit.Help,
		Args: cobra.NoArgs,
		RunE: demo.RunE,
	}
	cmd.Flags().AddFlagSet(demo.Flags())
	cmd.AddCommand(demo, workCommand(), loadCommand())
	return cmd
}
