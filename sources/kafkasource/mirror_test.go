package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// first waits until a partition that nobody had opened is committed for the first time, which is at once.
func (s *stage) first(src *Source, id partition.ID) {
	s.Helper()
	s.until("the first commit", func() bool {
		src.mirror.mu.Lock()
		defer src.mirror.mu.Unlock()
		_, said := src.mirror.last[int32(id)]
		return said
	})
}

// An owner that was paused does not say how far it had come before it knows that it is
// still the owner: its successor may be far ahead.
func TestMirrorOfAPausedOwner(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 1)
	src := s.source(Config{Mirror: time.Hour, Check: time.Hour})
	st := s.open(src, 0)
	s.first(src, 0)
	s.settle(st, sources.Done, s.take(st, 1)...)
	if news := src.mirror.news(); len(news) != 1 {
		t.Errorf("an owner says %v, want its partition", news)
	}
	st.Mu.Lock()
	st.said = time.Now().Add(-3 * time.Hour)
	st.Mu.Unlock()
	if news := src.mirror.news(); len(news) != 0 {
		t.Errorf("an owner that has not asked for long says %v", news)
	}
	st.Mu.Lock()
	st.said = time.Now()
	st.Lose(sources.ErrFenced)
	st.Mu.Unlock()
	if news := src.mirror.news(); len(news) != 0 {
		t.Errorf("an owner that was followed says %v", news)
	}
	s.close(st)
	if at := s.committed(s.name, 0); at != 0 {
		t.Errorf("the last word of an owner that was followed is %d", at)
	}
}

// An owner repeats itself for a while, since what its predecessor said last may come
// after it; then only news are told.
func TestMirrorRepeatsAtFirst(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	src := s.source(Config{Mirror: time.Hour, Check: time.Hour})
	st := s.open(src, 0)
	s.first(src, 0)
	src.mirror.commit(src.mirror.news())
	if news := src.mirror.news(); len(news) != 1 {
		t.Errorf("a new owner that has said something says %v, want it again", news)
	}
	st.opened = st.opened.Add(-mirrorYoung)
	if news := src.mirror.news(); len(news) != 0 {
		t.Errorf("an owner with nothing new says %v", news)
	}
	src.mirror.mu.Lock()
	last := src.mirror.last[0]
	src.mirror.last[0] = committed{last.word, last.when.Add(-mirrorAge)}
	src.mirror.mu.Unlock()
	if news := src.mirror.news(); len(news) != 1 {
		t.Errorf("an owner with nothing new for long says %v, want it again, so that no broker forgets", news)
	}
	src.mirror.commit(src.mirror.news())
	s.push(0, "t", 1)
	s.settle(st, sources.Done, s.take(st, 1)...)
	if news := src.mirror.news(); len(news) != 1 || news[0].at != 1 {
		t.Errorf("an owner that has come to 1 says %v", news)
	}
}

// Who leaves says at once how far it has come, whether others stay or it is the last.
func TestMirrorOfWhoLeaves(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	src := s.source(Config{Mirror: time.Hour})
	for id := range partition.ID(2) {
		s.push(id, "t", 1)
	}
	first, last := s.open(src, 0), s.open(src, 1)
	s.settle(first, sources.Done, s.take(first, 1)...)
	s.close(first)
	s.until("the last word of the first", func() bool { return s.committed(s.name, 0) == 1 })
	s.settle(last, sources.Done, s.take(last, 1)...)
	s.close(last)
	if at := s.committed(s.name, 1); at != 1 {
		t.Errorf("the last word of the last is %d, want 1", at)
	}
}

