package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/framework/status/past"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/kafkasource"
	"github.com/countoff/countoff/sources/redissource"
)

func deadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "list, show, requeue or drop dead letters",
		Long: `Dead letters are tasks whose handler gave up, or whose tries are used up. Each is kept whole, with the
reason, until you requeue or drop it.

An ID is that of the task, or, for a letter without one, what list prints for it, as in 3/17-9f86d081.
A line of an ingress list that was no task is requeued to its list, for peers that can read it by now.
Times are in UTC, as those of countoff history.

The dead letters of a name that works a topic of Kafka are on a topic too: say where with --kafka.
They are listed and shown one by one, but requeued or dropped all together, since a topic is read in its order.`,
		Args: cobra.NoArgs,
		// Without it cobra looks at no argument: a command that is none would print this help, and end with 0.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(deadListCommand(), deadShowCommand(),
		deadTakeCommand("requeue", "run them again: at the end of their partition, as if for the first time", "requeued", requeueWanted, requeueTopic),
		deadTakeCommand("drop", "throw them away", "dropped", redissource.Drop, kafkasource.Drop))
	return cmd
}

// A deadLetter is what --json prints of one.
type deadLetter struct {
	Name       string       `json:"name"` // tells it from others that have its id, or none
	ID         string       `json:"id"`
	Type       string       `json:"type"`
	Key        string       `json:"key"`
	Partition  partition.ID `json:"partition"`
	Position   int64        `json:"position"`
	Reason     string       `json:"reason"`
	FirstError string       `json:"first_error"`
	Attempts   int          `json:"attempts"`
	Crashes    int          `json:"crashes"`
	Born       *time.Time   `json:"born"` // null: unknown
	Died       *time.Time   `json:"died"`
	Raw        bool         `json:"raw"` // nobody could read it as a task
	content
}

// content is what a task carries, as --json prints it.
type content struct {
	Headers map[string]string `json:"headers,omitempty"`
	Payload string            `json:"payload,omitempty"`
	Bytes   []byte            `json:"payload_base64,omitempty"` // in place of payload, if that is no text
}

func contentOf(headers map[string]string, payload []byte) content {
	if utf8.Valid(payload) {
		return content{Headers: headers, Payload: string(payload)}
	}
	return content{Headers: headers, Bytes: payload}
}

func jsonLetter(d redissource.DeadLetter, whole bool) deadLetter {
	out := deadLetter{
		Name: d.Name(), ID: d.ID, Type: d.Type, Key: d.Key, Partition: d.Partition, Position: d.Position, Reason: d.Reason,
		FirstError: d.FirstError, Attempts: d.Attempts, Crashes: d.Crashes, Born: past.Known(d.Born), Died: past.Known(d.Died), Raw: d.Raw,
	}
	if whole {
		out.content = contentOf(d.Headers, d.Payload)
	}
	return out
}

// called reports whether an argument may call d so.
func called(d redissource.DeadLetter, id string) bool {
	return d.ID != "" && d.ID == id || d.Name() == id || fmt.Sprintf("%v/%d", d.Partition, d.Position) == id
}

// everywhere returns the partitions of name.
func everywhere(ctx context.Context, client redis.UniversalClient, name string) ([]partition.ID, error) {
	if err := notInRedis(ctx, client, name); err != nil {
		return nil, err
	}
	cfg, err := redisconfig.Read(ctx, client, name)
	if err != nil {
		return nil, err
	}
	cfg.Units = nil
	return cfg.IDs(), nil
}

