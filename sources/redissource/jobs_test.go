package redissource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/jobs"
	"github.com/countoff/countoff/sources/logstream"
)

// realServer returns a client of a real server, where one can be started.
func realServer(t *testing.T) redis.UniversalClient {
	t.Helper()
	return redistest.Server(t).Client()
}

// ticksOf counts the tasks of the log of partition id by their ids.
func ticksOf(t *testing.T, client redis.UniversalClient, name string, id partition.ID) map[string]int {
	t.Helper()
	found := make(map[string]int)
	for _, e := range logOf(t, client, name, id) {
		found[e.id]++
	}
	return found
}

// setJob records that the ticks of e are dealt with up to upto.
func setJob(t *testing.T, client redis.UniversalClient, name string, e jobs.Entry, upto time.Time) {
	t.Helper()
	r := jobRecord{upto: upto.UnixMilli(), Spec: e.Spec, Zone: e.Zone, Key: e.Key}
	if err := client.HSet(t.Context(), KeysOf(name, 0).jobsKey(), e.Name, r.String()).Err(); err != nil {
		t.Fatal(err)
	}
}

// The same missed ticks are fired by several at once: under the newest token, as a client
// does that repeats what was not answered, and under an older one, by an owner who does not
// know yet. Each tick is enqueued once.
func TestConcurrentFiringIsOnce(t *testing.T) {
	client, name := realServer(t), redistest.Name(t)
	every := jobs.Entry{Name: "every", Spec: "@every 1s", Zone: "UTC", Missed: jobs.All, Key: "k"}
	src, err := New(client, name, Config{Partitions: 1, Jobs: []jobs.Entry{every}})
	if err != nil {
		t.Fatal(err)
	}
	layout, err := src.Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Add(-500 * time.Second).Truncate(time.Second)
	setJob(t, client, name, every, begin)

	// The tickers are made by hand, so that the streams' own do not run.
	open := func(epoch partition.Epoch) *ticker {
		tok := tokenOf(epoch)
		return &ticker{
			stream: &stream{Stream: &logstream.Stream{Grant: partition.Grant{Epoch: epoch}}, source: src, token: tok, keys: KeysOf(name, 0)},
			jobs:   src.jobs, total: layout.Total, known: make([]string, 1),
		}
	}
	if err := client.HSet(t.Context(), KeysOf(name, 0).Fence, "t", tokenOf(2).String(), "e", 2, "b", 0).Err(); err != nil {
		t.Fatal(err)
	}
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range 12 {
		tk := open(partition.Epoch(2 - i%3/2)) // every third has an older token
		all.Go(func() {
			<-start
			_, err := tk.look(context.WithoutCancel(t.Context()))
			if stale := tk.stream.token != tokenOf(2); stale != errors.Is(err, errStale) || !stale && err != nil {
				t.Errorf("under %v: %v", tk.stream.token, err)
			}
		})
	}
	close(start)
	all.Wait()
	found := ticksOf(t, client, name, 0)
	for i := 1; i <= 500; i++ {
		id := "every@" + begin.Add(time.Duration(i)*time.Second).UTC().Format(time.RFC3339)
		if found[id] != 1 {
			t.Errorf("%s is enqueued %d times", id, found[id])
		}
	}
}

