package redissource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// A broken hook fails every pipeline of scripts, after it was executed or instead.
type broken struct {
	err     error
	execute bool
}

func (*broken) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*broken) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (b *broken) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if name := cmds[0].Name(); name != "evalsha" && name != "eval" {
			return next(ctx, cmds)
		}
		if b.execute {
			_ = next(ctx, cmds)
		}
		for _, c := range cmds {
			c.SetErr(b.err)
		}
		return b.err
	}
}

// refusal is an error as the store answers it.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// What the producer says at its Timeout tells a message that may be there from one
// that is not.
func TestTimeoutTellsUnknownFromNot(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	for _, c := range []struct {
		name    string
		hook    broken
		unknown bool
	}{
		{"answers are lost", broken{errNetwork, true}, true},
		{"requests are lost", broken{errNetwork, false}, true},
		{"nobody listens", broken{dial, false}, false},
		{"refused for a while", broken{refusal("LOADING Redis is loading the dataset in memory"), false}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, name := redistest.New(t), redistest.Name(t)
			p := newProducer(t, client, name, ProducerConfig{Partitions: 1, Timeout: 50 * time.Millisecond})
			client.AddHook(&c.hook)
			results, err := p.Enqueue(t.Context(), Message{ID: "m"})
			if err == nil || errors.Is(results[0].Err, ErrUnknown) != c.unknown || !errors.Is(err, c.hook.err) {
				t.Errorf("%v, want unknown %v because of %v", err, c.unknown, c.hook.err)
			}
		})
	}
}

// While a store is dead, messages wait no longer than the Timeout, also those behind
// others; nothing is left running when the producer is closed.
func TestTimeoutHoldsForThoseBehind(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	p := newProducer(t, client, name, ProducerConfig{Partitions: 1, Timeout: 50 * time.Millisecond})
	client.AddHook(&broken{err: &net.OpError{Op: "dial", Err: errors.New("refused")}})
	errs := make(chan error)
	const callers = 20
	for range callers {
		go func() {
			_, err := p.Enqueue(t.Context(), Message{})
			errs <- err
		}()
	}
	for range callers {
		if err := <-errs; err == nil {
			t.Error("enqueued on a dead store")
		}
	}
}

// What was not sent in time because of what is before it is not told that the store gives no answer: it does.
func TestBehindWhatTakesLong(t *testing.T) {
	for _, c := range []struct {
		name  string
		fails error
		want  string
	}{
		{"the store answers", nil, "enqueue fewer at once"},
		{"it does not", errNetwork, "no answer from the store"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, name := bubble(t, true), redistest.Name(t)
				p := newProducer(t, client, name, ProducerConfig{Partitions: 1, Timeout: 10 * time.Second})
				client.AddHook(&slowPushes{3500 * time.Millisecond})
				if c.fails != nil {
					client.AddHook(&broken{err: c.fails})
				}
				first := make(chan error, 1)
				go func() {
					_, err := p.Enqueue(t.Context(), make([]Message, 4*batchMessages)...)
					first <- err
				}()
				synctest.Wait()
				_, err := p.Enqueue(t.Context(), Message{})
				if err == nil || errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				if err := <-first; err == nil {
					t.Error("14 s were over in 11")
				}
			})
		})
	}
}

// A mute hook has every pipeline take so long. Some have their answers; of the next ones, which hang longer, those scripts
// whose first key has a word in it get none.
type mute struct {
	after        int
	word         string
	takes, hangs time.Duration
}

func (*mute) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*mute) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (m *mute) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(m.takes)
		err := next(ctx, cmds)
		if m.after > 0 {
			m.after--
			return err
		}
		time.Sleep(m.hangs)
		lost := slices.DeleteFunc(slices.Clone(cmds), func(c redis.Cmder) bool { return !strings.Contains(fmt.Sprint(c.Args()[3]), m.word) })
		for _, c := range lost {
			c.SetErr(errNetwork)
			err = errNetwork
		}
		return err
	}
}

