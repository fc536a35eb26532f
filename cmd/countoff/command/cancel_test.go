package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

func TestCancelSaysWhatItKnows(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.fails(exit.Failed, "cancel n a") // there is no such name
	s.run("init n --partitions 2")
	for _, line := range []string{
		"cancel", "cancel {} a", "cancel n a --for 1ms", "cancel n a --for 200h", "cancel n a --wait -1s", "cancel n --undo", "cancel n a --json",
	} {
		s.fails(exit.Usage, line)
	}
	s.fails(exit.Usage, "cancel n a --why", strings.Repeat("x", 501))
	s.fails(exit.Usage, "cancel n", "")
	if said := s.fails(exit.Usage, "cancel n --why", "the IDs got lost in a script"); !strings.Contains(said, "give their IDs") {
		t.Errorf("said %q", said)
	}
	if out := s.run("cancel n"); out != "nothing is to be cancelled\n" {
		t.Errorf("%q", out)
	}
	said := s.fails(exit.Failed, "cancel n a b --wait 1ms --why", "they hang")
	for _, want := range []string{"a was met by nobody yet", "b was met by nobody yet", "it stands until 2", "countoff cancel n lists it"} {
		if !strings.Contains(said, want) {
			t.Errorf("said %q, want %q", said, want)
		}
	}
	if out := s.run("cancel n c --wait 0s"); !strings.Contains(out, "c was met by nobody yet") {
		t.Errorf("%q", out)
	}
	if out := s.run("cancel n"); !strings.HasPrefix(out, "ID  STATE  SINCE") || strings.Count(out, "\n") != 4 || !strings.Contains(out, "they hang") {
		t.Errorf("%s", out)
	}
	var one map[string]any
	if err := json.Unmarshal([]byte(strings.SplitN(s.run("cancel n --json"), "\n", 2)[0]), &one); err != nil || one["id"] != "a" ||
		one["state"] != "waits" || one["why"] != "they hang" || one["until"] == nil || one["grant"] != "" {
		t.Errorf("%v, %v", one, err)
	}
	if out := s.run("cancel n a x --undo"); out != "a is not to be cancelled any more\nx was not to be cancelled\n" {
		t.Errorf("%q", out)
	}
	// What is scheduled is a dead letter at once.
	s.run("enqueue n pay --id b --delay 1h")
	if out := s.run("cancel n b --why", "they hang"); out != "b is cancelled: it is a dead letter (countoff dead list n)\n" {
		t.Errorf("%q", out)
	}
	if out := s.run("dead list n"); !strings.Contains(out, "the task was cancelled: they hang") {
		t.Errorf("%s", out)
	}
	if out := s.run("delayed list n"); out != "no delayed tasks\n" {
		t.Errorf("%q", out)
	}
	if out := s.run("cancel n b c --undo"); out != "b is a dead letter already\nc is not to be cancelled any more\n" {
		t.Errorf("%q", out)
	}
	// Who is interrupted while he waits is told that it stands.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var out output
	s.run("enqueue n pay --id over --delay 1h")
	go func() { ended <- s.start(ctx, &out, "cancel n over e --wait 10m") }()
	is := func(id, state string) func() bool {
		return func() bool {
			return slices.ContainsFunc(strings.Split(s.run("cancel n"), "\n"), func(line string) bool {
				f := strings.Fields(line)
				return len(f) > 1 && f[0] == id && f[1] == state
			})
		}
	}
	wait(t, is("over", "dead"))
	cancel()
	if err := <-ended; codeOf(err) != exit.Hard || !strings.HasPrefix(err.Error(), "interrupted: e was met by nobody yet") || !strings.Contains(err.Error(), "\nit stands until 2") {
		t.Errorf("interrupted: %v", err)
	}
	if got := out.String(); got != "over is cancelled: it is a dead letter (countoff dead list n)\n" {
		t.Errorf("interrupted it says %q of what is over", got)
	}
	// What somebody takes back meanwhile was not cancelled.
	go func() { ended <- s.start(t.Context(), &output{}, "cancel n g --wait 10m") }()
	wait(t, is("g", "waits"))
	s.run("cancel n g --undo")
	if err := <-ended; codeOf(err) != exit.Failed || !strings.Contains(err.Error(), "g is not to be cancelled any more: ") || strings.Contains(err.Error(), "stands until") {
		t.Errorf("taken back meanwhile: %v", err)
	}
	// Who puts a dead letter to the end again wants it to run.
	s.run("cancel n b d --wait 0s")
	if out := s.run("dead requeue n b"); !strings.HasSuffix(out, "1 requeued\n") {
		t.Errorf("%q", out)
	}
	if out := s.run("cancel n b d --undo"); out != "b was not to be cancelled\nd is not to be cancelled any more\n" {
		t.Errorf("%q", out)
	}
}

