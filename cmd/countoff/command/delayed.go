package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/framework/status/past"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
	"github.com/countoff/countoff/sources/redissource"
)

func delayedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delayed",
		Short: "list, run or cancel tasks that wait for their time",
		Long: `Delayed tasks are those that were scheduled and, without a key or if a later task of the key may
overtake them, those that wait for their next try. Once a task is due it is in the log of its partition, and
cannot be taken back. Times are in UTC, by the store's clock.

Several tasks may have one ID: run and cancel take all of them. To take a task out of the way that is due or
runs, or to keep it as a dead letter, use countoff cancel.`,
		Args: cobra.NoArgs,
		// Without it cobra looks at no argument: a command that is none would print this help, and end with 0.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(delayedListCommand(),
		delayedTakeCommand("run", "do not wait: put them at the end of their partition now", "put at the end of their partitions", redissource.RunNow),
		delayedTakeCommand("cancel", "throw them away before they are due", "cancelled", redissource.Cancel))
	return cmd
}

// A delayedTask is what --json prints of one.
type delayedTask struct {
	ID         string       `json:"id"`
	Type       string       `json:"type"`
	Key        string       `json:"key"`
	Partition  partition.ID `json:"partition"`
	Due        *time.Time   `json:"due"`  // null: no time that JSON has
	Born       *time.Time   `json:"born"` // null: unknown
	Attempts   int          `json:"attempts"`
	FirstError string       `json:"first_error"`
	Raw        bool         `json:"raw"` // nobody can read it as a task
	content
}

func jsonDelayed(d redissource.Delayed) any {
	return delayedTask{
		ID: d.ID, Type: d.Type, Key: d.Key, Partition: d.Partition, Due: past.Known(d.Due), Born: past.Known(d.Born), Attempts: d.Attempts,
		FirstError: d.FirstError, Raw: d.Raw, content: contentOf(d.Headers, d.Payload),
	}
}

func delayedListCommand() *cobra.Command {
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list NAME [ID]",
		Example: `  countoff delayed list mail-sender`,
		Short:   "list delayed tasks by partition, the first to be due first; or those of an ID",
		Args:    cobra.RangeArgs(1, 2),
		RunE: onStore(brief, func(_ *cobra.Command, args []string) error {
			var errs []error
			if limit < 0 {
				errs = append(errs, fmt.Errorf("--limit %d: want 0 for all, or more", limit))
			}
			if len(args) > 1 && args[1] == "" { // a script whose variable is empty wants no list of all
				errs = append(errs, errors.New("the ID is empty: leave it out for all delayed tasks"))
			}
			return errors.Join(errs...)
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			ids, err := delays(ctx, client, args[0])
			if err != nil {
				return err
			}
			id, none := "", "no delayed tasks"
			if len(args) > 1 {
				id = args[1]
				none = "no delayed task is called " + partitionmap.Printable(id)
			}
			l := newList(cmd, limit, asJSON, none, "ID\tTYPE\tKEY\tDUE\tTRIES\tFIRST ERROR", delayedRow, jsonDelayed)
			return l.end(redissource.DelayedTasks(ctx, client, args[0], ids, id, l.add))
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most this many; 0: all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

// delays returns the partitions of name, or an error if what waits for its time there is in asynq's queues, or is
// nothing, as on a topic.
func delays(ctx context.Context, client redis.UniversalClient, name string) ([]partition.ID, error) {
	queues, ok, err := queuestat.Read(ctx, client, name)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return nil, fmt.Errorf("%s works queues of asynq, which have its scheduled tasks: use asynqmon, or: asynq task ls --queue=%s --state=scheduled", name, queues.Of(0))
	case onTopic(ctx, client, name):
		return nil, fmt.Errorf("%s works a topic of Kafka, on which no task waits for its time", name)
	}
	return everywhere(ctx, client, name)
}

func delayedRow(d redissource.Delayed) []string {
	if d.Raw {
		return []string{"", "", "", date(d.Due), "", "nobody can read it: it becomes a dead letter when it is due"}
	}
	return []string{d.ID, clipped(d.Type), clipped(d.Key), date(d.Due), fmt.Sprint(d.Attempts), short(oneLine(d.FirstError))}
}

// delayedTakeCommand is run or cancel.
func delayedTakeCommand(use, short, done string, take func(context.Context, redis.UniversalClient, string, redissource.Delayed) (bool, error)) *cobra.Command {
	return &cobra.Command{
		Use:     use + " NAME ID...",
		Example: "  countoff delayed " + use + " mail-sender 3f9a1c20-welcome",
		Short:   short,
		Args:    cobra.MinimumNArgs(2),
		RunE: onStore(long, func(_ *cobra.Command, args []string) error {
			if slices.Contains(args[1:], "") {
				return errors.New("want the ids of delayed tasks")
			}
			return nil
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			ids, err := delays(ctx, client, args[0])
			if err != nil {
				return err
			}
			n := 0
			var errs []error
			for _, id := range args[1:] {
				took, err := takeDelayed(ctx, client, args[0], id, ids, take)
				n += took
				errs = append(errs, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d %s\n", n, done)
			return errors.Join(errs...)
		}),
	}
}

// takeDelayed takes all tasks of an ID. That there is none is an error.
func takeDelayed(ctx context.Context, client redis.UniversalClient, name, id string, ids []partition.ID,
	take func(context.Context, redis.UniversalClient, string, redissource.Delayed) (bool, error),
) (int, error) {
	n, missing := eachDelayed(ctx, client, name, []string{id}, ids, take)
	if n == 0 && missing == nil {
		return 0, fmt.Errorf("no task of %s that waits for its time is called %s: it is due or done, or never was: see countoff delayed list %s",
			name, partitionmap.Printable(id), name)
	}
	return n, missing
}

// mostLooks is for how many IDs each is looked for. For more, all that is delayed is read, once: a look copies only what
// it is for, but the store goes over all the rest.
const mostLooks = 8

// eachDelayed does take with all of some tasks, by their IDs, and returns with how many it did something.
func eachDelayed(ctx context.Context, client redis.UniversalClient, name string, tasks []string, ids []partition.ID,
	take func(context.Context, redis.UniversalClient, string, redissource.Delayed) (bool, error),
) (int, error) {
	looks := tasks
	if len(tasks) > mostLooks {
		looks = []string{""} // for all there are
	}
	var found []redissource.Delayed
	var missing error
	for _, id := range looks {
		missing = errors.Join(missing, redissource.DelayedTasks(ctx, client, name, ids, id, func(d redissource.Delayed) bool {
			if slices.Contains(tasks, d.ID) {
				found = append(found, d)
			}
			return true
		}))
	}
	n := 0
	for _, d := range found {
		ok, err := take(ctx, client, name, d)
		if err != nil {
			return n, err
		}
		if ok {
			n++
		}
	}
	return n, missing
}