// A store that has answered before, or answers for other partitions, is not said to have had too much to do with what
// it does not answer.
func TestBehindWhatGetsNoAnswer(t *testing.T) {
	for what, m := range map[string]*mute{
		"any more":                {after: 2, takes: 3 * time.Second}, // NOSCRIPT is the first of them
		"what is still under way": {after: 2, takes: time.Second, hangs: time.Minute},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, name := bubble(t, true), redistest.Name(t)
				p := newProducer(t, client, name, ProducerConfig{Partitions: 1, Timeout: 10 * time.Second})
				client.AddHook(m)
				results, err := p.Enqueue(t.Context(), make([]Message, 4*batchMessages)...)
				if results[0].Err != nil {
					t.Errorf("the first: %v", results[0].Err)
				}
				if last := results[len(results)-1].Err; last == nil || errors.Is(last, ErrUnknown) || !strings.Contains(last.Error(), "no answer from the store") {
					t.Errorf("the last: %v, want no answer; in all %v", last, err)
				}
			})
		})
	}
	t.Run("for its partition", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client, name := bubble(t, false), redistest.Name(t)
			p := newProducer(t, client, name, ProducerConfig{Partitions: 2, Timeout: 10 * time.Second, Hash: partition.ByID})
			client.AddHook(&mute{word: KeysOf(name, 1).Mark(""), takes: 3 * time.Second})
			behind := make(chan []Result, 1)
			go func() {
				results, _ := p.Enqueue(t.Context(), slices.Repeat([]Message{{Key: "1"}}, 3*batchMessages)...)
				behind <- results
			}()
			time.Sleep(5 * time.Second)
			if _, err := p.Enqueue(t.Context(), Message{Key: "0"}); err != nil {
				t.Errorf("the other partition: %v", err)
			}
			results := <-behind
			if last := results[len(results)-1].Err; last == nil || errors.Is(last, ErrUnknown) || !strings.Contains(last.Error(), "no answer from the store") {
				t.Errorf("the last: %v, want no answer", last)
			}
		})
	})
}

// slowPushes takes so long for each pipeline of scripts.
type slowPushes struct{ takes time.Duration }

func (*slowPushes) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*slowPushes) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (s *slowPushes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if name := cmds[0].Name(); name == "evalsha" || name == "eval" {
			time.Sleep(s.takes)
		}
		return next(ctx, cmds)
	}
}

// A store that stands still holds up a call no longer than the Timeout and a second, though the client waits for it much
// longer. Who was not sent is told that, and that there was no answer, also where one comes after all.
func TestTimeoutHoldsWhileARequestIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, name := bubble(t, true), redistest.Name(t)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 1, Timeout: 3 * time.Second})
		hold := newHold()
		client.AddHook(hold)
		first, behind := make(chan error, 1), make(chan error, 1)
		began := time.Now()
		enqueue := func(id string, answer chan error) {
			_, err := p.Enqueue(t.Context(), Message{ID: id})
			if took := time.Since(began); took > 3*time.Second+lastWord {
				t.Errorf("%s: told after %v", id, took)
			}
			answer <- err
		}
		go enqueue("first", first)
		<-hold.held
		go enqueue("behind", behind)
		time.AfterFunc(12*time.Second, func() { close(hold.free) })
		if err := <-first; !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "no answer from the store for 3s") {
			t.Errorf("what was sent: %v", err)
		}
		if err := <-behind; err == nil || errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "no answer from the store for 3s") {
			t.Errorf("what was not: %v", err)
		}
		<-hold.free
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if ids := idsOf(logOf(t, client, name, 0)); !slices.Equal(ids, []string{"first"}) {
			t.Errorf("log %v", ids)
		}
	})
}

// A message has its own time, whoever it travels with: one that came late is not given up with one
// that has waited long, and that one is told, and is not enqueued after it was told that it was not.
func TestEachMessageHasItsOwnTime(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want []string // in the log
	}{
		{"it is unknown", errNetwork, []string{"old", "new"}},
		{"nobody listens", &net.OpError{Op: "dial", Err: errors.New("refused")}, []string{"new"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, name := bubble(t, true), redistest.Name(t)
				p := newProducer(t, client, name, ProducerConfig{Partitions: 1, Timeout: 10 * time.Second})
				var healed atomic.Bool
				client.AddHook(&brokenUntil{broken{err: c.err}, &healed})
				began := time.Now()
				type told struct {
					id  string
					at  time.Duration
					err error
				}
				all := make(chan told, 3)
				for _, m := range []struct {
					id    string
					after time.Duration
				}{{"x", 0}, {"old", time.Second}, {"new", 8 * time.Second}} {
					time.Sleep(time.Until(began.Add(m.after)))
					go func() {
						_, err := p.Enqueue(t.Context(), Message{ID: m.id})
						all <- told{m.id, time.Since(began), err}
					}()
					synctest.Wait()
				}
				time.Sleep(time.Until(began.Add(14 * time.Second)))
				healed.Store(true)
				for range 3 {
					got := <-all
					switch {
					case got.id == "new" && got.err != nil:
						t.Errorf("new: %v after %v", got.err, got.at)
					case got.id == "old" && (got.err == nil || got.at > 11*time.Second || errors.Is(got.err, ErrUnknown) != (c.err == errNetwork)):
						t.Errorf("old: %v after %v", got.err, got.at)
					}
				}
				if log := idsOf(logOf(t, client, name, 0)); !slices.Equal(log, c.want) {
					t.Errorf("the log is %q, want %q", log, c.want)
				}
			})
		})
	}
}

