package kafkafx_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/kafkafx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/kafkasource"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
	"github.com/countoff/countoff/sources/redisprogress"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

// quick begins at once. The lease is long, so that it does not run out on a slow machine.
var quick = framework.Config{
	Timing:   transition.Timing{Lease: 20 * time.Second, Settle: 10 * time.Millisecond},
	PodGrace: time.Minute,
}

// A stage is a topic and a name.
type stage struct {
	testing.TB
	broker *kafkatest.Broker
	redis  redis.UniversalClient
	name   string
	topic  string
	client *kgo.Client
	// progress is where the peers keep it.
	progress kafkafx.Progress
	group    string // empty: the name
}

// eachProgress runs a test with each place of progress.
func eachProgress(t *testing.T, partitions int, test func(s *stage)) {
	for _, p := range []kafkafx.Progress{kafkafx.InRedis, kafkafx.InKafka} {
		t.Run("progress in "+string(p), func(t *testing.T) {
			s := newStage(t, partitions)
			s.progress = p
			test(s)
		})
	}
}

func newStage(t testing.TB, partitions int) *stage {
	b := kafkatest.New(t)
	s := &stage{TB: t, broker: b, redis: redistest.New(t), name: redistest.Name(t), topic: b.Topic(partitions), client: b.Client()}
	if _, err := redisledger.Init(t.Context(), s.redis, s.name, partition.Config{Total: partitions, Hash: partition.Murmur2}); err != nil {
		t.Fatal(err)
	}
	return s
}

// peer starts a peer that gives what it is handed to handle.
func (s *stage) peer(cfg framework.Config, handle func(context.Context, *framework.Task) error, more ...fx.Option) *fxtest.App {
	s.Helper()
	app := fxtest.New(s,
		fx.Options(more...),
		frameworkfx.Module,
		fx.Provide(func() redis.UniversalClient { return s.redis }),
		kafkafx.Source(s.name, kafkafx.Config{
			URL:      "kafka://" + strings.Join(s.broker.Seeds(), ","),
			Progress: s.progress,
			Source:   kafkasource.Config{Topic: s.topic, Group: s.group, Look: 50 * time.Millisecond, Mirror: 50 * time.Millisecond},
		}),
		frameworkfx.Configure(s.name, cfg),
		frameworkfx.Otherwise(s.name, handle),
	)
	app.RequireStart()
	return app
}

func (s *stage) push(id int32, key string, n int, first int) {
	s.Helper()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Topic: s.topic, Partition: id, Key: []byte(key), Value: fmt.Append(nil, first+i)})
	}
	if err := s.client.ProduceSync(s.Context(), records...).FirstErr(); err != nil {
		s.Fatal(err)
	}
}

func TestTasksOfATopicAreHandled(t *testing.T) {
	eachProgress(t, 3, func(s *stage) {
		handled := make(chan *framework.Task, 1)
		app := s.peer(quick, func(_ context.Context, task *framework.Task) error {
			handled <- task
			return nil
		})
		s.push(2, "ann", 1, 7)
		select {
		case got := <-handled:
			if got.Key != "ann" || string(got.Payload) != "7" || got.Grant.ID != 2 {
				s.Errorf("handled %+v", got)
			}
		case <-time.After(patience):
			s.Error("the task was not handled")
		}
		app.RequireStop()
	})
}

