package redissource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/sourcetest"
)

// over reports whether an ownership is, so that the partition is to be opened anew.
func over(err error) bool {
	return errors.Is(err, sources.ErrForgot) || errors.Is(err, sources.ErrFenced)
}

// insist says a call again until it succeeds or the ownership is over.
func insist(ctx context.Context, call func() error) error {
	for {
		err := call()
		if err == nil || over(err) || ctx.Err() != nil {
			return err
		}
	}
}

// work does tasks until n different ones are settled, whatever the store does, and
// returns how often each was handed out and in which order first.
func (w *world) work(n int) (times map[string]int, order []string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	times = make(map[string]int)
	settled := make(map[string]bool)
	for len(settled) < n {
		var s sources.Stream
		w.epoch++
		g := partition.Grant{ID: 0, Epoch: w.epoch}
		err := insist(ctx, func() (err error) {
			s, err = w.source.Open(ctx, g, partition.Token{Epoch: g.Epoch, Session: "worker"})
			return err
		})
		if over(err) {
			continue
		}
		for err == nil && len(settled) < n {
			var tasks []sources.Task
			err = insist(ctx, func() (err error) { tasks, err = s.Fetch(ctx, 20); return err })
			var done []sources.Settlement
			for _, t := range tasks {
				if times[t.ID]++; times[t.ID] == 1 {
					order = append(order, t.ID)
				}
				done = append(done, sources.Settlement{Task: &t, Outcome: sources.Done, Attempt: t.Attempt})
			}
			if err == nil {
				err = insist(ctx, func() error { return s.Settle(ctx, done...) })
			}
			if err == nil {
				for _, t := range tasks {
					settled[t.ID] = true
				}
			}
		}
		if err != nil && !over(err) {
			w.t.Fatalf("%d of %d are done: %v", len(settled), n, err)
		}
		if err := insist(ctx, func() error { return s.Close(ctx) }); err != nil {
			w.t.Fatal(err)
		}
	}
	return times, order
}

// impatient is a client of p that gives up soon, as services are configured that
// would rather repeat than wait.
func impatient(t *testing.T, p *redistest.Process) redis.UniversalClient {
	opt := *p.Client().(interface{ Options() *redis.Options }).Options()
	opt.ReadTimeout, opt.WriteTimeout, opt.DialTimeout = 200*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
	client := redis.NewClient(&opt)
	t.Cleanup(func() { client.Close() })
	return client
}

// push pushes n tasks while the test goes on.
func (w *world) pushing(n int, each time.Duration) (wait func()) {
	ctx := w.t.Context()
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var p *Producer
	err := insist(soon, func() (err error) { // an impatient client may give up, where all is well
		p, err = NewProducer(soon, w.client, w.name, ProducerConfig{Partitions: 1})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(each)
		defer tick.Stop()
		for i := range n {
			if _, err := p.Enqueue(ctx, Message{ID: fmt.Sprint("t", i), Key: "k"}); err != nil {
				w.t.Errorf("push %d: %v", i, err)
			}
			<-tick.C
		}
	}()
	return func() {
		<-ended
		if err := p.Close(context.Background()); err != nil {
			w.t.Error(err)
		}
	}
}

func TestStreamSurvivesARestartUnderLoad(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "always")
	w := newWorld(t, impatient(t, server), Config{})
	const n = 600
	pushed := w.pushing(n, time.Millisecond)
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		tick := time.NewTicker(150 * time.Millisecond)
		defer tick.Stop()
		for range 2 {
			<-tick.C
			server.Restart(true)
			<-tick.C
			server.Kill()
			<-tick.C
			server.Start()
		}
	}()
	times, order := w.work(n)
	pushed()
	<-restarted
	for i := range n {
		if id := fmt.Sprint("t", i); times[id] != 1 {
			t.Errorf("%s was handed out %d times: the store forgot nothing", id, times[id])
		}
		if i < len(order) && order[i] != fmt.Sprint("t", i) {
			t.Fatalf("%s came as number %d", order[i], i)
		}
	}
}

