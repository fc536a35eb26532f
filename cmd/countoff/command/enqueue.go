package command

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition/machine"
)

// farthest is the longest delay of a message.
const farthest = 100 * 365 * 24 * time.Hour

func enqueueCommand() *cobra.Command {
	var m redissource.Message
	var cfg redissource.ProducerConfig
	var lines, unique bool
	cmd := &cobra.Command{
		Use:   "enqueue NAME [PAYLOAD]",
		Short: "put a task into the queue of NAME; without PAYLOAD it is read from stdin",
		Example: `  countoff enqueue mail-sender --type mail --key ann@example.com '{"to":"ann@example.com","subject":"hi","text":"…"}'
  countoff enqueue import --lines < payloads.txt`,
		Args: cobra.RangeArgs(1, 2),
		RunE: onStore(long, func(cmd *cobra.Command, args []string) error {
			errs := []error{sharesFault(cmd, cfg.Partitions)}
			if m.Unique = unique; unique && m.ID == "" {
				errs = append(errs, errors.New("--unique needs --id"))
			}
			if m.Delay < 0 || m.Delay > farthest {
				errs = append(errs, fmt.Errorf("--delay %v: want from 0 to 100 years", m.Delay))
			}
			if cfg.Replicas < 0 {
				errs = append(errs, fmt.Errorf("--replicas %d: must not be negative", cfg.Replicas))
			}
			if lines && len(args) == 2 {
				errs = append(errs, errors.New("--lines reads stdin: want no PAYLOAD"))
			}
			if lines && m.ID != "" {
				errs = append(errs, errors.New("--id is of one task, and --lines makes one of each line"))
			}
			return errors.Join(errs...)
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			if err := takesTasks(ctx, client, args[0]); err != nil {
				return err
			}
			_, unused := redisconfig.Read(ctx, client, args[0])
			isNew := errors.Is(unused, redisconfig.ErrNone)
			var in *bufio.Reader // nil: PAYLOAD
			if len(args) == 1 {
				if f, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
					what := "the payload"
					if lines {
						what = "payloads, one a line,"
					}
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: reads %s from this terminal: Ctrl-D ends it\n", cmd.CommandPath(), what)
				}
				stdin := until(ctx, cmd.InOrStdin())
				defer stdin.Close()
				in = bufio.NewReader(stdin)
			}
			if in != nil && isNew { // a producer makes the name, and nothing may come
				switch _, err := in.Peek(1); {
				case errors.Is(err, io.EOF) && lines:
					return nil
				case errors.Is(err, io.EOF):
					return noPayload()
				case err != nil:
					return err
				}
			}
			p, err := producerOf(ctx, client, cmd, args[0], cfg, isNew)
			if err != nil {
				return err
			}
			// What was accepted is answered, also after an interrupt.
			defer p.Close(context.WithoutCancel(ctx))
			if _, err := p.Config().Hash.Of(m.Key, 1); m.Key != "" && err != nil {
				return exit.With(exit.Usage, fmt.Errorf("--key: %w", err))
			}
			put := func(payloads ...[]byte) ([]redissource.Result, error) {
				return enqueueAs(ctx, p, m, payloads, cmd.OutOrStdout())
			}
			switch {
			case in == nil:
				_, err := put([]byte(args[1]))
				return err
			case lines:
				return enqueueLines(in, put)
			}
			payload, err := io.ReadAll(in)
			if err != nil {
				return err
			}
			if len(payload) == 0 {
				return noPayload()
			}
			_, err = put(payload)
			return err
		}),
	}
	f := cmd.Flags()
	f.StringVar(&m.ID, "id", "", "task id (default: a new one)")
	f.BoolVar(&unique, "unique", false, "enqueue only if no unique task with this id waits or runs in the partition of this key")
	f.StringVar(&m.Type, "type", "", "task type: picks the handler")
	f.StringVar(&m.Key, "key", "", "key: partition and order (default: any partition, no order)")
	f.DurationVar(&m.Delay, "delay", 0*time.Second, "handle it this much later")
	f.BoolVar(&lines, "lines", false, "each line of stdin is a payload of its own")
	f.IntVar(&cfg.Replicas, "replicas", 0, "how many replicas must have it before it counts as enqueued")
	f.IntVar(&cfg.Partitions, "partitions", 0, "number of partitions of a new name (default 256); must be the same if the name exists")
	return cmd
}

// noPayload is what it ends with where nothing came from stdin.
func noPayload() error {
	return exit.With(exit.Usage, errors.New("nothing came from stdin: a task without a payload wants PAYLOAD ''"))
}

// takesTasks returns an error where what is enqueued under name would be no task of the peers.
func takesTasks(ctx context.Context, client redis.UniversalClient, name string) error {
	if err := listsOnly(ctx, client, name, "write to that one with a producer of Kafka",
		"enqueue with its client, or with asynqsource.Client where they go by key"); err != nil {
		return err
	}
	if list, err := redisconfig.List(ctx, client, name); err != nil || list != "" {
		return cmp.Or(err, exit.With(exit.Config, fmt.Errorf("the peers of %s share work units, and take no tasks: add a unit to their list, as in SADD '%s' UNIT, "+
			"and give tasks a name of their own", name, list)))
	}
	return nil
}