// What the group refuses is told, and said again; where nothing is mirrored no group gets
// anything.
func TestMirrorThatIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	var warned []error
	src := s.source(Config{Mirror: time.Hour, Check: time.Hour, Warn: func(err error) { warned = append(warned, err) }})
	s.push(0, "t", 1)
	st := s.open(src, 0)
	s.first(src, 0)
	s.settle(st, sources.Done, s.take(st, 1)...)
	st.opened = st.opened.Add(-mirrorYoung)
	member := s.broker.Client(kgo.ConsumerGroup(s.name), kgo.ConsumeTopics(s.topic))
	polled := make(chan struct{})
	ctx, cancel := context.WithCancel(s.soon())
	go func() {
		defer close(polled)
		member.PollFetches(ctx)
	}()
	s.until("a consumer has the group", func() bool {
		_, generation := member.GroupMetadata()
		return generation > 0
	})
	src.mirror.commit(src.mirror.news())
	if len(warned) != 1 || !strings.Contains(warned[0].Error(), "UNKNOWN_MEMBER_ID") ||
		!strings.Contains(warned[0].Error(), "stop it") {
		t.Errorf("warned of %v, want what the group says", warned)
	}
	if news := src.mirror.news(); len(news) != 1 {
		t.Errorf("after a commit that was refused it says %v, want it again", news)
	}
	cancel()
	<-polled
	member.Close()
	s.close(st)

	s.source(Config{Group: NoGroup}).mirror.commit(map[int32]word{0: {at: 1}})
	if at := s.committed(NoGroup, 0); at != -1 {
		t.Errorf("a group %q has %d", NoGroup, at)
	}
}

// A group that another consumer worked with since is farther than the store knows: what lies between
// runs again, and who takes it up says so, once.
func TestAGroupThatWentOn(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	for id := range partition.ID(3) {
		s.push(id, "t", 4)
		s.worked(s.source(Config{Mirror: time.Hour}), id, 2)
	}
	var elsewhere kadm.Offsets
	elsewhere.AddOffset(s.topic, 0, 3, -1)
	elsewhere.AddOffset(s.topic, 1, 2, -1)
	elsewhere.AddOffset(s.topic, 2, 4, -1)
	if err := s.admin.CommitAllOffsets(s.soon(), s.name, elsewhere); err != nil {
		t.Fatal(err)
	}
	var warned []error
	src := s.source(Config{Mirror: time.Hour, Warn: func(err error) { warned = append(warned, err) }})
	var open []*stream
	for id := range partition.ID(3) {
		open = append(open, s.open(src, id))
	}
	for range 2 { // a new owner repeats what it says
		src.mirror.commit(src.mirror.news())
	}
	if len(warned) != 1 || !strings.Contains(warned[0].Error(), "farther than the store knows, in partition 0 at 3 instead of 2, 2 at 4 instead of 2:") ||
		!strings.Contains(warned[0].Error(), "countoff destroy "+s.name) {
		t.Errorf("warned of %v, want of the two partitions, once", warned)
	}
	for _, st := range open {
		s.close(st)
	}
	if len(warned) != 1 {
		t.Errorf("warned of %v, want nothing more", warned)
	}
}

