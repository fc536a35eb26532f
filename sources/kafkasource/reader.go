package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/sources"
)

// A reader polls the client for all open streams. What is consumed changes only
// between two polls, by the goroutine that polls: so no record of an ownership that
// has ended, or from before a new one began, can reach a stream.
type reader struct {
	client     *kgo.Client
	topic      string
	buffer     int   // bytes for all streams together
	most, each int32 // bytes of one fetch, and of one partition in it, as configured

	mu        sync.Mutex
	orders    []order
	interrupt context.CancelFunc // ends the poll under way, if one is
	running   bool

	ebbed chan struct{} // holds a value if a buffer that was full is not any more

	// What follows belongs to the goroutine.
	streams map[int32]*stream
	life    string // of the topic that is read; empty: not known
	left    string // the one before it, which does not come back
	brim    []brimming
	since   time.Time // when the wait for those in brim began
}

// A brimming stream is one whose buffer is full, and for which the reader waits.
type brimming struct {
	*stream
	from int // the bytes that were held when the wait began
}

// An order is something to do between two polls.
type order struct {
	do   func()
	done chan struct{} // nil: nobody waits
}

func newReader(client *kgo.Client, cfg *Config) reader {
	return reader{
		client: client, topic: cfg.Topic, buffer: cfg.Buffer,
		most:    client.OptValue(kgo.FetchMaxBytes).(int32),
		each:    client.OptValue(kgo.FetchMaxPartitionBytes).(int32),
		streams: make(map[int32]*stream), interrupt: func() {}, ebbed: make(chan struct{}, 1),
	}
}

// add makes the records of a stream's partition from offset on come to it. A stream
// that had the partition before gets nothing more. Its error is that of ctx: it may be done later.
func (r *reader) add(ctx context.Context, s *stream, offset int64) error {
	p := int32(s.Grant.ID)
	return r.carryOut(ctx, func() {
		r.drop(p)
		r.follow(s.life)
		r.streams[p] = s
		r.bound()
		r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: {p: kgo.NewOffset().At(offset)}})
	})
}

// remove ends what add began. Nothing comes to the stream when it has returned, or, if ctx ends
// first, a little later: before another stream of the partition is added.
func (r *reader) remove(ctx context.Context, s *stream) {
	p := int32(s.Grant.ID)
	_ = r.carryOut(ctx, func() {
		if r.streams[p] != s {
			return
		}
		r.drop(p)
		r.bound()
	})
}

// follow takes in which life of the topic is to be read. The client holds on to the one that it
// knows as long as a partition of it is consumed: streams that have not noticed that it is gone
// are told. It belongs to the goroutine.
func (r *reader) follow(life string) {
	if r.life != "" && life != "" && r.life != life {
		if len(r.streams) > 0 {
			for _, s := range r.streams {
				s.readFailed(kerr.UnknownTopicID)
			}
			r.client.PurgeTopicsFromConsuming(r.topic)
		}
		r.left = r.life
	}
	r.life = life
}

// notice takes in which life of the topic a broker says there is: streams of another are told now. The
// client asks for what is gone several times, with pauses, before it tells. A broker that has not heard
// of the new one yet says nothing new.
func (r *reader) notice(life string) {
	r.order(order{do: func() {
		if life != "" && life != r.left {
			r.follow(life)
		}
	}})
}

// drop stops consuming a partition. A pause would outlive that. It belongs to the
// goroutine.
func (r *reader) drop(p int32) {
	if r.streams[p] == nil {
		return
	}
	r.brim = slices.DeleteFunc(r.brim, func(b brimming) bool { return b.stream == r.streams[p] })
	delete(r.streams, p)
	r.client.RemoveConsumePartitions(map[string][]int32{r.topic: {p}})
	r.client.ResumeFetchPartitions(map[string][]int32{r.topic: {p}})
}

// bound makes a fetch bring no more of a partition than a quarter of what is held of it: see patience.
// It belongs to the goroutine.
func (r *reader) bound() {
	r.client.UpdateFetchMaxBytes(r.most, min(r.each, int32(max(r.share()/4, leastFetched))))
}

// share is how many bytes of one partition are held.
func (r *reader) share() int { return min(r.buffer/max(1, len(r.streams)), mostBuffered) }

// resume goes on with a partition that was paused.
func (r *reader) resume(s *stream) {
	p := int32(s.Grant.ID)
	r.order(order{do: func() {
		if r.streams[p] == s {
			r.client.ResumeFetchPartitions(map[string][]int32{r.topic: {p}})
		}
	}})
}

// carryOut does something between two polls, after all that was to be done before, and waits for it
// until ctx ends: the goroutine may be waiting for a broker.
func (r *reader) carryOut(ctx context.Context, do func()) error {
	done := make(chan struct{})
	r.order(order{do, done})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *reader) order(o order) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.done == nil && !r.running {
		return // nothing is consumed: nothing to resume
	}
	r.orders = append(r.orders, o)
	if !r.running {
		r.running = true
		go r.run()
	} else {
		r.interrupt()
	}
}

