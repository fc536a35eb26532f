package redissource

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
)

// A waitHook answers WAIT in the place of a server that has no such command.
type waitHook struct {
	mu    sync.Mutex
	have  int
	err   error
	asked []string // the commands of each pipeline that begins with a script
}

func (w *waitHook) say(have int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.have, w.err = have, err
}

func (w *waitHook) pipelines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

func (w *waitHook) answer(cmd redis.Cmder) bool {
	c, ok := cmd.(*redis.Cmd)
	if !ok || c.Name() != "wait" {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.SetVal(int64(w.have))
	if w.err != nil {
		c.SetErr(w.err)
	}
	return true
}

func (*waitHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *waitHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if w.answer(cmd) {
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (w *waitHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var names []string
		for _, c := range cmds {
			names = append(names, c.Name())
		}
		if names[0] == "evalsha" || names[0] == "eval" {
			w.mu.Lock()
			w.asked = append(w.asked, strings.Join(names, " "))
			w.mu.Unlock()
		}
		return next(ctx, slices.DeleteFunc(slices.Clone(cmds), w.answer))
	}
}

// Enqueue returns nil once a replica has the message: the push is repeated, with one WAIT for all
// that travels together, and enqueues nothing twice. In the end it is told what is missing.
func TestEnqueueWaitsForReplicas(t *testing.T) {
	for way, one := range map[string]bool{"single": true, "cluster": false} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, name, w := bubble(t, one), redistest.Name(t), &waitHook{have: 1}
				client.(interface{ AddHook(redis.Hook) }).AddHook(w)
				p := newProducer(t, client, name, ProducerConfig{Partitions: 2, Replicas: 1, Timeout: 10 * time.Second})
				enqueue := func(ctx context.Context, messages ...Message) ([]Result, error) {
					t.Helper()
					return p.Enqueue(ctx, messages...)
				}
				if _, err := enqueue(t.Context(), Message{ID: "a", Key: "a"}, Message{ID: "b", Key: "b"}, Message{ID: "u", Key: "b", Unique: true}); err != nil {
					t.Fatal(err)
				}
				for _, cmds := range w.pipelines() {
					if !strings.HasSuffix(cmds, " wait") || strings.Count(cmds, "wait") != 1 {
						t.Errorf("a pipeline is %q, want one WAIT, and at its end", cmds)
					}
				}

				w.say(0, nil)
				began := time.Now()
				_, err := enqueue(t.Context(), Message{ID: "c", Key: "a"})
				var few *ReplicasError
				if !errors.As(err, &few) || few.Have != 0 || few.Want != 1 || !errors.Is(err, ErrUnknown) ||
					!strings.Contains(err.Error(), "1 of 1 messages are in doubt: the master has it, but only 0 of 1 replicas have") {
					t.Errorf("without a replica: %v", err)
				}
				if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
					t.Errorf("it was tried for %v, want 10 s", took)
				}

				// A caller that goes earlier hears the same.
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := enqueue(ctx, Message{ID: "d", Key: "a"}); !errors.As(err, &few) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("at the end of its context: %v", err)
				}

				// The first one of a duplicate is where the duplicate should be.
				var results []Result
				told := make(chan error, 1)
				go func() {
					var err error
					results, err = enqueue(t.Context(), Message{ID: "u", Key: "b", Unique: true})
					told <- err
				}()
				time.Sleep(5 * time.Second)
				select {
				case err := <-told:
					t.Errorf("a duplicate that no replica has: %v", err)
				default:
				}
				w.say(0, refusal("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"))
				time.Sleep(time.Second)
				w.say(1, nil)
				if err := <-told; err != nil || !results[0].Duplicate {
					t.Errorf("a duplicate: %+v, %v", results, err)
				}
				time.Sleep(10 * time.Second) // d has been given up, or acknowledged

				want := map[partition.ID][]string{partition.Of("a", 2): {"a", "c", "d"}}
				want[partition.Of("b", 2)] = append(want[partition.Of("b", 2)], "b", "u")
				for id, want := range want {
					log := idsOf(logOf(t, client, name, id))
					slices.Sort(log)
					slices.Sort(want)
					if !slices.Equal(log, want) {
						t.Errorf("partition %v: %q, want %q", id, log, want)
					}
				}
			})
		})
	}
}

// What was refused is told at once: no replica has anything to hear of.
func TestRefusalWaitsForNoReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, name, w := bubble(t, true), redistest.Name(t), &waitHook{have: 1}
		client.(*redis.Client).AddHook(w)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 1, Replicas: 1, MaxBacklog: 1})
		if _, err := p.Enqueue(t.Context(), Message{}); err != nil {
			t.Fatal(err)
		}
		w.say(0, nil)
		began := time.Now()
		if _, err := p.Enqueue(t.Context(), Message{}); !errors.Is(err, ErrBacklog) || errors.Is(err, ErrUnknown) || time.Since(began) > time.Second {
			t.Errorf("a full log: %v after %v", err, time.Since(began))
		}
	})
}