func TestStreamSurvivesAStoppedServer(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	w := newWorld(t, impatient(t, server), Config{})
	const n = 300
	pushed := w.pushing(n, time.Millisecond)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		<-tick.C
		server.Pause()
		for range 10 {
			<-tick.C
		}
		server.Resume()
	}()
	times, _ := w.work(n)
	pushed()
	<-stopped
	for i := range n {
		if id := fmt.Sprint("t", i); times[id] != 1 {
			t.Errorf("%s was handed out %d times", id, times[id])
		}
	}
}

// A list that somebody deletes, or a store that lost what it had, is noticed with the
// next call; what is pushed later is served by the next owner.
func TestStreamNoticesADeletedList(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	for _, keys := range [][]string{{w.keys.Pending}, {w.keys.Fence}, {w.keys.Fence, w.keys.Pending, w.keys.Done, w.keys.Tries}} {
		w.push("a", "b", "c")
		s := w.open()
		tasks := w.fetch(s, 2, "a", "b")
		w.settle(s, retry(tasks[1], time.Hour, "later"))
		w.client.Del(t.Context(), keys...)
		w.push("d")
		err := s.Settle(t.Context(), sources.Settlement{Task: &tasks[0], Outcome: sources.Done, Attempt: 1})
		if !over(err) {
			t.Fatalf("%v deleted: settle returns %v", keys, err)
		}
		if _, err := s.Fetch(t.Context(), 1); !over(err) {
			t.Fatalf("%v deleted: fetch returns %v", keys, err)
		}
		w.close(s)
		w.work(int(w.client.LLen(t.Context(), w.keys.Pending).Val()))
	}
}

func TestStreamBuriesWhatNobodyCanRead(t *testing.T) {
	buried := new(sourcetest.Burials)
	w := newWorld(t, redistest.New(t), Config{Buried: buried.Tell})
	w.push("a")
	w.client.RPush(t.Context(), w.keys.Pending, "{not an envelope}")
	w.push("b")
	w.client.RPush(t.Context(), w.keys.Pending, "nor this")
	s := w.open()
	w.done(s, w.fetch(s, 5, "a", "b")...)
	w.close(s)
	letters := w.letters()
	if len(letters) != 2 || !letters[0].raw || letters[0].body != "{not an envelope}" || !strings.Contains(letters[0].reason, "envelope") {
		t.Fatalf("the letters are %+v", letters)
	}
	w.empty(w.keys.Pending, w.keys.Done)
	want := []sources.Buried{{Grant: s.Grant, Tasks: 2, Position: 1, Reason: letters[0].reason}}
	if told := buried.All(); !slices.Equal(told, want) {
		t.Errorf("it told of %+v, want %+v", told, want)
	}
}

func (w *world) letters() []letter {
	w.t.Helper()
	raw, err := w.client.LRange(w.t.Context(), w.keys.Dead, 0, -1).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	var list []letter
	for _, r := range raw {
		l, err := parseLetter(r)
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, l)
	}
	return list
}

// In a full store only pushes fail: what is there can be worked off.
func TestStreamWorksInAFullStore(t *testing.T) {
	server := redistest.Server(t)
	w := newWorld(t, server.Client(), Config{})
	const n = 200
	for i := range n {
		w.push(fmt.Sprint(i))
	}
	s := w.open()
	tasks := w.fetch(s, 3, "0", "1", "2")
	server.Config("maxmemory", "1mb")
	e := envelope{id: "x"}
	if err := w.client.RPush(t.Context(), w.keys.Pending, appendEnvelope(nil, &e)).Err(); !redis.HasErrorPrefix(err, "OOM") {
		t.Fatalf("a push in a full store: %v", err)
	}
	w.settle(s, retry(tasks[0], 0, "why"),
		sources.Settlement{Task: &tasks[1], Outcome: sources.Dead, Attempt: 1, Reason: "never"},
		sources.Settlement{Task: &tasks[2], Outcome: sources.Requeue, Attempt: 1, Reason: "again"})
	w.close(s)
	times, _ := w.work(n - 1)
	if len(times) != n-1 || len(w.letters()) != 1 {
		t.Errorf("%d tasks and %d letters", len(times), len(w.letters()))
	}
}