// What a source has to tell comes to the observers of its consumer, and what its progress in Kafka has, too.
func TestTheObserverHearsTheSource(t *testing.T) {
	for progress, word := range map[kafkafx.Progress]string{kafkafx.InRedis: "goes on at the earliest", kafkafx.InKafka: "knows nothing of it"} {
		t.Run("progress in "+string(progress), func(t *testing.T) {
			s := newStage(t, 1)
			if err := s.redis.HSet(t.Context(), redisprogress.Elsewhere(s.name, 0).Fence, "b", 5).Err(); err != nil { // the topic has lost that much
				t.Fatal(err)
			}
			warned := make(chan framework.Warned, 64)
			app := fxtest.New(t, frameworkfx.Module,
				fx.Provide(func() redis.UniversalClient { return s.redis }),
				kafkafx.Source(s.name, kafkafx.Config{
					URL:      "kafka://" + strings.Join(s.broker.Seeds(), ","),
					Progress: progress,
					Source:   kafkasource.Config{Topic: s.topic, OutOfRange: kafkasource.Earliest},
				}),
				frameworkfx.Configure(s.name, quick),
				frameworkfx.Otherwise(s.name, func(context.Context, *framework.Task) error { return nil }),
				frameworkfx.Observe(func() framework.Observer {
					return framework.ObserverFunc(func(e framework.Event) {
						if e, ok := e.(framework.Warned); ok {
							warned <- e
						}
					})
				}))
			app.RequireStart()
			defer app.RequireStop()
			late := time.After(patience)
			for told := false; !told; {
				select {
				case e := <-warned:
					told = e.Consumer == s.name && strings.Contains(e.Warning, s.topic) && strings.Contains(e.Warning, word)
				case <-late:
					t.Fatalf("nobody was told what has the words %q", word)
				}
			}
		})
	}
}

// A topic that grows while two peers work is shared out among them without a restart.
func TestATopicThatGrows(t *testing.T) {
	eachProgress(t, 6, func(s *stage) {
		var mu sync.Mutex
		by := map[partition.ID]string{}
		handler := func(peer string) func(context.Context, *framework.Task) error {
			return func(_ context.Context, task *framework.Task) error {
				mu.Lock()
				defer mu.Unlock()
				by[task.Grant.ID] = peer
				return nil
			}
		}
		a, b := s.peer(quick, handler("a")), s.peer(quick, handler("b"))
		covered := func(n int) func() bool {
			return func() bool { mu.Lock(); defer mu.Unlock(); return len(by) == n }
		}
		for id := range int32(6) {
			s.push(id, "k", 1, 0)
		}
		s.until("six partitions", covered(6))
		s.broker.Grow(s.topic, 12)
		s.client = s.broker.Client() // one that knows
		for id := range int32(12) {
			s.push(id, "k", 1, 1)
		}
		s.until("twelve partitions", covered(12))
		// Both get some of them: which, the rolls say.
		s.until("a share for both", func() bool {
			for id := range int32(12) {
				s.push(id, "k", 1, 2)
			}
			mu.Lock()
			defer mu.Unlock()
			shares := map[string]int{}
			for _, peer := range by {
				shares[peer]++
			}
			return shares["a"] == 6 && shares["b"] == 6
		})
		a.RequireStop()
		b.RequireStop()
	})
}

// One partition, many keys: handlers of different keys run side by side, those of one
// key in order and alone, and what is committed is contiguous: everything below it has
// ended.
func TestKeysOfOnePartition(t *testing.T) {
	eachProgress(t, 1, func(s *stage) {
		const keys, each, together = 100, 3, 40
		var mu sync.Mutex
		running, most, ended := map[string]int{}, 0, map[string]int{}
		offsets, low := map[int64]bool{}, int64(0) // that ended; all below low did
		full := make(chan struct{})                // closed when as many run side by side as shall
		cfg := quick
		cfg.Concurrency = keys
		app := s.peer(cfg, func(ctx context.Context, task *framework.Task) error {
			mu.Lock()
			if running[task.Key]++; running[task.Key] > 1 {
				s.Errorf("two handlers of %s", task.Key)
			}
			if want := fmt.Sprint(ended[task.Key]); string(task.Payload) != want {
				s.Errorf("%s: got %s, want %s", task.Key, task.Payload, want)
			}
			n := 0
			for _, r := range running {
				n += r
			}
			if most = max(most, n); most == together {
				select {
				case <-full:
				default:
					close(full)
				}
			}
			mu.Unlock()
			select {
			case <-full:
			case <-ctx.Done():
				return ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			running[task.Key]--
			ended[task.Key]++
			offsets[int64(task.Receipt)] = true
			return nil
		})
		for i := range each {
			for k := range keys {
				s.push(0, fmt.Sprint("key", k), 1, i)
			}
		}
		var committed int64
		s.until("all committed", func() bool {
			at := s.committed(0)
			mu.Lock()
			defer mu.Unlock()
			for offsets[low] {
				low++
			}
			if at < committed || at > low {
				s.Fatalf("committed %d after %d, all below %d have ended", at, committed, low)
			}
			committed = at
			return at == keys*each
		})
		// Serial would be 1; each handler that runs beside others saves its whole time.
		if most < together {
			s.Errorf("at most %d handlers ran side by side, want %d", most, together)
		}
		app.RequireStop()
	})
}

// committed is what the group has of a partition.
func (s *stage) committed(id int32) int64 {
	s.Helper()
	all, err := kadm.NewClient(s.client).FetchOffsetsForTopics(s.Context(), s.name, s.topic)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		s.Fatal(err)
	}
	o, _ := all.Lookup(s.topic, id)
	return max(0, o.At)
}

