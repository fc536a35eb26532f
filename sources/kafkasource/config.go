package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// A Place is where to read a partition from when nothing else says so.
type Place string

// The places.
const (
	Earliest Place = "earliest" // the oldest record there is
	Latest   Place = "latest"   // what comes from now on
	Fail     Place = "fail"     // nowhere: a person decides
)

// NoGroup as Config.Group says that nothing is mirrored.
const NoGroup = "-"

// Names of the headers of a record that make it a task, and of those of a dead letter.
const (
	HeaderID   = "countoff-id"   // Task.ID; default: topic-partition-offset
	HeaderType = "countoff-type" // Task.Type; default: none
	HeaderFor  = "countoff-for"  // the name that it was requeued for: others of the topic pass over it

	HeaderDeadName       = "countoff-dead-name" // whose it is: several names may work one topic
	HeaderDeadTopic      = "countoff-dead-topic"
	HeaderDeadPartition  = "countoff-dead-partition"
	HeaderDeadOffset     = "countoff-dead-offset"
	HeaderDeadBorn       = "countoff-dead-born" // the record's time, RFC 3339; empty if it has none
	HeaderDeadReason     = "countoff-dead-reason"
	HeaderDeadAttempts   = "countoff-dead-attempts"
	HeaderDeadCrashes    = "countoff-dead-crashes"
	HeaderDeadFirstError = "countoff-dead-first-error"
	HeaderDeadGone       = "countoff-dead-gone" // the record was not there any more: nothing can be run again
)

// A Config says where the tasks are. Topic and Options (at least the brokers) must be
// given.
type Config struct {
	// Topic whose records are the tasks.
	Topic string
	// Options of the client: brokers, TLS, SASL; see [Options] for a URL. What
	// concerns consuming and partitioning is set by the source; a group or topics of
	// the client's own are refused, and so is what keeps dead letters back, sends them
	// elsewhere or does not wait for the broker's word.
	Options []kgo.Opt
	// Group is the Kafka group that the lowest open positions are committed to, for
	// tools that show lag. No consumer may subscribe with it, and no other name have it: it
	// would begin where that one stands if the store has lost everything. Default: the
	// name; NoGroup: none.
	Group string
	// Start is where a partition begins that nobody has opened and that the group does not know:
	// Earliest or Latest. Default Earliest. Partitions that are added after the name has begun
	// are read from their beginning; they are those that the group does not know although it
	// knows others. Without a group, and where the store itself commits to it, only a peer that
	// was there when they were added can tell them.
	Start Place
	// OutOfRange says what becomes of a partition whose stored position the topic does not have,
	// because its retention has overtaken us or it was made anew: Earliest, Latest, or Fail,
	// which does not open it again until a person has decided. Default Fail.
	OutOfRange Place
	// DeadTopic gets the dead letters, each in the partition of its number. Topics may share one:
	// each letter says which it is of. If it does not exist and the broker lets us, it is created
	// with as many partitions as Topic. Default: Topic + ".dead".
	DeadTopic string
	// Window is the most records of a partition between the first that is not
	// finished and the last that was taken in. Default 2,048, at most 65,536.
	Window int
	// Buffer is about how many bytes this peer reads ahead. Each open partition has
	// an equal share of it, 4 MiB at most; one whose share is full, and does not get room
	// within 50 ms, is paused, and the others go on. Default 64 MiB.
	Buffer int
	// CrashLimit is how many crashes of its peer a task may be charged with; the
	// last of them makes it a dead letter. Default 3.
	CrashLimit int
	// Check is how long a partition goes without a word to the store: an idle owner
	// asks it for the fence then. Use half the lease. Default 5 s.
	Check time.Duration
	// Mirror is how often the group is committed to, if there is news. Default 2 s.
	Mirror time.Duration
	// Look is how often the topic is asked whether it has grown, and where its
	// partitions end, which is kept for people to see. Default 10 s.
	Look time.Duration
	// Grown is called with each Look that finds more partitions than the first one did. It tells
	// the ledger, which may forget the number in a fail-over and so is told it any number of
	// times. Default: nobody is told, and new partitions are worked on after the peers were
	// started again.
	Grown func(ctx context.Context, total int) error
	// Stuck is called when a partition is read no further because too many tasks (eight windows,
	// 8,192 at most) wait behind one key that does not get done for a second, and again when that is
	// over. It must not block. Default: nobody is told.
	Stuck func(Stuck)
	// Buried is called when tasks became dead letters that no handler was given. It must
	// not block. Default: nobody is told.
	Buried func(sources.Buried)
	// Warn is told what deserves a look but stops nothing: a commit to the group that failed, a
	// partition that went on elsewhere (*OutOfRangeError). It must not block. Default: nobody is
	// told.
	Warn func(error)
}

func (c Config) withDefaults(name string) Config {
	if c.Group == "" {
		c.Group = name
	}
	if c.Start == "" {
		c.Start = Earliest
	}
	if c.OutOfRange == "" {
		c.OutOfRange = Fail
	}
	if c.DeadTopic == "" {
		c.DeadTopic = deadOf(c.Topic)
	}
	for _, d := range []struct {
		n *int
		d int
	}{{&c.Window, 2048}, {&c.Buffer, 64 << 20}, {&c.CrashLimit, 3}} {
		if *d.n == 0 {
			*d.n = d.d
		}
	}
	for _, d := range []struct {
		d *time.Duration
		s time.Duration
	}{{&c.Check, 5 * time.Second}, {&c.Mirror, 2 * time.Second}, {&c.Look, 10 * time.Second}} {
		if *d.d == 0 {
			*d.d = d.s
		}
	}
	return c
}

