// Command mail-sender sends the mails of a queue in Redis over SMTP. Any number of
// its processes share the work: they count off, own a share of the partitions each,
// and hand them over when one comes or goes.
//
//	mail-sender            the demo: everything it needs is in the process
//	mail-sender work       one peer as a service
//	mail-sender send       fill the queue
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/examples/mail-sender/service"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/program/flagenv"
	"github.com/countoff/countoff/partition/redisurl"
)

func main() {
	redisurl.Quiet()
	os.Exit(exit.Main(context.Background(), root()))
}

func root() *cobra.Command {
	demo := demoCommand()
	cmd := &cobra.Command{
		Use:   "mail-sender",
		Short: "sends queued mails by peers that come and go",
		Long: `mail-sender sends the mails of a queue in Redis over SMTP. Mails to one recipient are sent
in order and never two at once, whichever peers come, leave or die.

Without a command it runs the demo.

` + exit.Help,
		Args: cobra.NoArgs,
		RunE: demo.RunE,
	}
	cmd.Flags().AddFlagSet(demo.Flags())
	// The demo plays on a store of its own, unless its flag says otherwise: no
	// variable may send it to one that is in use.
	flagenv.Bind(demo.Flags(), service.Prefix, map[string][]string{"redis": {}})
	cmd.AddCommand(demo, service.Command(service.Stores{}), sendCommand())
	return cmd
}
