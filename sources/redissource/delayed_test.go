package redissource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// delayedIn returns the delayed tasks of all partitions of a name, those of an ID if one is given.
func delayedIn(t *testing.T, p *Producer, id string) (all []Delayed) {
	t.Helper()
	if err := DelayedTasks(t.Context(), p.client, p.name, p.Config().IDs(), id, func(d Delayed) bool {
		all = append(all, d)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func named(all []Delayed) string {
	var ids []string
	for _, d := range all {
		ids = append(ids, d.ID)
	}
	return strings.Join(ids, " ")
}

func enqueue(t *testing.T, p *Producer, messages ...Message) []Result {
	t.Helper()
	results, err := p.Enqueue(t.Context(), messages...)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func TestDelayedTasks(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
	enqueue(t, p,
		Message{ID: "second", Type: "typ", Key: "key", Delay: 2 * time.Hour, Payload: []byte("pay"), Headers: map[string]string{"h": "v"}},
		Message{ID: "now"}, Message{ID: "third", Delay: 3 * time.Hour}, Message{ID: "first", Delay: time.Hour})
	all := delayedIn(t, p, "")
	if got := named(all); got != "first second third" {
		t.Fatal(got)
	}
	if d := all[1]; d.Type != "typ" || d.Key != "key" || string(d.Payload) != "pay" || d.Headers["h"] != "v" || d.Born.IsZero() || d.Raw ||
		d.Attempts != 0 || d.Due.Sub(all[0].Due).Round(time.Minute) != time.Hour {
		t.Errorf("%+v", d)
	}

	// What no build can read is seen, and goes nowhere before it is due.
	if err := client.ZAdd(t.Context(), KeysOf(name, 0).Delayed, redis.Z{Score: 1e15, Member: "garbage"}).Err(); err != nil {
		t.Fatal(err)
	}
	if raw := delayedIn(t, p, "")[3]; !raw.Raw || string(raw.Payload) != "garbage" || raw.ID != "" {
		t.Errorf("%+v", raw)
	}

	stream := opened(t, client, name, 1)
	if ok, err := RunNow(t.Context(), client, name, all[2]); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := Cancel(t.Context(), client, name, all[0]); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for _, take := range []func(context.Context, redis.UniversalClient, string, Delayed) (bool, error){RunNow, Cancel} {
		for _, d := range []Delayed{all[0], all[2]} {
			if ok, err := take(t.Context(), client, name, d); ok || err != nil {
				t.Errorf("%s is taken twice: %v, %v", d.ID, ok, err)
			}
		}
	}
	var ran []string
	for len(ran) < 2 {
		tasks, err := stream.Fetch(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			ran = append(ran, task.ID)
			if err := stream.Settle(t.Context(), sources.Settlement{Task: &task, Outcome: sources.Done, Attempt: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !slices.Equal(ran, []string{"now", "third"}) || named(delayedIn(t, p, "")) != "second " {
		t.Errorf("ran %q, delayed %q", ran, named(delayedIn(t, p, "")))
	}
	if err := stream.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestWhoHasSeenEnoughIsToldOfNoMore: neither of those of the same partition, nor of the next ones.
func TestWhoHasSeenEnoughIsToldOfNoMore(t *testing.T) {
	t.Parallel()
	p := newProducer(t, redistest.New(t), redistest.Name(t), ProducerConfig{Partitions: 3})
	for i := range 30 { // those without a key go round
		enqueue(t, p, Message{ID: "same", Delay: time.Duration(i+1) * time.Hour})
	}
	for id := range partition.ID(3) {
		p.client.RPush(t.Context(), KeysOf(p.name, id).Dead, "a", "b")
	}
	for _, id := range []string{"", "same"} {
		seen := 0
		if err := DelayedTasks(t.Context(), p.client, p.name, p.Config().IDs(), id, func(Delayed) bool { seen++; return seen < 3 }); err != nil || seen != 3 {
			t.Errorf("%q: %d, %v", id, seen, err)
		}
	}
	seen := 0
	if err := DeadLetters(t.Context(), p.client, p.name, p.Config().IDs(), func(DeadLetter) bool { seen++; return seen < 3 }); err != nil || seen != 3 {
		t.Errorf("%d letters, %v", seen, err)
	}
}

// TestWhatCannotBeReadIsSaid: who looks for a task is not told that there is none where nobody knows. Of other partitions
// he is told all the same.
func TestWhatCannotBeReadIsSaid(t *testing.T) {
	t.Parallel()
	client, name, ctx := redistest.New(t), redistest.Name(t), t.Context()
	p := newProducer(t, client, name, ProducerConfig{Partitions: 3})
	for i := range 3 {
		enqueue(t, p, Message{ID: "same", Delay: time.Duration(i+1) * time.Hour})
		client.RPush(ctx, KeysOf(name, partition.ID(i)).Dead, "letter")
	}
	layout := p.Config()
	layout.Units = nil
	told := func(what string, seen *int, err error, want int, places string) {
		t.Helper()
		if *seen != want || err == nil || !strings.Contains(err.Error(), places) {
			t.Errorf("%s: %d, want %d and %q: %v", what, *seen, want, places, err)
		}
		*seen = 0
	}
	look := func(want int, places string) {
		t.Helper()
		seen := 0
		for _, id := range []string{"", "same"} {
			err := DelayedTasks(ctx, client, name, layout.IDs(), id, func(Delayed) bool { seen++; return true })
			told(fmt.Sprintf("delayed %q", id), &seen, err, want, places)
		}
		err := DeadLetters(ctx, client, name, layout.IDs(), func(DeadLetter) bool { seen++; return true })
		told("letters", &seen, err, want, places)
		if n, err := p.Cancel(ctx, "", "nobody"); n != 0 || err == nil || !strings.Contains(err.Error(), places) {
			t.Errorf("cancel: %d, %v", n, err)
		}
	}
	for _, key := range []string{KeysOf(name, 1).Delayed, KeysOf(name, 1).Dead} {
		client.Rename(ctx, key, key+"-kept")
		client.Set(ctx, key, "no set and no list", 0)
	}
	look(2, "partition 1: WRONGTYPE")
	for _, key := range []string{KeysOf(name, 1).Delayed, KeysOf(name, 1).Dead} {
		client.Rename(ctx, key+"-kept", key)
	}
	client.AddHook(readsFail{}) // after it was said that there are some
	look(0, "partitions 0-2: a test")
}

// readsFail has those commands fail that read delayed tasks and letters.
type readsFail struct{}

func (readsFail) DialHook(next redis.DialHook) redis.DialHook { return next }
func (readsFail) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (readsFail) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains([]string{"zrange", "zscan", "lrange"}, cmd.Name()) {
			cmd.SetErr(errors.New("a test"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// TestRunNowRings: an owner that waits for work hears of it.
func TestRunNowRings(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
	enqueue(t, p, Message{ID: "later", Delay: time.Hour})
	if err := client.HSet(t.Context(), KeysOf(name, 0).Fence, "w", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if ok, err := RunNow(t.Context(), client, name, delayedIn(t, p, "later")[0]); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if client.HExists(t.Context(), KeysOf(name, 0).Fence, "w").Val() {
		t.Error("who waits is not told")
	}
}

// TestOfAnID: of any length and any bytes, and no other task.
func TestOfAnID(t *testing.T) {
	t.Parallel()
	p := newProducer(t, redistest.New(t), redistest.Name(t), ProducerConfig{Partitions: 3})
	odd := []string{"a", "ab", "a*", "a?", "[a]", `a\`, `\*`, "ä", "\ufffd", "\x00\xff", "*", "?"}
	for _, n := range []int{10, 42, 127, 128, 129, 300} { // 129 begins with 128, and the byte that tells them apart is no text
		odd = append(odd, strings.Repeat("x", n))
	}
	for i, id := range odd {
		enqueue(t, p, Message{ID: id, Key: fmt.Sprint(i), Delay: time.Hour})
	}
	for _, id := range odd {
		if all := delayedIn(t, p, id); len(all) != 1 || all[0].ID != id {
			t.Errorf("%.40q: %.80q", id, named(all))
		}
	}
	if all := delayedIn(t, p, "nobody"); len(all) != 0 {
		t.Error(named(all))
	}
}

// TestAMultitudeIsDelayed: more than are read at once.
func TestAMultitudeIsDelayed(t *testing.T) {
	t.Parallel()
	p := newProducer(t, redistest.New(t), redistest.Name(t), ProducerConfig{Partitions: 1})
	var messages []Message
	for i := range 2*scanPage + 10 {
		messages = append(messages, Message{ID: fmt.Sprint(i), Delay: time.Hour + time.Duration(i)*time.Second})
	}
	enqueue(t, p, messages...)
	all := delayedIn(t, p, "")
	if len(all) != len(messages) || !slices.IsSortedFunc(all, func(a, b Delayed) int { return a.Due.Compare(b.Due) }) {
		t.Errorf("%d of %d", len(all), len(messages))
	}
	for _, id := range []string{"0", "1000", "2009"} {
		if n, err := p.Cancel(t.Context(), "", id); n != 1 || err != nil {
			t.Errorf("%s: %d, %v", id, n, err)
		}
	}
	seen := 0
	if err := DelayedTasks(t.Context(), p.client, p.name, p.Config().IDs(), "", func(Delayed) bool { seen++; return seen < 3 }); err != nil || seen != 3 {
		t.Errorf("%d, %v", seen, err)
	}
}

func TestProducerCancels(t *testing.T) {
	t.Parallel()
	p := newProducer(t, redistest.New(t), redistest.Name(t), ProducerConfig{Partitions: 1})
	enqueue(t, p,
		Message{ID: "mine", Key: "ann", Delay: time.Hour}, Message{ID: "mine", Key: "ann", Delay: 2 * time.Hour}, Message{ID: "mine", Key: "ben", Delay: time.Hour},
		Message{ID: "once", Key: "ann", Delay: time.Hour, Unique: true}, Message{ID: "now", Key: "ann"})
	for _, c := range []struct {
		key, id string
		want    int
	}{
		{"ann", "mine", 2}, {"ann", "mine", 0}, {"", "mine", 1}, {"ann", "now", 0}, {"", "nobody", 0},
	} {
		if n, err := p.Cancel(t.Context(), c.key, c.id); n != c.want || err != nil {
			t.Errorf("%+v: %d, %v", c, n, err)
		}
	}

	// Who has cancelled may enqueue again, for another time; that of a later one stays.
	again := Message{ID: "once", Key: "ann", Delay: 2 * time.Hour, Unique: true}
	first := delayedIn(t, p, "once")[0]
	if r := enqueue(t, p, again); !r[0].Duplicate {
		t.Error("it is not unique")
	}
	if n, err := p.Cancel(t.Context(), "ann", "once"); n != 1 || err != nil {
		t.Error(n, err)
	}
	if r := enqueue(t, p, again); r[0].Duplicate {
		t.Error("what was cancelled holds its ID")
	}
	if ok, err := Cancel(t.Context(), p.client, p.name, first); ok || err != nil {
		t.Error(ok, err)
	}
	if r := enqueue(t, p, again); !r[0].Duplicate {
		t.Error("a late cancel of another has taken its lock")
	}
	// Nor is a lock taken that another has since it ended by itself.
	second, lock := delayedIn(t, p, "once")[0], KeysOf(p.name, first.Partition).Unique("once")
	if err := p.client.Set(t.Context(), lock, "of another", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if ok, err := Cancel(t.Context(), p.client, p.name, second); !ok || err != nil {
		t.Error(ok, err)
	}
	if has := p.client.Get(t.Context(), lock).Val(); has != "of another" {
		t.Errorf("its lock was another's, and is %q", has)
	}
	if _, err := p.Cancel(t.Context(), "ann", ""); err == nil || errors.Is(err, partition.ErrConfig) {
		t.Error(err)
	}
	if left := delayedIn(t, p, ""); len(left) != 0 {
		t.Error(named(left))
	}
}

// TestNoDelayedTaskIsTakenInAResize: it counts them by their place.
func TestNoDelayedTaskIsTakenInAResize(t *testing.T) {
	t.Parallel()
	p := newProducer(t, redistest.New(t), redistest.Name(t), ProducerConfig{Partitions: 1})
	enqueue(t, p, Message{ID: "later", Delay: time.Hour})
	d := delayedIn(t, p, "later")[0]
	if err := p.client.HSet(t.Context(), KeysOf(p.name, 0).Fence, "t", "7:resize-"+newID(time.Now())).Err(); err != nil {
		t.Fatal(err)
	}
	for _, take := range []func(context.Context, redis.UniversalClient, string, Delayed) (bool, error){RunNow, Cancel} {
		if ok, err := take(t.Context(), p.client, p.name, d); ok || !errors.Is(err, partition.ErrConfig) || !strings.Contains(err.Error(), "countoff resize") {
			t.Error(ok, err)
		}
	}
	if _, err := p.Cancel(t.Context(), "", "later"); !errors.Is(err, partition.ErrConfig) {
		t.Error(err)
	}
	if left := delayedIn(t, p, ""); len(left) != 1 {
		t.Error(named(left))
	}
}

// TestNoTaskIsMissedInAResize: who looks where a task was before says that it does not know, and not that there is none.
func TestNoTaskIsMissedInAResize(t *testing.T) {
	t.Parallel()
	p := newProducer(t, redistest.New(t), redistest.Name(t), ProducerConfig{Partitions: 1})
	enqueue(t, p, Message{ID: "later", Key: "ann", Delay: time.Hour})
	unknown := func(want string) {
		t.Helper()
		for _, key := range []string{"ann", ""} {
			if n, err := p.Cancel(t.Context(), key, "later"); n != 0 || !errors.Is(err, partition.ErrConfig) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %d, %v", key, n, err)
			}
		}
	}
	broken, idle := errors.New("broken off"), func(context.Context) error { return nil }
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := Resize(ctx, p.client, p.name, 8, ResizeConfig{Idle: idle, Tell: func(at Resized, _ bool) {
		if at.Delayed > 0 {
			cancel(broken)
		}
	}})
	if err == nil || len(delayedIn(t, p, "")) != 0 {
		t.Fatal(err)
	}
	unknown("countoff resize")
	if _, err := Resize(t.Context(), p.client, p.name, 8, ResizeConfig{Idle: idle}); err != nil {
		t.Fatal(err)
	}
	unknown("has 8 partitions now, this producer counts 1")
	if n, err := newProducer(t, p.client, p.name, ProducerConfig{}).Cancel(t.Context(), "ann", "later"); n != 1 || err != nil {
		t.Error(n, err)
	}
}

// TestWhoLooksForAnIDLeavesPayloadsAlone: a server that copied those of all others would be held up by it.
func TestWhoLooksForAnIDLeavesPayloadsAlone(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Server(t).Client())
	p := newProducer(t, client, redistest.Name(t), ProducerConfig{Partitions: 1})
	payload := make([]byte, 256<<10)
	for i := range 128 {
		enqueue(t, p, Message{ID: fmt.Sprint("task ä ", i), Payload: payload, Delay: time.Hour})
	}
	if n, err := p.Cancel(t.Context(), "", "task ä 1"); n != 1 || err != nil {
		t.Error(n, err)
	}
	info := client.InfoMap(t.Context()).Val()
	for _, bytes := range []string{info["Memory"]["used_memory_lua"], info["Stats"]["total_net_output_bytes"]} {
		if n, err := strconv.Atoi(bytes); n > 8<<20 || err != nil {
			t.Errorf("%s bytes were copied", bytes)
		}
	}
}

// TestADelayedTaskThatCannotBeRunStays: where the log is something else.
func TestADelayedTaskThatCannotBeRunStays(t *testing.T) {
	t.Parallel()
	p := newProducer(t, redistest.New(t), redistest.Name(t), ProducerConfig{Partitions: 1})
	enqueue(t, p, Message{ID: "later", Delay: time.Hour})
	if err := p.client.Set(t.Context(), KeysOf(p.name, 0).Pending, "text", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if ok, err := RunNow(t.Context(), p.client, p.name, delayedIn(t, p, "")[0]); ok || err == nil || !strings.Contains(err.Error(), "is no list") {
		t.Error(ok, err)
	}
	if left := delayedIn(t, p, ""); len(left) != 1 {
		t.Error("it is gone")
	}
}
