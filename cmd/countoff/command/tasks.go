package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status/past"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/redissource"
)

// A looker is what the command tasks was told.
type looker struct {
	key, typ, by string
	partition    int
	depth, limit int
	json         bool

	ofKey, ofType bool // --key and --type were given

	now    time.Time // by the store
	looked int       // tasks
	beyond int       // that stand behind what was looked at
}

func tasksCommand() *cobra.Command {
	var l looker
	cmd := &cobra.Command{
		Use:   "tasks NAME",
		Short: "list the tasks that wait or run, or count them by key or type",
		Long: `Lists the open tasks of a name by partition, oldest first: those that wait for a worker, for a task of their
key, or for their next try, and those that may be running. What waits for its time is in countoff delayed list,
what has failed for good in countoff dead list.

  waits               for a worker, or to be read
  waits for its key   an earlier task of its key is open
  runs again          at that time: it has failed, or waits of its own will
  may be running      its owner may have started it
  is to run alone     it may have ended a former owner, and runs when nothing else of its partition does

  --by key     counts them by key, those with the most first: tasks of one key run one after the other, however
               many workers there are
  --by type    counts them by type

Of each partition it looks at the first 1,000, and says how many stand behind them; --depth 0 looks at all. What
it looks at it reads whole. TRIED are those that have failed, waited or crashed before. Times are in UTC: BORN by
the clock of who has enqueued it, that of the next try by the store's.

Only tasks in Redis lists are listed: not those of a topic of Kafka; for queues of asynq there is asynq task ls.`,
		Example: `  countoff tasks mail-sender --by key
  countoff tasks mail-sender --key ann@example.com
  countoff tasks mail-sender --partition 17 --json | jq -r .payload`,
		Args: cobra.ExactArgs(1),
		RunE: onStore(long, func(cmd *cobra.Command, _ []string) error {
			l.ofKey, l.ofType = cmd.Flags().Changed("key"), cmd.Flags().Changed("type")
			return l.fault(cmd.Flags().Changed("partition"))
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			return l.look(ctx, client, cmd, args[0])
		}),
	}
	f := cmd.Flags()
	f.StringVar(&l.key, "key", "", "only tasks of this key")
	f.StringVar(&l.typ, "type", "", "only tasks of this type")
	f.IntVar(&l.partition, "partition", -1, "only tasks of this partition")
	f.StringVar(&l.by, "by", "", "count them by key or by type")
	f.IntVar(&l.depth, "depth", 1000, "look at the first of each partition, at most so many; 0: at all")
	f.IntVar(&l.limit, "limit", 100, "list at most this many; 0: all")
	f.BoolVar(&l.json, "json", false, "one JSON object a line")
	return cmd
}

func (l *looker) fault(ofPartition bool) error {
	var errs []error
	if l.ofKey {
		errs = append(errs, keyFault(l.key))
	}
	if ofPartition && l.partition < 0 {
		errs = append(errs, fmt.Errorf("--partition %d: want 0 or more", l.partition))
	}
	if ofPartition && l.ofKey {
		errs = append(errs, errors.New("--partition and --key: a key is in one partition, which is found by it: give one of them"))
	}
	if l.by != "" && l.by != "key" && l.by != "type" {
		errs = append(errs, fmt.Errorf("--by %q: want key or type", l.by))
	}
	if l.depth < 0 {
		errs = append(errs, fmt.Errorf("--depth %d: want 0 for all, or more", l.depth))
	}
	if l.limit < 0 {
		errs = append(errs, fmt.Errorf("--limit %d: want 0 for all, or more", l.limit))
	}
	return errors.Join(errs...)
}

func (l *looker) look(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, name string) error {
	ids, err := l.where(ctx, client, name)
	if err != nil {
		return err
	}
	stats, err := redissource.Stats(ctx, client, name, ids)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(stats, func(s redissource.Stat) bool { return s.Elsewhere }) {
		return exit.With(exit.Config, fmt.Errorf("the tasks of %s lie elsewhere than in Redis, where they are counted only: countoff status", name))
	}
	if l.now, err = client.Time(ctx).Result(); err != nil { // of a cluster the node that is asked may not answer
		l.now = time.Now()
	}
	notes := cmd.OutOrStdout()
	if l.json {
		notes = cmd.ErrOrStderr()
	}
	if l.by == "" {
		out := newList(cmd, l.limit, l.json, l.none(), "ID\tTYPE\tKEY\tPARTITION\tBORN\tTRIES\tSTATE\tFIRST ERROR", l.row, l.object)
		err = out.end(l.each(ctx, client, cmd, name, stats, out.add))
	} else {
		c := counted{byKey: l.by == "key"}
		missing := l.each(ctx, client, cmd, name, stats, c.add)
		none := l.none()
		if c.apart > 0 {
			none = "no open task has a " + l.by
		}
		err = c.print(cmd, l.limit, l.json, none, missing)
		if c.apart > 0 {
			fmt.Fprintf(notes, "besides: %d that have no %s, or that nobody can read\n", c.apart, l.by)
		}
	}
	if l.beyond > 0 && l.depth > 0 {
		fmt.Fprintf(notes, "looked at the first %d of each partition, %d in all; about %d stand behind them (--depth 0 looks at all)\n", l.depth, l.looked, l.beyond)
	}
	return err
}

