package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition/redisledger"
)

func requireCommand() *cobra.Command {
	var none bool
	cmd := &cobra.Command{
		Use:   "require NAME [PARTITIONS=TAG,...]...",
		Short: "say which tags the partitions of NAME ask of their owners, or show it",
		Long: `Partitions, ingress lists and work units that ask for tags are shared out among the peers
that have all of them; what nobody is eligible for is told as none-eligible. What is said
takes the place of all that was said before, and counts at once, while peers work.

Builds that do not know of tags are refused from then on, peers and producers: bring all
up to date first. With --none nothing asks for anything, and they are let in again.`,
		Example: `  countoff require mail-sender 0-15=gpu mail-sender:inbox=eu,fast
  countoff require mail-sender
  countoff require mail-sender --none`,
		Args: cobra.MinimumNArgs(1),
		RunE: onlyInRedis("elsewhere nobody can be told yet what partitions ask for", onStore(false, func(_ *cobra.Command, args []string) error {
			_, err := requirements(args[1:])
			if none && len(args) > 1 {
				err = errors.Join(err, errors.New("--none: nothing may be asked for beside it"))
			}
			return err
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			if none || len(args) > 1 {
				all, err := requirements(args[1:])
				if err != nil {
					return err
				}
				if err := redisledger.Require(ctx, client, args[0], all); err != nil {
					return err
				}
			}
			cfg, err := redisconfig.Read(ctx, client, args[0])
			if err != nil {
				return err
			}
			for _, r := range cfg.Requires {
				fmt.Fprintln(cmd.OutOrStdout(), r)
			}
			if len(cfg.Requires) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: no partition asks for anything\n", args[0])
			}
			return nil
		})),
	}
	cmd.Flags().BoolVar(&none, "none", false, "nothing asks for anything")
	return cmd
}

// requirements reads all of texts, or says all that is wrong with them.
func requirements(texts []string) ([]partition.Requirement, error) {
	var all []partition.Requirement
	var errs []error
	for _, text := range texts {
		r, err := partition.ParseRequirement(text)
		all, errs = append(all, r), append(errs, err)
	}
	return all, errors.Join(errs...)
}