// What is requeued while others of a cancellation are waited for is a dead letter no more.
func TestWhatIsRequeuedIsNotCancelled(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 2")
	s.run("enqueue n pay --id a --delay 1h")
	var out output
	ended := make(chan error, 1)
	go func() { ended <- s.start(t.Context(), &out, "cancel n a b --wait 10m") }()
	wait(t, func() bool { return strings.Contains(s.run("cancel n"), " dead ") })
	s.run("dead requeue n a")
	if all := s.run("cancel n --json"); strings.Count(all, "\n") != 1 || !strings.Contains(all, `"id":"b"`) {
		t.Errorf("cancelled are %s, want b alone", all)
	}
	s.run("enqueue n pay --id b --delay 1h")
	if err := <-ended; codeOf(err) != exit.Failed || !strings.Contains(err.Error(), "a is not to be cancelled any more: ") {
		t.Errorf("of the one that was requeued it says %v", err)
	}
	if want := "b is cancelled: it is a dead letter (countoff dead list n)\n"; out.String() != want {
		t.Errorf("said %q, want %q", out.String(), want)
	}
}

// What has just failed without a key when owners are told waits for its next try among what is delayed, where none sees it:
// it is looked for there again.
func TestCancelLooksAgainAtWhatIsDelayed(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 2")
	s.run("enqueue n pay --id b --delay 1h")
	var out output
	ended := make(chan error, 1)
	go func() { ended <- s.start(t.Context(), &out, "cancel n a b a --wait 30s") }()
	wait(t, func() bool { return strings.Contains(s.run("dead list n"), "b ") }) // after the look for a
	s.run("enqueue n pay --id a --delay 1h")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	want := "a is cancelled: it is a dead letter (countoff dead list n)\nb is cancelled: it is a dead letter (countoff dead list n)\n"
	if out.String() != want {
		t.Errorf("said %q, want %q", out.String(), want)
	}
	if out := s.run("cancel n a b a --undo"); out != "a is a dead letter already\nb is a dead letter already\n" {
		t.Errorf("%q", out)
	}
}

// blocks the second look at what is delayed for as long as it may take.
type blocks struct{ looks atomic.Int64 }

func (*blocks) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*blocks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (b *blocks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "zscan" && b.looks.Add(1) > 1 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Hour):
			}
		}
		return next(ctx, cmd)
	}
}

// A look at much that is delayed does not make the command wait longer than it may.
func TestALookEndsWithTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 1}); err != nil {
			t.Fatal(err)
		}
		client.ZAdd(t.Context(), redissource.KeysOf("n", 0).Delayed, redis.Z{Score: 1e15, Member: "x"})
		var b blocks
		client.AddHook(&b)
		c, began := canceller{lasts: time.Hour, wait: 10 * time.Second}, time.Now()
		err := c.give(t.Context(), client, &cobra.Command{}, "n", []string{"a"})
		if took := time.Since(began); took != c.wait || b.looks.Load() != 2 || err == nil || !strings.Contains(err.Error(), "a was met by nobody yet") {
			t.Errorf("after %v and %d looks: %v", took, b.looks.Load(), err)
		}
	})
}

// Until when an order stands is told by the clock of the store, which ends it.
func TestACancelStandsByTheClockOfTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, client := redistest.Bubble(t)
		if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 1}); err != nil {
			t.Fatal(err)
		}
		ahead := time.Now().Add(24 * time.Hour)
		server.SetTime(ahead)
		c := canceller{lasts: time.Hour, wait: time.Millisecond}
		err := c.give(t.Context(), client, &cobra.Command{}, "n", []string{"a"})
		if want := "it stands until " + date(ahead.Add(time.Hour)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it says %v, want %q", err, want)
		}
	})
}

// What hinders the look at what is delayed is told also to who does not wait for the tasks.
func TestALookThatFailsIsToldWithoutAWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 1}); err != nil {
			t.Fatal(err)
		}
		client.Set(t.Context(), redissource.KeysOf("n", 0).Delayed, "x", 0)
		c := canceller{lasts: time.Hour}
		err := c.give(t.Context(), client, &cobra.Command{}, "n", []string{"a"})
		if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || !strings.Contains(err.Error(), "it stands until 2") {
			t.Errorf("it says %v", err)
		}
	})
}

// A lookCounter counts the commands that look at what is delayed.
type lookCounter struct{ atomic.Int64 }

func (*lookCounter) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*lookCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (l *lookCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "zscan" || cmd.Name() == "zrange" {
			l.Add(1)
		}
		return next(ctx, cmd)
	}
}

// To look for each of many IDs would take the store minutes: what is delayed is read once.
func TestManyAreLookedForAtOnce(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 1")
	client, counted := s.client(), &lookCounter{}
	client.AddHook(counted)
	for _, n := range []int{mostLooks, 10 * mostLooks} {
		ids := make([]string, n)
		for i := range ids {
			ids[i] = fmt.Sprint("task", i)
			s.run("enqueue n pay --delay 1h --id", ids[i])
		}
		s.run("enqueue n pay --delay 1h --id other")
		counted.Store(0)
		took, err := eachDelayed(t.Context(), client, "n", ids, []partition.ID{0}, redissource.Cancel)
		if err != nil || took != n || counted.Load() > mostLooks {
			t.Errorf("%d of %d were taken with %d looks; %v", took, n, counted.Load(), err)
		}
		if out := s.run("delayed list n"); strings.Contains(out, "task") || !strings.Contains(out, "other") {
			t.Errorf("%s", out)
		}
	}
}

