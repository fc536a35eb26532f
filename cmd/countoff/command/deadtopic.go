package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
	"github.com/countoff/countoff/sources/kafkasource"
	"github.com/countoff/countoff/sources/redissource"
)

// A deadTopic is where the dead letters of a name are that works a topic of Kafka.
type deadTopic struct{ url, topic, dead string }

func (d *deadTopic) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.url, "kafka", "", "the brokers, for a name that works a topic, as kafka://[user:password@]host:port[,host:port][?sasl=…], kafkas:// for TLS")
	f.StringVar(&d.topic, "topic", "", "with --kafka: the topic (default NAME)")
	f.StringVar(&d.dead, "dead-topic", "", "with --kafka: where its dead letters are (default TOPIC.dead)")
}

// fault says what is wrong with the flags.
func (d *deadTopic) fault() error {
	if d.url == "" {
		if d.topic != "" || d.dead != "" {
			return errors.New("--topic and --dead-topic want --kafka")
		}
		return nil
	}
	_, err := kafkasource.Options(d.url)
	return err
}

// config is that of a name, whose topic has its name if nobody says otherwise.
func (d *deadTopic) config(name string) (kafkasource.Config, error) {
	opts, err := kafkasource.Options(d.url)
	cfg := kafkasource.Config{Topic: d.topic, DeadTopic: d.dead, Options: opts}
	if cfg.Topic == "" {
		cfg.Topic = name
	}
	return cfg, err
}

// onTopic reports whether a name works a topic of Kafka: it says so, or it says nothing and its
// keys are hashed as Kafka's are. What else is wrong with the name the caller's next call says.
func onTopic(ctx context.Context, client redis.UniversalClient, name string) bool {
	cfg, err := redisconfig.Read(ctx, client, name)
	if err != nil || cfg.Hash != partition.Murmur2 {
		return false
	}
	kind, err := redisconfig.KindOf(ctx, client, name)
	return err == nil && (kind == redisconfig.Topic || kind == "")
}

// notInRedis is an error if the dead letters of a name are on a topic, or in asynq's
// archive.
func notInRedis(ctx context.Context, client redis.UniversalClient, name string) error {
	if queues, ok, err := queuestat.Read(ctx, client, name); err != nil || ok {
		return cmp.Or(err, fmt.Errorf("%s works queues of asynq, whose archive has its dead letters: use asynqmon, or: asynq task ls --queue=%s --state=archived",
			name, queues.Of(0)))
	}
	if !onTopic(ctx, client, name) {
		return nil
	}
	return fmt.Errorf("%s works a topic of Kafka, where its dead letters are too: say --kafka URL, and --topic if that is not called %s", name, name)
}

// listsOnly is an error if a name works a topic or queues of asynq: what is put into lists
// nobody would find.
func listsOnly(ctx context.Context, client redis.UniversalClient, name, instead, insteadOfQueues string) error {
	if _, ok, err := queuestat.Read(ctx, client, name); err != nil {
		return err
	} else if ok {
		return exit.With(exit.Config, fmt.Errorf("%s works queues of asynq: %s", name, insteadOfQueues))
	}
	if !onTopic(ctx, client, name) {
		return nil
	}
	return exit.With(exit.Config, fmt.Errorf("%s works a topic of Kafka: %s", name, instead))
}

// tasksInLists returns what stands under a name whose tasks are in lists, and is an error, which says what to do instead, if it works a
// topic, queues of asynq or units.
func tasksInLists(ctx context.Context, client redis.UniversalClient, name, ofATopic, ofQueues, ofUnits string) (partition.Config, error) {
	if err := listsOnly(ctx, client, name, ofATopic, ofQueues); err != nil {
		return partition.Config{}, err
	}
	cfg, err := redisconfig.Read(ctx, client, name)
	if err != nil {
		return cfg, err
	}
	kind, err := redisconfig.KindOf(ctx, client, name)
	switch {
	case err != nil:
		return cfg, err
	case kind == redisconfig.Topic:
		return cfg, exit.With(exit.Config, fmt.Errorf("%s works a topic of Kafka: %s", name, ofATopic))
	case kind == redisconfig.Units:
		return cfg, exit.With(exit.Config, fmt.Errorf("%s has units of work, which are no tasks: %s", name, ofUnits))
	}
	return cfg, nil
}

