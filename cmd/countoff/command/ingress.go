package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition/redisledger"
)

func ingressCommand() *cobra.Command {
	var none, gone bool
	cmd := &cobra.Command{
		Use:   "ingress NAME [LIST]...",
		Short: "show which ingress lists NAME has, or replace them",
		Long: `An ingress list is a plain list whose owner moves its lines to the partitions. All peers of a name have
the same ones.

Without LIST it shows them. The lists that are given replace all that there are: stop all peers first (it is
refused while any is alive, or may be), and start them with the new lists. What is in a list that goes stays there.`,
		Example: `  countoff ingress mail-sender
  countoff ingress mail-sender mail-sender:inbox mail-sender:bulk
  countoff ingress mail-sender --none`,
		Args: cobra.MinimumNArgs(1),
		RunE: onlyInRedis("start its peers under another name, whose lists are told from the start"+orGone, onStore(long, func(_ *cobra.Command, args []string) error {
			if none && len(args) > 1 {
				return errors.New("--none: no list may be named beside it")
			}
			return redissource.CheckIngress(args[0], args[1:])
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			name, lists := args[0], args[1:]
			if none || len(lists) > 0 {
				if !gone {
					if err := seen(ctx, client, name); err != nil {
						return err
					}
				}
				if err := changeLists(ctx, client, name, lists, cmd.ErrOrStderr()); err != nil {
					return err
				}
			}
			cfg, err := redisconfig.Read(ctx, client, name)
			if err != nil {
				return err
			}
			if len(cfg.Units) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: no ingress lists\n", name)
				return nil
			}
			for _, list := range cfg.Units {
				fmt.Fprintln(cmd.OutOrStdout(), partitionmap.Printable(list))
			}
			return nil
		})),
	}
	ledgerGone(cmd, &gone)
	cmd.Flags().BoolVar(&none, "none", false, "no ingress lists")
	return cmd
}

// changeLists gives name the ingress lists to, and says what that means for each.
func changeLists(ctx context.Context, client redis.UniversalClient, name string, to []string, say io.Writer) error {
	if err := listsOnly(ctx, client, name, "it has no ingress lists", "for other ingresses, "+beginAnew(name, "with the --partitions it has and a --unit for each")); err != nil {
		return err
	}
	if err := idle(ctx, client, name, newFarther(say)); err != nil {
		return err
	}
	from, err := redissource.ChangeIngress(ctx, client, name, to, redisledger.SetUnits)
	if err != nil {
		return err
	}
	for _, list := range to {
		if !slices.Contains(from, list) {
			fmt.Fprintf(say, "%s is new\n", partitionmap.Printable(list))
		}
	}
	for _, list := range from {
		if !slices.Contains(to, list) {
			fmt.Fprintf(say, "%s is no ingress list of %s any more: what is in it stays there\n", partitionmap.Printable(list), name)
		}
	}
	return nil
}
