package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
)

// plainServer starts an asynq.Server of somebody else, and waits until it is listed.
func (s *store) plainServer(t testing.TB, queue string) *asynq.Server {
	t.Helper()
	server := asynq.NewServerFromRedisClient(sameServer(t, s), silent(asynq.Config{Queues: map[string]int{queue: 1}}))
	if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })); err != nil {
		t.Fatal(err)
	}
	s.listed(t, queue, true)
	return server
}

// listed waits until a plain server on a queue is listed, or is not any more.
func (s *store) listed(t testing.TB, queue string, want bool) {
	t.Helper()
	until(t, "the servers are listed", func() bool {
		servers, err := s.inspector().Servers()
		if err != nil {
			t.Fatal(err)
		}
		for _, server := range servers {
			if server.Queues[queue] > 0 && server.Queues[queuestat.Mark(s.name)] == 0 {
				return want
			}
		}
		return !want
	})
}

func TestAPlainServerIsNoticed(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	queue := QueueOf(s.name, 2)
	var told atomic.Int32
	found := func(p Plain) {
		told.Add(1)
		if p.Queue != queue || p.PID != os.Getpid() || p.Since.IsZero() {
			t.Errorf("told of %+v", p)
		}
	}
	server := s.plainServer(t, queue)

	src, _, _ := s.peer(t, Config{Found: found})
	_, err := src.Layout(t.Context())
	var plain *PlainError
	if !errors.As(err, &plain) || !strings.Contains(err.Error(), queue) {
		t.Fatalf("it starts beside a plain server: %v", err)
	}
	alarmed, _, _ := s.peer(t, Config{Plain: Alarm, Found: found})
	if _, err := alarmed.Layout(t.Context()); err != nil {
		t.Errorf("with the alarm only: %v", err)
	}
	if told.Load() != 2 {
		t.Errorf("told %d times", told.Load())
	}
	server.Shutdown()
	s.listed(t, queue, false)
	if _, err := src.Layout(t.Context()); err != nil {
		t.Fatalf("the plain server is gone, and it says %v", err)
	}

	// One that comes later: nothing more is fetched while it is there.
	ours := s.run(t, Config{}, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }), asynq.Config{})
	o := ours.serve(0, 1)
	defer o.stop()
	until(t, "our own server is listed", func() bool {
		servers, err := s.inspector().Servers()
		return err == nil && len(servers) > 0
	})
	if _, err := s.source(t).Layout(t.Context()); err != nil {
		t.Errorf("our own server is taken for a plain one: %v", err)
	}
	server = s.plainServer(t, queue)
	st := s.open(t, ours.src, 1, 2)
	ours.src.lookAgain(t.Context(), 4)
	s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("waits"))
	if _, err := st.Fetch(t.Context(), 1); !errors.As(err, &plain) {
		t.Errorf("beside a plain server a fetch says %v", err)
	}
	server.Shutdown()
	s.listed(t, queue, false)
	ours.src.lookAgain(t.Context(), 4)
	s.enqueue(t, 1, asynq.NewTask("t", nil))
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if _, err := st.Fetch(ctx, 1); err != nil {
		t.Errorf("the plain server is gone, and a fetch says %v", err)
	}
}

// beside lists a plain server that consumes queue, for an hour, or until gone is called.
func (s *store) beside(t *testing.T, queue string) (gone func()) {
	t.Helper()
	key := queuestat.AllServers + ":{plain}"
	s.Set(t.Context(), key, serverInfo("host", 1, "plain", []string{queue}, time.Now()), 0)
	s.ZAdd(t.Context(), queuestat.AllServers, redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: key})
	return func() { s.ZRem(t.Context(), queuestat.AllServers, key) }
}

// What keeps one of the servers from being read is an error, also behind one that is gone: it may consume our queues.
func TestAServerThatCannotBeReadIsNotOneWithoutQueues(t *testing.T) {
	_, client := redistest.Mini(t)
	ctx := t.Context()
	for _, id := range []string{"a", "b"} {
		client.ZAdd(ctx, queuestat.AllServers, redis.Z{Member: queuestat.AllServers + ":{" + id + "}"})
	}
	if all, err := queuestat.Servers(ctx, client); err != nil || len(all) > 0 {
		t.Errorf("of two that are gone it says %v, %v", all, err)
	}
	client.HSet(ctx, queuestat.AllServers+":{b}", "no", "text")
	if all, err := queuestat.Servers(ctx, client); !redis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Errorf("of one that cannot be read it says %v, %v", all, err)
	}
}

