package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
)

func (s *store) client(t testing.TB, partitions int) *Client {
	t.Helper()
	c, err := NewClient(t.Context(), s.UniversalClient, s.name, ClientConfig{Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAKeyHasAQueueAndArrives(t *testing.T) {
	s := newStore(t)
	c := s.client(t, 4)
	for i := range 20 {
		key := fmt.Sprint("user-", i)
		task := asynq.NewTask("mail", fmt.Append(nil, i), asynq.MaxRetry(7))
		for _, opts := range [][]asynq.Option{
			nil, {asynq.ProcessIn(time.Hour)}, {asynq.Unique(time.Hour)}, {asynq.Group("g")},
			{asynq.Unique(time.Minute), asynq.ProcessIn(time.Hour), asynq.TaskID(fmt.Sprint("id", i))},
		} {
			if i > 0 && len(opts) > 1 {
				continue
			}
			info, err := c.Enqueue(key, task, opts...)
			if errors.Is(err, asynq.ErrDuplicateTask) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := QueueOf(s.name, partition.Of(key, 4)); info.Queue != want {
				t.Errorf("%s went to %s, want %s", key, info.Queue, want)
			}
			if info.MaxRetry != 7 {
				t.Errorf("the task's own options are lost: %d retries", info.MaxRetry)
			}
			// Not by the inspector, which does not tell headers before v0.26.
			raw, err := s.HGet(t.Context(), "asynq:{"+info.Queue+"}:t:"+info.ID, "msg").Result()
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseMessage(raw)
			if err != nil {
				t.Fatal(err)
			}
			if got.key != key || got.born.IsZero() {
				t.Errorf("the key is %q, born %v", got.key, got.born)
			}
		}
	}
	if task, err := c.Enqueue("", asynq.NewTask("mail", nil)); err != nil || task.Queue != QueueOf(s.name, 0) {
		t.Errorf("a task without a key: %v, %v", task, err)
	}
	if task, err := c.Enqueue("", asynq.NewTask("mail", nil)); err != nil || task.Queue != QueueOf(s.name, 1) {
		t.Errorf("the next task without a key: %v, %v", task, err)
	}
}

// asynq looks for the other of two tasks that must not both be there in one queue: without a key they go to that
// of what they must not share, and not to the next one.
func TestATaskThatIsAloneHasAQueue(t *testing.T) {
	s := newStore(t)
	for _, c := range []struct {
		what string
		opt  func(i int) asynq.Option
		want error
	}{
		{"unique", func(int) asynq.Option { return asynq.Unique(time.Hour) }, asynq.ErrDuplicateTask},
		{"id", func(i int) asynq.Option { return asynq.TaskID(fmt.Sprint("report-", i)) }, asynq.ErrTaskIDConflict},
	} {
		first, second := s.client(t, 8), s.client(t, 8)
		if _, err := second.Enqueue("", asynq.NewTask("of another turn", nil)); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			task := asynq.NewTask(c.what, fmt.Append(nil, i))
			if _, err := first.Enqueue("", task, asynq.MaxRetry(1), c.opt(i)); err != nil {
				t.Fatal(err)
			}
			if info, err := second.Enqueue("", task, c.opt(i)); !errors.Is(err, c.want) {
				t.Errorf("%s %d once more: %+v, %v", c.what, i, info, err)
			}
		}
	}
}

// asynq makes one task of those of a group that are in one queue: in turns they would be as many small ones as
// there are queues.
func TestAGroupHasAQueue(t *testing.T) {
	s := newStore(t)
	first, second := s.client(t, 8), s.client(t, 8)
	for _, group := range []string{"mails", "reports"} {
		want := ""
		for i := range 20 {
			c := first
			if i%3 == 0 {
				c = second
			}
			info, err := c.Enqueue("", asynq.NewTask("grouped", fmt.Append(nil, i)), asynq.Group(group))
			if err != nil {
				t.Fatal(err)
			}
			if want == "" {
				want = info.Queue
			}
			if info.Queue != want {
				t.Errorf("%d of %s is in %s, others are in %s", i, group, info.Queue, want)
			}
		}
	}
	for _, c := range []struct {
		what string
		opt  asynq.Option
		want error
	}{
		{"unique", asynq.Unique(time.Hour), asynq.ErrDuplicateTask},
		{"id", asynq.TaskID("report"), asynq.ErrTaskIDConflict},
	} {
		task := asynq.NewTask(c.what, nil)
		if _, err := first.Enqueue("", task, asynq.Group("g"), c.opt); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if info, err := second.Enqueue("", task, c.opt, asynq.Group(fmt.Sprint(i))); !errors.Is(err, c.want) {
				t.Errorf("%s once more, in another group: %+v, %v", c.what, info, err)
			}
		}
	}
}

func TestAClientForNamedQueuesIsRefused(t *testing.T) {
	s := newStore(t)
	src, _, _ := s.peer(t, Config{Queues: []string{s.name + "-critical", s.name + "-low"}})
	if _, err := src.Layout(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := NewClient(t.Context(), s.UniversalClient, s.name, ClientConfig{}); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("the client says %v", err)
	}
	other, _, _ := s.peer(t, Config{Queues: []string{s.name + "-low", s.name + "-critical"}})
	if _, err := other.Layout(t.Context()); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("a peer with another order of queues is told %v", err)
	}
}