// Who takes up a group that another consumer worked with is told where the store had the partition then, although by its
// first commit it stands where the group does, or beyond; also if it has had the partition before.
func TestAGroupThatWentOnAndWasOvertaken(t *testing.T) {
	t.Parallel()
	const partitions = 5
	s := newStage(t, partitions)
	warned := make(chan error, 16)
	src := s.source(Config{Mirror: time.Hour, Check: time.Hour, Warn: func(err error) { warned <- err }})
	src.mirror.patience = testPatience
	for id := range partition.ID(partitions) {
		s.push(id, "t", 6)
		s.worked(src, id, 2)
	}
	other := s.source(Config{Mirror: time.Hour})
	other.mirror.patience = testPatience
	s.worked(other, 4, 2) // as far as src has not said
	if len(warned) > 0 {
		t.Fatalf("warned of %v before there was another consumer", <-warned)
	}
	var elsewhere kadm.Offsets
	for p, at := range []int64{4, 5, 4, 2} { // in 3 it did nothing, in 4 it never was
		elsewhere.AddOffset(s.topic, int32(p), at, -1)
	}
	if err := s.admin.CommitAllOffsets(s.soon(), s.name, elsewhere); err != nil {
		t.Fatal(err)
	}
	var open []*stream
	for id, n := range []int{2, 4, 0, 4, 2} { // up to where the group stands, beyond, and not yet
		st := s.open(src, partition.ID(id))
		s.settle(st, sources.Done, s.take(st, n)...)
		open = append(open, st)
	}
	for range 2 {
		src.mirror.commit(src.mirror.news())
	}
	for _, st := range open {
		s.close(st)
	}
	var told []string
	for len(warned) > 0 {
		_, where, farther := strings.Cut((<-warned).Error(), "farther than the store knows, in partition ")
		where, _, _ = strings.Cut(where, ":")
		if !farther {
			where = "something else"
		}
		told = append(told, strings.Split(where, ", ")...)
	}
	slices.Sort(told)
	if want := []string{"0 at 4 instead of 2", "1 at 5 instead of 2", "2 at 4 instead of 2"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}

// What a person sets under peers that work, or between two of them, moves nobody, and is told once. Where the
// group stood before the first peer is no news, nor is what peers have said.
func TestAGroupThatIsSet(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	s.push(0, "t", 6)
	set := func(at int64) {
		t.Helper()
		var o kadm.Offsets
		o.AddOffset(s.topic, 0, at, -1)
		if err := s.admin.CommitAllOffsets(s.soon(), s.name, o); err != nil {
			t.Fatal(err)
		}
	}
	var warned []error
	peer := func() *Source {
		return s.source(Config{Mirror: time.Hour, Check: time.Hour, Warn: func(err error) { warned = append(warned, err) }})
	}
	told := func(when, where string, commits func()) {
		t.Helper()
		warned = nil
		commits()
		if where == "" && len(warned) != 0 {
			t.Errorf("%s: warned of %v, want nothing", when, warned)
		}
		if where != "" && (len(warned) != 1 || !strings.Contains(warned[0].Error(), "in partition "+where+":") ||
			!strings.Contains(warned[0].Error(), "countoff destroy "+s.name)) {
			t.Errorf("%s: warned of %v, want of %s", when, warned, where)
		}
	}
	set(1)
	src := peer()
	st := s.open(src, 0)
	s.first(src, 0)
	s.settle(st, sources.Done, s.take(st, 2)...)
	says := func() { src.mirror.commit(src.mirror.news()) }
	told("behind a consumer before it", "", says)
	s.settle(st, sources.Done, s.take(st, 1)...)
	told("with news", "", says)
	set(4)
	told("with nothing new", "", says)
	set(0)
	told("set back", "0 at 0 instead of 4", says)
	if at := s.committed(s.name, 0); at != 4 {
		t.Errorf("the group stands at %d, want 4", at)
	}
	set(6)
	told("set forth", "0 at 6 instead of 4", says)
	told("said again", "", says)
	told("the last word", "", func() { s.close(st) })

	set(0)
	src = peer()
	st = s.open(src, 0)
	told("set back while nobody worked", "0 at 0 instead of 4", says)
	if got := s.take(st, 1); string(got[0].Payload) != "t4" {
		t.Errorf("it goes on with %q, want t4", got[0].Payload)
	}
	other := s.open(peer(), 1)
	told("where the group has nothing", "", func() { s.close(other) })
	s.close(st)
}

// As long as the group does not say how far it was, nothing takes it back.
func TestAGroupThatDoesNotSayWhereItWas(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	if s.broker.Cluster == nil {
		t.Skip("a broker that can be told to fail")
	}
	s.push(0, "t", 4)
	s.worked(s.source(Config{Mirror: time.Hour}), 0, 2)
	var elsewhere kadm.Offsets
	elsewhere.AddOffset(s.topic, 0, 3, -1)
	if err := s.admin.CommitAllOffsets(s.soon(), s.name, elsewhere); err != nil {
		t.Fatal(err)
	}
	var warned []error
	src := s.source(Config{Mirror: time.Hour, Warn: func(err error) { warned = append(warned, err) }})
	st := s.open(src, 0)
	s.broker.Cluster.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		res := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		res.Version = req.GetVersion()
		g := kmsg.NewOffsetFetchResponseGroup()
		g.Group, g.ErrorCode = s.name, kerr.GroupAuthorizationFailed.Code
		res.Groups = append(res.Groups, g)
		return res, nil, true
	})
	src.mirror.commit(src.mirror.news())
	if len(warned) != 1 || !strings.Contains(warned[0].Error(), "the user lacks READ on the group") {
		t.Errorf("warned of %v, want that the group does not answer", warned)
	}
	if at := s.committed(s.name, 0); at != 3 {
		t.Errorf("the group was taken back to %d", at)
	}
	src.mirror.commit(src.mirror.news())
	if len(warned) != 2 || !strings.Contains(warned[1].Error(), "0 at 3 instead of 2") {
		t.Errorf("warned of %v, want then of where it was", warned)
	}
	s.close(st)
}