// inTheBubble is a store of the bubble, and the first of its queues opened.
func inTheBubble(t *testing.T, queues ...string) (*store, *stream) {
	t.Helper()
	_, client := redistest.Bubble(t)
	src, err := New(client, "n", Config{Queues: queues, Connections: -1})
	if err != nil {
		t.Fatal(err)
	}
	s := &store{UniversalClient: client, name: "n"}
	return s, s.open(t, src, 0, 1)
}

// While a stream is open plain servers are looked for, whoever runs the handlers.
func TestPlainServersAreLookedForEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := inTheBubble(t, "q")
		s.beside(t, "q")
		time.Sleep(plainEvery + time.Second)
		var plain *PlainError
		if err := st.Trouble(); !errors.As(err, &plain) || plain.Plain.ID != "plain" {
			t.Errorf("beside a plain server it says %v", err)
		}
		if err := st.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// When a plain server that came later is gone peers begin again as soon as those that found it at their start do, and not
// when a minute is over: nothing says any more why they stand.
func TestAPlainServerThatIsGoneHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := inTheBubble(t, "q")
		gone := s.beside(t, "q")
		time.Sleep(plainEvery + time.Second)
		if st.Trouble() == nil {
			t.Error("beside a plain server it says nothing")
		}
		time.Sleep(2 * plainEvery) // it stays for a while
		if st.Trouble() == nil {
			t.Error("later it says nothing")
		}
		gone()
		time.Sleep(goneEvery + time.Second)
		if err := st.Trouble(); err != nil {
			t.Errorf("it is gone, and %v later it says %v", goneEvery+time.Second, err)
		}
		if err := st.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What is active and its owner did not take a plain server has taken, as a rule: one is looked for at once, and
// not when the minute is over, in which each task that it takes is run here as well.
func TestWhatSomebodyElseHasTakenIsADoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := inTheBubble(t, "q")
		s.beside(t, "q")
		if _, err := asynq.NewClientFromRedisClient(s.UniversalClient).Enqueue(asynq.NewTask("t", nil), asynq.Queue("q")); err != nil {
			t.Fatal(err)
		}
		s.LMove(t.Context(), keysOf("q").pending, keysOf("q").active, "RIGHT", "LEFT")
		var plain *PlainError
		if _, err := st.Fetch(t.Context(), 1); err != nil && !errors.As(err, &plain) { // it may be found before the task is handed out
			t.Fatal(err)
		}
		synctest.Wait()
		if err := st.Trouble(); !errors.As(err, &plain) || plain.Plain.ID != "plain" {
			t.Errorf("beside a plain server that takes tasks it says %v", err)
		}
		if err := st.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What a plain server runs is not given back, to be run beside it, by who opens a queue: neither while one is known
// to be there nor after a time in which nothing was open, as a pause, and nobody looked.
func TestWhatAPlainServerRunsIsLeftToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := inTheBubble(t, "q", "other")
		src := st.source
		if err := st.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		gone := s.beside(t, "q")
		s.LPush(t.Context(), keysOf("q").active, "runs")
		time.Sleep(lookedFor)
		refuses := func(when string, id partition.ID, epoch partition.Epoch) {
			t.Helper()
			st, err := src.Open(t.Context(), partition.Grant{ID: id, Epoch: epoch}, partition.Token{Epoch: epoch, Session: "s"})
			if err == nil {
				defer st.Close(t.Context())
			}
			if plain := new(PlainError); !errors.As(err, &plain) || plain.Plain.ID != "plain" {
				t.Errorf("%s an Open says %v", when, err)
			}
			if s.LLen(t.Context(), keysOf("q").active).Val() != 1 {
				t.Errorf("%s what it runs is taken from it", when)
			}
		}
		refuses("before anything is open", 0, 2)
		gone()
		time.Sleep(lookedFor)
		st = s.open(t, src, 1, 3)
		if err := st.Trouble(); err != nil {
			t.Errorf("it is gone, and a fetch says %v", err)
		}
		s.beside(t, "q")
		time.Sleep(plainEvery + time.Second)
		refuses("while it is known", 0, 4)
		if err := st.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// stills is a store that answers no script any more until the caller's context ends.
type stills struct {
	on     atomic.Bool
	asked  chan struct{}
	resume chan struct{}
}

