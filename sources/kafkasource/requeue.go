package kafkasource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/countoff/countoff/partition"
)

// Requeue writes the dead letters of name, which works Topic, back to the partitions that they
// came from, oldest first, so that those of a key keep their order, and returns how many. If
// Topic does not have that partition any more they go to the one of their key. It ends with the
// letters that were there when it began.
//
// match says which letters to requeue, nil all of them; those that it refuses are dropped. So is
// what cannot be run again, because it is no dead letter of ours or its record was gone before it
// died: of that the error tells, after the rest was done. Letters of other names and topics are
// left to those. Other names that work Topic pass over what is requeued; a consumer of another
// kind sees it.
//
// Of cfg it uses Topic, DeadTopic and Options. How far it came is committed to the group
// DeadTopic + "." + name + ".requeued", for good, also when a letter could not be written: called
// again it goes on from there. After a crash it may write some a second time, and waits for some
// seconds, since only one of all that requeue or drop letters of name may do so at a time: the others
// are refused. The records get the present time, since retention would take them away otherwise, and
// keep their id.
func Requeue(ctx context.Context, name string, cfg Config, match func(*kgo.Record) bool) (n int, err error) {
	foreign := 0
	var first error // why the first of them is
	err = walk(ctx, "requeue", name, cfg, true, func(q *walker, r *kgo.Record) error {
		if match != nil && !match(r) {
			return nil
		}
		back, err := q.back(r)
		if err != nil {
			if foreign++; foreign == 1 {
				first = fmt.Errorf("%s: partition %d, offset %d: %w", r.Topic, r.Partition, r.Offset, err)
			}
			return nil
		}
		if err := q.place(ctx, back); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		sent, end := outlasting(ctx)
		defer end()
		// One after the other: a batch could be larger than the topic allows.
		if err := q.client.ProduceSync(sent, back).FirstErr(); err != nil {
			return err
		}
		n++
		return nil
	})
	if first != nil {
		err = errors.Join(err, fmt.Errorf("kafkasource: requeue passed over %d that cannot be run again, first in %w", foreign, first))
	}
	return n, err
}

// Drop passes over the dead letters of name that are there, and returns how many: they are
// neither listed nor requeued any more. What is on the topic stays for as long as its
// retention says. Of cfg it uses what Requeue does.
func Drop(ctx context.Context, name string, cfg Config) (n int, err error) {
	err = walk(ctx, "drop", name, cfg, true, func(*walker, *kgo.Record) error {
		n++
		return nil
	})
	return n, err
}

// DeadLetters gives each the dead letters of name that were neither requeued nor dropped, by
// partition, oldest first, until it returns false. Of cfg it uses what Requeue does. A
// dead topic that is not there has none, if Topic is: else one of the names is wrong.
func DeadLetters(ctx context.Context, name string, cfg Config, each func(*kgo.Record) bool) error {
	err := walk(ctx, "dead letters", name, cfg, false, func(_ *walker, r *kgo.Record) error {
		if !each(r) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) || errors.Is(err, errNoGrave) {
		err = nil
	}
	return err
}

var (
	errEnough = errors.New("enough")
	// errNoGrave says that Topic has no dead topic yet: the first letter makes it.
	errNoGrave = errors.New("no letter was ever written there")
)

// walk does something with each letter that was not passed yet, up to those that are there
// now. With pass, what it came past is passed.
func walk(ctx context.Context, what, name string, cfg Config, pass bool, do func(*walker, *kgo.Record) error) error {
	return newWalker(name, cfg, pass, do).walk(ctx, what)
}

func newWalker(name string, cfg Config, pass bool, do func(*walker, *kgo.Record) error) *walker {
	cfg = cfg.withDefaults(name)
	return &walker{name: name, cfg: cfg, group: cfg.DeadTopic + "." + name + ".requeued", pass: pass, do: do, claim: claim{every: claimEvery, pause: pause}}
}

func (w *walker) walk(ctx context.Context, what string) (err error) {
	if err := errors.Join(partition.CheckName(w.name), w.cfg.validate()); err != nil {
		return err
	}
	if w.client, err = kgo.NewClient(w.cfg.options()...); err != nil {
		return fmt.Errorf("kafkasource: %w", err)
	}
	defer w.client.Close()
	if err := consumes(w.client); err != nil {
		return err
	}
	if w.keeper, err = kgo.NewClient(append(w.cfg.options(), kgo.MaxVersions(retaining()))...); err != nil {
		return fmt.Errorf("kafkasource: %w", err)
	}
	defer w.keeper.Close()
	w.admin = kadm.NewClient(w.client)
	if err := w.run(ctx); err != nil {
		return fmt.Errorf("kafkasource: %s of %s: %w", what, w.cfg.DeadTopic, w.explain(err))
	}
	return nil
}

// explain adds to an error of the broker what to do about it: the rights are not those of a peer.
func (w *walker) explain(err error) error {
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return fmt.Errorf("%w (the user lacks READ on the group %s, in which it is kept how far letters were passed)", err, w.group)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("%w (the user lacks rights: it needs READ and DESCRIBE on the dead topic, and to requeue WRITE and DESCRIBE on the topic %s)", err, w.cfg.Topic)
	}
	return explain(err)
}