func deadListCommand() *cobra.Command {
	var limit int
	var asJSON bool
	var topic deadTopic
	cmd := &cobra.Command{
		Use: "list NAME",
		Example: `  countoff dead list mail-sender --limit 0
  countoff dead list orders --kafka kafka://localhost:9092`,
		Short: "list dead letters by partition, oldest first",
		Args:  cobra.ExactArgs(1),
		RunE: onStore(brief, func(*cobra.Command, []string) error {
			if limit < 0 {
				return errors.Join(fmt.Errorf("--limit %d: want 0 for all, or more", limit), topic.fault())
			}
			return topic.fault()
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			if topic.url != "" {
				return topic.list(ctx, client, cmd, args[0], limit, asJSON)
			}
			ids, err := everywhere(ctx, client, args[0])
			if err != nil {
				return err
			}
			l := newLetterList(cmd, limit, asJSON, false)
			return l.end(redissource.DeadLetters(ctx, client, args[0], ids, l.add))
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most this many; 0: all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	topic.bind(cmd)
	return cmd
}

func newLetterList(cmd *cobra.Command, limit int, asJSON, whole bool) *list[redissource.DeadLetter] {
	return newList(cmd, limit, asJSON, "no dead letters", "ID\tTYPE\tKEY\tTRIES\tDIED\tREASON", func(d redissource.DeadLetter) []string {
		return []string{cmp.Or(d.ID, d.Name()), clipped(d.Type), clipped(d.Key), tries(d.Attempts, d.Crashes), date(d.Died), short(oneLine(d.Reason))}
	}, func(d redissource.DeadLetter) any { return jsonLetter(d, whole) })
}

func deadShowCommand() *cobra.Command {
	var asJSON bool
	var topic deadTopic
	cmd := &cobra.Command{
		Use: "show NAME ID",
		Example: `  countoff dead show mail-sender 3/17-9f86d081
  countoff dead show orders orders-3-17 --kafka kafka://localhost:9092`,
		Short: "show one dead letter, whole",
		Args:  cobra.ExactArgs(2),
		RunE: onStore(brief, func(*cobra.Command, []string) error { return topic.fault() }, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			from := func() ([]redissource.DeadLetter, error) { return pick(ctx, client, args[0], args[1:], false) }
			if topic.url != "" {
				from = func() ([]redissource.DeadLetter, error) { return topic.pick(ctx, args[0], args[1:]) }
			}
			found, missing := from()
			for _, d := range found {
				if asJSON {
					if err := json.NewEncoder(cmd.OutOrStdout()).Encode(jsonLetter(d, true)); err != nil {
						return err
					}
					continue
				}
				printLetter(cmd.OutOrStdout(), d)
			}
			return missing
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as one JSON object")
	topic.bind(cmd)
	return cmd
}

func printLetter(out io.Writer, d redissource.DeadLetter) {
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(out, "%-12s %s\n", name, partitionmap.Printable(value))
		}
	}
	rows := func(name, value string) { // an error may have several lines
		for line := range strings.SplitSeq(strings.Trim(value, "\n"), "\n") {
			row(name, line)
			name = ""
		}
	}
	row("id", d.ID)
	row("type", d.Type)
	row("key", d.Key)
	row("place", d.Name()+" (partition/position)")
	rows("reason", d.Reason)
	rows("first error", d.FirstError)
	row("tries", fmt.Sprint(d.Attempts))
	if d.Crashes > 0 {
		row("crashes", fmt.Sprint(d.Crashes))
	}
	row("born", date(d.Born))
	row("died", date(d.Died))
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		row("header", name+": "+d.Headers[name])
	}
	if obeyed := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }; utf8.Valid(d.Payload) && !bytes.ContainsFunc(d.Payload, obeyed) {
		fmt.Fprintf(out, "\n%s\n", d.Payload)
	} else {
		fmt.Fprintf(out, "\n%q\n", d.Payload)
	}
}

// deadTakeCommand is requeue or drop.
func deadTakeCommand(use, short, done string, take func(context.Context, redis.UniversalClient, string, redissource.DeadLetter) (bool, error),
	takeTopic func(context.Context, string, kafkasource.Config) (int, error),
) *cobra.Command {
	var all bool
	var topic deadTopic
	cmd := &cobra.Command{
		Use:     use + " NAME ID...",
		Example: "  countoff dead " + use + " mail-sender 3f9a1c20-welcome\n  countoff dead " + use + " mail-sender --all",
		Short:   short,
		Args:    cobra.MinimumNArgs(1),
		RunE: onStore(long, func(_ *cobra.Command, args []string) error {
			errs := []error{topic.fault()}
			if topic.url != "" && !all {
				errs = append(errs, errors.New("a topic is passed in its order: say --all"))
			} else if all == (len(args) > 1) {
				errs = append(errs, errors.New("want the ids of dead letters, or --all"))
			}
			return errors.Join(errs...)
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			if topic.url != "" {
				return topic.take(ctx, client, cmd, args[0], done, takeTopic)
			}
			n := 0
			far := newFarther(cmd.ErrOrStderr())
			defer far.watch()()
			one := func(d redissource.DeadLetter) error {
				ok, err := take(ctx, client, args[0], d)
				if ok {
					n++
				}
				far.say("%d %s so far", n, done)
				return err
			}
			if all {
				ids, err := everywhere(ctx, client, args[0])
				if err != nil {
					return err
				}
				err = takeAll(ctx, client, args[0], ids, one)
				fmt.Fprintf(cmd.OutOrStdout(), "%d %s\n", n, done)
				return err
			}
			found, err := pick(ctx, client, args[0], args[1:], true)
			if err != nil {
				return err
			}
			_, failed, err := takeEach(ctx, found, one)
			err = errors.Join(append(failed, err)...)
			fmt.Fprintf(cmd.OutOrStdout(), "%d %s\n", n, done)
			return err
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters of NAME")
	topic.bind(cmd)
	return cmd
}

// takeEach gives take all of letters, as long as ctx stands and the store takes them, and returns how many
// it took none of, and why.
func takeEach(ctx context.Context, letters []redissource.DeadLetter, take func(redissource.DeadLetter) error) (left int, failed []error, err error) {
	for _, d := range letters {
		if err := ctx.Err(); err != nil {
			return left, failed, err
		}
		err := take(d)
		switch {
		case err == nil:
		case errors.Is(err, redissource.ErrRaw), ofPartition(err):
			left++
			failed = append(failed, err)
		default: // thousands of others would fail in the same way
			return left, failed, err
		}
	}
	return left, failed, nil
}

// ofPartition reports whether err is of one partition, a key of which holds something else, and says nothing of others.
func ofPartition(err error) bool { return strings.Contains(err.Error(), "WRONGTYPE") }

// takePage is how many dead letters takeAll holds.
const takePage = 500

// takeAll gives take the dead letters of partitions that are there now, oldest first within each
// partition: what it takes leaves its list, so the next ones are read behind those that stay. One
// that is requeued and dies again comes behind all of them.
func takeAll(ctx context.Context, client redis.UniversalClient, name string, ids []partition.ID, take func(redissource.DeadLetter) error) error {
	var errs []error
	for _, id := range ids {
		n, err := client.LLen(ctx, redissource.KeysOf(name, id).Dead).Result()
		if err != nil {
			errs = append(errs, fmt.Errorf("dead letters of %s, partition %v: %w", name, id, err))
			if ofPartition(err) {
				continue
			}
			return errors.Join(errs...)
		}
		stay := 0
		for n > 0 {
			page, err := deadPage(ctx, client, name, id, stay, int(min(n, takePage)))
			if err != nil {
				return errors.Join(append(errs, err)...)
			}
			if len(page) == 0 {
				break // somebody else has taken the rest
			}
			left, failed, err := takeEach(ctx, page, take)
			errs = append(errs, failed...)
			if err != nil {
				return errors.Join(append(errs, err)...)
			}
			stay += left
			n -= int64(len(page))
		}
	}
	return errors.Join(errs...)
}

// deadPage returns at most n dead letters of a partition, after those that are passed over.
func deadPage(ctx context.Context, client redis.UniversalClient, name string, id partition.ID, over, n int) (page []redissource.DeadLetter, err error) {
	err = redissource.DeadLetters(ctx, client, name, []partition.ID{id}, func(d redissource.DeadLetter) bool {
		if over > 0 {
			over--
			return true
		}
		page = append(page, d)
		return len(page) < n
	})
	return page, err
}

// pick returns the dead letters that wanted names. What is named and not there is an error, and,
// with one, what several are called, or may be where some cannot be read.
func pick(ctx context.Context, client redis.UniversalClient, name string, wanted []string, one bool) (found []redissource.DeadLetter, err error) {
	ids, err := everywhere(ctx, client, name)
	if err != nil {
		return nil, err
	}
	return pickOf(name, wanted, one, func(each func(redissource.DeadLetter) bool) error {
		return redissource.DeadLetters(ctx, client, name, ids, each)
	})
}

// pickOf is pick, of what all gives.
func pickOf(name string, wanted []string, one bool, all func(each func(redissource.DeadLetter) bool) error) (found []redissource.DeadLetter, err error) {
	by := make(map[string][]redissource.DeadLetter)
	err = all(func(d redissource.DeadLetter) bool {
		for _, id := range wanted {
			if called(d, id) {
				by[id] = append(by[id], d)
			}
		}
		if slices.ContainsFunc(wanted, func(id string) bool { return called(d, id) }) {
			found = append(found, d)
		}
		return true
	})
	if err != nil && (one || len(found) == 0) {
		return nil, err
	}
	var missing []string
	var errs []error
	for _, id := range wanted {
		if len(by[id]) == 0 {
			missing = append(missing, id)
		}
		if one {
			errs = append(errs, several(id, by[id]))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("no dead letter of %s is called %s: see countoff dead list %s", name, strings.Join(missing, ", "), name)
	}
	return found, err
}

// several says that more letters than one are called id, and how to name one of them.
func several(id string, letters []redissource.DeadLetter) error {
	var names []string
	for _, d := range letters {
		if !d.Same(letters[0]) {
			names = append(names, d.Name())
		}
	}
	if len(names) == 0 {
		return nil
	}
	names = append([]string{letters[0].Name()}, names...)
	return fmt.Errorf("%s may be any of %d dead letters: say %s", partitionmap.Printable(id), len(names), strings.Join(names, " or "))
}

func tries(failed, crashed int) string {
	if crashed > 0 {
		return fmt.Sprintf("%d, %d crashed", failed, crashed)
	}
	return fmt.Sprint(failed)
}

func date(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}
