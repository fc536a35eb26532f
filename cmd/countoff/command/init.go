package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition/redisledger"
)

func initCommand(stores Stores) *cobra.Command {
	var cfg partition.Config
	var hash string
	var asks []string
	cmd := &cobra.Command{
		Use:   "init NAME",
		Short: "make NAME in a store that is known to be new, so that its first peers begin at once",
		Long: `Writes what all peers and producers of NAME agree on, and its ledger. Without it the first
peers wait one lease: a store that holds nothing may be one that forgot.

Peers with ingress lists must find the same ones here: mail-sender's is NAME:inbox.`,
		Example: `  countoff init mail-sender --partitions 64 --unit mail-sender:inbox`,
		Args:    cobra.ExactArgs(1),
		RunE: onLedger(stores, brief, func(cmd *cobra.Command, _ []string) error {
			cfg.Hash = partition.Hash(hash)
			named := partition.Config{Total: 1, Hash: cfg.Hash}
			_, err := requirements(asks)
			return errors.Join(sharesFault(cmd, cfg.Total), named.Validate(), err)
		}, func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			made, err := at.init(ctx, args[0], cfg.WithDefaults())
			if err != nil {
				return err
			}
			if at.store != nil && at.client == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "made in the ledger alone: give --redis too where the tasks are in Redis, for their producers")
			}
			if cmd.Flags().Changed("require") {
				all, err := requirements(asks)
				if err != nil {
					return err
				}
				if err := at.require(ctx, args[0], cfg.WithDefaults(), "", all, cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			if !made {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is there already, with the same configuration\n", args[0])
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d partitions, hash %s\n", args[0], cfg.WithDefaults().Total, cfg.WithDefaults().Hash)
			return nil
		}),
	}
	cmd.Flags().IntVar(&cfg.Total, "partitions", partition.DefaultTotal, "shares of the work")
	cmd.Flags().StringVar(&hash, "hash", string(partition.XXHash64), "how a key finds its partition: xxhash64, id for decimal numbers, or murmur2 as Kafka's producers")
	cmd.Flags().StringSliceVar(&cfg.Units, "unit", nil, "ingress lists that are granted beside the partitions")
	cmd.Flags().StringArrayVar(&asks, "require", nil, "tags that partitions ask of their owners, as in 0-15=gpu,eu; may be given several times (see countoff require)")
	return cmd
}

// init makes name: in the ledger, and where its producers look.
func (at *stand) init(ctx context.Context, name string, cfg partition.Config) (made bool, err error) {
	if at.store == nil {
		return redisledger.Init(ctx, at.client, name, cfg)
	}
	if at.client != nil {
		if _, err := redisconfig.Agree(ctx, at.client, name, cfg); err != nil {
			return false, err
		}
	}
	return at.store.Init(ctx, name, cfg)
}