// An owner that was paused between its decision and its call, and one that fires what its
// successor has not fired: the fence refuses both.
func TestAnOlderOwnerFiresNothing(t *testing.T) {
	client, name := realServer(t), redistest.Name(t)
	daily := jobs.Entry{Name: "daily", Spec: "@daily", Zone: "UTC", Missed: jobs.Once, Key: "k"}
	src, err := New(client, name, Config{Partitions: 1, Jobs: []jobs.Entry{daily}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := src.Layout(t.Context()); err != nil {
		t.Fatal(err)
	}
	setJob(t, client, name, daily, time.Now().Add(-72*time.Hour))
	if err := client.HSet(t.Context(), KeysOf(name, 0).Fence, "t", tokenOf(2).String(), "e", 2, "b", 0).Err(); err != nil {
		t.Fatal(err)
	}
	old := &ticker{
		stream: &stream{Stream: &logstream.Stream{Grant: partition.Grant{Epoch: 1}}, source: src, token: tokenOf(1), keys: KeysOf(name, 0)},
		jobs:   src.jobs, total: 1, known: []string{client.HGet(t.Context(), KeysOf(name, 0).jobsKey(), "daily").Val()},
	}
	r, err := parseJobRecord(old.known[0])
	if err != nil {
		t.Fatal(err)
	}
	step := stepOf(src.jobs[0], r, time.Now())
	if len(step.envelopes) != 1 {
		t.Fatalf("%d ticks are due", len(step.envelopes))
	}
	if _, err := old.call(t.Context(), []jobStep{step}); !errors.Is(err, errStale) {
		t.Errorf("the older owner's call: %v", err)
	}
	// Nor does one that counts other partitions than the name has: the key may have moved.
	if err := client.HSet(t.Context(), KeysOf(name, 0).Fence, "t", tokenOf(1).String(), "p", 2).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := old.call(t.Context(), []jobStep{step}); !errors.Is(err, errStale) {
		t.Errorf("the call of one that was resized: %v", err)
	}
	if found := ticksOf(t, client, name, 0); len(found) != 0 {
		t.Errorf("fired %v", found)
	}
}

// The script fires what was decided on from what stands, and nothing else: what is recorded and
// what is enqueued belong together, for each job, and both are told.
func TestFiringIsByWhatStands(t *testing.T) {
	m, client := redistest.Mini(t)
	ctx, k := t.Context(), KeysOf(redistest.Name(t), 0)
	m.SetTime(time.UnixMilli(1_700_000_000_123))
	rung := listen(t, client, k)
	const clock = "[OK 1700000000123 "
	for _, c := range []struct {
		what    string
		waits   bool
		jobs    []any // name, decided on from, to record, tasks; for each
		tasks   []any
		want    string
		records string
		log     []string
		rung    string
	}{
		{
			"new", true, []any{"a", "", "1000 x", 1, "b", "", "2000 y", 0}, []any{"e1"},
			clock + "1000 x 2000 y]", "map[a:1000 x b:2000 y]", []string{"e1"}, "[0]",
		}, {
			"said again", true, []any{"a", "", "1000 x", 1, "b", "", "2000 y", 0}, []any{"e1"},
			clock + "1000 x 2000 y]", "map[a:1000 x b:2000 y]", []string{"e1"}, "[]",
		}, {
			"the second one only", false, []any{"a", "900", "3000 x", 2, "b", "2000", "3000 y", 2}, []any{"e2", "e3", "e4", "e5"},
			clock + "1000 x 3000 y]", "map[a:1000 x b:3000 y]", []string{"e1", "e4", "e5"}, "[]",
		}, {
			"decided on from more than stands", true, []any{"a", "1001", "3000 x", 1}, []any{"e6"},
			clock + "1000 x]", "map[a:1000 x b:3000 y]", []string{"e1", "e4", "e5"}, "[]",
		}, {
			"forgotten since", true, []any{"c", "1000", "3000 z", 1}, []any{"e6"},
			clock + "]", "map[a:1000 x b:3000 y]", []string{"e1", "e4", "e5"}, "[]",
		}, {
			"a look", true, []any{"a", "1000", "", 0}, nil,
			clock + "1000 x]", "map[a:1000 x b:3000 y]", []string{"e1", "e4", "e5"}, "[]",
		}, {
			"nothing to enqueue", true, []any{"a", "1000", "4000 x", 0}, nil,
			clock + "4000 x]", "map[a:4000 x b:3000 y]", []string{"e1", "e4", "e5"}, "[]",
		},
	} {
		client.Del(ctx, k.Fence)
		client.HSet(ctx, k.Fence, "t", "1:s", "p", 1)
		if c.waits {
			client.HSet(ctx, k.Fence, "w", "1")
		}
		args := append(append([]any{"1:s", 1, len(c.jobs) / 4}, c.jobs...), c.tasks...)
		got, err := jobsFireScript.Run(ctx, client, []string{k.Fence, k.Pending, k.jobsKey()}, args...).Result()
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, %v, want %s", c.what, got, err, c.want)
		}
		if records, log := fmt.Sprint(client.HGetAll(ctx, k.jobsKey()).Val()), client.LRange(ctx, k.Pending, 0, -1).Val(); records != c.records || !slices.Equal(log, c.log) {
			t.Errorf("%s: recorded is %s, want %s; the log is %q, want %q", c.what, records, c.records, log, c.log)
		}
		waits := client.HExists(ctx, k.Fence, "w").Val()
		if r := rung(); r != c.rung || waits != (c.waits && r == "[]") {
			t.Errorf("%s: rung for %s, want %s; somebody waits: %v", c.what, r, c.rung, waits)
		}
	}
	// Nobody fires where no fence stands.
	client.Del(ctx, k.Fence)
	fire := []any{"1:s", 1, 1, "a", "4000", "5000 x", 1, "e"}
	if got, err := jobsFireScript.Run(ctx, client, []string{k.Fence, k.Pending, k.jobsKey()}, fire...).Result(); err != nil || fmt.Sprint(got) != "[STALE]" {
		t.Errorf("without a fence: %v, %v", got, err)
	}
	client.HSet(ctx, k.Fence, "t", "1:s")
	// What cannot be enqueued is not recorded.
	client.Set(ctx, k.Pending, "no list", 0)
	if err := jobsFireScript.Run(ctx, client, []string{k.Fence, k.Pending, k.jobsKey()}, fire...).Err(); err == nil {
		t.Error("a tick was fired into what is no list")
	}
	if got := client.HGet(ctx, k.jobsKey(), "a").Val(); got != "4000 x" {
		t.Errorf("recorded is %q, and nothing was enqueued", got)
	}
}

// In a bubble: what an owner fires, and what the next one makes of the time between.
func TestJobsOfAPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := bubble(t, true)
		entries := []jobs.Entry{
			{Name: "skip", Spec: "0 * * * *", Zone: "UTC", Missed: jobs.Skip, Key: "k", Payload: []byte("p"), Headers: map[string]string{"a": "b"}},
			{Name: "once", Spec: "0 * * * *", Zone: "UTC", Missed: jobs.Once, Key: "k", Type: "hourly"},
			{Name: "all", Spec: "0 * * * *", Zone: "UTC", Missed: jobs.All, Key: "k"},
		}
		var told []Ticked
		source := func(entries ...jobs.Entry) *Source {
			src, err := New(client, "n", Config{Partitions: 1, Jobs: entries, Ticked: func(e Ticked) { told = append(told, e) }})
			if err != nil {
				t.Fatal(err)
			}
			return src
		}
		epoch := partition.Epoch(0)
		for_ := func(src *Source, d time.Duration) {
			t.Helper()
			epoch++
			s, err := src.Open(t.Context(), partition.Grant{Epoch: epoch}, tokenOf(epoch))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(d)
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		count := func() string {
			n := map[string]int{}
			for id, times := range ticksOf(t, client, "n", 0) {
				if times != 1 {
					t.Errorf("%s is enqueued %d times", id, times)
				}
				entry, _, _ := strings.Cut(id, "@")
				n[entry]++
			}
			return fmt.Sprintf("skip %d, once %d, all %d", n["skip"], n["once"], n["all"])
		}
		want := func(when, want string) {
			t.Helper()
			if got := count(); got != want {
				t.Errorf("%s: %s, want %s", when, got, want)
			}
		}
		time.Sleep(90 * time.Minute) // the bubble begins at midnight
		src := source(entries...)
		for_(src, 20*time.Minute)
		want("an entry begins when it is first seen", "skip 0, once 0, all 0")
		for_(src, 3*time.Hour) // to 4:50
		want("three hours", "skip 3, once 3, all 3")
		time.Sleep(10*time.Minute + 50*time.Second)
		for_(src, 9*time.Second) // to 5:01, but for a second
		want("a take-over within the grace", "skip 4, once 4, all 4")
		time.Sleep(5*time.Hour + 30*time.Minute)
		for_(src, time.Minute) // at 10:31
		want("five were missed", "skip 4, once 5, all 9")
		e := logOf(t, client, "n", 0)[0]
		if e.key != "k" || e.headers["a"] != "b" && e.typ == "skip" || e.headers[jobs.HeaderTick] != "2000-01-01T02:00:00Z" {
			t.Errorf("the first task is %+v", e)
		}
		passed := 0
		for _, e := range told {
			if e.Err != nil || e.Job == "" || e.Fired == 0 && !e.Passed {
				t.Errorf("told %+v", e)
			}
			if e.Passed {
				passed++
			}
		}
		if passed != 2 {
			t.Errorf("told %d times that ticks were passed over, want 2: %+v", passed, told)
		}

		// Another schedule begins when it is first seen, and its past is not missed.
		entries[2].Spec = "30 * * * *"
		time.Sleep(6 * time.Hour)
		for_(source(entries...), time.Hour)
		want("a changed schedule", "skip 5, once 7, all 10")

		states, err := Jobs(t.Context(), client, "n", []partition.ID{0})
		if err != nil || len(states) != 3 {
			t.Fatalf("%+v, %v", states, err)
		}
		for _, s := range states {
			if s.Entry == "all" && (s.Spec != "30 * * * *" || s.Fired != 10 || s.Last.Minute() != 30) {
				t.Errorf("%+v", s)
			}
		}
		if found, err := ForgetJob(t.Context(), client, "n", "all", []partition.ID{0}); !found || err != nil {
			t.Errorf("forgotten %t, %v", found, err)
		}
	})
}

