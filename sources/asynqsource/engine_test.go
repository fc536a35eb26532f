package asynqsource

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/countoff/countoff/partition/redistest"
)

func TestAMuxRunsWhatAClientEnqueues(t *testing.T) {
	s := newStore(t)
	var mu sync.Mutex
	seen := make(map[string]int)
	mux := asynq.NewServeMux()
	mux.HandleFunc("mail:send", func(ctx context.Context, task *asynq.Task) error {
		if g, ok := Grant(ctx); !ok || g.ID != 0 {
			t.Errorf("the handler got the grant %v", g)
		}
		if tok, ok := Token(ctx); !ok || tok.Epoch != 1 {
			t.Errorf("the handler got the token %v", tok)
		}
		mu.Lock()
		defer mu.Unlock()
		seen[string(task.Payload())]++
		return nil
	})
	const n = 200
	for i := range n / 2 {
		s.enqueue(t, 0, asynq.NewTask("mail:send", fmt.Append(nil, i)))
	}
	p := s.run(t, Config{}, mux, asynq.Config{})
	o := p.serve(0, 1)
	for i := n / 2; i < n; i++ {
		s.enqueue(t, 0, asynq.NewTask("mail:send", fmt.Append(nil, i)))
	}
	until(t, "all are done", func() bool {
		info, err := s.inspector().GetQueueInfo(QueueOf(s.name, 0))
		if err != nil {
			t.Fatal(err)
		}
		return info.ProcessedTotal == n && info.Size == 0
	})
	o.stop()
	for i := range n {
		if seen[fmt.Sprint(i)] != 1 {
			t.Errorf("task %d ran %d times", i, seen[fmt.Sprint(i)])
		}
	}
	if keys := redistest.Keys(t, s.UniversalClient, "*"+QueueOf(s.name, 0)+"*:t:*"); len(keys) > 0 {
		t.Errorf("left over: %v", keys)
	}
}

// What a plain server was told and an engine cannot do is refused, not forgotten.
func TestWhatAnEngineCannotDoIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		src  Config
		cfg  asynq.Config
		says string
	}{
		{"queues of the source", Config{Queues: []string{"critical", "low"}}, asynq.Config{Queues: map[string]int{"critical": 6}}, ""},
		{"a queue that is forgotten", Config{Queues: []string{"critical"}}, asynq.Config{Queues: map[string]int{"critical": 6, "low": 1}}, `"low"`},
		{"queues by key", Config{}, asynq.Config{Queues: map[string]int{"mails:0": 1, "mails:11": 1}}, ""},
		{"another name's", Config{}, asynq.Config{Queues: map[string]int{"default": 1}}, `"default"`},
		{"an ingress", Config{Ingress: []string{"default"}}, asynq.Config{Queues: map[string]int{"default": 1}}, ""},
		{"strict priority", Config{}, asynq.Config{StrictPriority: true}, "StrictPriority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, err := New(nil, "mails", c.src)
			if err != nil {
				t.Fatal(err)
			}
			_, err = src.Handler(asynq.NewServeMux(), c.cfg)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %v, want %q", err, c.says)
			}
		})
	}
}
