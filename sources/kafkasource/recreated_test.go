package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

// A topic that was made anew is read by whoever opens a partition of it, although another one
// of the peer still has what it read of the old one and has not noticed.
func TestATopicMadeAnewBesideAFullPartition(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	// The client is told several times before it believes it.
	soon := kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond })
	src := s.source(Config{OutOfRange: Earliest, Buffer: 4 << 10, Options: append(s.broker.Options(), soon)})
	st, full := s.open(src, 0), s.open(src, 1)
	s.push(1, "old", 500)
	s.until("it is paused", func() bool {
		full.Mu.Lock()
		defer full.Mu.Unlock()
		return full.buffer.paused
	})
	s.anew(2)
	s.push(0, "new", 1)
	s.push(1, "new", 1)
	if _, err := st.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrForgot) {
		t.Fatalf("fetch of the topic that is gone: %v, want ErrForgot", err)
	}
	s.close(st)
	s.want("the next owner", s.take(s.open(src, 0), 1)[0], "new0")
	if _, err := full.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrForgot) {
		t.Errorf("fetch of the partition that was full: %v, want ErrForgot", err)
	}
	s.close(full)
	s.want("its next owner", s.take(s.open(src, 1), 1)[0], "new0")
}

// Who may not open a partition, since retention has overtaken it, knows of which topic that is, as an owner does: made
// anew it is another one, also where the brokers have forgotten with it what was done.
func TestATopicMadeAnewAfterARefusal(t *testing.T) {
	t.Parallel()
	eachStore(t, 1, func(s *stage) {
		s.push(0, "t", 6)
		s.worked(s.source(Config{}), 0, 2)
		s.cut(0, 4)
		src := s.source(Config{})
		if _, err := s.try(src, 0); asRange(err) == nil || asRange(err).Recreated {
			s.Fatalf("opened with %v, want that its position is gone", err)
		}
		recreate(1)(s)
		if _, err := s.try(src, 0); asRange(err) == nil || !asRange(err).Recreated {
			s.Errorf("opened with %v, want that the topic was made anew", err)
		}
	})
}

// Who looks whether the topic has grown sees that it is another one: the client is told several times
// before it believes it, and reads nothing meanwhile.
func TestATopicMadeAnewIsNoticedByALook(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	never := kgo.RetryBackoffFn(func(int) time.Duration { return time.Hour })
	src := s.source(Config{OutOfRange: Earliest, Look: 20 * time.Millisecond, Options: append(s.broker.Options(), never)})
	s.push(0, "old", 1)
	s.push(1, "old", 1)
	streams := []*stream{s.open(src, 0), s.open(src, 1)}
	for _, st := range streams {
		s.take(st, 1)
	}
	s.anew(2)
	for id, st := range streams {
		if _, err := st.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrForgot) {
			t.Errorf("fetch of partition %d of the topic that is gone: %v, want ErrForgot", id, err)
		}
	}
}

// A broker that does not say which topic it has, as one that has no ids yet, does not make the others' word new.
func TestABrokerWithoutIDsIsNoNews(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	never := kgo.RetryBackoffFn(func(int) time.Duration { return time.Hour })
	src := s.source(Config{OutOfRange: Earliest, Look: time.Hour, Options: append(s.broker.Options(), never)})
	st := s.open(src, 0)
	lost := func() {
		t.Helper()
		if _, err := st.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrForgot) {
			t.Errorf("fetch of the topic that is gone: %v, want ErrForgot", err)
		}
	}
	src.reader.notice("another")
	lost()
	st = s.open(src, 0)
	src.reader.notice("")
	src.reader.notice("anew")
	lost()
}

// A broker that has not heard yet that the topic was made anew ends nothing.
func TestATopicThatWasThereBeforeIsNoNews(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	soon := kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond })
	src := s.source(Config{OutOfRange: Earliest, Options: append(s.broker.Options(), soon)})
	s.push(0, "old", 1)
	old := s.open(src, 0)
	s.take(old, 1)
	recreate(2)(s)
	if _, err := old.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrForgot) {
		t.Fatalf("fetch of the topic that is gone: %v, want ErrForgot", err)
	}
	s.close(old)
	st := s.open(src, 0)
	src.reader.notice(old.life)
	src.reader.notice("")
	s.want("who reads the new one", s.take(st, 1)[0], "again0")
	src.reader.notice(old.life)
	if err := src.reader.carryOut(s.soon(), func() {}); err != nil {
		t.Fatal(err)
	}
	s.settle(st, sources.Done, s.take(st, 1)...)
	s.close(st)
}

