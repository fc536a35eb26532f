package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/framework/status/past"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/redissource"
)

// A canceller is what the command cancel was told.
type canceller struct {
	why         string
	lasts, wait time.Duration
	undo, json  bool
}

func cancelCommand() *cobra.Command {
	var c canceller
	cmd := &cobra.Command{
		Use:   "cancel NAME [ID...]",
		Short: "take tasks out of the way, wherever they are, as dead letters; or list what is to be cancelled",
		Long: `A task that is cancelled becomes a dead letter, whole, which countoff dead lists, requeues or drops; the later
tasks of its key go on.

  it runs          the context of its handler ends, with framework.ErrCancelled as the cause. Whatever error the
                   handler returns, there is no other try; what it did all the same is done. One that ignores its
                   context goes on, and its key waits for it: the log of its peer says so
  it waits         for its next try, behind another of its key, for a worker, or for its time: at once
  nobody has it    when it is read, within --for. Nobody can tell that a task was never there

Peers of an older build ignore it: upgrade all of them first. A task that was done or has become a dead letter
before is left as it is, and so is a later one that is given its ID. Only tasks in Redis lists can be cancelled:
not those of a topic of Kafka, nor units of countoff run; for queues of asynq there is asynq task cancel.

countoff delayed cancel throws scheduled tasks away instead, and leaves no dead letter.

Without an ID it lists what is to be cancelled, and what was within its --for. It ends with 1 if after --wait not all
is over: what is left stands all the same, until --for is over or --undo takes it back.`,
		Example: `  countoff cancel mail-sender 0191c0de-77 --why "hangs since the deploy, ask ann"
  countoff cancel mail-sender
  countoff cancel mail-sender 0191c0de-77 --undo`,
		Args: cobra.MinimumNArgs(1),
		RunE: onStore(long, func(_ *cobra.Command, args []string) error { return c.fault(args[1:]) },
			func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
				name, ids := args[0], once(args[1:])
				if _, err := tasksInLists(ctx, client, name, notOfATopic, "cancel a handler with asynq's own: asynq task cancel ID", "take a unit off its list"); err != nil {
					return err
				}
				switch {
				case len(ids) == 0:
					return c.list(ctx, client, cmd, name)
				case c.undo:
					return c.takeBack(ctx, client, cmd, name, ids)
				}
				return c.give(ctx, client, cmd, name, ids)
			}),
	}
	f := cmd.Flags()
	f.StringVar(&c.why, "why", "", "who wants it and why: the reason of the dead letter")
	f.DurationVar(&c.lasts, "for", time.Hour, "how long it stands for a task that nobody has met, at most 168h")
	f.DurationVar(&c.wait, "wait", 10*time.Second, "how long to wait for the tasks to be out of the way; 0: not at all. What is delayed is looked through once in any case")
	f.BoolVar(&c.undo, "undo", false, "take back what is to be cancelled and was not yet")
	f.BoolVar(&c.json, "json", false, "list: one JSON object a line")
	return cmd
}

func (c *canceller) fault(ids []string) error {
	var errs []error
	if len(ids) > 0 || c.undo {
		errs = append(errs, redissource.CheckCancel(c.why, c.lasts, ids...))
	}
	if len(ids) == 0 && c.why != "" && !c.undo {
		errs = append(errs, errors.New("--why is of tasks that are to be cancelled: give their IDs"))
	}
	if c.wait < 0 {
		errs = append(errs, fmt.Errorf("--wait %v: want 0 or more", c.wait))
	}
	if c.json && len(ids) > 0 {
		errs = append(errs, errors.New("--json lists what is to be cancelled: give no ID"))
	}
	return errors.Join(errs...)
}

const notOfATopic = "its tasks cannot be cancelled from outside"

