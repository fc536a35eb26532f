package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/countoff/countoff/examples/mail-sender/mail"
	"github.com/countoff/countoff/examples/mail-sender/queue"
	"github.com/countoff/countoff/examples/mail-sender/service"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/program/flagenv"
	"github.com/countoff/countoff/framework/program/signals"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources/redissource"
)

func sendCommand() *cobra.Command {
	var store, name, file string
	var cfg redissource.ProducerConfig
	var count, recipients int
	var seed uint64
	cmd := &cobra.Command{
		Use:   "send",
		Short: "put mails into the queue: generated ones, or a file of JSON lines",
		Example: `  mail-sender send -n 1000
  mail-sender send --file mails.jsonl      lines as {"to":"ann@example.com","subject":"hi","text":"…"}
  redis-cli LPUSH mail-sender:inbox '{"to":"ann@example.com","subject":"hi","text":"…"}'   works as well`,
		Long: `Puts mails into the queue. SIGINT or SIGTERM ends it after the batch that is on its way:
it says how many mails the store has taken, and ends with 6.`,
		Args: cobra.NoArgs,
		RunE: exit.Run(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signals.Context(cmd.Context())
			defer stop()
			errs := []error{service.Apply(cmd), partition.CheckName(name)}
			if f := cmd.Flags().Lookup("partitions"); f.Changed && (cfg.Partitions < 1 || cfg.Partitions > partition.MaxTotal) {
				errs = append(errs, fmt.Errorf("%s %d: want 1 to %d", flagenv.Where(cmd, "partitions"), cfg.Partitions, partition.MaxTotal))
			}
			if cfg.Replicas < 0 {
				errs = append(errs, fmt.Errorf("%s %d: must not be negative", flagenv.Where(cmd, "replicas"), cfg.Replicas))
			}
			mails, total, done, err := source(ctx, file, count, recipients, seed, cmd.InOrStdin())
			client, badURL := redisurl.Open(store)
			if err := errors.Join(append(errs, err, flagenv.Wrong(cmd, "redis", badURL))...); err != nil {
				return exit.With(exit.Usage, err)
			}
			defer done()
			defer client.Close()
			reach, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			if err := redisurl.Reach(reach, client, store); ctx.Err() != nil {
				return exit.With(exit.Hard, errInterrupted)
			} else if err != nil {
				return exit.With(exit.Unreachable, err)
			}
			p, err := redissource.NewProducer(ctx, client, name, cfg)
			if err != nil {
				return err
			}
			bar := newBar(cmd.ErrOrStderr(), total)
			report, err := queue.Enqueue(ctx, p, mails, func(err error) {
				bar.clear()
				fmt.Fprintln(cmd.ErrOrStderr(), err)
			}, bar.show)
			// Where the sending failed a failed Close says the same again.
			err = cmp.Or(err, p.Close(context.WithoutCancel(ctx)))
			bar.clear()
			fmt.Fprintln(cmd.OutOrStdout(), bar.summary(report, name))
			if errors.Is(err, context.Canceled) && ctx.Err() != nil {
				return exit.With(exit.Hard, errInterrupted)
			}
			if err == nil && report.Refused > 0 {
				return fmt.Errorf("%d lines are no mails and were left out", report.Refused)
			}
			return err
		}),
	}
	f := cmd.Flags()
	f.StringVar(&store, "redis", "redis://127.0.0.1:6379", "the store, as redis://[user:password@]host[:port][/db], rediss:// for TLS, unix:///path for a socket, several hosts for a cluster")
	f.StringVar(&name, "name", "mail-sender", "name of the task processing")
	f.IntVar(&cfg.Replicas, "replicas", 0, "how many replicas must have a mail before it counts as enqueued")
	f.IntVar(&cfg.Partitions, "partitions", 0, "number of partitions of a new name (default 256); must be the same if the name exists")
	f.IntVarP(&count, "count", "n", 1000, "how many mails to generate")
	f.IntVar(&recipients, "recipients", 100, "number of different recipients")
	f.Uint64Var(&seed, "seed", 1, "decides the order of the recipients")
	f.StringVar(&file, "file", "", "send the mails of this file, one JSON object a line; - is stdin")
	service.Bind(cmd)
	return cmd
}

// errInterrupted says why a send ended before its mails did. How many got through is in
// the summary.
var errInterrupted = errors.New("interrupted: the rest was not enqueued")

// until returns what r holds until ctx ends: a read that waits for a terminal or a
// pipe cannot be called back.
func until(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	context.AfterFunc(ctx, func() { out.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err)
	}()
	return out
}

// source returns the mails to send, how many they are (0: unknown) and what to call
// at the end.
func source(ctx context.Context, file string, count, recipients int, seed uint64, stdin io.Reader) (iter.Seq2[mail.Mail, error], int, func() error, error) {
	nothing := func() error { return nil }
	switch {
	case file == "-":
		return queue.Lines(until(ctx, stdin)), 0, nothing, nil
	case file != "":
		f, err := os.Open(file)
		if err != nil {
			return nil, 0, nil, err
		}
		return queue.Lines(f), 0, f.Close, nil
	case count < 1 || recipients < 1:
		return nil, 0, nil, fmt.Errorf("-n %d --recipients %d: want at least 1", count, recipients)
	}
	return queue.Generate(count, recipients, seed), count, nothing, nil
}

// A bar shows progress on a terminal and nothing elsewhere.
type bar struct {
	out   io.Writer // nil: no terminal
	total int
	began time.Time
}

func newBar(out io.Writer, total int) *bar {
	b := &bar{total: total, began: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		b.out = out
	}
	return b
}

func (b *bar) rate(n int) float64 { return float64(n) / max(time.Since(b.began).Seconds(), 0.001) }

func (b *bar) show(r queue.Report) {
	if b.out == nil {
		return
	}
	n := r.Enqueued + r.Duplicates
	line := fmt.Sprintf("%d mails  %.0f/s", n, b.rate(n))
	if b.total > 0 {
		const width = 30
		filled := width * n / b.total
		line = fmt.Sprintf("[%s%s] %d of %d  %.0f/s", strings.Repeat("#", filled), strings.Repeat("·", width-filled), n, b.total, b.rate(n))
	}
	fmt.Fprintf(b.out, "\r\x1b[2K%s", line)
}

func (b *bar) clear() {
	if b.out != nil {
		fmt.Fprint(b.out, "\r\x1b[2K")
	}
}

func (b *bar) summary(r queue.Report, name string) string {
	text := fmt.Sprintf("%d mails enqueued in %s in %.1f s (%.0f/s)", r.Enqueued, name, time.Since(b.began).Seconds(), b.rate(r.Enqueued))
	if r.Duplicates > 0 {
		text += fmt.Sprintf(", %d were there already", r.Duplicates)
	}
	return text
}