// A brokenUntil hook fails what a broken one does until it is healed.
type brokenUntil struct {
	broken
	healed *atomic.Bool
}

func (b *brokenUntil) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	fails := b.broken.ProcessPipelineHook(next)
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if b.healed.Load() {
			return next(ctx, cmds)
		}
		return fails(ctx, cmds)
	}
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	p, err := NewProducer(t.Context(), client, name, ProducerConfig{Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	client.AddHook(&broken{err: errNetwork})
	errs := make(chan error)
	const callers = 3
	for i := range callers {
		go func() {
			_, err := p.Enqueue(t.Context(), Message{})
			errs <- err
		}()
		eventually(t, func() bool { return i == 0 && sendingIn(p) || waitingIn(p) == i && i > 0 })
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v", err)
	}
	for range callers {
		if err := <-errs; err == nil {
			t.Error("no error")
		}
	}
	if err := p.Close(context.Background()); err != nil {
		t.Errorf("Close again: %v", err)
	}
}

// Where all was answered a Close with a context that has ended says nothing, also again: in a program that stops, that of
// its signals has, and an error says that messages have failed.
func TestCloseOfWhatIsAnswered(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for n := range 3 {
		p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
		for range n {
			if _, err := p.Enqueue(t.Context(), Message{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(p.Close(ctx), p.Close(ctx)); err != nil {
			t.Errorf("after %d messages: %v", n, err)
		}
	}
}

// A retrying hook does as the client does while the store stands still: it waits a minute between attempts, or until its
// context ends.
type retrying struct{}

func (retrying) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (retrying) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (retrying) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := errNetwork
		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
			err = ctx.Err()
		}
		for _, c := range cmds {
			c.SetErr(err)
		}
		return err
	}
}

// The client repeats by itself what gets no answer, each time with all of its ReadTimeout: Close waits for none of that.
func TestCloseEndsTheClientsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := bubble(t, true)
		p, err := NewProducer(t.Context(), client, "n", ProducerConfig{Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		client.AddHook(retrying{})
		told := make(chan error, 1)
		go func() {
			_, err := p.Enqueue(t.Context(), Message{})
			told <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if err := <-told; !errors.Is(err, ErrUnknown) {
			t.Errorf("what was under way: %v", err)
		}
	})
}

// Also a message whose own time ends before it could be sent again has failed because of that Close, and Close says so.
func TestCloseCutsOffTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := bubble(t, true)
		p, err := NewProducer(t.Context(), client, "n", ProducerConfig{Partitions: 1, Timeout: time.Second + time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		client.AddHook(retrying{})
		told := make(chan error, 1)
		go func() {
			_, err := p.Enqueue(t.Context(), Message{})
			told <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if err := <-told; !errors.Is(err, ErrUnknown) || !errors.Is(err, sources.ErrClosed) {
			t.Errorf("what was under way: %v", err)
		}
	})
}

// sendingIn reports whether a message is under way in the lanes of p.
func sendingIn(p *Producer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lanes {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, q := range l.tracks {
			if q.busy {
				return true
			}
		}
	}
	return false
}

// askingIn reports whether a request of p is under way.
func askingIn(p *Producer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lanes {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.asked.IsZero() {
			return true
		}
	}
	return false
}

// A full store refuses at once and keeps nothing; when there is room the producer
// goes on.
func TestFullStore(t *testing.T) {
	server, name := redistest.Server(t), redistest.Name(t)
	client := server.Client()
	p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
	server.Config("maxmemory", "1")
	results, err := p.Enqueue(t.Context(), Message{ID: "u", Unique: true}, Message{})
	if err == nil || !strings.Contains(err.Error(), "OOM") || errors.Is(err, ErrUnknown) || results[1].Err == nil {
		t.Errorf("%+v, %v", results, err)
	}
	if _, err := p.Enqueue(t.Context(), Message{}); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("a plain message: %v", err)
	}
	if n := client.Exists(t.Context(), KeysOf(name, 0).Unique("u")).Val(); n != 0 {
		t.Error("the refused message holds its lock")
	}
	server.Config("maxmemory", "0")
	if _, err := p.Enqueue(t.Context(), Message{ID: "u", Unique: true}); err != nil {
		t.Error(err)
	}
	if ids := idsOf(logOf(t, client, name, 0)); !slices.Equal(ids, []string{"u"}) {
		t.Errorf("log %v", ids)
	}
}