// The group is told the lowest open position: not the base, which has passed it, and
// nothing above what was done.
func TestMirrorIsTheLowestOpen(t *testing.T) {
	t.Parallel()
	eachStore(t, 1, func(s *stage) {
		src := s.source(Config{Window: 4})
		st := s.open(src, 0)
		s.push(0, "t", 12)
		got := s.take(st, 3)
		s.settle(st, sources.Done, got[0])
		s.settle(st, sources.Retry, got[1])
		s.settle(st, sources.Done, got[2])
		for range 8 { // the window moves on, over the one that waits
			s.settle(st, sources.Done, s.take(st, 1)...)
		}
		st.Mu.Lock()
		base := st.Log.Base()
		st.Mu.Unlock()
		if base < 5 {
			s.Fatalf("the base is %d: nothing was carried past it", base)
		}
		s.until("the commit", func() bool { return s.committed(s.name, 0) == 1 })
		s.close(st)
		// Above it the group does not stand: the retry is open.
		s.until("the commit after close", func() bool { return s.committed(s.name, 0) == 1 })
		next := s.take(s.open(src, 0), 2) // read again by its offset, and first
		s.want("the next owner", next[0], "t1")
		s.want("the next owner", next[1], "t11")
		if next[0].Attempt != 2 {
			s.Errorf("attempt %d, want 2", next[0].Attempt)
		}
	})
}

// Where the group stood before the first peer is no news either for who follows a peer that died at once: the first
// commit of a partition that nobody had opened does not wait.
func TestAGroupFromBeforeAPeerThatDied(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 6)
	var o kadm.Offsets
	o.AddOffset(s.topic, 0, 1, -1)
	if err := s.admin.CommitAllOffsets(s.soon(), s.name, o); err != nil {
		t.Fatal(err)
	}
	src := s.source(Config{Mirror: time.Hour})
	st := s.open(src, 0)
	s.first(src, 0)
	s.settle(st, sources.Done, s.take(st, 2)...)

	var warned []error
	src = s.source(Config{Mirror: time.Hour, Check: time.Hour, Warn: func(err error) { warned = append(warned, err) }})
	st = s.open(src, 0)
	src.mirror.commit(src.mirror.news())
	if len(warned) != 0 {
		t.Errorf("warned of %v, want nothing", warned)
	}
	s.close(st)
}

