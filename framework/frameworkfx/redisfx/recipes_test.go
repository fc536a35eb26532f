package redisfx_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/framework/frameworktest"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition/redisledger"
)

// docs/handlers.md shows the code between the tests of this file, to the letter.
func TestTheHandlersPageQuotesTheRecipes(t *testing.T) {
	page, err := os.ReadFile("../../../docs/handlers.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("recipes_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range []string{"## Priorities\n", "## Long jobs\n"} {
		_, rest, _ := strings.Cut(string(page), section)
		rest, _, _ = strings.Cut(rest, "\n## ")
		quotes := strings.Split(rest, "```go\n")[1:]
		if len(quotes) == 0 {
			t.Errorf("%q quotes nothing", section)
		}
		for _, q := range quotes {
			q, _, _ = strings.Cut(q, "```")
			if !strings.Contains(string(code), q) {
				t.Errorf("%q quotes what no test runs:\n%s", section, q)
			}
		}
	}
}

func billing(url string) fx.Option {
	return fx.Options(
		redisfx.Client(url),
		queue("billing-urgent", framework.Config{Concurrency: 8}),
		queue("billing", framework.Config{Concurrency: 16}),
	)
}

func queue(name string, cfg framework.Config) fx.Option {
	return fx.Options(
		redisfx.Source(name, redisfx.Config{}),
		frameworkfx.Handle(name, "charge", NewCharge), // the same for both
		frameworkfx.Configure(name, cfg),
	)
}

// NewCharge makes a handler of what the test supplies.
func NewCharge(charge framework.HandlerFunc) framework.Handler { return charge }

// All workers of a name hang, and it has a backlog. What comes under the other name of the same
// process runs all the same.
func TestUrgentTasksDoNotWaitForABacklog(t *testing.T) {
	t.Parallel()
	server, _ := redistest.Mini(t)
	url := "redis://" + server.Addr()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })

	const backlog, urgent, workers = 500, 100, 16
	release := make(chan struct{})
	var rest, first atomic.Int64
	full, all, none := make(chan struct{}), make(chan struct{}), make(chan struct{})
	charge := framework.HandlerFunc(func(ctx context.Context, task *framework.Task) error {
		if strings.HasPrefix(task.ID, "urgent-") {
			if first.Add(1) == urgent {
				close(all)
			}
			return nil
		}
		switch rest.Add(1) {
		case workers:
			close(full)
		case backlog:
			close(none)
		}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	producers := map[string]*redissource.Producer{}
	for _, name := range []string{"billing-urgent", "billing"} {
		if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 8}); err != nil {
			t.Fatal(err)
		}
		p, err := redissource.NewProducer(t.Context(), client, name, redissource.ProducerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close(context.WithoutCancel(t.Context())) })
		producers[name] = p
	}
	push := func(name, prefix string, n int) {
		messages := make([]redissource.Message, n)
		for i := range messages {
			messages[i] = redissource.Message{ID: prefix + strconv.Itoa(i), Type: "charge", Key: "account-" + strconv.Itoa(i)}
		}
		if _, err := producers[name].Enqueue(t.Context(), messages...); err != nil {
			t.Fatal(err)
		}
	}
	await := func(what string, c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(patience):
			t.Fatalf("%s: %d and %d urgent ones have begun", what, rest.Load(), first.Load())
		}
	}

	app := fxtest.New(t, frameworkfx.Module, billing(url), fx.Supply(charge))
	app.RequireStart()
	push("billing", "rest-", backlog)
	await("no backlog", full)
	push("billing-urgent", "urgent-", urgent) // the same accounts
	await("urgent tasks wait", all)
	if n := rest.Load(); n != workers {
		t.Errorf("%d tasks of the backlog have begun, want as many as it has workers", n)
	}
	close(release)
	await("the backlog stays", none)
	app.RequireStop()
}

// saved is a cursor: how far a task has come, and the epoch of who claimed it last. A smaller one is refused.
var saved = redis.NewScript(`
	local epoch = tonumber(redis.call('HGET', KEYS[1], 'epoch') or 0)
	if epoch > tonumber(ARGV[1]) then return redis.error_reply('OWNED by another') end
	redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
	if ARGV[2] then redis.call('HSET', KEYS[1], 'at', ARGV[2]) end
	redis.call('EXPIRE', KEYS[1], 30 * 86400)
	return redis.call('HGET', KEYS[1], 'at') or ''`)

// cursor claims the cursor of t for this owner, sets it if at is given, and returns it: "" is the beginning.
func cursor(ctx context.Context, client redis.UniversalClient, t *framework.Task, at ...any) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // what is done counts, also if ctx ends now
	defer cancel()
	return saved.Run(ctx, client, []string{"cursor:" + t.ID}, append([]any{uint64(t.Token.Epoch)}, at...)...).Text()
}