// give cancels tasks and waits until they are out of the way.
func (c *canceller) give(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, name string, ids []string) error {
	if err := redissource.GiveCancel(ctx, client, name, c.why, c.lasts, ids...); err != nil {
		return err
	}
	stands := func(when string) string {
		return fmt.Sprintf("it stands %s: countoff cancel %s lists it, and --undo takes it back", when, name)
	}
	all, err := c.carry(ctx, client, cmd, name, ids)
	if err != nil { // some are over all the same, and who is interrupted is told which
		look, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
		defer cancel()
		if all, _, _ = howFar(look, client, name, ids); all == nil {
			return fmt.Errorf("%w (%s)", err, stands(fmt.Sprint("for ", c.lasts)))
		}
	}
	out, left := cmd.OutOrStdout(), []error(nil)
	var until time.Time // by the store's clock; zero: nothing stands
	for _, id := range ids {
		said, over := told(name, id, all[id])
		if all[id].State.Over() || c.wait == 0 && err == nil {
			fmt.Fprintln(out, said)
			continue
		}
		left = append(left, errors.New(said))
		if !over {
			until = all[id].Until
		}
	}
	if !until.IsZero() {
		left = append(left, errors.New(stands("until "+date(until))))
	}
	switch {
	case len(left) == 0:
		return nil
	case errors.Is(err, context.Canceled) && ctx.Err() != nil: // what is left says more than that
		return exit.With(exit.Hard, fmt.Errorf("interrupted: %w", errors.Join(left...)))
	case err != nil:
		return errors.Join(append([]error{err}, left...)...)
	}
	return exit.With(exit.Failed, errors.Join(left...))
}

// lastLook is how long who is interrupted waits to hear what is over.
const lastLook = time.Second

