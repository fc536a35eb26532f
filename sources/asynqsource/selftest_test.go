package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
)

func (s *store) untested(t testing.TB) (*Source, redis.UniversalClient) {
	t.Helper()
	src, _, client := s.peer(t, Config{})
	src.tested = false
	return src, client
}

func TestTheSelfTestPassesAndLeavesNothing(t *testing.T) {
	for _, modest := range []bool{false, true} {
		t.Run(fmt.Sprintf("modest %v", modest), func(t *testing.T) {
			s := newStore(t)
			src, _ := s.untested(t)
			began := time.Now()
			if err := src.trial(t.Context(), modest); err != nil {
				t.Fatal(err)
			}
			t.Logf("it took %v and saw %d scripts", time.Since(began), len(src.library.all()))
			if keys := redistest.Keys(t, s.UniversalClient, "*"+s.name+":selftest*"); len(keys) > 0 {
				t.Errorf("it left %q", keys)
			}
			if queues, err := s.inspector().Queues(); err != nil || len(queues) > 0 && strings.Contains(strings.Join(queues, " "), s.name) {
				t.Errorf("it left the queues %v, %v", queues, err)
			}
		})
	}
}

// onScripts is a hook that sees every command before it is sent, and may fail it.
type onScripts func(cmd redis.Cmder) error

func (onScripts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (see onScripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := see(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (see onScripts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := see(cmd); err != nil {
				for _, cmd := range cmds {
					cmd.SetErr(err)
				}
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// change changes scripts on their way, as another version of asynq or a store that is not
// Redis would have them do something else. Every script is sent whole, so that it can be.
func change(to func(source string) string) onScripts {
	return func(cmd redis.Cmder) error {
		switch cmd.Name() {
		case "evalsha":
			return noScriptError{}
		case "eval":
			if source, ok := cmd.Args()[1].(string); ok {
				cmd.Args()[1] = to(source)
			}
		}
		return nil
	}
}

func TestTheSelfTestChoosesAndRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(source string) string
		modest  bool
		refuses bool
	}{
		{name: "all is as it should be", change: func(s string) string { return s }},
		{
			name: "tasks are taken from the other end", modest: true,
			change: func(s string) string {
				return strings.Replace(s, "redis.call('RPOP', KEYS[2]", "redis.call('LPOP', KEYS[2]", 1)
			},
		},
		{
			name: "a finished task has more than a hash", modest: true,
			change: func(s string) string {
				return strings.Replace(s, "redis.call('DEL', prefix .. id)", "redis.call('HSET', prefix .. id, 'state', 'active')", 1)
			},
		},
		{
			name: "the state has another name", modest: true,
			change: func(s string) string {
				return strings.Replace(s, "redis.call('HSET', prefix .. id, 'state', 'active')", "redis.call('HSET', prefix .. id, 'condition', 'active')", 1)
			},
		},
		{
			name: "the fence around asynq's scripts does not hold", refuses: true,
			change: func(s string) string { return strings.Replace(s, "f[1] ~= token", "false", 1) },
		},
		{
			name: "the fence of our own does not hold", refuses: true,
			change: func(s string) string {
				s = strings.Replace(s, "if f[1] ~= ARGV[1] then return {0, tonumber(f[2] or '0')} end", "", 1)
				return strings.Replace(s, "if f[1] ~= ARGV[1] or f[2] ~= ARGV[2] then return {0} end", "", 1)
			},
		},
		{
			name: "asynq's scripts do not find what they look for", refuses: true,
			change: func(s string) string {
				return strings.Replace(s, "local function asynq()", "local function asynq() do return redis.error_reply('NO') end", 1)
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			src, client := s.untested(t)
			client.AddHook(change(c.change))
			_, err := src.Layout(t.Context())
			if refuses := errors.Is(err, partition.ErrConfig); refuses != c.refuses || err != nil && !refuses {
				t.Fatalf("it says %v, want a refusal: %v", err, c.refuses)
			}
			if modest, why := src.Modest(); modest != c.modest {
				t.Errorf("it is modest: %v, because of %v; want %v", modest, why, c.modest)
			}
		})
	}
}

// A store that does not answer says nothing about asynq: the source does not begin as if it had
// been tested, and tests again when it is asked again.
func TestASelfTestThatIsBrokenOffIsNone(t *testing.T) {
	s := newStore(t)
	src, client := s.untested(t)
	var away atomic.Bool
	away.Store(true)
	lost := errors.New("the connection is gone")
	client.AddHook(onScripts(func(cmd redis.Cmder) error {
		if away.Load() && strings.HasPrefix(cmd.Name(), "eval") {
			return lost
		}
		return nil
	}))
	if _, err := src.Layout(t.Context()); !errors.Is(err, lost) || errors.Is(err, partition.ErrConfig) {
		t.Fatalf("without an answer it says %v", err)
	}
	if src.tested {
		t.Error("without an answer it counts as tested")
	}
	away.Store(false)
	if _, err := src.Layout(t.Context()); err != nil {
		t.Fatalf("with answers again it says %v", err)
	}
	if !src.tested {
		t.Error("it was not tested again")
	}
}

// What asks has no more time, or stops, in the middle of the last trial: that says nothing of asynq, and is not for good.
func TestASelfTestThatIsStoppedIsNoMisfit(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	src, client := s.untested(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	trials := 0
	client.AddHook(onScripts(func(cmd redis.Cmder) error {
		if cmd.Name() == "ping" {
			trials++
		}
		if trials == 3 && cmd.Name() == "eval" && strings.Contains(cmd.Args()[1].(string), "local function asynq()") {
			stop()
		}
		return nil
	}))
	client.AddHook(change(func(source string) string { // so that only asynq's own scripts fit
		return strings.Replace(source, "redis.call('RPOP', KEYS[2]", "redis.call('LPOP', KEYS[2]", 1)
	}))
	_, err := src.Layout(ctx)
	if trials != 3 || ctx.Err() == nil || !errors.Is(err, context.Canceled) || errors.Is(err, partition.ErrConfig) {
		t.Errorf("after %d trials, stopped: %v, it says %v", trials, ctx.Err(), err)
	}
}

// A store or a process that stands still in the middle of the self-test is no other version of asynq: the source would be
// modest for as long as its process lives.
func TestAPauseInTheSelfTestIsNoMisfit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		src, err := New(client, "n", Config{Queues: []string{"q"}, Connections: -1})
		if err != nil {
			t.Fatal(err)
		}
		var paused atomic.Bool
		client.AddHook(onScripts(func(cmd redis.Cmder) error {
			if cmd.Name() == "evalsha" && cmd.Args()[1] == fetchScript.Hash() && paused.CompareAndSwap(false, true) {
				time.Sleep(testTime + time.Second)
			}
			return nil
		}))
		if _, err := src.Layout(t.Context()); err != nil || !paused.Load() {
			t.Fatalf("paused: %v, it says %v", paused.Load(), err)
		}
		if modest, why := src.Modest(); modest || why != nil {
			t.Errorf("it is modest: %v, because of %v", modest, why)
		}
	})
}

// Where each answer takes 300 ms, as from another continent, the self-test takes its time and says the same.
func TestTheSelfTestOfAFarStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		src, err := New(client, "n", Config{Queues: []string{"q"}, Connections: -1})
		if err != nil {
			t.Fatal(err)
		}
		client.AddHook(onScripts(func(redis.Cmder) error {
			time.Sleep(300 * time.Millisecond)
			return nil
		}))
		if _, err := src.Layout(t.Context()); err != nil {
			t.Fatal(err)
		}
		if modest, why := src.Modest(); modest || why != nil {
			t.Errorf("it is modest: %v, because of %v", modest, why)
		}
	})
}