// A consumer that has the group, as one does that was killed, refuses what peers commit. That is told, and once it is
// over nothing else: where it stood is from before all peers, also for who has followed one of them meanwhile.
func TestAGroupThatRefusedAtFirst(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	if s.broker.Cluster == nil {
		t.Skip("a broker that can be told to refuse")
	}
	s.push(0, "t", 6)
	var before kadm.Offsets
	before.AddOffset(s.topic, 0, 1, -1)
	if err := s.admin.CommitAllOffsets(s.soon(), s.name, before); err != nil {
		t.Fatal(err)
	}
	refused := true
	s.broker.Cluster.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		s.broker.Cluster.KeepControl()
		if !refused {
			return nil, nil, false
		}
		reply := r.ResponseKind().(*kmsg.OffsetCommitResponse)
		topic, p := kmsg.NewOffsetCommitResponseTopic(), kmsg.NewOffsetCommitResponseTopicPartition()
		topic.Topic, topic.TopicID = r.(*kmsg.OffsetCommitRequest).Topics[0].Topic, r.(*kmsg.OffsetCommitRequest).Topics[0].TopicID
		p.ErrorCode = kerr.UnknownMemberID.Code
		topic.Partitions = append(topic.Partitions, p)
		reply.Topics = append(reply.Topics, topic)
		return reply, nil, true
	})
	st := s.open(s.source(Config{Mirror: time.Hour}), 0)
	s.settle(st, sources.Done, s.take(st, 2)...)
	s.close(st)

	var warned []error
	src := s.source(Config{Mirror: time.Hour, Check: time.Hour, Warn: func(err error) { warned = append(warned, err) }})
	st = s.open(src, 0)
	for range 3 {
		src.mirror.commit(src.mirror.news())
	}
	if len(warned) != 1 || !errors.Is(warned[0], kerr.UnknownMemberID) {
		t.Errorf("warned of %v, want only that the group refuses, once", warned)
	}
	src.mirror.told = src.mirror.told.Add(-mirrorTold)
	src.mirror.commit(src.mirror.news())
	if len(warned) != 2 || !errors.Is(warned[1], kerr.UnknownMemberID) {
		t.Errorf("warned of %v after a while, want once more that the group refuses", warned)
	}
	warned, refused = nil, false
	src.mirror.commit(src.mirror.news())
	if len(warned) != 0 || s.committed(s.name, 0) != 3 {
		t.Errorf("warned of %v with the group at %d, want nothing, and 3", warned, s.committed(s.name, 0))
	}
	refused = true
	src.mirror.commit(map[int32]word{0: {at: 3}})
	if len(warned) != 1 {
		t.Errorf("warned of %v, want that the group refuses again, at once", warned)
	}
	refused = false
	s.close(st)
}

// Where the group stood before all peers, and where the topic has nothing any more, nobody has set it: it is told once
// that the topic has not got it.
func TestAGroupFromBeforeTheTopicBegins(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 6)
	var before, upto kadm.Offsets
	before.AddOffset(s.topic, 0, 1, -1)
	upto.AddOffset(s.topic, 0, 3, -1)
	if err := s.admin.CommitAllOffsets(s.soon(), s.name, before); err != nil {
		t.Fatal(err)
	}
	if _, err := s.admin.DeleteRecords(s.soon(), upto); err != nil {
		t.Fatal(err)
	}
	warned := make(chan error, 8)
	src := s.source(Config{Mirror: time.Hour, OutOfRange: Earliest, Warn: func(err error) { warned <- err }})
	st := s.open(src, 0)
	s.first(src, 0)
	s.close(st)
	if err := <-warned; asRange(err) == nil || len(warned) > 0 {
		t.Errorf("warned of %v, and %d times more, want once that it is out of range", err, len(warned))
	}
}

// Of a group of thousands of partitions a peer asks for those that it is about to commit.
func TestACommitAsksForItsPartitions(t *testing.T) {
	t.Parallel()
	s := newStage(t, 8)
	if s.broker.Cluster == nil {
		t.Skip("a broker that tells what it is asked")
	}
	src := s.source(Config{Mirror: time.Hour})
	st := s.open(src, 5)
	s.first(src, 5)
	asked := make(chan *kmsg.OffsetFetchRequest, 1)
	s.broker.Cluster.ControlKey(int16(kmsg.OffsetFetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		asked <- r.(*kmsg.OffsetFetchRequest)
		return nil, nil, false
	})
	src.mirror.commit(src.mirror.news())
	g := (<-asked).Groups[0]
	if len(g.Topics) != 1 || fmt.Sprint(g.Topics[0].Partitions) != "[5]" {
		t.Errorf("it asks for %+v, want partition 5", g.Topics)
	}
	s.close(st)
}