// What the store refuses is told, and tried again.
func TestTicksThatCannotBeFiredAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := bubble(t, true)
		told := make(chan Ticked, 100)
		src, err := New(client, "n", Config{
			Partitions: 1, Ticked: func(e Ticked) { told <- e },
			Jobs: []jobs.Entry{{Name: "j", Spec: "* * * * *", Zone: "UTC", Missed: jobs.Once}},
		})
		if err != nil {
			t.Fatal(err)
		}
		key := KeysOf("n", 0).jobsKey()
		if err := client.Set(t.Context(), key, "no hash", 0).Err(); err != nil {
			t.Fatal(err)
		}
		s, err := src.Open(t.Context(), partition.Grant{Epoch: 1}, tokenOf(1))
		if err != nil {
			t.Fatal(err)
		}
		if e := <-told; e.Err == nil || e.Again <= 0 {
			t.Errorf("told %+v", e)
		}
		client.Del(t.Context(), key)
		for e := range told {
			if e.Err == nil {
				break
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A record that nobody can read stops its own job, and what is said of it says which and what to do.
func TestAnUnreadableRecordStopsItsOwnJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := bubble(t, true)
		told := make(chan Ticked, 100)
		minute := jobs.Entry{Name: "good", Spec: "* * * * *", Zone: "UTC", Missed: jobs.Once, Key: "k"}
		broken := minute
		broken.Name = "broken"
		src, err := New(client, "n", Config{Partitions: 1, Ticked: func(e Ticked) { told <- e }, Jobs: []jobs.Entry{broken, minute}})
		if err != nil {
			t.Fatal(err)
		}
		setJob(t, client, "n", minute, time.Now().Add(-time.Minute))
		if err := client.HSet(t.Context(), KeysOf("n", 0).jobsKey(), "broken", "yesterday").Err(); err != nil {
			t.Fatal(err)
		}
		s, err := src.Open(t.Context(), partition.Grant{Epoch: 1}, tokenOf(1))
		if err != nil {
			t.Fatal(err)
		}
		if e := <-told; e.Job != "good" || e.Fired != 1 {
			t.Errorf("told %+v, want that the other job ticked", e)
		}
		e := <-told
		for _, want := range []string{`job "broken" of n`, `"yesterday"`, "countoff jobs n --forget broken"} {
			if e.Err == nil || !strings.Contains(e.Err.Error(), want) {
				t.Errorf("told %+v, want it to say %q", e, want)
			}
		}
		states, err := Jobs(t.Context(), client, "n", []partition.ID{0})
		if len(states) != 1 || states[0].Entry != "good" || err == nil || !strings.Contains(err.Error(), "--forget broken") {
			t.Errorf("read %+v, %v", states, err)
		}
		if _, err := ForgetJob(t.Context(), client, "n", "broken", []partition.ID{0}); err != nil {
			t.Fatal(err)
		}
		for e := range told {
			if e.Job == "broken" && e.Fired == 1 {
				break
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The script compares the digits that a record begins with: what begins with another number than they say could be
// decided on again and again, without a pause.
func TestARecordBeginsWithDigits(t *testing.T) {
	for _, record := range []string{"-1000 {}", "+1000 {}", " 1000 {}", "1e3 {}"} {
		if r, err := parseJobRecord(record); err == nil {
			t.Errorf("%q is read as %+v", record, r)
		}
	}
}

func TestResizeTakesJobsAlong(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	if _, err := redisconfig.Agree(t.Context(), client, name, partition.Config{Total: 2, Hash: partition.XXHash64}); err != nil {
		t.Fatal(err)
	}
	upto := time.Now().Add(-time.Hour)
	for i := range 20 {
		e := jobs.Entry{Name: fmt.Sprint("job", i), Spec: "@daily", Zone: "UTC", Key: fmt.Sprint("key", i)}
		r := jobRecord{upto: upto.UnixMilli(), Spec: e.Spec, Zone: e.Zone, Key: e.Key, Fired: int64(i)}
		if err := client.HSet(t.Context(), KeysOf(name, partition.Of(e.Key, 2)).jobsKey(), e.Name, r.String()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Resize(t.Context(), client, name, 5, ResizeConfig{Idle: idle}); err != nil {
		t.Fatal(err)
	}
	states, err := Jobs(t.Context(), client, name, []partition.ID{0, 1, 2, 3, 4})
	if err != nil || len(states) != 20 {
		t.Fatalf("%d jobs, %v", len(states), err)
	}
	for _, s := range states {
		if s.Partition != partition.Of(s.Key, 5) || s.Upto.UnixMilli() != upto.UnixMilli() || fmt.Sprint("job", s.Fired) != s.Entry {
			t.Errorf("%+v should be in partition %v", s, partition.Of(s.Key, 5))
		}
	}
}

// A record that cannot be read has no key to move it by. That is said while the name can still be
// opened again: in the midst of a resize nobody could do what the error asks for.
func TestResizeBeginsNotWithAnUnreadableRecord(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	if _, err := redisconfig.Agree(t.Context(), client, name, partition.Config{Total: 4, Hash: partition.XXHash64}); err != nil {
		t.Fatal(err)
	}
	if err := client.HSet(t.Context(), KeysOf(name, 3).jobsKey(), "broken", "yesterday").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := Resize(t.Context(), client, name, 2, ResizeConfig{Idle: idle}); err == nil || !strings.Contains(err.Error(), "countoff jobs "+name+" --forget broken") {
		t.Errorf("resized with %v", err)
	}
	cfg, err := redisconfig.Read(t.Context(), client, name)
	if err != nil || cfg.Total != 4 {
		t.Fatalf("the name has %+v, %v", cfg, err)
	}
	if _, err := ForgetJob(t.Context(), client, name, "broken", cfg.IDs()); err != nil {
		t.Fatal(err)
	}
	if _, err := Resize(t.Context(), client, name, 2, ResizeConfig{Idle: idle}); err != nil {
		t.Error(err)
	}
}

func TestAJobWhoseKeyIsNoNumberIsRefused(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	src, err := New(client, name, Config{Partitions: 2, Hash: partition.ByID, Jobs: []jobs.Entry{
		{Name: "a", Spec: "@daily", Zone: "UTC", Missed: jobs.Skip}, {Name: "b", Spec: "@daily", Zone: "UTC", Missed: jobs.Skip, Key: "17"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := src.Layout(t.Context()); !errors.Is(err, partition.ErrConfig) || !strings.Contains(err.Error(), `job "a"`) || strings.Contains(err.Error(), `job "b"`) {
		t.Errorf("refused with %v", err)
	}
}