// Who wants one more queue is told of the queues, not of the number of partitions, which
// countoff resize would not change for it, and the peers that are there hear of it.
func TestAnotherQueueIsRefusedWithTheWayThere(t *testing.T) {
	s := newStore(t)
	src, _, _ := s.peer(t, Config{Queues: []string{"critical", "low"}})
	if _, err := src.Layout(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  Config
		want []string
	}{
		"one more": {Config{Queues: []string{"critical", "low", "reports"}}, []string{
			`the queues ["critical" "low"] stand there, this program wants ["critical" "low" "reports"]`,
			"countoff destroy " + s.name + " --yes, which leaves queues of asynq and their tasks as they are", "countoff init " + s.name + " --partitions 3)"}},
		"by key":  {Config{Partitions: 2}, []string{s.name + ":0, " + s.name + ":1 ... by key"}},
		"ingress": {Config{Partitions: 2, Ingress: []string{"default"}}, []string{"--partitions 2 --unit default)"}},
	} {
		t.Run(name, func(t *testing.T) {
			other, _, _ := s.peer(t, c.cfg)
			_, err := other.Layout(t.Context())
			if !errors.Is(err, partition.ErrConfig) || strings.Contains(err.Error(), "resize") {
				t.Errorf("it says %v", err)
			}
			refused, _ := s.LIndex(t.Context(), redisconfig.RefusedKey(s.name), 0).Result()
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) || !strings.Contains(refused, want) {
					t.Errorf("%q is not said in %v, or not left for the peers in %s", want, err, refused)
				}
			}
		})
	}
}

