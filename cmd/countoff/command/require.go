package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/unitsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

func requireCommand(stores Stores) *cobra.Command {
	var none bool
	var list string
	cmd := &cobra.Command{
		Use:   "require NAME [PARTITIONS=TAG,...]...",
		Short: "set which tags the partitions of NAME require of their owners, or show them",
		Long: `Partitions, ingress lists and work units that require tags are shared out among the peers that have all
of them. If no peer is eligible for one, that is reported as none-eligible.

What is given replaces all that was required before, and holds at once, while peers work. --none removes
all requirements. A work unit in the list of NAME ({NAME}:units, or the key --units) requires tags by its
partition, together with every unit in that. A word that is neither an ingress list nor in that list is
refused.

Builds that do not know of tags are refused from then on, peers and producers: upgrade all of them first.
With --none they are let in again.`,
		Example: `  countoff require mail-sender 0-15=gpu mail-sender:inbox=eu,fast
  countoff require mail-sender
  countoff require mail-sender --none`,
		Args: cobra.MinimumNArgs(1),
		RunE: onLedger(stores, brief, func(_ *cobra.Command, args []string) error {
			_, err := requirements(args[1:])
			if none && len(args) > 1 {
				err = errors.Join(err, errors.New("--none: nothing may be asked for beside it"))
			}
			return err
		}, func(ctx context.Context, at *stand, cmd *cobra.Command, args []string) error {
			cfg, err := at.config(ctx, args[0])
			if err != nil {
				return err
			}
			if none || len(args) > 1 {
				all, err := requirements(args[1:])
				if err != nil {
					return err
				}
				if err := at.require(ctx, args[0], cfg, list, all, cmd.OutOrStdout()); err != nil {
					return err
				}
				if cfg, err = at.config(ctx, args[0]); err != nil {
					return err
				}
			}
			for _, r := range cfg.Requires {
				fmt.Fprintln(cmd.OutOrStdout(), partitionmap.Printable(r.String()))
			}
			if len(cfg.Requires) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: no partition asks for anything\n", args[0])
			}
			if !none && len(args) == 1 {
				return nil
			}
			if err := at.elsewhere(ctx, args[0]); err != nil {
				return fmt.Errorf("that is said to peers whose ledger is in this Redis, but %w", err)
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&list, "units", "", "key of the list of work units, as of countoff run (default {NAME}:units)")
	cmd.Flags().BoolVar(&none, "none", false, "remove all requirements")
	return cmd
}

// config returns what the peers of name agree on.
func (at *stand) config(ctx context.Context, name string) (partition.Config, error) {
	if at.store == nil {
		return redisconfig.Read(ctx, at.client, name)
	}
	_, cfg, err := at.store.Ledger(ctx, name, transition.Timing{})
	return cfg, err
}

// require says what name, which has cfg, asks of its peers.
func (at *stand) require(ctx context.Context, name string, cfg partition.Config, list string, all []partition.Requirement, out io.Writer) error {
	for _, r := range all {
		switch last := cfg.Total - 1; {
		case r.Unit != "" || int64(r.Last) <= int64(last):
		case int64(r.First) > int64(last):
			fmt.Fprintf(out, "%v asks for nothing: %s has the partitions 0 to %d\n", r, name, last)
		default:
			fmt.Fprintf(out, "%v asks for no more than %v to %d: %s has no others\n", r, r.First, last, name)
		}
	}
	namesakes(ctx, at.client, name, cfg, list, all, out)
	all, err := ofUnits(ctx, at.client, name, cfg, list, all, out)
	switch {
	case err != nil:
		return err
	case at.store != nil:
		return at.store.Require(ctx, name, all)
	}
	return redisledger.Require(ctx, at.client, name, all)
}

// namesakes tells of partitions that are called as a work unit is: the partition is what counts. What
// cannot be found out is not told.
func namesakes(ctx context.Context, client redis.UniversalClient, name string, cfg partition.Config, list string, all []partition.Requirement, out io.Writer) {
	if client == nil {
		return
	}
	source, err := unitsource.New(client, name, unitsource.Config{Key: list})
	if err != nil {
		return
	}
	listed, err := source.Units(ctx)
	if err != nil {
		return
	}
	for _, r := range all {
		called := strings.TrimSuffix(r.String(), "="+r.Tags.String())
		if _, there := slices.BinarySearch(listed, called); r.Unit != "" || !there {
			continue
		}
		if id, err := cfg.Hash.Of(called, cfg.Total); err == nil {
			fmt.Fprintf(out, "%v is said of partitions by their numbers: the work unit %s is in partition %v, for which it is %v=%v\n", r, called, id, id, r.Tags)
		}
	}
}

// ofUnits puts the partitions of the work units in list in the place of their names: a unit is
// granted with its partition, and asks with it. A name that is nobody's would ask for nothing
// without a word: it is refused.
func ofUnits(ctx context.Context, client redis.UniversalClient, name string, cfg partition.Config, list string, all []partition.Requirement, out io.Writer) ([]partition.Requirement, error) {
	i := slices.IndexFunc(all, func(r partition.Requirement) bool { return r.Unit != "" && !slices.Contains(cfg.Units, r.Unit) })
	if i < 0 {
		return all, nil
	}
	if client == nil {
		return nil, exit.With(exit.Usage, fmt.Errorf("%s is no ingress list of %s: give --redis too, where a list of work units is", all[i].Unit, name))
	}
	source, err := unitsource.New(client, name, unitsource.Config{Key: list})
	if err != nil {
		return nil, err
	}
	listed, err := source.Units(ctx)
	if err != nil {
		return nil, err
	}
	var unknown []error
	for i, r := range all {
		if r.Unit == "" || slices.Contains(cfg.Units, r.Unit) {
			continue
		}
		if _, there := slices.BinarySearch(listed, r.Unit); !there {
			unknown = append(unknown, fmt.Errorf("%s is neither an ingress list of %s nor in %s: add it first, or say with --units which key has the list", r.Unit, name, source.Key()))
			continue
		}
		id, err := cfg.Hash.Of(r.Unit, cfg.Total)
		if err != nil {
			return nil, err
		}
		var beside []string
		for _, other := range listed {
			if at, err := cfg.Hash.Of(other, cfg.Total); err == nil && at == id && other != r.Unit {
				beside = append(beside, other)
			}
		}
		if len(beside) > 0 {
			fmt.Fprintf(out, "%s is in partition %v with %s, which ask for %v with it\n", r.Unit, id, strings.Join(beside, ", "), r.Tags)
		}
		all[i] = partition.Requirement{First: id, Last: id, Tags: r.Tags}
	}
	if len(unknown) > 0 {
		return nil, exit.With(exit.Usage, errors.Join(unknown...))
	}
	return all, nil
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