// producerOf returns a producer for name, and says what looks odd; isNew: nobody has used it.
func producerOf(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, name string, cfg redissource.ProducerConfig, isNew bool) (*redissource.Producer, error) {
	p, err := redissource.NewProducer(ctx, client, name, cfg)
	if err != nil {
		return nil, err
	}
	if isNew { // perhaps a slip of the pen: nobody would miss what waits there
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s was new, and has %s now\n", cmd.CommandPath(), name, partitionmap.Plural(p.Config().Total, "partition"))
	}
	if !isNew && nobodyReads(ctx, client, name) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s has peers, and none of them has opened a list in Redis yet: if what they work on comes from elsewhere "+
			"(a source of their own, framework.Share), nobody reads what is put here. It lies in {%s:N}:pending of the partition N that is printed: DEL removes it\n",
			cmd.CommandPath(), name, name)
	}
	return p, nil
}

// enqueueAs puts payloads as tasks that are like m, and prints what became of each.
func enqueueAs(ctx context.Context, p *redissource.Producer, m redissource.Message, payloads [][]byte, out io.Writer) ([]redissource.Result, error) {
	messages := make([]redissource.Message, len(payloads))
	for i := range messages {
		messages[i] = m
		messages[i].Payload = payloads[i]
	}
	results, err := p.Enqueue(ctx, messages...)
	for _, r := range results {
		switch {
		case r.Err != nil:
		case r.Duplicate:
			fmt.Fprintf(out, "%s duplicate: it waits or runs already\n", r.ID)
		default:
			fmt.Fprintf(out, "%s partition %v\n", r.ID, r.Partition)
		}
	}
	return results, err
}

// looked is how many partitions nobodyReads looks at, at most.
const looked = 32

// nobodyReads reports whether name has peers with partitions and no fence was ever installed at the lists of
// those: either they have just begun, or their tasks are elsewhere. What cannot be found out is not told.
func nobodyReads(ctx context.Context, client redis.UniversalClient, name string) bool {
	census, err := status.Place{Client: client}.Census(ctx, name)
	if err != nil {
		return false
	}
	live := map[partition.Session]bool{}
	for _, s := range census.Sessions {
		live[s.Session] = s.State != machine.Gone && s.Lease > 0
	}
	var fences []*redis.IntCmd
	pipe := client.Pipeline()
	for _, g := range census.Grants {
		if live[g.Session] && !g.Grant.ID.IsUnit() && len(fences) < looked {
			fences = append(fences, pipe.Exists(ctx, redissource.KeysOf(name, g.Grant.ID).Fence))
		}
	}
	if len(fences) == 0 {
		return false
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return false
	}
	return !slices.ContainsFunc(fences, func(f *redis.IntCmd) bool { return f.Val() > 0 })
}

// until returns what r holds until ctx ends: a read that waits for a terminal or a pipe cannot be
// called back.
func until(ctx context.Context, r io.Reader) *io.PipeReader {
	out, in := io.Pipe()
	context.AfterFunc(ctx, func() { in.CloseWithError(fmt.Errorf("stdin has not ended: %w", ctx.Err())) })
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err)
	}()
	return out
}

// mostTogether is how many lines are enqueued at once, at most.
const mostTogether = 500

// A lineReader knows whether its input has come to its end: what stands after the last line break is a
// line then, and half of one where a read has failed.
type lineReader struct {
	in    io.Reader
	whole bool
}

func (r *lineReader) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	r.whole = err == io.EOF
	return n, err
}

// enqueueLines puts each line: as many together as have come, so that a line never waits for the
// next one. The first goes alone: what is wrong with all, as too few replicas, leaves one line in doubt, not hundreds.
func enqueueLines(in io.Reader, put func(payloads ...[]byte) ([]redissource.Result, error)) error {
	more := false // the next line is there
	r := &lineReader{in: in}
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 256<<10), 64<<20)
	s.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		advance, line, err := bufio.ScanLines(data, atEOF && r.whole)
		more = bytes.IndexByte(data[advance:], '\n') >= 0
		return advance, line, err
	})
	var lines [][]byte
	done := 0
	for s.Scan() {
		lines = append(lines, bytes.Clone(s.Bytes()))
		if more && done > 0 && len(lines) < mostTogether {
			continue
		}
		results, err := put(lines...)
		if err != nil {
			which, last := failed(results, done, len(lines)), done+len(lines)
			if errors.Is(err, redissource.ErrUnknown) {
				return fmt.Errorf("in doubt: line %s; not enqueued: all after %d: %w", which, last, err)
			}
			return fmt.Errorf("not enqueued: line %s, and all after %d: %w", which, last, err)
		}
		done += len(lines)
		lines = lines[:0]
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("not enqueued: line %d and all after it: %w", done+1, err)
	}
	return nil
}

// failed names the lines that failed, of n after the first done ones: an interrupt fails hundreds.
func failed(results []redissource.Result, done, n int) string {
	ok := func(i int) bool { return results != nil && results[i].Err == nil }
	var which []string
	for i := 0; i < n; i++ {
		if ok(i) {
			continue
		}
		first := i
		for i+1 < n && !ok(i+1) {
			i++
		}
		line := strconv.Itoa(done + first + 1)
		if i > first {
			line += "-" + strconv.Itoa(done+i+1)
		}
		which = append(which, line)
	}
	return strings.Join(which, ", ")
}