func (*stills) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*stills) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *stills) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.on.Load() && strings.HasPrefix(cmd.Name(), "eval") {
			h.asked <- struct{}{}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-h.resume:
			}
		}
		return next(ctx, cmd)
	}
}

// Whose time is over while plain servers are looked for does not wait for a store that stands still, nor for
// another who looks: what it has is to be handed over.
func TestALookForPlainServersEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	src, client := s.untested(t)
	if _, err := src.Layout(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := &stills{asked: make(chan struct{}, 9), resume: make(chan struct{})}
	client.AddHook(h)
	defer close(h.resume)
	h.on.Store(true)
	opens := func(ctx context.Context) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := src.Open(ctx, partition.Grant{Epoch: 1}, partition.Token{Epoch: 1, Session: "s"})
			ended <- err
		}()
		return ended
	}
	ends := func(ended <-chan error) {
		t.Helper()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("it says %v", err)
			}
		case <-time.After(wait):
			t.Fatal("it waits")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := opens(ctx)
	<-h.asked
	over, end := context.WithCancel(t.Context())
	end()
	ends(opens(over))
	cancel()
	ends(first)
}

// A server of the peers of another name is no plain one, and nobody is told to run beside it. Peers whose
// handlers are the framework's are seen as well.
func TestPeersOfAnotherNameAreNoPlainServer(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"asynq", "the framework"} {
		t.Run("handlers of "+of, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			queue := s.name + "-shared"
			other := &store{UniversalClient: s.UniversalClient, name: redistest.Name(t) + "-other"}
			var stop func()
			if of == "asynq" {
				theirs := other.run(t, Config{Queues: []string{queue}}, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }), asynq.Config{})
				stop = theirs.serve(0, 1).stop
			} else {
				theirs, _, _ := other.peer(t, Config{Queues: []string{queue}})
				st := other.open(t, theirs, 0, 1)
				stop = func() {
					if err := st.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
			s.listed(t, queue, true)

			src, _, _ := s.peer(t, Config{Queues: []string{queue}})
			_, err := src.Layout(t.Context())
			var plain *PlainError
			if !errors.As(err, &plain) || plain.Plain.Peer != other.name {
				t.Fatalf("beside the peers of another name it says %v", err)
			}
			if says := err.Error(); !strings.Contains(says, fmt.Sprintf("queue %q is consumed by the peers of the name %s (host ", queue, other.name)) ||
				strings.Contains(says, string(Alarm)) || strings.Contains(says, "a plain asynq.Server") {
				t.Errorf("it says %s", says)
			}
			stop()
			s.listed(t, queue, false)
			if _, err := src.Layout(t.Context()); err != nil {
				t.Errorf("they are gone, and it says %v", err)
			}
		})
	}
}

// asynq's tools see peers whose handlers are the framework's as they see asynq's servers, and for no longer.
func TestPeersOfTheFrameworkAreListed(t *testing.T) {
	s := newStore(t)
	before := time.Now()
	src, _, _ := s.peer(t, Config{Partitions: 2, Ingress: []string{s.name + "-in"}})
	st := s.open(t, src, 1, 1)
	find := func() (found []*asynq.ServerInfo) {
		t.Helper()
		servers, err := s.inspector().Servers()
		if err != nil {
			t.Fatal(err)
		}
		for _, server := range servers {
			if server.Queues[queuestat.Mark(s.name)] > 0 {
				found = append(found, server)
			}
		}
		return found
	}
	until(t, "it is listed", func() bool { return len(find()) == 1 })
	got := find()[0]
	host, _ := os.Hostname()
	want := map[string]int{QueueOf(s.name, 0): 1, QueueOf(s.name, 1): 1, s.name + "-in": 1, queuestat.Mark(s.name): 1}
	if !maps.Equal(got.Queues, want) || got.Host != host || got.PID != os.Getpid() || got.Status != "active" ||
		got.Started.Before(before) || got.Started.After(time.Now()) || len(got.ActiveWorkers) > 0 {
		t.Errorf("listed is %+v", got)
	}
	key := fmt.Sprintf("asynq:servers:{%s:%d:%s}", got.Host, got.PID, got.ID)
	if left := s.PTTL(t.Context(), key).Val(); left <= 0 || left > listedFor {
		t.Errorf("one that is killed would be listed for %v", left)
	}
	if until := s.ZScore(t.Context(), queuestat.AllServers, key).Val(); until < float64(before.Unix()) || until > float64(time.Now().Add(listedFor).Unix()) {
		t.Errorf("one that is killed would be listed until %v", until)
	}
	if err := st.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Exists(t.Context(), key).Val() > 0 || s.ZScore(t.Context(), queuestat.AllServers, key).Err() == nil {
		t.Error("it has closed, and is listed")
	}
}

