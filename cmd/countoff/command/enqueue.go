package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/sources/redissource"
)

func enqueueCommand() *cobra.Command {
	var m redissource.Message
	var partitions int
	var lines, unique bool
	cmd := &cobra.Command{
		Use:   "enqueue NAME [PAYLOAD]",
		Short: "put a task into the queue of NAME; without PAYLOAD it is read from stdin",
		Example: `  countoff enqueue mail-sender --type mail --key ann@example.com '{"to":"ann@example.com","subject":"hi","text":"…"}'
  countoff enqueue import --lines < payloads.txt`,
		Args: cobra.RangeArgs(1, 2),
		RunE: onStore(true, func(cmd *cobra.Command, args []string) error {
			errs := []error{sharesFault(cmd, partitions)}
			if m.Unique = unique; unique && m.ID == "" {
				errs = append(errs, errors.New("--unique needs --id"))
			}
			if m.Delay < 0 {
				errs = append(errs, fmt.Errorf("--delay %v: must not be negative", m.Delay))
			}
			if lines && len(args) == 2 {
				errs = append(errs, errors.New("--lines reads stdin: want no PAYLOAD"))
			}
			return errors.Join(errs...)
		}, func(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, args []string) error {
			if err := listsOnly(ctx, client, args[0], "write to that one with a producer of Kafka",
				"enqueue with its client, or with asynqsource.Client where they go by key"); err != nil {
				return err
			}
			p, err := redissource.NewProducer(ctx, client, args[0], redissource.ProducerConfig{Partitions: partitions})
			if err != nil {
				return err
			}
			// What was accepted is answered, also after an interrupt.
			defer p.Close(context.WithoutCancel(ctx))
			put := func(payload []byte) error {
				message := m
				message.Payload = payload
				results, err := p.Enqueue(ctx, message)
				if err != nil {
					return err
				}
				r := results[0]
				if r.Duplicate {
					fmt.Fprintf(cmd.OutOrStdout(), "%s duplicate: it waits or runs already\n", r.ID)
					return nil
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s partition %v\n", r.ID, r.Partition)
				return nil
			}
			switch {
			case len(args) == 2:
				return put([]byte(args[1]))
			case !lines:
				payload, err := io.ReadAll(cmd.InOrStdin())
				if err != nil {
					return err
				}
				if len(payload) == 0 {
					return exit.With(exit.Usage, errors.New("nothing came from stdin: a task without a payload wants PAYLOAD ''"))
				}
				return put(payload)
			}
			s := bufio.NewScanner(cmd.InOrStdin())
			s.Buffer(nil, 64<<20)
			for s.Scan() {
				if err := put([]byte(s.Text())); err != nil {
					return err
				}
			}
			return s.Err()
		}),
	}
	f := cmd.Flags()
	f.StringVar(&m.ID, "id", "", "task id (default: a new one)")
	f.BoolVar(&unique, "unique", false, "enqueue only if no task of this id waits or runs")
	f.StringVar(&m.Type, "type", "", "task type, picks the handler")
	f.StringVar(&m.Key, "key", "", "key: partition and order (default: any partition, no order)")
	f.DurationVar(&m.Delay, "delay", 0*time.Second, "handle it this much later")
	f.BoolVar(&lines, "lines", false, "each line of stdin is a payload of its own")
	f.IntVar(&partitions, "partitions", 0, "written under a new name (default 256); must be the same where the name exists")
	return cmd
}