type walker struct {
	client *kgo.Client
	keeper *kgo.Client // commits how far it came; see retaining
	admin  *kadm.Client
	name   string
	cfg    Config
	group  string // keeps which letters were passed; each name has its own: what one has passed another has not
	pass   bool
	do     func(*walker, *kgo.Record) error
	total  int // partitions of Topic; 0: not asked yet
	claim  claim
}

func (w *walker) run(ctx context.Context) error {
	if err := reach(ctx, w.client); err != nil {
		return err
	}
	starts, err := w.admin.ListStartOffsets(ctx, w.cfg.DeadTopic)
	if err != nil {
		return err
	}
	ends, err := w.admin.ListEndOffsets(ctx, w.cfg.DeadTopic)
	if err == nil {
		err = ends.Error()
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return w.noGrave(ctx, err)
	}
	if err != nil {
		return err
	}
	all := ends.Offsets().Sorted()
	if w.pass {
		if err := w.vacant(ctx); err != nil {
			return err
		}
	}
	known, err := w.known(ctx)
	if err != nil {
		return err
	}
	from := func(p int32) int64 {
		start, _ := starts.Lookup(w.cfg.DeadTopic, p)
		o, _ := known.Lookup(w.cfg.DeadTopic, p)
		return max(0, start.Offset, o.At)
	}
	if err := starts.Error(); err != nil {
		return err
	}
	if !w.pass {
		return w.partitions(ctx, all, from)
	}
	if !slices.ContainsFunc(all, func(end kadm.Offset) bool { return from(end.Partition) < end.At }) {
		return nil
	}
	held, release, err := w.hold(ctx, from(claimPartition))
	if err != nil {
		return err
	}
	err = errors.Join(w.partitions(held, all, from), release())
	if errors.Is(err, errClaimed) || errors.Is(context.Cause(held), errClaimed) {
		return errClaimed // which has ended it
	}
	return err
}

// partitions goes through all of them.
func (w *walker) partitions(ctx context.Context, ends []kadm.Offset, from func(int32) int64) error {
	for _, end := range ends {
		if err := w.partition(ctx, end.Partition, from(end.Partition), end.At); err != nil {
			return err
		}
	}
	return nil
}

// known returns what the group has: nothing if there is no such group.
func (w *walker) known(ctx context.Context) (kadm.OffsetResponses, error) {
	known, err := w.admin.FetchOffsetsForTopics(ctx, w.group, w.cfg.DeadTopic)
	if errors.Is(err, kerr.GroupIDNotFound) {
		err = nil
	}
	return known, err
}

// noGrave is what it means that there is no dead topic: nothing, unless Topic is not there either.
func (w *walker) noGrave(ctx context.Context, err error) error {
	topics, asked := w.admin.ListTopics(ctx, w.cfg.Topic)
	if asked == nil && errors.Is(topics.Error(), kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("there is no topic %s either: %w", w.cfg.Topic, err)
	}
	return fmt.Errorf("%w: %w", errNoGrave, err)
}