// The store restarts and has forgotten the script, and a batch that was under way.
func TestStoreRestarts(t *testing.T) {
	t.Parallel()
	server, name := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "always"), redistest.Name(t)
	client := server.Client()
	p := newProducer(t, client, name, ProducerConfig{Partitions: 2})
	if _, err := p.Enqueue(t.Context(), Message{ID: "before", Key: "k"}); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	errs := make(chan error)
	go func() {
		_, err := p.Enqueue(t.Context(), Message{ID: "meanwhile", Key: "k"})
		errs <- err
	}()
	server.Start()
	if err := <-errs; err != nil {
		t.Error(err)
	}
	if ids := idsOf(logOf(t, client, name, partition.Of("k", 2))); !slices.Equal(ids, []string{"before", "meanwhile"}) {
		t.Errorf("log %v", ids)
	}
}

// A name that was resized takes nothing from producers that count as before.
func TestResizedNameRefuses(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	p := newProducer(t, client, name, ProducerConfig{Partitions: 2})
	client.HSet(ctx, KeysOf(name, 0).Fence, "p", 4)
	client.HSet(ctx, KeysOf(name, 1).Fence, "p", 2)
	results, err := p.Enqueue(ctx, Message{}, Message{})
	if !errors.Is(err, partition.ErrConfig) {
		t.Errorf("error %v", err)
	}
	for _, r := range results {
		if (r.Err != nil) != (r.Partition == 0) {
			t.Errorf("%+v", r)
		}
	}
}

// On a cluster each node has a lane of its own, so that one that is down does not
// hold up the others.
func TestProducerOnCluster(t *testing.T) {
	t.Parallel()
	client, name := redistest.Cluster(t), redistest.Name(t)
	p := newProducer(t, client, name, ProducerConfig{Partitions: 32})
	results, err := p.Enqueue(t.Context(), make([]Message, 320)...)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 320 {
		t.Errorf("%d results", len(results))
	}
	for id := range partition.ID(32) {
		if n := len(logOf(t, client, name, id)); n != 10 {
			t.Errorf("partition %v: %d tasks", id, n)
		}
	}
	if len(p.lanes) < 2 {
		t.Errorf("%d lanes for 3 masters", len(p.lanes))
	}
}

// Who goes while an attempt is awaited, or waits behind one, is told what the attempts met. What the store has surely not
// executed is in no doubt, and is not sent afterwards.
func TestWhoLeavesIsToldWhy(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want []string // in the log
	}{
		{"it is unknown", errNetwork, []string{"first"}},
		{"nobody listens", &net.OpError{Op: "dial", Err: errors.New("refused")}, nil},
		{"refused for a while", refusal("LOADING Redis is loading the dataset in memory"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, name := bubble(t, true), redistest.Name(t)
				p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
				var healed atomic.Bool
				client.AddHook(&brokenUntil{broken{err: c.err}, &healed})
				enqueue := func(id string) <-chan error {
					told := make(chan error, 1)
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second+time.Microsecond) // not when one is under way
						defer cancel()
						_, err := p.Enqueue(ctx, Message{ID: id})
						told <- err
					}()
					synctest.Wait()
					return told
				}
				first, behind := enqueue("first"), enqueue("behind")
				if err := <-first; !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, c.err) ||
					errors.Is(err, ErrUnknown) != (c.err == errNetwork) || !strings.Contains(err.Error(), redisconfig.Explain(c.err).Error()) {
					t.Errorf("what was tried: %v", err)
				}
				if err := <-behind; !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnknown) ||
					!strings.Contains(err.Error(), redisconfig.Explain(c.err).Error()) {
					t.Errorf("what waited: %v", err)
				}
				healed.Store(true)
				if err := p.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if log := idsOf(logOf(t, client, name, 0)); !slices.Equal(log, c.want) {
					t.Errorf("the log is %q, want %q", log, c.want)
				}
			})
		})
	}
}