// run polls until no stream is left.
func (r *reader) run() {
	for {
		r.mu.Lock()
		orders := r.orders
		r.orders = nil
		ctx, cancel := context.WithCancel(context.Background())
		r.interrupt = cancel
		r.mu.Unlock()
		for _, o := range orders {
			o.do()
			if o.done != nil {
				close(o.done)
			}
		}
		switch {
		case len(r.brim) > 0:
			r.wait(ctx)
		case len(r.streams) > 0:
			r.poll(ctx)
		default:
			// Only so does the client forget a topic that was deleted meanwhile. It waits for
			// the broker, which who stops does not.
			r.client.PurgeTopicsFromConsuming(r.topic)
		}
		cancel()
		r.mu.Lock()
		over := len(r.streams) == 0 && len(r.orders) == 0
		r.running = !over
		r.mu.Unlock()
		if over {
			return
		}
	}
}

// poll waits for records and gives them to the streams.
func (r *reader) poll(ctx context.Context) {
	fetches := r.client.PollFetches(ctx)
	var paused []int32
	for _, fetch := range fetches {
		for i := range fetch.Topics {
			paused = r.give(&fetch.Topics[i], paused)
		}
	}
	fetches.EachError(func(_ string, p int32, err error) {
		switch s := r.streams[p]; {
		case s != nil:
			// The client would ask again at once.
			paused = append(paused, p)
			s.paused()
			s.readFailed(err)
		case p < 0 && ctx.Err() == nil:
			// Of the whole topic, or of an answer that was larger than the client takes: it
			// pauses by itself before it asks again.
			for _, s := range r.streams {
				s.readFailed(err)
			}
		}
	})
	if fetches.IsClientClosed() {
		<-ctx.Done() // there is nothing to poll, only streams to be taken out
	}
	r.pause(paused)
	r.since = time.Now()
}

func (r *reader) pause(partitions []int32) {
	if len(partitions) > 0 {
		r.client.PauseFetchPartitions(map[string][]int32{r.topic: partitions})
	}
}

// wait polls nothing for a moment, so that full buffers are taken from, and pauses those that are not, or
// not fast enough. Meanwhile the client fetches once from each broker, of all partitions, and keeps that.
// It returns early if there is something to do between two polls, and is called again after that.
func (r *reader) wait(ctx context.Context) {
	until := glance
	if time.Since(r.since) >= glance {
		until = patience
	}
	timer := time.NewTimer(time.Until(r.since.Add(until)))
	defer timer.Stop()
	select {
	case <-r.ebbed:
	case <-timer.C:
	case <-ctx.Done():
	}
	passed := time.Since(r.since)
	var paused []int32
	r.brim = slices.DeleteFunc(r.brim, func(b brimming) bool {
		wait, pause := b.judge(b.from, passed)
		if pause {
			paused = append(paused, int32(b.Grant.ID))
		}
		return !wait
	})
	r.pause(paused)
}

// ebb takes in that a buffer that was full is not any more.
func (r *reader) ebb() {
	select {
	case r.ebbed <- struct{}{}:
	default:
	}
}

// give gives records to the streams, notes which of them are full, and adds to paused what is to be
// paused at once. A client that did not know the topic takes the one that it finds: that may have been
// made anew since the stream's position was looked at, and have records there.
func (r *reader) give(t *kgo.FetchTopic, paused []int32) []int32 {
	life, share := lifeOf(t.TopicID), r.share()
	for i := range t.Partitions {
		f := &t.Partitions[i]
		s := r.streams[f.Partition]
		if s == nil || len(f.Records) == 0 {
			continue
		}
		if s.life != "" && life != "" && s.life != life {
			s.readFailed(kerr.UnknownTopicID)
			paused = append(paused, f.Partition)
			continue
		}
		switch full, pause := s.arrive(f, share); {
		case pause:
			paused = append(paused, f.Partition)
		case full > 0:
			r.brim = append(r.brim, brimming{s, full})
		}
	}
	return paused
}

// final reports whether the client reads the partition no further, whatever it is told, until it
// is added anew: a batch is larger than it takes, or the client is closed.
func final(err error) bool {
	var large *kgo.ErrDecompressTooLarge
	return errors.As(err, &large) || errors.Is(err, kgo.ErrClientClosed)
}

// gone reports whether the topic has not got what the stream was reading any more.
// The stream is lost then, and who opens the partition next looks where it goes on.
func gone(err error) bool {
	var cut *kgo.ErrDataLoss
	return errors.Is(err, kerr.OffsetOutOfRange) || errors.Is(err, kerr.UnknownTopicID) ||
		errors.Is(err, kerr.UnknownTopicOrPartition) || errors.As(err, &cut)
}

// A goneError is sources.ErrForgot of a stream whose topic has not got what it was reading any more.
type goneError struct {
	topic string
	err   error // what the broker says
}

func (e *goneError) Error() string {
	return fmt.Sprintf("the topic %s has not got any more what is to be read next: %v; who opens the partition now looks where it goes on", e.topic, e.err)
}

func (e *goneError) Is(target error) bool { return target == sources.ErrForgot }

func (e *goneError) Unwrap() error { return e.err }