// Of what is no list nothing can be cancelled, and that is said.
func TestCancelIsForLists(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	client := s.client()
	for kind, want := range map[string]string{
		"kafka": "works a topic of Kafka: its tasks cannot be cancelled from outside", "units": "has units of work, which are no tasks",
	} {
		client.Del(t.Context(), "{n}:config")
		s.run("init n --partitions 2")
		client.HSet(t.Context(), "{n}:config", "kind", kind, "topic", "n")
		if said := s.fails(exit.Config, "cancel n a"); !strings.Contains(said, want) {
			t.Errorf("%s: said %q", kind, said)
		}
		client.Del(t.Context(), "{n}:meta")
	}
}

// Tasks that hang, wait for their next try or are not there yet are taken out of the way while peers come and go: each
// becomes one dead letter, those behind it go on in order, and what a handler did all the same is done.
func TestCancelWhileAPartitionMoves(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	s := shell{t, "redis://" + server.Addr(), ""}
	s.run("init n --partitions 2")
	var mu sync.Mutex
	var ran []string
	begun := func(id string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(ran, id)
		}
	}
	freed := make(chan struct{})
	handle := func(ctx context.Context, task *framework.Task) error {
		mu.Lock()
		ran = append(ran, task.ID)
		mu.Unlock()
		switch task.ID {
		case "hangs", "done":
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), framework.ErrCancelled) {
				t.Errorf("%s ends because %v", task.ID, context.Cause(ctx))
			}
			if task.ID == "done" {
				return nil
			}
			return framework.RetryAfter(0, ctx.Err())
		case "fails":
			return errors.New("greylisted")
		case "stuck":
			<-freed
			return errors.New("too late")
		}
		return nil
	}
	peer := func(id string) *framework.Consumer {
		t.Helper()
		client := s.client()
		source, err := redissource.New(client, "n", redissource.Config{})
		if err != nil {
			t.Fatal(err)
		}
		timing := transition.Timing{Lease: 3 * time.Second}
		ledger, err := redisledger.New(client, "n", redisledger.Config{Config: partition.Config{Total: 2}, Timing: timing})
		if err != nil {
			t.Fatal(err)
		}
		c, err := framework.New("n", source, framework.HandlerFunc(handle), framework.WithLedger(ledger), framework.WithPeer(id, 1),
			framework.WithConfig(framework.Config{Timing: timing, Retry: framework.RetryPolicy{First: time.Hour, Max: time.Hour}}))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, line := range []string{
		"hangs --key ann", "then --key ann", "done --key bob", "fails --key carl", "after --key carl", "stuck --key dan", "behind --key dan", "last --key dan",
	} {
		s.run("enqueue n pay --id " + line)
	}
	a := peer("a")
	for _, id := range []string{"hangs", "done", "fails", "stuck"} {
		wait(t, begun(id))
	}
	// behind waits for stuck, which runs.
	out := s.run("cancel n hangs done fails behind --wait 1m --why", "ann wants it")
	want := "hangs is cancelled: it is a dead letter (countoff dead list n)\ndone is done: its handler did it all the same\n" +
		"fails is cancelled: it is a dead letter (countoff dead list n)\nbehind is cancelled: it is a dead letter (countoff dead list n)\n"
	if out != want {
		t.Errorf("said %q, want %q", out, want)
	}
	wait(t, begun("then"))
	wait(t, begun("after"))
	said := s.fails(exit.Failed, "cancel n stuck late --wait 3s")
	if !strings.Contains(said, "stuck runs in ") || !strings.Contains(said, "late was met by nobody yet") {
		t.Errorf("said %q", said)
	}
	// a dies with stuck in its hands: the next owner has the order, and does not run it again.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- a.Stop(ended) }()
	b := peer("b")
	wait(t, begun("last"))
	close(freed)
	<-stopped // with an error: it was stopped hard
	s.run("enqueue n pay --id late --key eve")
	s.run("enqueue n pay --id eve --key eve")
	wait(t, begun("eve"))
	wait(t, func() bool { return strings.Count(s.run("cancel n"), " dead ") == 5 })
	if err := b.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	mu.Lock()
	got := slices.Sorted(slices.Values(ran))
	mu.Unlock()
	if !slices.Equal(got, []string{"after", "done", "eve", "fails", "hangs", "last", "stuck", "then"}) {
		t.Errorf("%q ran", got)
	}
	dead := s.run("dead list n --json")
	if n := strings.Count(dead, "\n"); n != 5 || strings.Count(dead, `"reason":"the task was cancelled`) != 5 || strings.Count(dead, `"reason":"the task was cancelled: ann wants it"`) != 3 {
		t.Errorf("%d dead letters:\n%s", n, dead)
	}
	if out := s.run("cancel n"); strings.Contains(out, "waits") || strings.Contains(out, "runs") {
		t.Errorf("%s", out)
	}
}