// Tasks of a key run one at a time, in the order in which they were enqueued, with many
// workers, over a hand-over and over retries.
func TestTheOrderOfAKeyIsKept(t *testing.T) {
	t.Parallel()
	const keys, each = 5, 40
	s := newStore(t)
	c := s.client(t, 1)
	var mu sync.Mutex
	var running [keys]int
	var next [keys]int
	handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		var k, i int
		if _, err := fmt.Sscanf(string(task.Payload()), "%d %d", &k, &i); err != nil {
			t.Error(err)
		}
		mu.Lock()
		if running[k]++; running[k] > 1 {
			t.Errorf("two tasks of key %d at once", k)
		}
		if next[k] != i {
			t.Errorf("key %d: task %d came when %d was due", k, i, next[k])
		}
		mu.Unlock()
		retried, _ := asynq.GetRetryCount(ctx)
		defer func() {
			mu.Lock()
			running[k]--
			mu.Unlock()
		}()
		if i%10 == 3 && retried == 0 {
			return errors.New("the first time it fails")
		}
		mu.Lock()
		next[k]++
		mu.Unlock()
		return nil
	})
	cfg := asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }}
	a := s.run(t, Config{Partitions: 1}, handler, cfg)
	b := s.run(t, Config{Partitions: 1}, handler, cfg)
	first := a.serve(0, 1)
	for i := range each {
		for k := range keys {
			if _, err := c.Enqueue(fmt.Sprint("key-", k), asynq.NewTask("t", fmt.Appendf(nil, "%d %d", k, i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			sum := 0
			for _, v := range next {
				sum += v
			}
			return sum >= n
		}
	}
	until(t, "some are done", got(keys*each/3))
	first.stop()
	second := b.serve(0, 2)
	until(t, "all are done", got(keys*each))
	second.stop()
	if info, err := s.inspector().GetQueueInfo(QueueOf(s.name, 0)); err != nil || info.Size != 0 {
		t.Errorf("left over: %+v, %v", info, err)
	}
}

// The queue is that of the key, whatever the caller's options say; they stay the caller's.
func TestTheKeySaysTheQueue(t *testing.T) {
	s := newStore(t)
	c := s.client(t, 4)
	opts := append(make([]asynq.Option, 0, 4), asynq.Queue("elsewhere"), asynq.MaxRetry(7))
	info, err := c.Enqueue("ann", asynq.NewTask("t", nil), opts...)
	if want := QueueOf(s.name, partition.Of("ann", 4)); err != nil || info.Queue != want || info.MaxRetry != 7 {
		t.Errorf("the task is %+v, %v, want it in %s", info, err, want)
	}
	if spare := opts[:3][2]; spare != nil {
		t.Errorf("an option was put beside the caller's: %v", spare)
	}
	if _, err := c.Enqueue("\xff", asynq.NewTask("t", nil)); err == nil {
		t.Error("a key is taken that asynq's messages cannot hold")
	}
	message := append(make([]byte, 0, 64), "\x1a\x01x"...)
	args := []any{"id", message}
	marked, err := mark(context.WithValue(t.Context(), markKey{}, "ann"), args)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := parseMessage(string(marked[1].([]byte))); err != nil || m.key != "ann" || m.born.IsZero() {
		t.Errorf("the message is %+v, %v", m, err)
	}
	if spare := message[:4][3]; spare != 0 || len(args[1].([]byte)) != 3 {
		t.Error("the caller's message has changed")
	}
	if _, err := mark(context.WithValue(t.Context(), markKey{}, "ann"), []any{"id", 7}); !errors.Is(err, errUnmarked) {
		t.Errorf("a script without a message is sent without the key: %v", err)
	}
	if _, err := mark(t.Context(), args); !errors.Is(err, errUnmarked) {
		t.Errorf("a message without a key is sent: %v", err)
	}
}

// What tasks have in common is there once; a task with headers has a Delivery of its own.
func TestTasksShareADelivery(t *testing.T) {
	s := newStore(t)
	for range 2 {
		s.enqueue(t, 0, asynq.NewTask("t", nil))
	}
	with := sources.Task{ID: "with", Type: "t", Born: sources.MomentOf(time.Now()), Delivery: &sources.Delivery{Headers: map[string]string{"trace": "ab"}}}
	if err := s.push(t.Context(), 0, with); err != nil {
		t.Fatal(err)
	}
	tasks := s.open(t, s.source(t), 0, 1).all(t, 3)
	if tasks[0].Delivery != tasks[1].Delivery || tasks[0].Attempt != 1 || tasks[0].Headers != nil {
		t.Errorf("without headers: %+v and %+v", tasks[0].Delivery, tasks[1].Delivery)
	}
	if own := tasks[2]; own.Delivery == tasks[0].Delivery || own.Headers["trace"] != "ab" || own.Attempt != 1 || own.Token != tasks[0].Token {
		t.Errorf("with headers: %+v", own.Delivery)
	}
}

// A task of asynq's own client was born when it became pending.
func TestWhenATaskWasBorn(t *testing.T) {
	s := newStore(t)
	began := time.Now().Add(-time.Second)
	s.enqueue(t, 0, asynq.NewTask("t", nil))
	st := s.open(t, s.source(t), 0, 1)
	if born := st.all(t, 1)[0].Born.Time(); born.Before(began) || born.After(time.Now().Add(time.Second)) {
		t.Errorf("it was born at %v", born)
	}
}
