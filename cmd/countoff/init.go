package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/redisledger"
)

func initCommand() *cobra.Command {
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
		RunE: onStore(false, func(cmd *cobra.Command, _ []string) error {
			cfg.Hash = partition.Hash(hash)
			named := partition.Config{Total: 1, Hash: cfg.Hash}
			_, err := requirements(asks)
			return errors.Join(sharesFault(cmd, cfg.Total), named.Validate(), err)
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			made, err := redisledger.Init(ctx, client, args[0], cfg.WithDefaults())
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("require") {
				all, err := requirements(asks)
				if err != nil {
					return err
				}
				if err := redisledger.Require(ctx, client, args[0], all); err != nil {
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
	cmd.Flags().StringVar(&hash, "hash", string(partition.XXHash64), "how a key finds its partition: xxhash64, or id for decimal numbers")
	cmd.Flags().StringSliceVar(&cfg.Units, "unit", nil, "ingress lists that are granted beside the partitions")
	cmd.Flags().StringArrayVar(&asks, "require", nil, "tags that partitions ask of their owners, as in 0-15=gpu,eu; may be given several times (see countoff require)")
	return cmd
}