// list prints the dead letters of a topic.
func (d *deadTopic) list(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, name string, limit int, asJSON bool) error {
	cfg, err := d.config(name)
	if err != nil {
		return err
	}
	l := newLetterList(cmd, limit, asJSON, true)
	l.none = fmt.Sprintf("no dead letters of %s on %s", name, cmp.Or(cfg.DeadTopic, cfg.Topic+".dead"))
	err = l.end(kafkasource.DeadLetters(ctx, name, cfg, func(r *kgo.Record) bool { return l.add(letterOf(r)) }))
	if err == nil && l.n == 0 {
		doubt(ctx, client, cmd, name)
	}
	return err
}

// pick returns the dead letters of a topic that wanted names.
func (d *deadTopic) pick(ctx context.Context, name string, wanted []string) ([]redissource.DeadLetter, error) {
	cfg, err := d.config(name)
	if err != nil {
		return nil, err
	}
	return pickOf(name, wanted, false, func(each func(redissource.DeadLetter) bool) error {
		return kafkasource.DeadLetters(ctx, name, cfg, func(r *kgo.Record) bool { return each(letterOf(r)) })
	})
}

// doubt says, where nothing was found of a name, that nobody has used it: perhaps a slip of the pen, since
// a topic knows of no names.
func doubt(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, name string) {
	if _, err := redisconfig.Read(ctx, client, name); errors.Is(err, redisconfig.ErrNone) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: nobody has used the name %s in this store (countoff names lists those that are there)\n", cmd.CommandPath(), name)
	}
}

// letterOf reads the record of a dead letter, as a list has it.
func letterOf(r *kgo.Record) redissource.DeadLetter {
	d := redissource.DeadLetter{Partition: partition.ID(r.Partition), Position: r.Offset, Died: r.Timestamp}
	d.Key, d.Payload = string(r.Key), r.Value
	topic := ""
	for _, h := range r.Headers {
		switch v := string(h.Value); h.Key {
		case kafkasource.HeaderID:
			d.ID = v
		case kafkasource.HeaderType:
			d.Type = v
		case kafkasource.HeaderDeadTopic:
			topic = v
		case kafkasource.HeaderDeadPartition:
			p, _ := strconv.ParseInt(v, 10, 32) // whoever wrote it could count
			d.Partition = partition.ID(p)
		case kafkasource.HeaderDeadOffset:
			d.Position, _ = strconv.ParseInt(v, 10, 64)
		case kafkasource.HeaderDeadBorn:
			d.Born, _ = time.Parse(time.RFC3339Nano, v)
		case kafkasource.HeaderDeadReason:
			d.Reason = v
		case kafkasource.HeaderDeadFirstError:
			d.FirstError = v
		case kafkasource.HeaderDeadAttempts:
			d.Attempts, _ = strconv.Atoi(v)
		case kafkasource.HeaderDeadCrashes:
			d.Crashes, _ = strconv.Atoi(v)
		default:
			if d.Headers == nil {
				d.Headers = make(map[string]string)
			}
			d.Headers[h.Key] = v
		}
	}
	if d.ID == "" {
		d.ID = fmt.Sprintf("%s-%v-%d", topic, d.Partition, d.Position)
	}
	return d
}

// take requeues or drops all that is on the dead topic.
func (d *deadTopic) take(ctx context.Context, client redis.UniversalClient, cmd *cobra.Command, name, done string, all func(context.Context, string, kafkasource.Config) (int, error)) error {
	cfg, err := d.config(name)
	if err != nil {
		return err
	}
	n, err := all(ctx, name, cfg)
	fmt.Fprintf(cmd.OutOrStdout(), "%d %s\n", n, done)
	if err == nil && n == 0 {
		doubt(ctx, client, cmd, name)
	}
	return err
}

func requeueTopic(ctx context.Context, name string, cfg kafkasource.Config) (int, error) {
	return kafkasource.Requeue(ctx, name, cfg, nil)
}