// A topic that is made anew between the look at it and the first fetch is not read where the old one
// stood, whether it has got so far or not: who opens the partition next sees that it is another.
func TestATopicMadeAnewBeforeTheFirstFetch(t *testing.T) {
	for _, n := range []int{1, 9} {
		t.Run(fmt.Sprint(n, " records"), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1)
			s.push(0, "t", 6)
			s.worked(s.source(Config{}), 0, 2)
			src := s.source(Config{OutOfRange: Earliest}) // it has not read the old one
			store := src.store
			src.store = openLate{store, func() { recreate(n)(s) }}
			st := s.open(src, 0)
			if tasks, err := st.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrForgot) {
				t.Errorf("fetched %d tasks, %v, want ErrForgot", len(tasks), err)
			}
			s.close(st)
			src.store = store
			s.want("the next owner", s.take(s.open(src, 0), 1)[0], "again0")
		})
	}
}

// The group is not told how far an owner was in a topic that is gone: it would take that for the
// position in the one that was made anew.
func TestTheLastWordIsNotOfATopicThatIsGone(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 6)
	soon := kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond })
	src := s.source(Config{Mirror: time.Hour, Options: append(s.broker.Options(), soon)})
	st := s.open(src, 0)
	s.settle(st, sources.Done, s.take(st, 6)...)
	recreate(9)(s)
	if _, err := st.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrForgot) {
		t.Fatalf("fetch of the topic that is gone: %v, want ErrForgot", err)
	}
	if news := src.mirror.news(); len(news) > 0 {
		t.Errorf("who has read a topic that is gone says %v", news)
	}
	s.close(st)
	if at := s.committed(s.name, 0); at != -1 {
		t.Errorf("the last word of who has read a topic that is gone is %d", at)
	}
}

// What an owner that has not noticed says of the topic that is gone is no beginning in the one that was
// made anew, and nobody is told that the group was farther: neither in the partition itself, nor
// as that of a name that has begun.
func TestALateWordOfATopicThatIsGone(t *testing.T) {
	for start, first := range map[Place]string{Earliest: "again0", Latest: "new0"} {
		t.Run(string(start), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1)
			s.push(0, "t", 6)
			src := s.source(Config{Mirror: time.Hour})
			st := s.open(src, 0)
			s.settle(st, sources.Done, s.take(st, 3)...)
			late := src.mirror.news()
			late[1] = late[0]
			s.close(st)
			recreate(9)(s)
			s.broker.Grow(s.topic, 2)
			// Brokers before 4.1 know the topic by its name only, as this client does.
			if err := s.source(Config{}).mirror.write(s.soon(), late); err != nil {
				t.Fatal(err)
			}
			redistest.Forget(t, s.redis, "*"+s.name+"*") // Redis has lost everything
			s.epoch = 0
			var warned []error
			src = s.source(Config{Start: start, Mirror: time.Hour, Warn: func(err error) { warned = append(warned, err) }})
			st = s.open(src, 0)
			s.push(0, "new", 1)
			s.want("the first task", s.take(st, 1)[0], first)
			src.mirror.commit(src.mirror.news())
			s.close(st)
			if len(warned) > 0 {
				t.Errorf("warned of %v", warned)
			}
		})
	}
}

// Who keeps the progress in Kafka, and begins where the mirror of the one in Redis stood, is told as well if that
// was in a topic that is gone.
func TestALateWordIsNoBeginningInKafka(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "again", 6)
	if err := s.source(Config{}).mirror.write(s.soon(), map[int32]word{0: {3, "another"}}); err != nil {
		t.Fatal(err)
	}
	s.inKafka = true
	if _, err := s.try(s.source(Config{}), 0); asRange(err) == nil || !asRange(err).Recreated || asRange(err).Base != 3 {
		t.Errorf("it begins in another topic: %v", err)
	}
	st := s.open(s.source(Config{OutOfRange: Earliest}), 0)
	s.want("the first task", s.take(st, 1)[0], "again0")
}

