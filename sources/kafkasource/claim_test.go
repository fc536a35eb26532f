package kafkasource

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/sources"
)

// dead makes n dead letters, and returns where they are.
func (s *stage) dead(n int) Config {
	s.Helper()
	st := s.open(s.source(Config{}), 0)
	s.push(0, "t", n)
	s.settle(st, sources.Dead, s.take(st, n)...)
	s.close(st)
	return Config{Topic: s.topic, Options: s.broker.Options()}
}

// walker is one whose claim changes fast.
func (s *stage) walker(cfg Config, do func(*kgo.Record)) *walker {
	w := newWalker(s.name, cfg, true, func(_ *walker, r *kgo.Record) error {
		do(r)
		return nil
	})
	w.claim.every = 30 * time.Millisecond
	return w
}

// Two who requeue or drop the letters of a name at once would both do so with each of them: the second is refused
// for as long as the first is at it.
func TestLettersAreTakenByOneAtATime(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	cfg := s.dead(3)
	began, goOn, ended := make(chan struct{}, 3), make(chan struct{}), make(chan error)
	go func() {
		ended <- s.walker(cfg, func(*kgo.Record) { began <- struct{}{}; <-goOn }).walk(s.soon(), "test")
	}()
	<-began
	second := func() (n int, err error) {
		err = s.walker(cfg, func(*kgo.Record) { n++ }).walk(s.soon(), "test")
		return n, err
	}
	if n, err := second(); n != 0 || !errors.Is(err, errClaimed) {
		t.Errorf("the second took %d letters, %v, want that it is refused", n, err)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Errorf("the first: %v", err)
	}
	if n, err := second(); n != 0 || err != nil {
		t.Errorf("after the first there are %d letters, %v", n, err)
	}
}

// A walk that was killed leaves a claim, which nobody changes any more: who waits for it, for as long as one that
// lives would need to change it, takes it over. What it claims itself it gives up in the end, so that the next one does not wait.
func TestAClaimThatStandsStill(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	cfg := s.dead(3)
	killed, ctx := s.walker(cfg, func(*kgo.Record) {}), s.soon()
	s.claimed(killed.group, cfg, "of one that was killed")
	n := 0
	w := s.walker(cfg, func(*kgo.Record) { n++ })
	var paused []time.Duration
	w.claim.pause = func(_ context.Context, d time.Duration) error { paused = append(paused, d); return nil }
	if err := w.walk(ctx, "test"); n != 3 || err != nil {
		t.Errorf("took %d letters, %v, want all 3", n, err)
	}
	if want := append(slices.Repeat([]time.Duration{w.claim.every}, claimTurns), w.claim.every/claimTurns); !slices.Equal(paused, want) {
		t.Errorf("it waited for %v, want %v", paused, want)
	}
	all, err := s.admin.FetchOffsetsForTopics(ctx, w.group, s.topic+".dead")
	if at, _ := all.Lookup(s.topic+".dead", 0); err != nil || at.At != 3 || at.Metadata != "" {
		t.Errorf("in the place of the claim there is %+v, %v", at, err)
	}
}

// Of two that found no claim, or who was asleep for so long that its claim stood still, the one whose claim is not
// there any more ends, and says no more how far it came.
func TestAClaimThatWasReplaced(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	cfg := s.dead(3)
	began, goOn, ended := make(chan struct{}, 3), make(chan struct{}), make(chan error)
	n := 0
	w := s.walker(cfg, func(*kgo.Record) { n++; began <- struct{}{}; <-goOn })
	go func() { ended <- w.walk(s.soon(), "test") }()
	<-began
	s.until("it sees that", func() bool {
		s.claimed(w.group, cfg, "another")
		w.claim.mu.Lock()
		defer w.claim.mu.Unlock()
		return w.claim.lost
	})
	if err := w.passed(s.soon(), claimPartition, 1); err != nil { // who was about to say so
		t.Error(err)
	}
	close(goOn)
	if err := <-ended; !errors.Is(err, errClaimed) || n != 1 {
		t.Errorf("it ends with %v, and has taken %d letters, want the one it had begun with", err, n)
	}
	all, err := s.admin.FetchOffsetsForTopics(s.soon(), w.group, s.topic+".dead")
	if at, _ := all.Lookup(s.topic+".dead", 0); err != nil || at.At != 0 || at.Metadata != claimMark+"another:1" {
		t.Errorf("in the place of the other's claim there is %+v, %v", at, err)
	}
}

// A walk that slept for so long that another one has taken over its claim, and has ended, ends as well once it
// wakes up: it does not say how far it came, which is less far.
func TestAWalkThatSlept(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	cfg := s.dead(3)
	began, goOn, ended := make(chan struct{}, 3), make(chan struct{}), make(chan error)
	sleeper := s.walker(cfg, func(*kgo.Record) { began <- struct{}{}; <-goOn })
	sleeper.claim.every = time.Hour // it does not look
	sleeper.claim.pause = func(context.Context, time.Duration) error { return nil }
	go func() { ended <- sleeper.walk(s.soon(), "test") }()
	<-began
	s.dead(2) // it does not know of these
	left := func() (n int) {
		if err := s.walker(cfg, func(*kgo.Record) { n++ }).walk(s.soon(), "test"); err != nil {
			t.Error(err)
		}
		return n
	}
	if n := left(); n != 5 {
		t.Errorf("the other took %d letters, want all 5", n)
	}
	close(goOn)
	if err := <-ended; !errors.Is(err, errClaimed) {
		t.Errorf("the one that slept ends with %v", err)
	}
	if n := left(); n != 0 {
		t.Errorf("%d letters that were passed are there again", n)
	}
}

// claimed writes a claim.
func (s *stage) claimed(group string, cfg Config, id string) {
	s.Helper()
	at := make(kadm.Offsets)
	at.Add(kadm.Offset{Topic: cfg.Topic + ".dead", LeaderEpoch: -1, Metadata: claimMark + id + ":1"})
	done, err := s.admin.CommitOffsets(s.soon(), group, at)
	if err := errors.Join(err, done.Error()); err != nil {
		s.Fatal(err)
	}
}

// Of those that begin in the same instant, and find no claim, one takes the letters.
func TestTwoThatClaimInTheSameInstant(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	cfg := s.dead(3)
	n := 0
	w := s.walker(cfg, func(*kgo.Record) { n++ })
	w.claim.every = time.Hour // it does not look again
	w.claim.pause = func(context.Context, time.Duration) error {
		s.claimed(w.group, cfg, "another")
		return nil
	}
	if err := w.walk(s.soon(), "test"); !errors.Is(err, errClaimed) || n > 0 {
		t.Errorf("took %d letters, %v, want that it ends", n, err)
	}
}