// What some messages were refused for does not hide that others are in doubt: who asks the error of the
// call would enqueue all of them again.
func TestRefusalHidesNoDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, name, w := bubble(t, false), redistest.Name(t), &waitHook{have: 1}
		client.(interface{ AddHook(redis.Hook) }).AddHook(w)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 2, Replicas: 1, MaxBacklog: 1, Timeout: time.Second})
		full, free := Message{Key: "a"}, Message{Key: "b"}
		for partition.Of(free.Key, 2) == partition.Of(full.Key, 2) {
			free.Key += "b"
		}
		if _, err := p.Enqueue(t.Context(), full); err != nil {
			t.Fatal(err)
		}
		w.say(0, nil)
		results, err := p.Enqueue(t.Context(), full, free)
		var few *ReplicasError
		if !errors.Is(results[0].Err, ErrBacklog) || !errors.Is(results[1].Err, ErrUnknown) || !errors.Is(err, ErrUnknown) || !errors.As(err, &few) ||
			!strings.Contains(err.Error(), "2 of 2 messages were not enqueued, 1 of which are in doubt: the master has it") {
			t.Errorf("%+v: %v", results, err)
		}
	})
}

// The error is one in doubt wherever the doubt stands among the results.
func TestDoubtIsToldWhereverItStands(t *testing.T) {
	t.Parallel()
	for _, errs := range [][]error{
		{ErrUnknown, ErrBacklog}, {ErrBacklog, ErrUnknown}, {nil, ErrBacklog, ErrUnknown, ErrBacklog, nil}, {ErrUnknown, ErrUnknown, ErrBacklog},
	} {
		c := &call{results: make([]Result, len(errs))}
		for i, err := range errs {
			c.results[i].Err = err
		}
		if _, err := c.answer(); !errors.Is(err, ErrUnknown) {
			t.Errorf("%v: %v", errs, err)
		}
	}
}

// WAIT has no key: on a cluster it goes to the server of the pushes before it, and on their connection.
func TestWaitGoesWhereThePushWent(t *testing.T) {
	hooks := map[string]*waitHook{}
	nodes := make([]redis.ClusterNode, 2)
	for i := range nodes {
		m, _ := redistest.Mini(t)
		nodes[i].Addr = ":" + m.Port() // as go-redis puts loopback addresses that it was given so
		hooks[nodes[i].Addr] = &waitHook{have: 1}
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 8191, Nodes: nodes[:1]}, {Start: 8192, End: 16383, Nodes: nodes[1:]}}, nil
		},
		NewClient: func(opt *redis.Options) *redis.Client {
			c := redis.NewClient(opt)
			c.AddHook(hooks[opt.Addr])
			return c
		},
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { client.Close() })
	name := redistest.Name(t)
	p := newProducer(t, client, name, ProducerConfig{Partitions: 16, Replicas: 1})
	messages := make([]Message, 64)
	if _, err := p.Enqueue(t.Context(), messages...); err != nil {
		t.Fatal(err)
	}
	// A partition keeps its lane when it moves: then a lane has pushes for two servers.
	for id := range p.ofPart {
		p.ofPart[id] = p.lanes[nodes[0].Addr]
	}
	hooks[nodes[1].Addr].say(0, nil)
	p.timeout, p.pusher.patience = 50*time.Millisecond, time.Millisecond
	results, err := p.Enqueue(t.Context(), messages...)
	if !errors.Is(err, ErrUnknown) {
		t.Errorf("one server without a replica: %v", err)
	}
	for _, r := range results {
		first := redistest.Slot(KeysOf(name, r.Partition).Fence) < 8192
		if few := (*ReplicasError)(nil); first != (r.Err == nil) || !first && !errors.As(r.Err, &few) {
			t.Errorf("partition %v, on the first server: %v: %v", r.Partition, first, r.Err)
		}
	}
	for addr, w := range hooks {
		for _, cmds := range w.pipelines() {
			if !strings.HasSuffix(cmds, " wait") || strings.Count(cmds, "wait") != 1 {
				t.Errorf("%s was asked %q, want one WAIT, and behind the pushes", addr, cmds)
			}
		}
	}
	hooks[nodes[0].Addr].say(0, nil)
	_, err = NewProducer(t.Context(), client, name, ProducerConfig{Replicas: 1})
	for _, node := range nodes {
		if err == nil || !strings.Contains(err.Error(), node.Addr+" has 0 that answer") {
			t.Errorf("a cluster of servers without replicas: %v, want %s in it", err, node.Addr)
		}
	}
}

