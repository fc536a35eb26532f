package asynqsource

import (
	"context"
	"fmt"
	"io"
	"log"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
	"github.com/countoff/countoff/sources/progress"
)

// A queue is not given up while asynq makes a task of a group: it would be refused the steps
// that are left.
func TestASetIsATaskBeforeTheQueueIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	taken, leave := make(chan struct{}, 100), make(chan struct{})
	p := s.run(t, Config{}, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }), asynq.Config{
		GroupGracePeriod: time.Second,
		GroupAggregator: asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task {
			taken <- struct{}{}
			<-leave
			return asynq.NewTask("all", nil)
		}),
	})
	st := s.open(t, p.src, 0, 1)
	for range 3 {
		s.enqueue(t, 0, asynq.NewTask("one", nil), asynq.Group("g"))
	}
	<-taken
	closed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	go func() { closed <- st.Close(ctx) }()
	until(t, "it waits, or has given the queue up", func() bool {
		st.Mu.Lock()
		waits := st.noSets != nil
		st.Mu.Unlock()
		return waits || s.HGet(ctx, st.keys.fence, "t").Val() == ""
	})
	v := &view{UniversalClient: p.client, source: p.src, engine: p.engine}
	if n, err := v.Eval(ctx, "return 1", []string{st.keys.group + "h", st.keys.group + "h:1", st.keys.prefix + "aggregation_sets", st.keys.prefix + "groups"}).Int(); n != 0 || err != nil {
		t.Errorf("another set is taken out while it closes: %d, %v", n, err)
	}
	close(leave)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	q, err := s.inspector().GetQueueInfo(st.queue)
	if err != nil || q.Pending == 0 || q.Aggregating > 0 || s.Exists(ctx, st.keys.prefix+"aggregation_sets").Val() > 0 {
		t.Errorf("a set was left behind: %+v, %v", q, err)
	}
}

// A set is out from when it is taken until it is deleted, and where none was due there is none: who closes waits for no other.
func TestWhichSetsAreOut(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	p := s.run(t, Config{}, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }), asynq.Config{})
	st := s.open(t, p.src, 0, 1)
	v := &view{UniversalClient: p.client, source: p.src, engine: p.engine}
	set, sets := st.keys.group+"g:1", st.keys.sets
	for _, c := range []struct {
		what, answer string
		names        []string
		out          int
	}{
		{"nothing is due", "return 0", []string{st.keys.group + "g", set, sets, st.keys.groups}, 0},
		{"it is taken", "return 1", []string{st.keys.group + "g", set, sets, st.keys.groups}, 1},
		{"it is deleted", "return 1", []string{set, sets}, 0},
	} {
		if err := v.Eval(t.Context(), c.answer, c.names).Err(); err != nil {
			t.Fatal(err)
		}
		st.Mu.Lock()
		if len(st.sets) != c.out {
			t.Errorf("%s: %d are out, want %d", c.what, len(st.sets), c.out)
		}
		st.Mu.Unlock()
	}
}

// A set of which nothing came goes back to its group when asynq asks for that, and the group is listed.
func TestASetOfWhichNothingCameIsTakenOutAgain(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	p := s.run(t, Config{}, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }), asynq.Config{})
	k := s.open(t, p.src, 0, 1).keys
	over, later := k.group+"g:1", k.group+"g:2"
	s.ZAdd(t.Context(), over, redis.Z{Score: 1, Member: "a"})
	s.ZAdd(t.Context(), later, redis.Z{Score: 2, Member: "b"})
	s.ZAdd(t.Context(), k.sets, redis.Z{Score: 1, Member: over}, redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: later})
	v := &view{UniversalClient: p.client, source: p.src, engine: p.engine}
	if err := v.Eval(t.Context(), asynqScripts(t)["reclaimStateAggregationSetsCmd"], []string{k.sets}, time.Now().Unix()).Err(); err != nil {
		t.Fatal(err)
	}
	groups, err := s.inspector().Groups(QueueOf(s.name, 0))
	if err != nil || len(groups) != 1 || groups[0].Group != "g" || groups[0].Size != 1 {
		t.Errorf("the groups are %v, %v, want g with one task", groups, err)
	}
}

// A heard is a logger of asynq that passes on what goes wrong.
type heard struct {
	quiet
	said chan string
}

func (h *heard) Error(args ...any) { h.said <- fmt.Sprint(args...) }

// A GroupAggregator that panics ends no peer: the next owner would have the same set at once.
func TestAnAggregatorThatPanics(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	told := &heard{quiet{log.New(io.Discard, "", 0)}, make(chan string, 100)}
	src, _, _ := s.peer(t, Config{})
	_, err := src.Handler(asynq.NewServeMux(), asynq.Config{
		Logger:           told,
		GroupGracePeriod: time.Second,
		GroupAggregator:  asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task { panic("what nobody thought of") }),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.enqueue(t, 0, asynq.NewTask("one", nil), asynq.Group("g"))
	s.open(t, src, 0, 1)
	if said := <-told.said; !strings.Contains(said, `group "g", whose 1 tasks wait: what nobody thought of`) || !strings.Contains(said, "group_test.go") {
		t.Errorf("told is %q", said)
	}
	if said := <-told.said; !strings.Contains(said, "task cannot be nil") { // asynq's own words
		t.Errorf("told is %q", said)
	}
}

// Whoever closes waits as long as there is something to come, and no longer.
func TestHowLongSetsAreWaitedFor(t *testing.T) {
	for what, c := range map[string]struct {
		before func(s *stream, cancel func())
		want   time.Duration
	}{
		"none":                      {func(*stream, func()) {}, 0},
		"none any more":             {func(s *stream, _ func()) { s.takeSet("a"); s.endSet("a") }, 0},
		"one that ends":             {func(s *stream, _ func()) { s.takeSet("a"); time.AfterFunc(3*time.Second, func() { s.endSet("a") }) }, 3 * time.Second},
		"one of which nothing came": {func(s *stream, _ func()) { s.takeSet("a") }, setTime},
		"one of a while ago":        {func(s *stream, _ func()) { s.takeSet("a"); time.Sleep(4 * time.Second) }, setTime - 4*time.Second},
		"one of long ago":           {func(s *stream, _ func()) { s.takeSet("a"); time.Sleep(time.Hour) }, 0},
		"one of two ends": {func(s *stream, _ func()) {
			s.takeSet("a")
			s.takeSet("b")
			time.AfterFunc(time.Second, func() { s.endSet("a") })
		}, setTime},
		"one ends, and nothing came of another": {func(s *stream, _ func()) {
			s.takeSet("a")
			time.Sleep(time.Hour)
			s.takeSet("b")
			time.AfterFunc(3*time.Second, func() { s.endSet("b") })
		}, 3 * time.Second},
		"another's ends":         {func(s *stream, _ func()) { s.takeSet("a"); s.endSet("b") }, setTime},
		"nobody waits for long":  {func(s *stream, cancel func()) { s.takeSet("a"); time.AfterFunc(time.Second, cancel) }, time.Second},
		"the queue is another's": {func(s *stream, _ func()) { s.takeSet("a"); s.Lose(sources.ErrFenced) }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := new(stream)
			s.Stream = logstream.New(s, partition.Grant{}, progress.New(progress.Config{}, progress.Opened{}), new(logstream.Permit))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.before(s, cancel)
			began := time.Now()
			s.awaitSets(ctx)
			s.awaitSets(ctx) // it may be closed again
			if took := time.Since(began); took != c.want {
				t.Errorf("%s: it waited %v, want %v", what, took, c.want)
			}
		})
	}
}
