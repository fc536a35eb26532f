package command

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition/machine"
)

// A standing name is what --json prints of one.
type standing struct {
	Name       string   `json:"name"`
	Partitions int      `json:"partitions"`
	Peers      *int     `json:"peers"` // that live; null: nothing is known of peers in this store
	Ingress    []string `json:"ingress"`
	Trouble    string   `json:"trouble,omitempty"` // why no more is known
}

func namesCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "names",
		Short: "which names stand in the store, and how many peers of each live",
		Long: `Lists the names of task processings in the store. It walks through all of its keys, a
thousand a call, which disturbs nobody. A name whose ledger is in another store is
listed where its tasks are, without its peers.`,
		Args: cobra.NoArgs,
		RunE: onStore(long, nil, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, _ []string) error {
			names, err := redisconfig.Names(ctx, client)
			if err != nil {
				return err
			}
			if len(names) == 0 && !asJSON {
				fmt.Fprintln(cmd.OutOrStdout(), "no names: the first peer or producer of one writes it, or countoff init NAME")
				return nil
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			if !asJSON {
				fmt.Fprintln(table, "NAME\tPARTITIONS\tPEERS\tINGRESS")
			}
			for _, name := range names {
				s := stands(ctx, client, name)
				if err := ctx.Err(); err != nil {
					return err
				}
				if asJSON {
					if err := json.NewEncoder(cmd.OutOrStdout()).Encode(s); err != nil {
						return err
					}
					continue
				}
				if s.Trouble != "" {
					fmt.Fprintf(table, "%s\t?\t?\t%s\n", name, oneLine(s.Trouble))
					continue
				}
				peers := "?"
				if s.Peers != nil {
					peers = fmt.Sprint(*s.Peers)
				}
				fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", name, s.Partitions, peers, partitionmap.Printable(strings.Join(s.Ingress, "  ")))
			}
			return table.Flush()
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

// stands returns what is known of name.
func stands(ctx context.Context, client redis.UniversalClient, name string) standing {
	s := standing{Name: name, Ingress: []string{}}
	cfg, err := redisconfig.Read(ctx, client, name)
	if err != nil {
		s.Trouble = err.Error()
		return s
	}
	s.Partitions, s.Ingress = cfg.Total, append(s.Ingress, cfg.Units...)
	census, err := status.Place{Client: client}.Census(ctx, name)
	if err != nil {
		return s
	}
	live := 0
	for _, peer := range census.Sessions {
		if peer.State != machine.Gone && peer.Lease > 0 {
			live++
		}
	}
	s.Peers = &live
	return s
}
