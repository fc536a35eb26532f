package redissource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
)

// states are what stands under name, as "ID state", the oldest first.
func states(t *testing.T, client redis.UniversalClient, name string) (all []string) {
	t.Helper()
	stands, err := Cancellations(t.Context(), client, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range stands {
		all = append(all, c.ID+" "+string(c.State))
	}
	return all
}

func give(t *testing.T, client redis.UniversalClient, name string, ids ...string) {
	t.Helper()
	if err := GiveCancel(t.Context(), client, name, "a test, with words", time.Hour, ids...); err != nil {
		t.Fatal(err)
	}
}

// There is a bound for what stands, and for how long; what is over makes room, and is not taken back.
func TestCancellations(t *testing.T) {
	mini, client := redistest.Mini(t)
	name, ctx := redistest.Name(t), t.Context()
	now := time.Date(2026, 7, 1, 3, 0, 0, 0, time.UTC)
	mini.SetTime(now)
	for _, wrong := range []error{
		GiveCancel(ctx, client, name, "", time.Hour), GiveCancel(ctx, client, name, "", time.Hour, "a", ""),
		GiveCancel(ctx, client, name, "", time.Millisecond, "a"), GiveCancel(ctx, client, name, "", MaxCancelFor+1, "a"),
		GiveCancel(ctx, client, name, strings.Repeat("x", maxCancelWhy+1), time.Hour, "a"), GiveCancel(ctx, client, "no name", "", time.Hour, "a"),
	} {
		if wrong == nil || strings.Contains(wrong.Error(), "\n") || errors.Is(wrong, partition.ErrConfig) {
			t.Errorf("%v", wrong)
		}
	}
	give(t, client, name, "b", "a", "a")
	all, err := Cancellations(ctx, client, name)
	want := Cancellation{ID: "a", Why: "a test, with words", Since: now, Until: now.Add(time.Hour), State: CancelWaits}
	if err != nil || len(all) != 2 || !all[0].Since.Equal(now) || !all[0].Until.Equal(want.Until) || all[0].ID != "a" || all[0].Why != want.Why || all[0].State != CancelWaits || all[0].Where != "" {
		t.Errorf("%+v, %v", all, err)
	}
	mark := func(c Cancellation, s CancelState) {
		t.Helper()
		c.State, c.Where = s, "3@7"
		if err := markCancel(ctx, client, CancelKey(name), c); err != nil {
			t.Fatal(err)
		}
	}
	mark(all[0], CancelRuns)
	mark(all[1], CancelDead)
	mark(all[1], CancelRuns) // it is over
	mark(Cancellation{ID: "a", Since: now.Add(-1)}, CancelDone)
	if got := states(t, client, name); !slices.Equal(got, []string{"a runs", "b dead"}) {
		t.Errorf("marked: %q", got)
	}
	// Given again it stands as far as it is, from then on and for another reason: who has met it says what becomes of it.
	mini.SetTime(now.Add(time.Second))
	if err := GiveCancel(ctx, client, name, "now", time.Hour, "a"); err != nil {
		t.Fatal(err)
	}
	if again, err := Cancellations(ctx, client, name); err != nil || again[0].ID != "a" || again[0].State != CancelRuns || again[0].Where != "3@7" ||
		again[0].Why != "now" || !again[0].Since.Equal(now) || !again[0].Until.Equal(now.Add(time.Hour+time.Second)) {
		t.Errorf("given again: %+v, %v", again, err)
	}
	undone, err := UndoCancel(ctx, client, name, "a", "b", "c")
	if err != nil || !slices.Equal(undone, []CancelState{CancelRuns, CancelDead, ""}) {
		t.Errorf("undone: %q, %v", undone, err)
	}
	mini.SetTime(now.Add(time.Minute))
	var many []string
	for i := range MaxCancellations {
		many = append(many, fmt.Sprint(i))
	}
	give(t, client, name, many[1:]...) // with b, which is over
	give(t, client, name, many...)     // in its place
	if got := states(t, client, name); len(got) != MaxCancellations || slices.Contains(got, "b dead") {
		t.Errorf("%d stand: %q", len(got), got)
	}
	if err := GiveCancel(ctx, client, name, "", time.Hour, "one more"); !errors.Is(err, ErrCancellations) {
		t.Errorf("one more: %v", err)
	}
	if ttl := mini.TTL(CancelKey(name)); ttl != time.Hour {
		t.Errorf("all of it ends after %v", ttl)
	}
	mini.SetTime(now.Add(time.Minute + time.Hour))
	if got := states(t, client, name); len(got) != 0 {
		t.Errorf("after their time: %q", got)
	}
	give(t, client, name, "one more")
}

// What is over is given anew, what is given for long outlasts what comes after it for a moment, and what is named
// twice, or is over, takes no place.
func TestCancellationsGivenAgain(t *testing.T) {
	mini, client := redistest.Mini(t)
	name, ctx := redistest.Name(t), t.Context()
	now := time.Date(2026, 7, 1, 3, 0, 0, 0, time.UTC)
	mini.SetTime(now)
	give(t, client, name, "a")
	for i, over := range []CancelState{CancelDone, CancelDead} {
		mini.SetTime(now.Add(time.Duration(i) * time.Second))
		all, err := Cancellations(ctx, client, name)
		if err != nil || len(all) != 1 || all[0].State != CancelWaits {
			t.Fatalf("stand %+v, %v", all, err)
		}
		all[0].State = over
		if err := markCancel(ctx, client, CancelKey(name), all[0]); err != nil {
			t.Fatal(err)
		}
		give(t, client, name, "a")
		if got := states(t, client, name); !slices.Equal(got, []string{"a waits"}) {
			t.Errorf("given again when it was %s: %q", over, got)
		}
	}
	if err := GiveCancel(ctx, client, name, "", time.Second, "b"); err != nil {
		t.Fatal(err)
	}
	if ttl := mini.TTL(CancelKey(name)); ttl != time.Hour {
		t.Errorf("all of it ends after %v, and a stands for an hour", ttl)
	}

	mini.FlushAll()
	var many []string
	for i := range MaxCancellations {
		many = append(many, fmt.Sprint(i))
	}
	give(t, client, name, append(many, many...)...)
	mini.FlushAll()
	give(t, client, name, many[1:]...)
	all, err := Cancellations(ctx, client, name)
	if err != nil {
		t.Fatal(err)
	}
	all[0].State = CancelDead
	if err := markCancel(ctx, client, CancelKey(name), all[0]); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d of %s", MaxCancellations-2, name)
	if err := GiveCancel(ctx, client, name, "", time.Hour, "one", "two", "three"); !errors.Is(err, ErrCancellations) || !strings.Contains(err.Error(), want) {
		t.Errorf("too many: %v, want %q", err, want)
	}
}

// A full store takes cancellations, and what became of them: a task that is dropped makes room.
func TestCancellationsInAFullStore(t *testing.T) {
	t.Parallel()
	server, name := redistest.Server(t), redistest.Name(t)
	client := server.Client()
	server.Config("maxmemory", "1")
	give(t, client, name, "a")
	all, err := Cancellations(t.Context(), client, name)
	if err != nil || len(all) != 1 {
		t.Fatalf("stand %v, %v", all, err)
	}
	if err := CancelledDelayed(t.Context(), client, name, all[0]); err != nil {
		t.Error(err)
	}
	if got := states(t, client, name); !slices.Equal(got, []string{"a dead"}) {
		t.Errorf("stand %q", got)
	}
}

// An owner hears of what stands before it reads anything, and of each change; what was settled is over for all, and
// written down.
func TestOwnersHearOfCancellations(t *testing.T) {
	t.Parallel()
	client, name, ctx := redistest.New(t), redistest.Name(t), t.Context()
	p := newProducer(t, client, name, ProducerConfig{Partitions: 2})
	give(t, client, name, "before")
	type owner struct {
		stream sources.Stream
		told   chan map[string]string
	}
	open := func(id partition.ID, epoch partition.Epoch, running ...string) owner {
		source, err := New(client, name, Config{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := source.Open(ctx, partition.Grant{ID: id, Epoch: epoch}, partition.Token{Epoch: epoch, Session: "aa"})
		if err != nil {
			t.Fatal(err)
		}
		o := owner{s, make(chan map[string]string, 100)}
		o.stream.(sources.Cancelable).Cancelled(ctx, func(why map[string]string) (here []string) {
			o.told <- why
			for _, id := range running {
				if _, is := why[id]; is {
					here = append(here, id)
				}
			}
			return here
		})
		return o
	}
	hears := func(o owner, want ...string) {
		t.Helper()
		late := time.After(30 * time.Second)
		for {
			select {
			case why := <-o.told:
				if got := slices.Sorted(maps.Keys(why)); slices.Equal(got, want) {
					return
				}
			case <-late:
				t.Fatalf("never told of %q alone", want)
			}
		}
	}
	stands := func(want ...string) {
		t.Helper()
		late := time.Now().Add(30 * time.Second)
		for got := states(t, client, name); !slices.Equal(got, want); got = states(t, client, name) {
			if time.Now().After(late) {
				t.Fatalf("%q stand, want %q", got, want)
			}
			time.Sleep(time.Millisecond)
		}
	}
	a := open(0, 1, "runs")
	other := open(1, 1) // of another peer
	if why := <-a.told; len(why) != 1 || why["before"] != "a test, with words" {
		t.Errorf("told at first: %q", why)
	}
	give(t, client, name, "runs")
	hears(a, "before", "runs")
	stands("before waits", "runs runs")
	if all, err := Cancellations(ctx, client, name); err != nil || all[1].Where != "0@1" {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := UndoCancel(ctx, client, name, "before"); err != nil {
		t.Error(err)
	}
	hears(a, "runs")
	for _, id := range []string{"runs", "other", "well"} {
		if _, err := p.Enqueue(ctx, Message{ID: id, Key: keyIn(0, 2)}); err != nil {
			t.Fatal(err)
		}
	}
	give(t, client, name, "well")
	hears(a, "runs", "well")
	ends := map[string]sources.Outcome{"runs": sources.Dead, "other": sources.Done, "well": sources.Done}
	for len(ends) > 0 {
		tasks, err := a.stream.Fetch(ctx, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			d := sources.Settlement{Task: &task, Outcome: ends[task.ID], Attempt: 1}
			if d.Outcome == sources.Dead { // a retry before it changes nothing
				again := d
				again.Outcome = sources.Retry
				if err := a.stream.Settle(ctx, again); err != nil {
					t.Fatal(err)
				}
				stands("runs runs", "well waits")
			}
			if err := a.stream.Settle(ctx, d); err != nil {
				t.Fatal(err)
			}
			delete(ends, task.ID)
			if d.Outcome == sources.Dead { // before another has ended: who reads after both is told of neither
				hears(other, "well")
			}
		}
	}
	stands("runs dead", "well done")
	hears(a)
	hears(other)
	for _, o := range []owner{a, other} {
		if err := o.stream.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	b := open(0, 2)
	if why := <-b.told; len(why) != 0 {
		t.Errorf("the next owner is told %q", why)
	}
	give(t, client, name, "later")
	hears(b, "later")
	if err := b.stream.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if n := len(a.told); n != 0 {
		t.Errorf("who has closed is told %d times", n)
	}
}

// Nobody has to say that something has changed: a channel may be forbidden. And what ends by itself is told, too.
func TestCancellationsAreReadByThemselves(t *testing.T) {
	t.Parallel()
	mini, client := redistest.Mini(t)
	name := redistest.Name(t)
	s, err := New(client, name, Config{Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := s.waker.cancels
	if next := c.read(t.Context()); next != cancelsEvery {
		t.Errorf("with nothing it is read after %v", next)
	}
	give(t, client, name, "a")
	mini.SetTime(time.Now().Add(time.Hour - time.Second))
	if next := c.read(t.Context()); next <= 0 || next > 2*time.Second || !c.some.Load() {
		t.Errorf("shortly before the end it is read after %v", next)
	}
	mini.SetTime(time.Now().Add(time.Hour + time.Minute))
	if c.read(t.Context()); c.some.Load() {
		t.Error("it stands after its end")
	}
	mini.SetError("away")
	if next := c.read(t.Context()); next != cancelsAgain {
		t.Errorf("if it fails it is read after %v", next)
	}
	mini.SetError("NOPERM User peer has no permissions to access one of the keys")
	if next := c.read(t.Context()); next != cancelsEvery {
		t.Errorf("if it is forbidden it is read after %v", next)
	}
	mini.SetError("")
	mini.HSet(CancelKey(name), "x", "somebody else's")
	if all, err := Cancellations(t.Context(), client, name); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// A delayed task becomes a dead letter, whole, and holds its ID no longer; once.
func TestBuryDelayed(t *testing.T) {
	t.Parallel()
	client, name, ctx := redistest.New(t), redistest.Name(t), t.Context()
	p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
	m := Message{ID: "a", Type: "typ", Key: "k", Payload: []byte("pay"), Headers: map[string]string{"h": "v"}, Delay: time.Hour, Unique: true}
	if _, err := p.Enqueue(ctx, m); err != nil {
		t.Fatal(err)
	}
	var found []Delayed
	if err := DelayedTasks(ctx, client, name, []partition.ID{0}, "a", func(d Delayed) bool {
		found = append(found, d)
		return true
	}); err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	for i, want := range []bool{true, false} {
		if done, err := BuryDelayed(ctx, client, name, found[0], "enough"); done != want || err != nil {
			t.Errorf("%d: %v, %v", i, done, err)
		}
	}
	all := lettersOf(t, client, name)
	if len(all) != 1 || all[0].ID != "a" || all[0].Reason != "enough" || all[0].Type != "typ" || all[0].Key != "k" || string(all[0].Payload) != "pay" ||
		all[0].Headers["h"] != "v" || all[0].Attempts != 0 || all[0].Died.IsZero() || all[0].Born.IsZero() {
		t.Errorf("dead letters %+v", all)
	}
	if _, err := p.Enqueue(ctx, m); err != nil {
		t.Errorf("its ID is held: %v", err)
	}
	// Where the letter cannot go the task stays.
	client.Del(ctx, KeysOf(name, 0).Dead)
	client.Set(ctx, KeysOf(name, 0).Dead, "no list", 0)
	if err := DelayedTasks(ctx, client, name, []partition.ID{0}, "a", func(d Delayed) bool {
		if done, err := BuryDelayed(ctx, client, name, d, "enough"); done || err == nil {
			t.Errorf("buried in what is no list: %v, %v", done, err)
		}
		return false
	}); err != nil {
		t.Error(err)
	}
	if n := client.ZCard(ctx, KeysOf(name, 0).Delayed).Val(); n != 1 {
		t.Errorf("%d delayed tasks are left", n)
	}
}

// What was taken back and given anew between two readings is another cancellation, of which nobody was told.
func TestACancellationGivenAnewIsTold(t *testing.T) {
	t.Parallel()
	mini, client := redistest.Mini(t)
	name := redistest.Name(t)
	c := newCancels(client, name)
	told := 0
	c.streams[&stream{Stream: &logstream.Stream{Grant: partition.Grant{ID: 3, Epoch: 7}}}] = func(why map[string]string) (running []string) {
		told++
		return slices.Collect(maps.Keys(why))
	}
	for i := range 2 {
		mini.SetTime(time.Now().Add(time.Duration(i) * time.Second))
		give(t, client, name, "a")
		c.read(t.Context())
		c.read(t.Context())
		if got := states(t, client, name); told != i+1 || !slices.Equal(got, []string{"a runs"}) {
			t.Errorf("%d: told %d times, %q", i, told, got)
		}
		if _, err := UndoCancel(t.Context(), client, name, "a"); err != nil {
			t.Fatal(err)
		}
	}
}

// What a peer knew before it lost its last partition may have been taken back since: it is told to nobody.
func TestWhatStoodBeforeIsNotTold(t *testing.T) {
	t.Parallel()
	mini, client := redistest.Mini(t)
	name, ctx := redistest.Name(t), t.Context()
	c := newCancels(client, name)
	give(t, client, name, "a")
	c.read(ctx)
	over, cancel := context.WithCancel(ctx)
	cancel()
	c.run(over)
	mini.SetError("away")
	var told []map[string]string
	s := &stream{Stream: &logstream.Stream{}}
	c.add(ctx, s, func(why map[string]string) []string {
		told = append(told, why)
		return nil
	})
	if len(told) != 1 || len(told[0]) != 0 {
		t.Errorf("told %q", told)
	}
	mini.SetError("")
	if c.read(ctx); len(told) != 2 || len(told[1]) != 1 {
		t.Errorf("told %q", told)
	}
}

// A failer has a script fail as often as it says, before it is sent.
type failer struct {
	hash  string
	fails atomic.Int64
}

func (f *failer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f *failer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == f.hash && f.fails.Add(-1) >= 0 {
			cmd.SetErr(errors.New("a test"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// Who has settled a task forgets its cancellation at once: its dead letter may be requeued as soon as somebody reads
// that it is one. No channel has to say so, and it is written down however often that fails.
func TestWhoSettlesForgetsTheCancellation(t *testing.T) {
	t.Parallel()
	server, name, ctx := redistest.Server(t), redistest.Name(t), t.Context()
	admin := redistest.Single(t, server.Client())
	user := aclUser(t, server, "~{"+name+"*", "resetchannels", "+@all")
	f := &failer{hash: cancelMark.Hash()}
	f.fails.Store(2)
	user.AddHook(f)
	give(t, admin, name, "a", "b")
	if _, err := newProducer(t, user, name, ProducerConfig{Partitions: 1}).Enqueue(ctx, Message{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	s := opened(t, user, name, 1)
	var mu sync.Mutex
	var told []string
	s.(sources.Cancelable).Cancelled(ctx, func(why map[string]string) []string {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, strings.Join(slices.Sorted(maps.Keys(why)), " "))
		return nil
	})
	wasTold := func(want ...string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	}
	tasks, err := s.Fetch(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(ctx, sources.Settlement{Task: &tasks[0], Outcome: sources.Dead, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	wasTold("a b", "b")
	late := time.Now().Add(30 * time.Second)
	for got := states(t, admin, name); !slices.Equal(got, []string{"a dead", "b waits"}); got = states(t, admin, name) {
		if time.Now().After(late) {
			t.Fatalf("%q stand", got)
		}
		time.Sleep(time.Millisecond)
	}
	wasTold("a b", "b")
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

// Who may hear the bells of partitions and not of cancellations hears the bells, as before there were any.
func TestUserWithoutTheChannelOfCancellations(t *testing.T) {
	t.Parallel()
	server, name := redistest.Server(t), redistest.Name(t)
	admin := redistest.Single(t, server.Client())
	user := aclUser(t, server, "~{"+name+"*", "&{"+name+":*", "+@all")
	s := opened(t, user, name, 1)
	bell := KeysOf(name, 0).Bell
	late := time.Now().Add(30 * time.Second)
	for n := int64(0); n == 0; n = admin.PubSubNumSub(t.Context(), bell).Val()[bell] {
		if time.Now().After(late) {
			t.Fatal("the bell is heard by nobody")
		}
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

var _ sources.Cancelable = (*stream)(nil)

// keyIn returns a key of a partition.
func keyIn(id partition.ID, total int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("k", i); partition.Of(key, total) == id {
			return key
		}
	}
}
