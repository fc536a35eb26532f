package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status/past"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/jobs"
	"github.com/countoff/countoff/sources/redissource"
)

func jobsCommand() *cobra.Command {
	var forget string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "jobs NAME",
		Example: `  countoff jobs mail-sender`,
		Short:   "list periodic jobs: schedules, last and next ticks",
		Long: `Lists the periodic jobs that peers of NAME have had, as the store knows them.

An entry that no peer has any more stays in the list, with its next tick in the past: --forget ENTRY
removes it. An entry that peers still have begins anew then.`,
		Args: cobra.ExactArgs(1),
		RunE: onStore(brief, func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("forget") && forget == "" {
				return errors.New("--forget is empty: want the name of an entry")
			}
			return nil
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			name := args[0]
			cfg, err := redisconfig.Read(ctx, client, name)
			if err != nil {
				return err
			}
			cfg.Units = nil
			ids := cfg.IDs()
			if forget != "" {
				found, err := redissource.ForgetJob(ctx, client, name, forget, ids)
				if err == nil && !found {
					err = exit.With(exit.Usage, fmt.Errorf("nothing is known of a job %q of %s", forget, name))
				}
				return err
			}
			all, unread := redissource.Jobs(ctx, client, name, ids)
			slices.SortFunc(all, func(a, b redissource.JobState) int {
				return cmp.Or(cmp.Compare(a.Entry, b.Entry), cmp.Compare(a.Partition, b.Partition))
			})
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				for _, s := range all {
					if err := out.Encode(jsonJob(s)); err != nil {
						return err
					}
				}
				return unread
			}
			if len(all) == 0 {
				if unread != nil {
					return unread
				}
				_, err = fmt.Fprintf(cmd.ErrOrStderr(), "no peer of %s has had a job\n", name)
				return err
			}
			var ticks table
			ticks.add("entry", "partition", "schedule", "last tick", "fired", "next tick")
			for _, s := range all {
				ticks.add(s.Entry, fmt.Sprint(s.Partition), s.Spec+" ("+s.Zone+")", stamp(s.Last), fmt.Sprint(s.Fired), nextTick(s))
			}
			return errors.Join(ticks.print(cmd.OutOrStdout()), unread)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	cmd.Flags().StringVar(&forget, "forget", "", "remove what is known of this entry")
	return cmd
}

// A job is what --json prints of one.
type job struct {
	Entry     string       `json:"entry"`
	Partition partition.ID `json:"partition"`
	Key       string       `json:"key"`
	Spec      string       `json:"schedule"`
	Zone      string       `json:"zone"`
	Last      *time.Time   `json:"last_tick"` // null: none was fired
	Fired     int64        `json:"fired"`
	Next      *time.Time   `json:"next_tick"` // null: nobody here can read the schedule
}

func jsonJob(s redissource.JobState) job {
	j := job{Entry: s.Entry, Partition: s.Partition, Key: s.Key, Spec: s.Spec, Zone: s.Zone, Fired: s.Fired, Last: past.Known(s.Last.UTC())}
	if schedule, err := jobs.Schedule(s.Spec, s.Zone); err == nil {
		j.Next = past.Known(schedule.Next(s.Upto).UTC())
	}
	return j
}

// nextTick is the first one that is not dealt with: in the past if nobody fires.
func nextTick(s redissource.JobState) string {
	schedule, err := jobs.Schedule(s.Spec, s.Zone)
	if err != nil {
		return "unknown: " + err.Error()
	}
	return stamp(schedule.Next(s.Upto))
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