// resumable runs chunk again and again from where the task has come to, until it returns "end".
func resumable(client redis.UniversalClient, chunk func(ctx context.Context, t *framework.Task, at string) (next string, err error)) framework.Handler {
	return framework.HandlerFunc(func(ctx context.Context, t *framework.Task) error {
		at, err := cursor(ctx, client, t) // from here on, no owner before this one can move it
		for err == nil && at != "end" {
			select {
			case <-framework.HandOver(ctx):
				return framework.ErrHandedOver // the next owner goes on
			case <-ctx.Done():
				return context.Cause(ctx)
			default:
			}
			if at, err = chunk(ctx, t, at); err == nil {
				at, err = cursor(ctx, client, t, at)
			}
		}
		return err
	})
}

var longJobs = framework.Config{
	Retry: framework.RetryPolicy{Tries: 100}, // of the whole job, however far it comes
}

func exports(chunk func(ctx context.Context, t *framework.Task, at string) (next string, err error)) fx.Option {
	return fx.Options(
		redisfx.Source("exports", redisfx.Config{Source: redissource.Config{CrashLimit: 20}}),
		frameworkfx.Handle("exports", "export", func(client redis.UniversalClient) framework.Handler { return resumable(client, chunk) }),
		frameworkfx.Configure("exports", longJobs),
	)
}

// A chunked is a job of some chunks, and who did which.
type chunked struct {
	mu     sync.Mutex
	chunks int
	done   []string // chunk:peer
}

// as returns the job as the peer does it: a chunk takes 300 ms, and is done at its end.
func (j *chunked) as(peer string, client redis.UniversalClient) framework.Handler {
	return resumable(client, func(ctx context.Context, _ *framework.Task, at string) (string, error) {
		n, _ := strconv.Atoi(at)
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		j.done = append(j.done, fmt.Sprintf("%d:%s", n, peer))
		if n++; n == j.chunks {
			return "end", nil
		}
		return strconv.Itoa(n), nil
	})
}

// by returns which chunks the peer did.
func (j *chunked) by(peer string) []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	var list []int
	for _, d := range j.done {
		if n, by, _ := strings.Cut(d, ":"); by == peer {
			i, _ := strconv.Atoi(n)
			list = append(list, i)
		}
	}
	return list
}

// A long job goes on where it was: after a stop, which waits no longer than a chunk, and after a
// crash, which repeats one chunk at most.
func TestALongJobGoesOnWhereItWas(t *testing.T) {
	for _, c := range []struct {
		name     string
		leave    func(*frameworktest.Peer)
		within   time.Duration // until the peer is gone
		repeated int
	}{
		{"stop", (*frameworktest.Peer).Stop, time.Second, 0},
		{"crash", (*frameworktest.Peer).Kill, time.Minute, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client := redistest.Bubble(t)
				job := &chunked{chunks: 200}
				f := frameworktest.New(t, frameworktest.Config{})
				ann := f.Start("ann", job.as("ann", client), framework.WithConfig(longJobs))
				f.WaitReady(time.Minute)
				f.Push(framework.Task{ID: "export-7", Key: "customer-7"})
				time.Sleep(20 * time.Second)
				before := time.Now()
				c.leave(ann)
				if took := time.Since(before); took > c.within {
					t.Errorf("it took %v until the peer was gone, want %v at most", took, c.within)
				}
				f.Start("ben", job.as("ben", client), framework.WithConfig(longJobs))
				f.Wait(5 * time.Minute)

				anns, bens := job.by("ann"), job.by("ben")
				if len(anns) < 50 || len(bens) < 50 {
					t.Fatalf("ann did %d chunks, ben %d", len(anns), len(bens))
				}
				if over := len(anns) + len(bens) - job.chunks; over < 0 || over > c.repeated {
					t.Errorf("ann did %v, ben %v: %d repeated, want %d at most", anns, bens, over, c.repeated)
				}
				if !slices.IsSorted(anns) || !slices.IsSorted(bens) || bens[len(bens)-1] != job.chunks-1 {
					t.Errorf("ann did %v, ben %v", anns, bens)
				}
			})
		})
	}
}

// An owner that has another after it, and does not know, cannot move the cursor.
func TestAFormerOwnerMovesNoCursor(t *testing.T) {
	t.Parallel()
	client := redistest.New(t)
	id := redistest.Name(t)
	owner := func(epoch partition.Epoch) *framework.Task {
		return &framework.Task{ID: id, Delivery: &framework.Delivery{Token: partition.Token{Epoch: epoch, Session: "s"}}}
	}
	is := func(want string, epoch partition.Epoch, at ...any) {
		t.Helper()
		if got, err := cursor(t.Context(), client, owner(epoch), at...); err != nil || got != want {
			t.Fatalf("epoch %d: %q, %v, want %q", epoch, got, err, want)
		}
	}
	is("", 9)
	is("400", 9, "400")
	is("400", 10) // claimed: from here on the former one is refused, though nothing was saved
	if got, err := cursor(t.Context(), client, owner(9), "300"); err == nil || !strings.Contains(err.Error(), "OWNED by another") {
		t.Errorf("the former owner moved it: %q, %v", got, err)
	}
	is("500", 10, "500")
	is("end", 10, "end")
	ran := false
	h := resumable(client, func(context.Context, *framework.Task, string) (string, error) {
		ran = true
		return "", errors.New("there is nothing to do")
	})
	if err := h.Handle(t.Context(), owner(11)); err != nil || ran {
		t.Errorf("a job that was done: %v, ran %v", err, ran)
	}
}