// A store that refuses every write says so at once, with what to do; what was settled
// stays queued and is said when it can be.
func TestStreamReportsRefusals(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, "--enable-protected-configs", "yes")
	ctx := t.Context()
	dir := server.Client().ConfigGet(ctx, "dir").Val()["dir"]
	for _, c := range []struct {
		prefix, hint  string
		break_, mend_ func()
	}{
		{"MISCONF", "disk", func() {
			server.Config("save", "3600 1")
			server.Config("dir", "/proc")
			w := server.Client()
			w.Set(ctx, "x", "y", 0)
			w.BgSave(ctx)
			eventually(t, func() bool { return strings.Contains(w.Info(ctx, "persistence").Val(), "rdb_last_bgsave_status:err") })
		}, func() {
			server.Config("save", "")
		}},
		{"READONLY", "replica", func() {
			server.Client().SlaveOf(ctx, "127.0.0.1", "1")
		}, func() {
			server.Client().SlaveOf(ctx, "NO", "ONE")
		}},
	} {
		t.Run(c.prefix, func(t *testing.T) {
			w := newWorld(t, server.Client(), Config{})
			w.push("a", "b")
			s := w.open()
			tasks := w.fetch(s, 1, "a")
			c.break_()
			err := s.Settle(ctx, sources.Settlement{Task: &tasks[0], Outcome: sources.Done, Attempt: 1})
			if !redis.HasErrorPrefix(errors.Unwrap(err), c.prefix) && !strings.Contains(fmt.Sprint(err), c.prefix) || !strings.Contains(fmt.Sprint(err), c.hint) {
				t.Errorf("settle returns %v", err)
			}
			t.Log(err)
			if _, err := s.Fetch(ctx, 1); err == nil || !strings.Contains(err.Error(), c.hint) {
				t.Errorf("fetch returns %v", err)
			}
			c.mend_()
			eventually(t, func() bool { return w.client.LLen(ctx, w.keys.Pending).Val() == 1 })
			w.done(s, w.fetch(s, 1, "b")...)
			w.close(s)
		})
	}
	server.Config("dir", dir)
}

// A task that the base has passed is buried as any other, and given to nobody after it: it would end this peer, too, and
// is among the dead letters already.
func TestALiftedTaskThatEndedItsPeers(t *testing.T) {
	ctx, client := t.Context(), redistest.New(t)
	w := newWorld(t, client, Config{})
	w.push("next")
	poison := envelope{id: "poison", born: 1, unique: true}
	pipe := client.Pipeline()
	pipe.HSet(ctx, w.keys.Lifted, "0", appendEnvelope(nil, &poison))
	pipe.HSet(ctx, w.keys.Tries, "0", fmt.Sprintf("0 %d 0 ", w.source.cfg.CrashLimit-1))
	pipe.HSet(ctx, w.keys.Fence, "t", "1:dead", "e", 1, "b", 1, "n", 5, "h", 1, "a", "0")
	pipe.Set(ctx, w.keys.Unique("poison"), poison.lockValue(), 0)
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	w.epoch = 1
	w.fetch(w.open(), 1, "next")
	if n, left := client.LLen(ctx, w.keys.Dead).Val(), client.Exists(ctx, w.keys.Lifted, w.keys.Tries, w.keys.Unique("poison")).Val(); n != 1 || left != 0 {
		t.Errorf("%d dead letters, and %d keys of it are left, want 1 and none", n, left)
	}
}