// Of what is repeated only those are taken out who have gone: one that still waits is enqueued.
func TestWhoStaysIsEnqueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, name := bubble(t, true), redistest.Name(t)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
		if _, err := p.Enqueue(t.Context(), Message{ID: "the store learns the script"}); err != nil {
			t.Fatal(err)
		}
		var healed atomic.Bool
		healed.Store(true)
		client.AddHook(&brokenUntil{broken{err: refusal("LOADING Redis is loading the dataset in memory")}, &healed})
		hold := newHold()
		client.AddHook(hold)
		var all sync.WaitGroup
		enqueue := func(ctx context.Context, id string) {
			all.Go(func() {
				if _, err := p.Enqueue(ctx, Message{ID: id}); (err == nil) != (id != "gone") || errors.Is(err, ErrUnknown) {
					t.Errorf("%s: %v", id, err)
				}
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		enqueue(t.Context(), "under way")
		<-hold.held
		healed.Store(false)
		enqueue(ctx, "gone") // travels with the next one
		enqueue(t.Context(), "stays")
		close(hold.free)
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
		healed.Store(true)
		all.Wait()
		if log := idsOf(logOf(t, client, name, 0)); !slices.Equal(log, []string{"the store learns the script", "under way", "stays"}) {
			t.Errorf("the log is %q", log)
		}
	})
}

// A forgetful wire, while it is on, loses the answer of the second push, which the store has executed, and answers
// those after it itself, as a store does that loads.
type forgetful struct {
	net.Conn
	on     *atomic.Bool
	pushes *atomic.Int32
	lose   bool
	lost   bool
	say    []byte
}

func (f *forgetful) Write(b []byte) (int, error) {
	if f.on.Load() && bytes.Contains(b, []byte("evalsha")) {
		switch f.pushes.Add(1) {
		case 1:
		case 2:
			f.lose = true
		default:
			f.say = []byte("-LOADING Redis is loading the dataset in memory\r\n")
			return len(b), nil
		}
	}
	return f.Conn.Write(b)
}

func (f *forgetful) Read(b []byte) (int, error) {
	switch {
	case f.lose:
		if !f.lost {
			f.lost = true
			_, _ = f.Conn.Read(b)
		}
		return 0, io.EOF
	case f.say != nil:
		n := copy(b, f.say)
		f.say = nil
		return n, nil
	}
	return f.Conn.Read(b)
}

// The client repeats by itself what has no answer, and the refusal of the second attempt hides that the first was executed:
// what was pushed is in doubt, and is repeated as it was.
func TestARefusalHidesNoLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loads atomic.Bool
		var pushes atomic.Int32
		client := bubbleOver(t, func(c net.Conn) net.Conn { return &forgetful{Conn: c, on: &loads, pushes: &pushes} })
		name := redistest.Name(t)
		p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
		if _, err := p.Enqueue(t.Context(), Message{ID: "the store learns the script"}); err != nil {
			t.Fatal(err)
		}
		hold := newHold()
		client.AddHook(hold)
		var all sync.WaitGroup
		enqueue := func(ctx context.Context, id string) {
			all.Go(func() {
				if _, err := p.Enqueue(ctx, Message{ID: id}); (err == nil) != (id != "gone") || errors.Is(err, ErrUnknown) != (id == "gone") {
					t.Errorf("%s: %v", id, err)
				}
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		enqueue(t.Context(), "under way")
		<-hold.held
		enqueue(ctx, "gone")
		enqueue(t.Context(), "stays") // travels with it
		loads.Store(true)
		close(hold.free)
		time.Sleep(time.Second)
		for askingIn(p) { // until it is between two attempts
			time.Sleep(time.Millisecond)
		}
		cancel()
		synctest.Wait()
		loads.Store(false)
		all.Wait()
		if log := idsOf(logOf(t, client, name, 0)); !slices.Equal(log, []string{"the store learns the script", "under way", "gone", "stays"}) {
			t.Errorf("the log is %q", log)
		}
	})
}

// A password that is no longer right is told, with what to do, at once: a refusal of the connection is an error of the
// pipeline, and of none of its commands.
func TestAnotherPasswordIsTold(t *testing.T) {
	t.Parallel()
	ctx, server, name := t.Context(), redistest.Server(t), redistest.Name(t)
	server.Config("requirepass", "old")
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "old"})
	defer client.Close()
	p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
	if _, err := p.Enqueue(ctx, Message{}); err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigSet(ctx, "requirepass", "new").Err(); err != nil {
		t.Fatal(err)
	}
	_ = client.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "no").Err() // it ends its own connection
	if _, err := p.Enqueue(ctx, Message{}); err == nil || errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "WRONGPASS") ||
		!strings.Contains(err.Error(), "give user and password in the URL") {
		t.Error(err)
	}
}
