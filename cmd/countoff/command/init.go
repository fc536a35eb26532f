package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition/redisledger"
)

func initCommand(stores Stores) *cobra.Command {
	var cfg partition.Config
	var hash string
	var asks []string
	cmd := &cobra.Command{
		Use:   "init NAME",
		Short: "make NAME beforehand, so that its first peers begin at once",
		Long: `Writes the ledger of NAME, and what all of its peers and producers agree on. Without it the first peers
wait one lease, since a store that holds nothing may be one that has lost its data: use it for a store that
is known to be new.

Peers with ingress lists must find the same ones here: mail-sender's is NAME:inbox.`,
		Example: `  countoff init mail-sender --partitions 64 --unit mail-sender:inbox`,
		Args:    cobra.ExactArgs(1),
		RunE: onLedger(stores, brief, func(cmd *cobra.Command, args []string) error {
			cfg.Hash = partition.Hash(hash)
			named := partition.Config{Total: 1, Hash: cfg.Hash, Units: cfg.Units}
			_, err := requirements(asks)
			return errors.Join(sharesFault(cmd, cfg.Total), named.Validate(), redissource.CheckIngress(args[0], cfg.Units), err)
		}, func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			name := args[0]
			made, err := at.init(ctx, name, cfg.WithDefaults())
			if errors.Is(err, partition.ErrConfig) {
				err = at.unsaid(ctx, name, err, !cmd.Flags().Changed("partitions"), len(cfg.Units) == 0)
			}
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
				stands, err := at.config(ctx, name)
				if err != nil {
					return err
				}
				before := asked(stands.Requires)
				if err := at.require(ctx, name, cfg.WithDefaults(), "", all, cmd.OutOrStdout()); err != nil {
					return err
				}
				if stands, err = at.config(ctx, name); err != nil {
					return err
				}
				if now := asked(stands.Requires); now != before && !made {
					fmt.Fprintf(cmd.OutOrStdout(), "%s was there already: it asked for %s until now, and for %s from now on\n", name, before, now)
					return nil
				}
			}
			if !made {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is there already, with the same configuration\n", name)
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, hash %s\n", name, partitionmap.Plural(cfg.WithDefaults().Total, "partition"), cfg.WithDefaults().Hash)
			return nil
		}),
	}
	cmd.Flags().IntVar(&cfg.Total, "partitions", partition.DefaultTotal, "number of partitions")
	cmd.Flags().StringVar(&hash, "hash", string(partition.XXHash64), "which hash sends a key to its partition: xxhash64, id for decimal numbers, or murmur2 as Kafka's producers use")
	cmd.Flags().StringArrayVar(&cfg.Units, "unit", nil, "an ingress list that is granted beside the partitions; may be given several times")
	cmd.Flags().StringArrayVar(&asks, "require", nil, "tags that partitions require of their owners, as in 0-15=gpu,eu; may be given several times (see countoff require)")
	return cmd
}

// asked is what partitions ask for, as the flag says it.
func asked(requires []partition.Requirement) string {
	words := make([]string, len(requires))
	for i, r := range requires {
		words[i] = r.String()
	}
	slices.Sort(words) // their order says nothing
	return partitionmap.Printable(cmp.Or(strings.Join(words, " "), "nothing"))
}

// unsaid is err, with what name has where the command line did not say it: whoever leaves it out may not
// know of it.
func (at *stand) unsaid(ctx context.Context, name string, err error, number, lists bool) error {
	stands, unknown := at.config(ctx, name)
	if unknown != nil {
		return err
	}
	if number && stands.Total != partition.DefaultTotal {
		err = fmt.Errorf("%w\nwithout --partitions a name has %d; to leave those that stand, say --partitions %d", err, partition.DefaultTotal, stands.Total)
	}
	if !lists || len(stands.Units) == 0 {
		return err
	}
	flags := ""
	for _, list := range stands.Units {
		flags += " --unit " + redisconfig.ShellWord(list)
	}
	return fmt.Errorf("%w\nwithout --unit a name has no ingress lists; to leave those that stand, say%s", err, flags)
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