// Who cannot be waited for is told when the producer is made, and what to do.
func TestReplicasThatCannotBe(t *testing.T) {
	_, mini := redistest.Mini(t)
	_, refuses := redistest.Mini(t)
	refuses.(interface{ AddHook(redis.Hook) }).AddHook(&waitHook{err: refusal("NOPERM User peer has no permissions to run the 'wait' command")})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for _, c := range []struct {
		client   redis.UniversalClient
		replicas int
		want     string
	}{
		{mini, -1, "redissource: MaxBacklog -1: want 0 or more\nredissource: Replicas -1: want 0 or more"},
		{redistest.Hidden(mini, 0), 1, "give a *redis.Client or a *redis.ClusterClient"},
		{ring, 0, "redissource: a *redis.Ring sends the keys"},
		{refuses, 1, "Replicas 1: WAIT is refused: NOPERM"},
		{mini, 2, "Replicas 2: the server has 0 that answer: start more, or ask for fewer"},
	} {
		name := redistest.Name(t)
		_, err := NewProducer(t.Context(), c.client, name, ProducerConfig{Replicas: c.replicas, MaxBacklog: min(c.replicas, 0), Timeout: 50 * time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d replicas: %v, want %q", c.replicas, err, c.want)
		}
		if c.client != ring && c.client.Exists(t.Context(), redisconfig.Key(name)).Val() != 0 {
			t.Errorf("%d replicas: refused, and the name has a configuration", c.replicas)
		}
	}
	if _, err := New(ring, "mail", Config{}); err == nil || !strings.Contains(err.Error(), "*redis.Ring") {
		t.Errorf("a source: %v", err)
	}
}

// A push that is repeated writes all the same. WAIT is for what its connection has written last, and
// a repeat may come by another one; and who was the master knows marks that the new one does not have.
func TestRepeatedPushWrites(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	mark := KeysOf(name, 0).Mark("unit")
	for _, life := range []time.Duration{0, time.Hour} {
		head := pushHead{era: 1, first: 1, last: 1, total: 1, life: life}
		runPush(t, client, name, head, []pushWord{{body: "a"}})
		before := client.TTL(ctx, mark).Val()
		client.Expire(ctx, mark, time.Minute)
		runPush(t, client, name, head, []pushWord{{body: "a"}})
		if after := client.TTL(ctx, mark).Val(); after < before-30*time.Minute || (after < 0) != (life == 0) {
			t.Errorf("a mark that lives for %v: %v after a repeat", life, after)
		}
		client.Del(ctx, mark)
	}
}

// The lines of a list on another server are taken off it once replicas have their tasks.
func TestIngressWaitsForReplicas(t *testing.T) {
	_, client := redistest.Mini(t)
	w := new(waitHook)
	client.(interface{ AddHook(redis.Hook) }).AddHook(w)
	b := newInbox(t, client, 4)
	b.unit.replicas = 1
	b.push(inboxLine("ann", 0), inboxLine("bob", 1))
	s := b.open(1)
	var few *ReplicasError
	if err := <-s.trouble; !errors.As(err, &few) {
		t.Errorf("without a replica: %v", err)
	}
	if n := client.LLen(t.Context(), b.unit.List).Val(); n != 2 {
		t.Errorf("%d lines in the list, want 2", n)
	}
	w.say(1, nil)
	b.arrived(2)
	b.exactlyOnceInOrder(2)
}

// With a replica: what is acknowledged is there.
func TestReplicaHasWhatWasEnqueued(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	host, port, _ := strings.Cut(server.Addr(), ":")
	replica := redistest.Server(t, "--replicaof", host+" "+port)
	client, name, ctx := server.Client(), redistest.Name(t), t.Context()
	var p *Producer
	eventually(t, func() bool { // until the replica is in step
		made, err := NewProducer(ctx, client, name, ProducerConfig{Partitions: 4, Replicas: 1})
		p = made
		return err == nil
	})
	t.Cleanup(func() { p.Close(context.Background()) })
	there := func() (n int64) {
		for id := range partition.ID(4) {
			n += replica.Client().LLen(ctx, KeysOf(name, id).Pending).Val()
		}
		return n
	}
	for i := range 20 {
		if _, err := p.Enqueue(ctx, Message{}); err != nil {
			t.Fatal(err)
		}
		if n := there(); n != int64(i+1) {
			t.Fatalf("%d tasks are acknowledged, and the replica has %d", i+1, n)
		}
	}
	replica.Pause()
	defer replica.Resume()
	p.pusher.patience = 10 * time.Millisecond
	told := make(chan error, 1)
	go func() {
		_, err := p.Enqueue(ctx, Message{Key: "k"})
		told <- err
	}()
	k := KeysOf(name, partition.Of("k", 4))
	mark := k.Mark(p.session)
	eventually(t, func() bool { return client.Exists(ctx, mark).Val() == 1 })
	select {
	case err := <-told:
		t.Errorf("acknowledged without a replica: %v", err)
	default:
	}
	replica.Resume()
	if err := <-told; err != nil || there() != 21 {
		t.Errorf("%v, and the replica has %d tasks, want 21", err, there())
	}
	// A replica repeats nothing: it may have been the master, and know of what the new one does not.
	head := pushHead{first: 0, last: 0, total: 4, life: time.Hour}
	keys, args := head.arguments(mark, []pushTarget{{&k, 1}}, 1)
	if err := pushScript.Eval(ctx, replica.Client(), keys, append(args, "again")...).Err(); !redis.HasErrorPrefix(err, "READONLY") {
		t.Errorf("a repeated push on a replica: %v, want READONLY", err)
	}
}
