package kafkasource

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// consume has a plain consumer of the group work n records of each partition, commit that, and leave.
func (s *stage) consume(seen map[string]int, partitions, n int) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.soon())
	defer cancel()
	member := s.broker.Client(kgo.ConsumerGroup(s.name), kgo.ConsumeTopics(s.topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	left := make(map[int32]int)
	for p := range int32(partitions) {
		left[p] = n
	}
	var worked []*kgo.Record
	for len(left) > 0 {
		fetches := member.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			s.Fatal(err)
		}
		for _, r := range fetches.Records() {
			if left[r.Partition] == 0 {
				continue
			}
			seen[string(r.Value)]++
			worked = append(worked, r)
			if left[r.Partition]--; left[r.Partition] == 0 {
				delete(left, r.Partition)
			}
		}
	}
	if err := member.CommitRecords(ctx, worked...); err != nil {
		s.Fatal(err)
	}
	if err := member.LeaveGroupContext(ctx); err != nil {
		s.Fatal(err)
	}
	member.Close()
}

// From a consumer group to peers, back to the group, and to peers once more: each goes on where the one before it
// stood, so that nothing is lost, and only what peers have done behind their lowest open position runs again.
func TestFromAConsumerGroupAndBack(t *testing.T) {
	t.Parallel()
	const partitions, records = 2, 20
	eachStore(t, partitions, func(s *stage) {
		for id := range partition.ID(partitions) {
			s.push(id, fmt.Sprint("p", id, "-"), records)
		}
		seen := make(map[string]int)
		var warned []error
		// peers take in upto records of each partition and end them all but the one that is left open.
		peers := func(src *Source, upto, open int) {
			s.Helper()
			for id := range partition.ID(partitions) {
				st := s.open(src, id)
				got := s.take(st, upto)
				for i, t := range got {
					seen[string(t.Payload)]++
					if i != open {
						s.settle(st, sources.Done, t)
					}
				}
				s.close(st)
			}
			if len(warned) > 0 && !s.inKafka {
				s.Errorf("warned of %v, want nothing", warned)
			}
		}
		warn := func(err error) { warned = append(warned, err) }
		peer := func() *Source {
			src := s.source(Config{Warn: warn, Mirror: time.Hour})
			src.mirror.patience = testPatience // its last commit is what is tested, however slow the broker is
			return src
		}

		s.consume(seen, partitions, 5) // 0 to 4
		peers(peer(), 5, 2)            // 5 to 9, of which 7 is left open
		for id := range partition.ID(partitions) {
			if at := s.committed(s.name, id); at != 7 {
				s.Errorf("partition %v: the group stands at %d when the peers have gone, want 7", id, at)
			}
		}
		s.consume(seen, partitions, 5) // 7 to 11: 8 and 9 a second time
		if !s.inKafka {
			redistest.Forget(s, s.redis, "{"+s.name+"*") // countoff destroy
		}
		peers(peer(), 8, -1) // 12 to 19
		for id := range partition.ID(partitions) {
			for i := range records {
				want := 1
				if i >= 7 && i <= 9 {
					want = 2
				}
				if n := seen[fmt.Sprint("p", id, "-", i)]; n != want {
					s.Errorf("record %d of partition %v ran %d times, want %d", i, id, n, want)
				}
			}
		}
	})
}

// Who lets the group work in between, and has Redis forget nothing, runs again what the group did, and is told, however
// soon the peers have done that and gone.
func TestBackToPeersThatRememberTheirPlace(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.push(0, "t", 6)
	var warned []error
	peer := func() *Source {
		src := s.source(Config{Warn: func(err error) { warned = append(warned, err) }, Mirror: time.Hour})
		src.mirror.patience = testPatience
		return src
	}
	s.worked(peer(), 0, 2)
	seen := make(map[string]int)
	s.consume(seen, 1, 4)
	if len(warned) > 0 || seen["t2"] != 1 || seen["t5"] != 1 {
		t.Fatalf("warned of %v, and the group did %v, want nothing, and the last four", warned, seen)
	}
	s.worked(peer(), 0, 4)
	if len(warned) != 1 || !strings.Contains(warned[0].Error(), "farther than the store knows, in partition 0 at 6 instead of 2:") {
		t.Errorf("warned of %v, want once that the group was at 6", warned)
	}
	if at := s.committed(s.name, 0); at != 6 {
		t.Errorf("the group stands at %d, want 6", at)
	}
}