// exportsStore returns a store that has the name exports, and what enqueues to it.
func exportsStore(t *testing.T) (url string, client *redis.Client, producer *redissource.Producer) {
	t.Helper()
	server, _ := redistest.Mini(t)
	client = redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	if _, err := redisledger.Init(t.Context(), client, "exports", partition.Config{Total: 4}); err != nil {
		t.Fatal(err)
	}
	producer, err := redissource.NewProducer(t.Context(), client, "exports", redissource.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { producer.Close(context.Background()) })
	return "redis://" + server.Addr(), client, producer
}

// A job that has become a dead letter goes on where it was once it is put back.
func TestARequeuedJobGoesOn(t *testing.T) {
	t.Parallel()
	url, client, producer := exportsStore(t)
	ran, settled := make(chan string, 100), make(chan framework.Settled, 100)
	var refused atomic.Bool
	app := fxtest.New(t, frameworkfx.Module, redisfx.Client(url),
		exports(func(_ context.Context, _ *framework.Task, at string) (string, error) {
			if at == "two" && refused.CompareAndSwap(false, true) {
				return "", framework.Dead(errors.New("the table is gone"))
			}
			ran <- at
			return map[string]string{"": "one", "one": "two", "two": "three", "three": "end"}[at], nil
		}),
		frameworkfx.Observe(framework.ObserverFunc(func(e framework.Event) {
			if e, is := e.(framework.Settled); is {
				settled <- e
			}
		})))
	app.RequireStart()
	defer app.RequireStop()
	if _, err := producer.Enqueue(t.Context(), redissource.Message{ID: "export-7", Type: "export", Key: "customer-7"}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-settled:
	case <-time.After(patience):
		t.Fatal("no dead letter")
	}
	requeued := 0
	if err := redissource.DeadLetters(t.Context(), client, "exports", partition.Config{Total: 4}.IDs(), func(d redissource.DeadLetter) bool {
		if ok, err := redissource.Requeue(t.Context(), client, "exports", d); err != nil || !ok {
			t.Errorf("requeue: %v, %v", ok, err)
		}
		requeued++
		return true
	}); err != nil || requeued != 1 {
		t.Fatalf("%d dead letters, %v", requeued, err)
	}
	for _, want := range []string{"", "one", "two", "three"} {
		select {
		case got := <-ran:
			if got != want {
				t.Fatalf("chunk %q ran, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("chunk %q does not run", want)
		}
	}
}

// Where each chunk is a task that enqueues the next, a run that is repeated after it has done so
// enqueues no second one.
func TestChunksThatAreTasks(t *testing.T) {
	t.Parallel()
	url, _, producer := exportsStore(t)
	enqueue := func(ctx context.Context, chunk int) error {
		_, err := producer.Enqueue(ctx, redissource.Message{
			ID: fmt.Sprintf("export-7/%d", chunk), Unique: true,
			Type: "export", Key: "customer-7", Payload: []byte(strconv.Itoa(chunk)),
		})
		return err
	}
	ran := make(chan string, 100)
	app := fxtest.New(t, frameworkfx.Module, redisfx.Client(url),
		redisfx.Source("exports", redisfx.Config{}),
		frameworkfx.Configure("exports", framework.Config{Retry: framework.RetryPolicy{First: time.Millisecond}}),
		frameworkfx.Handle("exports", "export", framework.JSON(func(ctx context.Context, chunk int, t *framework.Task) error {
			ran <- fmt.Sprint(chunk, "/", t.Attempt)
			if chunk < 3 {
				if err := enqueue(ctx, chunk+1); err != nil {
					return err
				}
			}
			if t.Attempt == 1 {
				return errors.New("the next one is enqueued, and nobody knows that this one is done")
			}
			return nil
		})))
	app.RequireStart()
	if err := enqueue(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0/1", "0/2", "1/1", "1/2", "2/1", "2/2", "3/1", "3/2"} {
		select {
		case got := <-ran:
			if got != want {
				t.Fatalf("%s ran, want %s", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("%s does not run", want)
		}
	}
	app.RequireStop()
	if len(ran) != 0 {
		t.Errorf("more ran: %s", <-ran)
	}
}