// stalled does not answer what lists a peer.
type stalled struct {
	listed, unlisted, unbound atomic.Int32 // calls, and those that have no deadline
}

func (*stalled) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*stalled) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (d *stalled) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if args := cmds[0].Args(); len(args) < 2 || args[1] != queuestat.AllServers {
			return next(ctx, cmds)
		}
		if until, bound := ctx.Deadline(); !bound || time.Until(until) > listTime {
			d.unbound.Add(1)
		}
		if cmds[0].Name() == "zrem" {
			d.unlisted.Add(1)
		}
		d.listed.Add(1)
		return context.DeadlineExceeded
	}
}

// Who closes waits for what lists the peer, which is to be short where the store does not answer: no call without a
// deadline, and none more after one that had no answer.
func TestListingDoesNotHoldUpWhoCloses(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	src, _, client := s.peer(t, Config{Partitions: 1})
	d := new(stalled)
	client.AddHook(d)
	st := s.open(t, src, 0, 1)
	until(t, "it is to be listed", func() bool { return d.listed.Load() > 0 })
	if err := st.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if unbound, unlisted := d.unbound.Load(), d.unlisted.Load(); unbound > 0 || unlisted > 0 {
		t.Errorf("%d calls without a deadline, and %d more of who closes", unbound, unlisted)
	}
}

// What a tool reads of asynq's servers without asynq's code is what asynq reads.
func TestServersAreThoseOfAsynq(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	queue := QueueOf(s.name, 1)
	server := s.plainServer(t, queue)
	find := func() (found []queuestat.Stranger) {
		t.Helper()
		servers, err := queuestat.Servers(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return queuestat.Strangers(servers, s.name, []string{QueueOf(s.name, 0), queue})
	}
	src, _, _ := s.peer(t, Config{})
	want, err := src.plainServers(t.Context(), 4)
	if err != nil || len(want) != 1 {
		t.Fatalf("asynq lists %+v, %v", want, err)
	}
	if got := find(); len(got) != 1 || got[0].ID != want[0].ID || got[0].Host != want[0].Host || got[0].PID != want[0].PID ||
		!got[0].Since.Equal(want[0].Since) || got[0].Queue != queue || got[0].Peer != "" {
		t.Errorf("read is %+v, asynq lists %+v", got, want)
	}
	server.Shutdown()
	s.listed(t, queue, false)
	if got := find(); len(got) != 0 {
		t.Errorf("it is gone, and read is %+v", got)
	}
}

// A store that is away says nothing of plain servers: who refuses because of one goes on
// refusing, and who does not, does not.
func TestAStoreThatIsAwayHidesNoServer(t *testing.T) {
	s := newStore(t)
	src, _, client := s.peer(t, Config{})
	client.Close()
	src.lookAgain(t.Context(), 4)
	if err := src.refused(); err != nil {
		t.Errorf("a store that is away is taken for a plain server: %v", err)
	}
	there := &PlainError{Plain{Queue: "q"}}
	src.refuse(there)
	src.lookAgain(t.Context(), 4)
	if err := src.refused(); !errors.Is(err, there) {
		t.Errorf("the store is away, and the refusal is %v", err)
	}
}

// One that takes tasks and is not listed, a script perhaps, is looked for once a second, and not with each task.
func TestDoubtIsNoReasonToLookAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := inTheBubble(t, "q")
		src := st.source
		for range 20 {
			if _, err := asynq.NewClientFromRedisClient(s.UniversalClient).Enqueue(asynq.NewTask("t", nil), asynq.Queue("q")); err != nil {
				t.Fatal(err)
			}
			s.LMove(t.Context(), keysOf("q").pending, keysOf("q").active, "RIGHT", "LEFT")
			if _, err := st.Fetch(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if len(src.doubt) != 1 {
			t.Error("it has looked again within a second")
		}
		time.Sleep(lookedFor)
		synctest.Wait()
		if len(src.doubt) != 0 {
			t.Error("it has not looked again after a second")
		}
		if err := st.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