// A self-test that fails half-way leaves nothing, also not what was active: a peer repeats it until it passes.
func TestASelfTestThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	src, client := s.untested(t)
	lost, trips := errors.New("the connection is gone"), 0
	client.AddHook(onScripts(func(cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" && cmd.Args()[1] == settleScript.Hash() {
			if trips++; trips > 1 { // the first has taken the tasks
				return lost
			}
		}
		return nil
	}))
	if err := src.trial(t.Context(), false); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	if keys := redistest.Keys(t, s.UniversalClient, "*"+s.name+":selftest*"); len(keys) > 0 {
		t.Errorf("it left %q", keys)
	}
	if queues, err := s.inspector().Queues(); err != nil || strings.Contains(strings.Join(queues, " "), s.name) {
		t.Errorf("it left the queues %v, %v", queues, err)
	}
}

// A peer that is killed in its self-test leaves a queue that asynq's tools show: a later one throws it away, but none whose
// self-test may still be at work, nor a queue of somebody else.
func TestTheSelfTestThrowsAwayWhatOthersLeft(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	src, client := s.untested(t)
	old, fresh, foreign := trialQueue(s.name, time.Now().Add(-abandonedAfter)), trialQueue(s.name, time.Now()), s.name+":selftest:mine"
	for _, queue := range []string{old, fresh, foreign} {
		left, err := src.newTrial(client, false)
		if err != nil {
			t.Fatal(err)
		}
		left.queue = queue
		for _, c := range canaries {
			if err := left.enqueue(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		k := keysOf(queue)
		if err := errors.Join(
			client.RPopLPush(t.Context(), k.pending, k.active).Err(),
			client.ZAdd(t.Context(), k.lease, redis.Z{Score: 1, Member: canaryDone}).Err(),
			client.HSet(t.Context(), k.fence, "t", "1-left").Err(),
		); err != nil {
			t.Fatal(err)
		}
	}
	if err := src.trial(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if keys := redistest.Keys(t, s.UniversalClient, "*"+old+"*"); len(keys) > 0 {
		t.Errorf("of the one that was left it left %q", keys)
	}
	queues, err := s.inspector().Queues()
	if err != nil || slices.Contains(queues, old) || !slices.Contains(queues, fresh) || !slices.Contains(queues, foreign) {
		t.Errorf("asynq lists %v, %v", queues, err)
	}
}

// A process that stands still before the start of a canary says nothing of asynq: it is asked again, as any task is.
func TestAPauseIsNoMisfit(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	src, _, client := s.peer(t, Config{})
	trial, err := src.newTrial(client, false)
	if err != nil {
		t.Fatal(err)
	}
	e, paused := trial.engine, make(map[string]bool)
	e.cfg.BaseContext = func() context.Context { // asynq asks for it between the question and the start
		e.mu.Lock()
		defer e.mu.Unlock()
		for key, r := range e.runs {
			if !paused[key.id] {
				paused[key.id], r.begun = true, r.begun.Add(-hopTime)
			}
		}
		return context.Background()
	}
	if err := errors.Join(trial.run(t.Context()), trial.sweep(t.Context())); err != nil || len(paused) == 0 {
		t.Errorf("with a pause before each of %d starts: %v", len(paused), err)
	}
}