// partition goes through one partition between two offsets.
func (w *walker) partition(ctx context.Context, p int32, from, end int64) error {
	if from >= end {
		return nil
	}
	topic := w.cfg.DeadTopic
	w.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().At(from)}})
	defer w.client.RemoveConsumePartitions(map[string][]int32{topic: {p}})
	for from < end {
		fetches := w.client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		var failed error
		for _, r := range fetches.Records() {
			if r.Offset >= end {
				from = end
				break
			}
			if failed = ctx.Err(); failed != nil { // the claim is another's: the rest is for that one
				break
			}
			if !r.Attrs.IsControl() && w.ours(r) {
				if err := w.do(w, r); err != nil {
					failed = fmt.Errorf("partition %d, offset %d: %w", p, r.Offset, err)
					break
				}
			}
			from = r.Offset + 1
		}
		if w.pass {
			failed = errors.Join(failed, w.keep(ctx, p, from))
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

// keep keeps how far a walk came in a partition. Where that fails the error says what it means: the one of the broker
// alone, as of one that hangs, reads as if nothing had been done.
func (w *walker) keep(ctx context.Context, p int32, upto int64) error {
	err := w.came(ctx, p, upto)
	if err == nil || errors.Is(err, errClaimed) {
		return err
	}
	return fmt.Errorf("that partition %d was gone through up to offset %d is not kept: letters that were requeued or dropped since the last one that is are there again, and who requeues next writes them: %w", p, upto, err)
}

// ours reports whether a letter is of the name and of Topic. So may be what does not say: it is no
// letter, and to be told.
func (w *walker) ours(l *kgo.Record) bool {
	for _, h := range l.Headers {
		if h.Key == HeaderDeadName && string(h.Value) != w.name || h.Key == HeaderDeadTopic && string(h.Value) != w.cfg.Topic {
			return false
		}
	}
	return true
}

// place puts a record whose partition is gone, as the topic was made anew with fewer, into that of
// its key, where those go that come now.
func (w *walker) place(ctx context.Context, r *kgo.Record) error {
	if w.total == 0 {
		topics, err := w.admin.ListTopics(ctx, w.cfg.Topic)
		if err == nil {
			err = topics.Error()
		}
		if err != nil {
			return fmt.Errorf("topic %s: %w", w.cfg.Topic, err)
		}
		w.total = len(topics[w.cfg.Topic].Partitions)
	}
	if int(r.Partition) < w.total {
		return nil
	}
	if len(r.Key) == 0 {
		r.Partition %= int32(w.total)
		return nil
	}
	id, err := partition.Murmur2.Of(string(r.Key), w.total)
	r.Partition = int32(id)
	return err
}

// passed keeps that a partition was gone through up to an offset: also if ctx has ended,
// since what was written would be written once more. It is kept for good, as letters are, where the
// broker can be asked for that.
func (w *walker) passed(ctx context.Context, p int32, upto int64) error {
	ctx, cancel := passing(ctx)
	defer cancel()
	w.claim.mu.Lock()
	defer w.claim.mu.Unlock()
	if w.claim.lost {
		return nil // it is for the other one to say
	}
	upto, beside := w.claim.beside(p, upto)
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.RetentionTimeMillis = w.group, forGood.Milliseconds()
	at := kmsg.NewOffsetCommitRequestTopicPartition()
	at.Partition, at.Offset, at.Metadata = p, upto, &beside
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: w.cfg.DeadTopic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{at}}}
	reply, err := req.RequestWith(ctx, w.keeper)
	if err != nil {
		var at kadm.Offsets
		at.Add(kadm.Offset{Topic: w.cfg.DeadTopic, Partition: p, At: upto, LeaderEpoch: -1, Metadata: beside})
		done, err := w.admin.CommitOffsets(ctx, w.group, at)
		return cmp.Or(err, done.Error())
	}
	if len(reply.Topics) != 1 || len(reply.Topics[0].Partitions) != 1 {
		return errShort
	}
	return kerr.ErrorForCode(reply.Topics[0].Partitions[0].ErrorCode)
}

// forGood is how long it is kept how far a walk came: brokers forget what a group without members has
// committed after a week, and letters that were dropped would be there again.
const forGood = 100 * 365 * 24 * time.Hour

// retaining are the versions in which a commit says how long it is kept.
func retaining() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.OffsetCommit), 4)
	return v
}

// passTimeout bounds how long it takes to keep how far a walk came, and to hear whether the letter that is on its way
// when somebody interrupts the walk was written.
const passTimeout = 5 * time.Second

// passing goes on when ctx has ended, for that long.
func passing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), passTimeout)
}

// outlasting ends passTimeout after ctx: a letter that is on its way is written, or is not, and the next walk would
// write it once more if this one did not wait for the answer. Whoever calls it calls end.
func outlasting(ctx context.Context) (late context.Context, end func()) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(passTimeout)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-late.Done():
		}
	})
	return late, func() {
		stop()
		cancel()
	}
}

// back makes the record of a letter as it was when it was alive.
func (w *walker) back(l *kgo.Record) (*kgo.Record, error) {
	r := &kgo.Record{Topic: w.cfg.Topic, Key: l.Key, Value: l.Value, Headers: Alive(l.Headers), Timestamp: time.Now(), Partition: -1}
	var where struct{ topic, offset string }
	id := false
	for _, h := range l.Headers {
		switch h.Key {
		case HeaderDeadTopic:
			where.topic = string(h.Value)
		case HeaderDeadPartition:
			p, err := strconv.ParseInt(string(h.Value), 10, 32)
			if err != nil {
				return nil, fmt.Errorf("header %s: %w", h.Key, err)
			}
			r.Partition = int32(p)
		case HeaderDeadOffset:
			where.offset = string(h.Value)
		case HeaderDeadGone:
			return nil, errors.New("its record was not there any more when it died")
		case HeaderID:
			id = len(h.Value) > 0
		}
	}
	if r.Partition < 0 {
		return nil, fmt.Errorf("no header %s", HeaderDeadPartition)
	}
	if !id {
		name := where.topic + "-" + strconv.Itoa(int(r.Partition)) + "-" + where.offset
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderID, Value: []byte(name)})
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderFor, Value: []byte(w.name)})
	return r, nil
}