// once returns ids, each only where it stands first.
func once(ids []string) (all []string) {
	for _, id := range ids {
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all
}

// delayedAgain is how long after the first look at what is delayed comes the second. Each later one comes after twice the time.
const delayedAgain = time.Second

// carry does what no owner does, and waits until all of it is over, for as long as it may. It returns how far each is.
func (c *canceller) carry(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, name string, ids []string) (map[string]redissource.Cancellation, error) {
	farther := newFarther(cmd.ErrOrStderr())
	late, began, looked := time.After(c.wait), time.Now(), false
	for again := time.Duration(0); ; {
		all, left, err := howFar(ctx, client, name, ids)
		if err != nil {
			return nil, err
		}
		if len(left) == 0 {
			return all, nil
		}
		// After what owners were told: what is due by now its owner cancels when it reads it. And again: what had just
		// failed without a key when they were told waits for its next try there.
		if !looked || time.Since(began) >= again {
			var until time.Time // the first look is made in any case
			if looked {
				until = began.Add(c.wait)
			}
			if err := c.buryDelayed(ctx, client, name, left, all, until); err != nil {
				return nil, err
			}
			looked, again = true, max(2*time.Since(began), delayedAgain)
			continue
		}
		farther.say("%d of %d are not out of the way yet", len(left), len(ids))
		select {
		case <-time.After(stillEach):
		case <-late:
			return all, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// howFar returns how far each is, and of ids those that are not over.
func howFar(ctx context.Context, client redis.UniversalClient, name string, ids []string) (all map[string]redissource.Cancellation, left []string, err error) {
	stands, err := redissource.Cancellations(ctx, client, name)
	if err != nil {
		return nil, nil, err
	}
	all = make(map[string]redissource.Cancellation)
	for _, s := range stands {
		all[s.ID] = s
	}
	for _, id := range ids {
		if _, over := told(name, id, all[id]); !over {
			left = append(left, id)
		}
	}
	return all, left, nil
}

// buryDelayed makes dead letters of the delayed tasks of ids, which no owner holds. It looks for them no longer than until,
// if that is a time.
func (c *canceller) buryDelayed(ctx context.Context, client redis.UniversalClient, name string, ids []string,
	given map[string]redissource.Cancellation, until time.Time,
) error {
	parts, err := everywhere(ctx, client, name)
	if err != nil {
		return err
	}
	reason := framework.ErrCancelled.Error()
	if c.why != "" {
		reason += ": " + c.why
	}
	look := ctx
	if !until.IsZero() {
		var cancel context.CancelFunc
		look, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	// What was begun with a task is done with ctx: a dead letter of which nothing is written would leave its order behind.
	_, err = eachDelayed(look, client, name, ids, parts, func(_ context.Context, client redis.UniversalClient, name string, d redissource.Delayed) (bool, error) {
		did, err := redissource.BuryDelayed(ctx, client, name, d, reason)
		if did {
			err = redissource.CancelledDelayed(ctx, client, name, given[d.ID])
		}
		return did, err
	})
	if look.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// told says how far a cancellation is, and whether it is over.
func told(name, id string, c redissource.Cancellation) (said string, over bool) {
	id = partitionmap.Printable(id)
	switch c.State {
	case redissource.CancelDead:
		return fmt.Sprintf("%s is cancelled: it is a dead letter (countoff dead list %s)", id, name), true
	case redissource.CancelDone:
		return fmt.Sprintf("%s is done: its handler did it all the same", id), true
	case redissource.CancelRuns:
		return fmt.Sprintf("%s runs in %s: its handler was told and has not returned, and its key waits for it", id, c.Where), false
	case redissource.CancelWaits:
		return fmt.Sprintf("%s was met by nobody yet: it is not read yet, or held back since a peer died (countoff explain); its owner's build is older; or there is no such task any more", id), false
	}
	return fmt.Sprintf("%s is not to be cancelled any more: that was taken back, it was requeued, or its time is over", id), true
}

// requeueWanted requeues a dead letter, and takes back what cancels it: who puts one to the end again wants it to run.
func requeueWanted(ctx context.Context, client redis.UniversalClient, name string, d redissource.DeadLetter) (bool, error) {
	if d.ID != "" {
		if _, err := redissource.UndoCancelled(ctx, client, name, d.ID); err != nil && !redisconfig.Forbidden(err) {
			return false, err
		}
	}
	return redissource.Requeue(ctx, client, name, d)
}

func (c *canceller) takeBack(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, name string, ids []string) error {
	states, err := redissource.UndoCancel(ctx, client, name, ids...)
	if err != nil {
		return err
	}
	for i, id := range ids {
		said := map[redissource.CancelState]string{
			redissource.CancelWaits: "is not to be cancelled any more",
			redissource.CancelRuns:  "is not to be cancelled any more, but the context of its handler has ended",
			redissource.CancelDead:  "is a dead letter already",
			redissource.CancelDone:  "is done already",
			"":                      "was not to be cancelled",
		}[states[i]]
		fmt.Fprintln(cmd.OutOrStdout(), partitionmap.Printable(id), said)
	}
	return nil
}

// A cancellation is what --json prints of one.
type cancellation struct {
	ID    string                  `json:"id"`
	State redissource.CancelState `json:"state"`
	Since *time.Time              `json:"since"`
	Until *time.Time              `json:"until"`
	Grant string                  `json:"grant"` // whose owner has met it; empty: none has
	Why   string                  `json:"why"`
}

func (c *canceller) list(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, name string) error {
	all, err := redissource.Cancellations(ctx, client, name)
	if err != nil {
		return err
	}
	l := newList(cmd, 0, c.json, "nothing is to be cancelled", "ID\tSTATE\tSINCE\tUNTIL\tGRANT\tWHY",
		func(c redissource.Cancellation) []string {
			return []string{c.ID, string(c.State), date(c.Since), date(c.Until), c.Where, short(oneLine(c.Why))}
		},
		func(c redissource.Cancellation) any {
			return cancellation{c.ID, c.State, past.Known(c.Since), past.Known(c.Until), c.Where, c.Why}
		})
	for _, one := range all {
		l.add(one)
	}
	return l.end(nil)
}
