package contest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/cmd/countoff-bench/meter"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
	"github.com/countoff/countoff/cmd/countoff-chaos/child"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/kafkasource"
	"github.com/countoff/countoff/sources/redisprogress"
	"github.com/countoff/countoff/transition/redisledger"
)

// BrokerCommand is the word with which the program runs itself as a broker.
const BrokerCommand = "broker"

const (
	kafkaTopic      = "bench"
	kafkaPartitions = 12
)

// Broker is the program as a broker, a kfake: it says its address and ends with in.
func Broker(in io.Reader, out io.Writer) error {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(kafkaPartitions, kafkaTopic))
	if err != nil {
		return err
	}
	defer cluster.Close()
	if _, err := fmt.Fprintln(out, strings.Join(cluster.ListenAddrs(), ",")); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// StartBroker starts the program as a broker and returns its address. stop ends it.
func StartBroker(ctx context.Context) (addr string, stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, self, BrokerCommand)
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := child.Start(cmd); err != nil {
		return "", nil, err
	}
	stop = func() error {
		in.Close()
		return cmd.Wait()
	}
	addr, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return strings.TrimSpace(addr), stop, nil
}

// withTopic starts a broker in a process of its own, fills its topic, all partitions or the first hot
// ones, and calls do with its address.
func withTopic(ctx context.Context, n, hot int, do func(broker kgo.Opt) error) error {
	addr, stop, err := StartBroker(ctx)
	if err != nil {
		return err
	}
	broker := kgo.SeedBrokers(strings.Split(addr, ",")...)
	if err = produce(ctx, broker, n, hot); err == nil {
		err = do(broker)
	}
	return errors.Join(err, stop())
}

func produce(ctx context.Context, broker kgo.Opt, n, hot int) error {
	byKey := kgo.StickyKeyPartitioner(nil)
	among := kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		of := byKey.ForTopic(topic)
		return func(r *kgo.Record, _ int) int { return of.Partition(r, hot) }
	})
	client, err := kgo.NewClient(broker, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordPartitioner(among))
	if err != nil {
		return err
	}
	defer client.Close()
	failed := make(chan error, 1)
	for i := range n {
		r := &kgo.Record{Topic: kafkaTopic, Key: []byte(meter.Key(i)), Value: meter.Payload(i)}
		client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// franzGo polls and handles record by record in one goroutine, and commits nothing:
// directly, or as the only member of a group, which commits every five seconds.
func franzGo(tag, what string, hot int, opts ...kgo.Opt) Contestant {
	return Contestant{
		Tag: tag, What: what, Tasks: 1_000_000, Quick: 200_000,
		Run: func(ctx context.Context, r *Run) (report.Measures, error) {
			return nil, withTopic(ctx, r.Meter.Tasks(), hot, func(broker kgo.Opt) error {
				client, err := kgo.NewClient(append(opts, broker, kgo.ConsumeTopics(kafkaTopic),
					kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
				if err != nil {
					return err
				}
				defer client.Close()
				for {
					fetches := client.PollFetches(ctx)
					if err := fetches.Err(); err != nil {
						return err
					}
					fetches.EachRecord(func(record *kgo.Record) { r.Meter.Saw(record.Value) })
					select {
					case <-r.Meter.Ended():
						return r.Wait(ctx)
					default:
					}
				}
			})
		},
	}
}

// countoffKafka is the whole framework on the same topic, each record by itself.
func countoffKafka(tag, what string, hot int) Contestant {
	return Contestant{
		Tag: tag, What: what, Tasks: 1_000_000, Quick: 200_000,
		Check: settledLogs(kafkaPartitions, func(id partition.ID) redisprogress.Keys { return redisprogress.Elsewhere(countoffName, id) }),
		Run: func(ctx context.Context, r *Run) (report.Measures, error) {
			client := r.Client()
			defer client.Close()
			store, err := redisprogress.NewStore(client, countoffName)
			if err != nil {
				return nil, err
			}
			return nil, withTopic(ctx, r.Meter.Tasks(), hot, func(broker kgo.Opt) error {
				source, err := kafkasource.New(countoffName, store, kafkasource.Config{Topic: kafkaTopic, Options: []kgo.Opt{broker}})
				if err != nil {
					return err
				}
				layout, err := source.Layout(ctx)
				if err == nil {
					_, err = redisledger.Init(ctx, client, countoffName, layout)
				}
				if err == nil {
					handler := func(_ context.Context, t *framework.Task) error {
						r.Meter.Saw(t.Payload)
						return nil
					}
					c := countoffConfig{concurrency: 10}
					err = c.serveSource(ctx, client, source, framework.HandlerFunc(handler), func() error { return r.Wait(ctx) })
				}
				return errors.Join(err, source.Close())
			})
		},
	}
}