func (s *stage) until(what string, ok func() bool) {
	s.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			s.Fatalf("never: %s", what)
		}
	}
}

func TestWhatIsWrongIsListed(t *testing.T) {
	app := fx.New(fx.NopLogger, frameworkfx.Module,
		kafkafx.Source("orders", kafkafx.Config{URL: "kafka://ann:secret@host", Source: kafkasource.Config{Topic: "orders", Start: "somewhere"}}),
		kafkafx.Source("bills", kafkafx.Config{URL: "kafka://host", Redis: "redis://host", Source: kafkasource.Config{Start: "somewhere"}}),
		kafkafx.Source("notes", kafkafx.Config{URL: "kafka://host", Redis: "redis://host", WaitReplicas: -1, Progress: "nowhere", Source: kafkasource.Config{Topic: "notes", Window: -1}}),
		kafkafx.Source("kites", kafkafx.Config{URL: "host", Redis: "host", Progress: kafkafx.InKafka, Source: kafkasource.Config{Group: kafkasource.NoGroup, Buffer: -1}}),
		kafkafx.Source("jobs", kafkafx.Config{URL: "kafka://host", Redis: "redis://host", Progress: kafkafx.InKafka, Source: kafkasource.Config{Group: kafkasource.NoGroup}}),
		kafkafx.Source("mails", kafkafx.Config{Redis: "redis://host", Source: kafkasource.Config{Topic: "mails"}}),
		frameworkfx.Otherwise("mails", func(context.Context, *framework.Task) error { return nil }),
		frameworkfx.Otherwise("orders", func(context.Context, *framework.Task) error { return nil }),
		frameworkfx.Otherwise("bills", func(context.Context, *framework.Task) error { return nil }),
		frameworkfx.Otherwise("notes", func(context.Context, *framework.Task) error { return nil }),
		frameworkfx.Otherwise("jobs", func(context.Context, *framework.Task) error { return nil }),
	)
	var wrong *frameworkfx.StartError
	if !errors.As(app.Err(), &wrong) {
		t.Fatalf("the application says %v", app.Err())
	}
	for _, want := range []string{
		`consumer "orders": kafkasource: Start "somewhere"`, `consumer "notes": kafkasource: Window -1`,
		`consumer "kites": redis URL host`, `consumer "kites": kafkasource: URL host`, `consumer "kites": kafkasource: no topic`,
		`consumer "kites": kafkasource: Buffer -1`, `consumer "kites": kafkaprogress: no Group`,
		"no Redis URL, and the application provides no redis.UniversalClient",
		"a user needs sasl=plain", "no topic", `Start "somewhere"`, `Progress "nowhere"`, "no Group",
		`consumer "mails": kafkafx: no URL of the brokers`, `consumer "notes": kafkafx: WaitReplicas -1: want 0 or more`,
	} {
		if !strings.Contains(wrong.Error(), want) {
			t.Errorf("%q is not listed in:\n%v", want, wrong)
		}
	}
	if strings.Contains(wrong.Error(), "kafkaprogress: no topic") {
		t.Errorf("that there is no topic is said of the progress as well:\n%v", wrong)
	}
	if strings.Contains(wrong.Error(), "no Redis client") {
		t.Errorf("that there is no client is said without the reason as well:\n%v", wrong)
	}
	if strings.Contains(wrong.Error(), "no Options") {
		t.Errorf("of a URL that is wrong it is said that there is none:\n%v", wrong)
	}
	if strings.Contains(wrong.Error(), "secret") {
		t.Errorf("the password is told:\n%v", wrong)
	}
}