// deadOf is where the dead letters of a topic are unless somebody says otherwise.
func deadOf(topic string) string { return topic + ".dead" }

// Validate says all that is wrong with c, after defaults, and with the name of its tasks.
func (c Config) Validate(name string) error {
	return errors.Join(partition.CheckName(name), c.withDefaults(name).validate())
}

func (c Config) validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("kafkasource: "+format, args...)) }
	if c.Topic == "" {
		wrong("no topic")
	}
	if c.DeadTopic == c.Topic {
		wrong("DeadTopic %s is the topic itself", c.DeadTopic)
	}
	if len(c.Options) == 0 {
		wrong("no Options: give at least the brokers")
	}
	if i := slices.Index(c.Options, nil); i >= 0 {
		wrong("Options[%d] is nil", i)
	}
	if c.Start != Earliest && c.Start != Latest {
		wrong("Start %q: want %q or %q", c.Start, Earliest, Latest)
	}
	if c.OutOfRange != Earliest && c.OutOfRange != Latest && c.OutOfRange != Fail {
		wrong("OutOfRange %q: want %q, %q or %q", c.OutOfRange, Earliest, Latest, Fail)
	}
	if c.Window < 1 || c.Window > 1<<16 {
		wrong("Window %d: want 1 to %d", c.Window, 1<<16)
	}
	if c.Buffer < 1 {
		wrong("Buffer %d: want 1 or more", c.Buffer)
	}
	if c.CrashLimit < 1 {
		wrong("CrashLimit %d: want 1 or more", c.CrashLimit)
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"Check", c.Check}, {"Mirror", c.Mirror}, {"Look", c.Look}} {
		if f.d < 0 {
			wrong("%s %v: must not be negative", f.name, f.d)
		}
	}
	return errors.Join(errs...)
}

// options are those of the client. A fetch waits no longer than fetchWait, since a
// partition that comes, or goes on after a pause, waits for the one under way: where
// others are empty that is what bounds how fast it is read.
func (c Config) options() []kgo.Opt {
	return slices.Concat([]kgo.Opt{
		kgo.ClientID("countoff"),
		kgo.FetchMaxWait(fetchWait),
		kgo.MetadataMinAge(metadataAge),
		kgo.FetchMaxPartitionBytes(int32(min(max(c.Buffer, leastFetched), mostFetched))),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ProducerLinger(0),
		// A letter is no larger than its record, is not waited for against its ctx, and is as
		// large as the dead topic's own limit says.
		kgo.ProducerBatchCompression(kgo.ZstdCompression(), kgo.SnappyCompression()),
		kgo.AllowIdempotentProduceCancellation(),
		kgo.ProducerBatchMaxBytes(64 << 20),
	}, c.Options, []kgo.Opt{
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.KeepControlRecords(), // they are positions as well: the base passes them
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	})
}

// consumes returns an error if the caller's options have the client consume by itself: it takes
// no partition from us then, and tells nobody; or if they have it keep letters until it is told,
// send them to a topic of its own, or take them for written although no broker said so.
func consumes(client *kgo.Client) error {
	group, _ := client.OptValue(kgo.ConsumerGroup).(string)
	topics, _ := client.OptValue(kgo.ConsumeTopics).([]string)
	regex, _ := client.OptValue(kgo.ConsumeRegex).(bool)
	flushed, _ := client.OptValue(kgo.ManualFlushing).(bool)
	elsewhere, _ := client.OptValue(kgo.DefaultProduceTopicAlways).(bool)
	acks, _ := client.OptValue(kgo.RequiredAcks).(kgo.Acks)
	for _, o := range []struct {
		is   bool
		name string
	}{
		{group != "", "ConsumerGroup"}, {len(topics) > 0, "ConsumeTopics"}, {regex, "ConsumeRegex"},
		{flushed, "ManualFlushing"}, {elsewhere, "DefaultProduceTopicAlways"}, {acks == kgo.NoAck(), "NoAck"},
	} {
		if o.is {
			return fmt.Errorf("kafkasource: Options must not have kgo.%s: the source says what is consumed, and who by, and when, where and how surely letters are sent", o.name)
		}
	}
	return nil
}

const (
	fetchWait   = 100 * time.Millisecond
	metadataAge = 250 * time.Millisecond
	// mostFetched and leastFetched are how much of one partition is fetched at once.
	mostFetched, leastFetched = 1 << 20, 1 << 16
	// mostBuffered is how much of one partition is buffered at most.
	mostBuffered = 4 << 20
)

// An OutOfRangeError says that the topic does not have the position that a partition
// was to be read from: its retention has removed it, or it was deleted and made anew.
// Records were lost to this name or come again, by the policy.
type OutOfRangeError struct {
	Topic      string
	Grant      partition.Grant
	Base       int64 // the stored position
	Start, End int64 // what the topic has
	Recreated  bool  // it is another topic of the same name
	Policy     Place
}

func (e *OutOfRangeError) Error() string {
	what := fmt.Sprintf("%s/%v: the stored position %d is out of range: the topic has %d to %d",
		e.Topic, e.Grant.ID, e.Base, e.Start, e.End)
	if e.Recreated {
		what = fmt.Sprintf("%s/%v: the topic was deleted and made anew since position %d was stored, or these are the brokers of another cluster: it has %d to %d",
			e.Topic, e.Grant.ID, e.Base, e.Start, e.End)
	}
	if e.Policy == Fail {
		return what + `; it is read no further: set OutOfRange to "earliest" or "latest" (see docs/kafka.md)`
	}
	return fmt.Sprintf("%s; it goes on at the %s", what, e.Policy)
}