// each calls take for the tasks that are asked for, until it returns false.
func (l *looker) each(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, name string, stats []redissource.Stat, take func(redissource.Open) bool) error {
	depth, more := l.depth, true
	if n := l.limit + 1; l.limit > 0 && l.by == "" && !l.ofKey && !l.ofType && (depth == 0 || depth > n) {
		depth = n // more would not be printed
	}
	far := newFarther(cmd.ErrOrStderr())
	defer far.watch()()
	var missing []error
	for _, s := range stats {
		switch {
		case s.Err != nil:
			missing = append(missing, fmt.Errorf("partition %v cannot be read: %w", s.ID, s.Err))
			continue
		case s.Pending+s.InFlight == 0:
			continue
		}
		before := l.looked
		missing = append(missing, redissource.OpenTasks(ctx, client, name, []partition.ID{s.ID}, depth, func(o redissource.Open) bool {
			l.looked++
			far.say("looked at %d tasks, the last of them in partition %v", l.looked, s.ID)
			if l.wants(o) {
				more = take(o)
			}
			return more
		}))
		if !more {
			break
		}
		l.beyond += max(0, s.Pending+s.InFlight-(l.looked-before))
	}
	return errors.Join(missing...)
}

// wants reports whether o is asked for. Of what nobody can read it is not known.
func (l *looker) wants(o redissource.Open) bool {
	if o.Unread {
		return !l.ofKey && !l.ofType
	}
	return (!l.ofKey || o.Key == l.key) && (!l.ofType || o.Type == l.typ)
}

// where returns the partitions to look at.
func (l *looker) where(ctx context.Context, client redis.UniversalClient, name string) ([]partition.ID, error) {
	cfg, err := tasksInLists(ctx, client, name, "its own tools show the records of a topic", "use asynqmon, or: asynq task ls --state=pending", "countoff status shows who has which")
	switch {
	case err != nil:
		return nil, err
	case l.ofKey:
		id, err := cfg.Hash.Of(l.key, cfg.Total)
		return []partition.ID{id}, err
	case l.partition >= cfg.Total:
		return nil, exit.With(exit.Usage, fmt.Errorf("--partition %d: %s has %d, 0 to %d", l.partition, name, cfg.Total, cfg.Total-1))
	case l.partition >= 0:
		return []partition.ID{partition.ID(l.partition)}, nil
	}
	cfg.Units = nil
	return cfg.IDs(), nil
}

// An openTask is what --json prints of one.
type openTask struct {
	ID         string       `json:"id"`
	Type       string       `json:"type"`
	Key        string       `json:"key"`
	Partition  partition.ID `json:"partition"`
	Position   int64        `json:"position"`
	Born       *time.Time   `json:"born"`    // null: unknown
	Started    bool         `json:"started"` // its owner may be running it
	Suspect    bool         `json:"suspect"` // may have ended a former owner: it runs alone
	Behind     bool         `json:"behind"`  // an earlier one of its key is open: it waits for that one
	NotBefore  *time.Time   `json:"not_before"`
	Attempts   int          `json:"attempts"`
	Waits      int          `json:"waits"` // runs that waited, which are no attempts
	Crashes    int          `json:"crashes"`
	FirstError string       `json:"first_error"`
	Raw        bool         `json:"raw"` // nobody can read it as a task
	content
}

func (l *looker) object(o redissource.Open) any {
	t := openTask{
		ID: o.ID, Type: o.Type, Key: o.Key, Partition: o.Partition, Position: o.Position, Born: past.Known(o.Born), Started: o.Started, Suspect: o.Suspect, Behind: o.Behind,
		Attempts: o.Tries, Waits: o.Waits, Crashes: o.Crashes, FirstError: o.FirstError, Raw: o.Unread, content: contentOf(o.Headers, o.Payload),
	}
	if o.NotBefore.After(l.now) {
		t.NotBefore = past.Known(o.NotBefore.UTC())
	}
	return t
}

func (l *looker) row(o redissource.Open) []string {
	place := fmt.Sprintf("%v/%d", o.Partition, o.Position)
	if o.Unread {
		return []string{place, "", "", o.Partition.String(), "", "", "waits", "nobody can read it: it becomes a dead letter when it is its turn"}
	}
	it := "waits"
	switch {
	case o.NotBefore.After(l.now):
		it = "runs again " + date(o.NotBefore)
	case o.Behind:
		it = "waits for its key"
	case o.Started:
		it = "may be running"
	case o.Suspect:
		it = "is to run alone"
	}
	return []string{cmp.Or(o.ID, place), clipped(o.Type), clipped(o.Key), o.Partition.String(), date(o.Born), tries(o.Tries, o.Crashes), it, short(oneLine(o.FirstError))}
}

func (l *looker) none() string {
	switch {
	case l.ofKey:
		return "no open task has this key"
	case l.ofType:
		return "no open task is of this type"
	}
	return "no open tasks"
}