// Who moves the progress from Kafka to Redis begins anew in a topic that was made anew, although the last owner has
// said again how far the one before was.
func TestALateWordInKafkaIsNoBeginningInRedis(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.inKafka = true
	s.push(0, "t", 6)
	s.worked(s.source(Config{}), 0, 3)
	s.until("it is committed", func() bool { return s.committed(s.name, 0) == 3 })
	word, err := s.admin.FetchOffsetsForTopics(s.soon(), s.name, s.topic)
	if err != nil {
		t.Fatal(err)
	}
	recreate(9)(s)
	s.until("it is said again", func() bool { // Kafka takes the offsets of a topic that is gone away some time
		done, err := s.admin.CommitOffsets(s.soon(), s.name, word.Offsets())
		return errors.Join(err, done.Error()) == nil && s.committed(s.name, 0) == 3
	})
	s.inKafka = false
	s.want("the first task", s.take(s.open(s.source(Config{}), 0), 1)[0], "again0")
}

// Who never worked the topic that is gone knows of it by the last word of its owner, if that comes so late.
func TestATopicMadeAnewIsKnownByWhatWasLeft(t *testing.T) {
	t.Parallel()
	eachStore(t, 1, func(s *stage) {
		s.push(0, "t", 6)
		soon := kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond })
		st := s.open(s.source(Config{Options: append(s.broker.Options(), soon)}), 0)
		s.settle(st, sources.Done, s.take(st, 6)...)
		recreate(9)(s)
		if _, err := st.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrForgot) {
			s.Fatalf("fetch of the topic that is gone: %v, want ErrForgot", err)
		}
		s.close(st) // its last word, which stands with the new one
		if _, err := s.try(s.source(Config{OutOfRange: Fail}), 0); asRange(err) == nil || !asRange(err).Recreated {
			s.Errorf("opened with %v, want that the topic is another one", err)
		}
	})
}

// A topic that is made anew under an owner is noticed wherever the progress is: the brokers forget the
// offsets with the topic, and an owner that is lost says nothing more, but a peer knows which topic it has worked.
func TestATopicMadeAnewUnderAnOwner(t *testing.T) {
	t.Parallel()
	eachStore(t, 1, func(s *stage) {
		s.push(0, "t", 6)
		soon := kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond })
		options := append(s.broker.Options(), soon)
		src := s.source(Config{Options: options, OutOfRange: Latest})
		st := s.open(src, 0)
		s.settle(st, sources.Done, s.take(st, 6)...)
		recreate(9)(s)
		if _, err := st.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrForgot) {
			s.Fatalf("fetch of the topic that is gone: %v, want ErrForgot", err)
		}
		over, cancel := context.WithCancel(s.soon())
		cancel()
		_ = st.Close(over) // as who is lost does
		var offsets kadm.TopicsSet
		offsets.Add(s.topic, 0)
		_, _ = s.admin.DeleteOffsets(s.soon(), s.name, offsets) // as Kafka does
		src.cfg.OutOfRange = Fail
		for range 2 {
			if _, err := s.try(src, 0); asRange(err) == nil || !asRange(err).Recreated {
				s.Errorf("opened with %v, want that the topic is another one", err)
			}
			s.unfenced(0)
		}
		src.cfg.OutOfRange = Latest
		for range 2 { // where the policy says, and not again when that is known
			st = s.open(src, 0)
			s.push(0, "new", 1)
			s.want("the next owner", s.take(st, 1)[0], "new0")
			s.close(st)
		}
		src = s.source(Config{Options: options})
		s.want("another peer", s.take(s.open(src, 0), 1)[0], "new0")
	})
}

// openLate is a store before whose Open something happens.
type openLate struct {
	Store
	before func()
}

func (o openLate) Open(ctx context.Context, g partition.Grant, tok partition.Token, begin int64) (progress.Found, error) {
	o.before()
	return o.Store.Open(ctx, g, tok, begin)
}

// Brokers before 3.1 tell the ids of topics, and not which one a fetch is of: nothing says then that it is another.
func TestFetchesWithoutIDs(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 1)
	src := s.source(Config{Options: append(s.broker.Options(), kgo.MaxVersions(kversion.V3_0_0()))})
	st := s.open(src, 0)
	if st.life == "" {
		t.Error("the broker tells no ids: this test wants one that does")
	}
	s.want("the first task", s.take(st, 1)[0], "t0")
}

// What the topic has not got any more is gone, by whichever of its words the client says so; what may come again is not.
func TestWhatIsGone(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		kerr.OffsetOutOfRange: true, kerr.UnknownTopicID: true, kerr.UnknownTopicOrPartition: true, &kgo.ErrDataLoss{}: true,
		kerr.NotLeaderForPartition: false, kerr.TopicAuthorizationFailed: false, io.EOF: false,
	} {
		if gone(fmt.Errorf("a fetch: %w", err)) != want {
			t.Errorf("%v: it is gone: %v, want %v", err, !want, want)
		}
	}
}
