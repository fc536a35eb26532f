package redissource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/sync/errgroup"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/redisprogress"
)

func idle(context.Context) error { return nil }

func TestResize(t *testing.T) {
	for _, c := range []struct{ from, to int }{{4, 7}, {7, 4}, {1, 8}, {8, 1}} {
		t.Run(fmt.Sprintf("%d to %d", c.from, c.to), func(t *testing.T) {
			t.Parallel()
			ctx, client := t.Context(), redistest.New(t)
			w := newCrowd(t, client, c.from, uint64(c.to))
			old := newProducer(t, client, w.name, ProducerConfig{})
			var told Resized
			dry, err := Resize(ctx, client, w.name, c.to, ResizeConfig{Idle: idle, DryRun: true, Tell: func(at Resized, _ bool) { told = at }})
			if err != nil {
				t.Fatal(err)
			}
			if told != dry {
				t.Errorf("the dry run told of %+v in the end, and returned %+v", told, dry)
			}
			got, err := Resize(ctx, client, w.name, c.to, ResizeConfig{Idle: idle})
			if err != nil || got != dry || got.From != c.from || got.To != c.to || got.Tasks == 0 || got.Moving == 0 {
				t.Errorf("%+v, %v, the dry run said %+v", got, err, dry)
			}
			w.check(c.to)
			if _, err := old.Enqueue(ctx, Message{Key: "key1"}); !errors.Is(err, partition.ErrConfig) {
				t.Errorf("a producer that counts as before: %v", err)
			}
			w.check(c.to)
			if again, err := Resize(ctx, client, w.name, c.to, ResizeConfig{Idle: idle}); err != nil || again.Tasks != 0 {
				t.Errorf("again: %+v, %v", again, err)
			}
			w.work(c.to)
			// And there is a way back.
			p := newProducer(t, client, w.name, ProducerConfig{})
			if _, err := p.Enqueue(ctx, Message{ID: "new", Key: "key1"}); err != nil {
				t.Fatal(err)
			}
			if got, err := Resize(ctx, client, w.name, c.from, ResizeConfig{Idle: idle}); err != nil || got.Tasks != 1 {
				t.Errorf("back: %+v, %v", got, err)
			}
			if log := logOf(t, client, w.name, partition.Of("key1", c.from)); len(log) != 1 || log[0].id != "new" {
				t.Errorf("back: %+v", log)
			}
		})
	}
}

// However often it is broken off, and wherever, and whatever comes late: what was
// begun can be finished, and nothing is lost, doubled or out of order.
func TestResizeIsTakenUpAgain(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			ctx, client := t.Context(), redistest.New(t)
			from, to := 3+int(seed%4), 6-int(seed%5)
			if from == to {
				to++
			}
			w := newCrowd(t, client, from, seed)
			f := newFaults(seed, 0.2)
			client.AddHook(f)
			broken := 0
			for ; ; broken++ {
				_, err := Resize(ctx, client, w.name, to, ResizeConfig{Idle: idle})
				if err == nil {
					break
				}
				if !strings.Contains(err.Error(), "unexpected EOF") && !errors.Is(err, sources.ErrFenced) &&
					!errors.Is(err, redisconfig.ErrTaken) && // by an earlier call, whose word came late
					!strings.Contains(err.Error(), "somebody else") || broken == 1000 {
					t.Fatal(err)
				}
				if strings.HasPrefix(err.Error(), "redissource: resize "+w.name+": partition ") && !errors.Is(err, sources.ErrFenced) &&
					!strings.HasSuffix(err.Error(), "call it again, and it goes on where it was") {
					t.Errorf("it does not say what to do: %v", err)
				}
				if broken == 20 { // it gets nowhere with so many
					f.mu.Lock()
					f.rate = 0.03
					f.mu.Unlock()
				}
			}
			f.calm()
			if broken == 0 {
				t.Error("it was not broken off")
			}
			w.check(to)
			w.work(to)
		})
	}
}

// A pause is what happens to a program at one of its requests: all of then comes first.
type pause struct {
	at   int
	then func()
	n    int
}

func (p *pause) request() {
	if p.n++; p.n == p.at {
		p.then()
	}
}

func (*pause) DialHook(next redis.DialHook) redis.DialHook { return next }
func (p *pause) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		p.request()
		return next(ctx, cmd)
	}
}

func (p *pause) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "hello" && cmds[0].Name() != "client" {
			p.request()
		}
		return next(ctx, cmds)
	}
}

// A resize that is paused, at whatever request, until another call has finished it and peers work again,
// does nothing any more: it takes no fence, moves no task and leaves none behind.
func TestResizeThatWakesUpLate(t *testing.T) {
	t.Parallel()
	const from, to = 2, 3
	client := redistest.Single(t, redistest.New(t))
	opt := *client.Options()
	sleeper := redis.NewClient(&opt)
	defer sleeper.Close()
	p := &pause{}
	sleeper.AddHook(p)
	for at := 1; at == 1 || p.n >= p.at; at++ {
		ctx := t.Context()
		w, messages, _ := enqueuedCrowd(t, client, from, 3)
		var streams []sources.Stream
		p.n, p.at, p.then = 0, at, func() {
			if _, err := Resize(ctx, client, w.name, to, ResizeConfig{Idle: idle}); err != nil {
				t.Fatalf("request %d: %v", at, err)
			}
			src, err := New(client, w.name, Config{})
			if err != nil {
				t.Fatal(err)
			}
			for id := range partition.ID(to) {
				s, err := src.Open(ctx, partition.Grant{ID: id, Epoch: 1000}, tokenOf(1000))
				if err != nil {
					t.Fatal(err)
				}
				streams = append(streams, s)
			}
			var later []Message
			for i := range 9 {
				m := Message{ID: fmt.Sprint("later", i), Key: fmt.Sprint("key", i)}
				if i%3 == 0 {
					m.Delay = time.Hour
					w.others[m.ID] = "delayed"
				}
				later = append(later, m)
			}
			if _, err := newProducer(t, client, w.name, ProducerConfig{}).Enqueue(ctx, later...); err != nil {
				t.Fatal(err)
			}
			messages = append(messages, later...)
		}
		_, err := Resize(ctx, sleeper, w.name, to, ResizeConfig{Idle: idle})
		if err != nil && !errors.Is(err, sources.ErrFenced) && !errors.Is(err, redisconfig.ErrTaken) {
			t.Errorf("request %d: %v", at, err)
		}
		for i, s := range streams {
			if tok := client.HGet(ctx, KeysOf(w.name, partition.ID(i)).Fence, "t").Val(); tok != tokenOf(1000).String() {
				t.Errorf("request %d: partition %d is taken from its owner: %q", at, i, tok)
			}
			s.Close(ctx)
		}
		w.keep(messages, nil)
		w.check(to)
		if got, err := redisconfig.Read(ctx, client, w.name); err != nil || got.Total != to {
			t.Errorf("request %d: %+v, %v", at, got, err)
		}
		if t.Failed() {
			t.Fatalf("paused at request %d", at)
		}
	}
	t.Logf("%d requests", p.n)
}

// Calls at once take over from each other, or give up, and one that comes later can finish; nothing is
// lost, doubled or out of order.
func TestResizeTwoAtOnce(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			ctx, client := t.Context(), redistest.New(t)
			w := newCrowd(t, client, 4, seed)
			var g errgroup.Group
			for range 3 {
				g.Go(func() error {
					for range 4 {
						_, err := Resize(ctx, client, w.name, 6, ResizeConfig{Idle: idle})
						if !errors.Is(err, sources.ErrFenced) && !errors.Is(err, redisconfig.ErrTaken) {
							return err
						}
					}
					return nil
				})
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			if _, err := Resize(ctx, client, w.name, 6, ResizeConfig{Idle: idle}); err != nil {
				t.Fatal(err)
			}
			w.check(6)
		})
	}
}

func TestResizeRefuses(t *testing.T) {
	ctx, client := t.Context(), redistest.New(t)
	name := redistest.Name(t)
	busy := errors.New("a peer lives")
	if _, err := Resize(ctx, client, name, 8, ResizeConfig{Idle: idle}); !errors.Is(err, redisconfig.ErrNone) {
		t.Errorf("nothing stands: %v", err)
	}
	was, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 4, Units: []string{name + ":inbox"}})
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for what, c := range map[string]struct {
		to   int
		cfg  ResizeConfig
		want error
	}{
		"no Idle":           {8, ResizeConfig{}, nil},
		"peers":             {8, ResizeConfig{Idle: func(context.Context) error { return busy }}, busy},
		"zero":              {0, ResizeConfig{Idle: idle}, nil},
		"zero, dry":         {0, ResizeConfig{Idle: idle, DryRun: true}, nil},
		"a batch under way": {8, ResizeConfig{Idle: idle}, ErrPlanned},
		"a batch, dry":      {8, ResizeConfig{Idle: idle, DryRun: true}, ErrPlanned},
		"a peer that came when it began": {8, ResizeConfig{Idle: func(context.Context) error {
			if calls++; calls == 2 {
				return busy
			}
			return nil
		}}, busy},
	} {
		plan := "{" + name + ":inbox}:plan"
		client.Del(ctx, plan)
		if c.want == ErrPlanned {
			client.HSet(ctx, plan, "k", 1)
		}
		if _, err := Resize(ctx, client, name, c.to, c.cfg); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if got, err := redisconfig.Agree(ctx, client, name, was); err != nil || got.Total != 4 {
			t.Errorf("%s: afterwards %+v, %v", what, got, err)
		}
		if n := client.Exists(ctx, KeysOf(name, 0).Fence).Val(); n != 0 {
			t.Errorf("%s: it touched the partitions", what)
		}
	}
}

func TestResizeAndDestroyOnCluster(t *testing.T) {
	t.Parallel()
	ctx, client := t.Context(), redistest.Cluster(t)
	w := newCrowd(t, client, 4, 1)
	if _, err := Resize(ctx, client, w.name, 9, ResizeConfig{Idle: idle}); err != nil {
		t.Fatal(err)
	}
	w.check(9)
	other := redistest.Name(t)
	newProducer(t, client, other, ProducerConfig{Partitions: 1}).Enqueue(ctx, Message{ID: "kept"})
	routed := client.(*redis.ClusterClient)
	routed.SetCommandInfoResolver(routed.NewDynamicResolver()) // takes no UNLINK in a pipeline
	if n, err := Destroy(ctx, client, w.name); err != nil || n == 0 {
		t.Errorf("%d, %v", n, err)
	}
	for id := range partition.ID(9) {
		if n := len(logOf(t, client, w.name, id)); n != 0 {
			t.Errorf("%d tasks are left in partition %v", n, id)
		}
	}
	if len(logOf(t, client, other, 0)) != 1 {
		t.Error("another name lost its tasks")
	}
}

func TestDestroy(t *testing.T) {
	ctx, client := t.Context(), redistest.New(t)
	w := newCrowd(t, client, 4, 1)
	inbox := w.name + ":inbox"
	client.HSet(ctx, redisconfig.Key(w.name), "units", "x", "unitnames", inbox)
	kept := map[string]string{
		inbox: "the producers' own", w.name: "", "{" + w.name + "}:transition": "the ledger's",
		"{" + w.name + "2:0}:pending": "another name's", "{" + w.name + ":x}:pending": "no partition", "{" + w.name + ":0}pending": "",
	}
	for k := range kept {
		client.Set(ctx, k, "v", 0)
	}
	client.HSet(ctx, "{"+inbox+"}:fence", "t", "1:s")
	give(t, client, w.name, "a")
	if n, err := Destroy(ctx, client, w.name); err != nil || n < 9 {
		t.Errorf("%d, %v", n, err)
	}
	left := redistest.Keys(t, client, "*"+w.name+"*")
	want := append(slices.Collect(maps.Keys(kept)), redisconfig.Key(w.name))
	slices.Sort(want)
	slices.Sort(left)
	if !slices.Equal(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
	if _, err := Destroy(ctx, client, "*"); err == nil {
		t.Error("a bad name")
	}
}

// The masters of a cluster are looked at one by one: what moves to one that was looked at already from one that was not
// is found all the same, and so is what moves after it was found.
func TestDestroyFindsWhatMoves(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		ctx, name := t.Context(), redistest.Name(t)
		master, from := redistest.Mini(t)
		another, to := redistest.Mini(t)
		a, b := master.Addr(), another.Addr()
		key := KeysOf(name, 0).Pending
		slot := redistest.Slot(key)
		var owner atomic.Pointer[string]
		owner.Store(&a)
		cluster := redis.NewClusterClient(&redis.ClusterOptions{
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{
					{Start: 0, End: slot - 1, Nodes: []redis.ClusterNode{{Addr: a}}},
					{Start: slot, End: slot, Nodes: []redis.ClusterNode{{Addr: *owner.Load()}}},
					{Start: slot + 1, End: 16383, Nodes: []redis.ClusterNode{{Addr: b}}},
				}, nil
			},
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		defer cluster.Close()
		looked := make(chan struct{})
		first := sync.OnceFunc(func() { close(looked) })
		move := sync.OnceFunc(func() {
			from.Del(ctx, key)
			to.RPush(ctx, key, "x")
			owner.Store(&b)
		})
		master.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
			moved := strings.EqualFold(cmd, "unlink")
			if moved {
				c.WriteError(fmt.Sprintf("MOVED %d %s", slot, b))
			}
			return moved
		})
		cluster.OnNewNode(func(node *redis.Client) {
			source := strings.HasSuffix(a, node.Options().Addr) // the client leaves out the host
			node.AddHook(&between{before: func(cmds []redis.Cmder) {
				switch name := cmds[0].Name(); {
				case source && !late && name == "scan":
					<-looked
					move()
				case source && late && name == "unlink":
					<-looked
					move()
				}
			}, after: func(cmds []redis.Cmder) {
				if cmds[0].Name() == "scan" && !source {
					first()
				}
			}})
		})
		from.RPush(ctx, key, "x")
		if n, err := Destroy(ctx, cluster, name); err != nil || n != 1 {
			t.Errorf("late %v: %d keys were removed, %v; want 1", late, n, err)
		}
		if to.Exists(ctx, key).Val() != 0 {
			t.Errorf("late %v: what moved meanwhile stays", late)
		}
	}
}

// Of a client that hides that it is a cluster's one server would be asked: what the others have would stay, and
// be worked on when somebody takes the name again; and the replicas of any would be waited for.
func TestNothingIsDoneToAHiddenCluster(t *testing.T) {
	t.Parallel()
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	p := newProducer(t, client, name, ProducerConfig{Partitions: 4})
	if _, err := p.Enqueue(ctx, Message{Key: "ann"}, Message{Key: "bob"}); err != nil {
		t.Fatal(err)
	}
	before := redistest.Keys(t, client, "*"+name+"*")
	_, destroyed := Destroy(ctx, redistest.Hidden(client, 2), name)
	_, resized := Resize(ctx, redistest.Hidden(client, 2), name, 8, ResizeConfig{Idle: func(context.Context) error { return nil }})
	for what, err := range map[string]error{"destroy": destroyed, "resize": resized} {
		if err == nil || !strings.Contains(err.Error(), "redissource: "+what+" "+name+": a redistest.hidden hides") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if left := redistest.Keys(t, client, "*"+name+"*"); len(left) != len(before) {
		t.Errorf("left %q of %q", left, before)
	}
}

// A resize that was broken off has closed the name. The fences of its ingress lists go all the same: a
// name that is made anew would find itself refused by them.
func TestDestroyAfterABrokenResize(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	inbox := name + ":inbox"
	if _, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 4, Units: []string{inbox}}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"{" + inbox + "}:fence", "{" + inbox + "}:plan"} {
		client.HSet(ctx, key, "t", "1:s")
	}
	if _, err := redisconfig.BeginResize(ctx, client, name, 8, "id"); err != nil {
		t.Fatal(err)
	}
	if n, err := Destroy(ctx, client, name); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	if left := redistest.Keys(t, client, "*"+inbox+"*"); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// A lock that cannot be read is not taken for one that is over, also if one before it is: each has its own error.
func TestResizeWhereALockCannotBeRead(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, client := redistest.Mini(t)
	name := redistest.Name(t)
	producer, err := NewProducer(ctx, client, name, ProducerConfig{Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close(ctx)
	for _, id := range []string{"over", "held"} {
		if _, err := producer.Enqueue(ctx, Message{ID: id, Key: keyIn(1, 2), Unique: true}); err != nil {
			t.Fatal(err)
		}
	}
	held := KeysOf(name, 0).Unique("held")
	value := client.Get(ctx, held).Val()
	client.Del(ctx, KeysOf(name, 0).Unique("over"))
	opt := *redistest.Single(t, client).Options()
	mover := redis.NewClient(&opt)
	defer mover.Close()
	mover.AddHook(&between{func([]redis.Cmder) {}, func(cmds []redis.Cmder) {
		for _, cmd := range cmds {
			if cmd, ok := cmd.(*redis.StringCmd); ok && cmd.Args()[1] == held {
				cmd.SetVal("")
				cmd.SetErr(errBusy)
			}
		}
	}})
	if _, err := Resize(ctx, mover, name, 2, ResizeConfig{Idle: idle}); !errors.Is(err, errBusy) {
		t.Errorf("the resize: %v", err)
	}
	if _, err := Resize(ctx, client, name, 2, ResizeConfig{Idle: idle}); err != nil {
		t.Error(err)
	}
	if got := client.Get(ctx, KeysOf(name, 1).Unique("held")).Val(); got != value {
		t.Errorf("its lock is %q at its new partition, want %q", got, value)
	}
}

// errBusy is what a server answers that runs a script of somebody else for too long.
var errBusy = errors.New("BUSY Redis is busy running a script")

// A command of a mover is done where the fence is its own, also in a full store.
func TestResizeDoCompares(t *testing.T) {
	server := redistest.Server(t)
	ctx, client := t.Context(), server.Client()
	k := KeysOf(redistest.Name(t), 0)
	lock := k.Unique("x")
	client.HSet(ctx, k.Fence, "t", "mine")
	server.Config("maxmemory", "1")
	for _, c := range []struct {
		token string
		want  int
		value string
	}{{"another's", 0, ""}, {"", 0, ""}, {"mine", 1, "value"}} {
		n, err := resizeDoScript.Run(ctx, client, []string{k.Fence, lock}, c.token, "SET", "value", "NX", "PX", 60_000).Int()
		if value := client.Get(ctx, lock).Val(); err != nil || n != c.want || value != c.value {
			t.Errorf("token %q: %d, %v, the lock is %q", c.token, n, err, value)
		}
	}
}

// A full store is no reason to leave a list with an owner that is away: what would free memory is refused then.
func TestListsAreClosedInAFullStore(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	ctx, client := t.Context(), server.Client()
	client.HSet(ctx, "{inbox}:fence", "t", "4:away", "e", 4)
	server.Config("maxmemory", "1")
	if err := closeUnits(ctx, client, []string{"inbox", "new"}); err != nil {
		t.Error(err)
	}
	if client.Exists(ctx, "{new}:fence").Val() != 0 {
		t.Error("a list that nobody has opened has a fence")
	}
	if token := client.HGet(ctx, "{inbox}:fence", "t").Val(); token != "" {
		t.Errorf("%q may still move its lines", token)
	}
}

// A call that died before it had looked is no reason not to look, and to begin in vain is not to close the name.
func TestResizeLooksBeforeItMoves(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	was, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 4, Units: []string{name + ":inbox"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := redisconfig.BeginResize(ctx, client, name, 8, "died"); err != nil {
		t.Fatal(err)
	}
	client.HSet(ctx, "{"+name+":inbox}:plan", "k", 1)
	if _, err := Resize(ctx, client, name, 8, ResizeConfig{Idle: idle}); !errors.Is(err, ErrPlanned) {
		t.Errorf("with a batch under way: %v", err)
	}
	if got, err := redisconfig.Agree(ctx, client, name, was); err != nil || got.Total != 4 {
		t.Errorf("afterwards %+v, %v", got, err)
	}
}

// Who is interrupted before anything was moved leaves the name as it was: peers were kept out of it until somebody
// had resized it.
func TestResizeInterruptedBeforeItMoves(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	was, err := redisconfig.Agree(t.Context(), client, name, partition.Config{Total: 4})
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	looked := 0
	_, err = Resize(ctx, client, name, 8, ResizeConfig{Idle: func(ctx context.Context) error {
		if looked++; looked == 2 { // it has begun
			interrupt()
		}
		return ctx.Err()
	}})
	if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "nobody can work") {
		t.Errorf("it ends with %v", err)
	}
	if got, err := redisconfig.Agree(t.Context(), client, name, was); err != nil || got.Total != 4 {
		t.Errorf("afterwards %+v, %v", got, err)
	}
}

// Who calls again what was broken off is told that the numbers are of the rest: two tasks where there were twenty looked
// like a loss.
func TestResizeSaysThatItGoesOn(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	p := newProducer(t, client, name, ProducerConfig{Partitions: 4})
	for i := range 20 {
		if _, err := p.Enqueue(t.Context(), Message{Key: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	first, err := Resize(ctx, client, name, 8, ResizeConfig{Idle: idle, Tell: func(at Resized, _ bool) {
		if at.Tasks > 10 {
			interrupt()
		}
	}})
	if !errors.Is(err, context.Canceled) || first.Tasks == 0 || first.Resumed {
		t.Fatalf("the first: %+v, %v", first, err)
	}
	again, err := Resize(t.Context(), client, name, 8, ResizeConfig{Idle: idle})
	if err != nil || !again.Resumed || again.Tasks == 0 || again.Tasks >= 20 {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// Of many partitions without tasks it is heard, too, that it gets farther: each costs a few round trips.
func TestResizeTellsOfEmptyPartitions(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	newProducer(t, client, name, ProducerConfig{Partitions: 8})
	told := make(map[bool]int) // by whether it has begun
	_, err := Resize(t.Context(), client, name, 16, ResizeConfig{Idle: idle, Tell: func(Resized, bool) {
		begun, err := client.HExists(t.Context(), KeysOf(name, 0).Fence, "p").Result()
		if err != nil {
			t.Error(err)
		}
		told[begun]++
	}})
	if err != nil {
		t.Fatal(err)
	}
	if told[false] < 16+16 || told[true] < 15+8+16 {
		t.Errorf("it told %d times before it began and %d times after that", told[false], told[true])
	}
}

// With a key that another program has overwritten a resize could not end: it does not begin, and says which.
func TestResizeLooksAtKeys(t *testing.T) {
	t.Parallel()
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	was, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []partition.ID{1, 3} {
		k := KeysOf(name, id)
		for _, key := range []string{k.Fence, k.Lifted, k.Tries, k.jobsKey(), k.Pending, k.Dead, k.Done, k.Delayed} {
			client.Set(ctx, key, "no", 0)
			for _, dry := range []bool{true, false} {
				if _, err := Resize(ctx, client, name, 4, ResizeConfig{Idle: idle, DryRun: dry}); err == nil || id == 3 && !strings.Contains(err.Error(), key) {
					t.Errorf("%s, dry %v: %v", key, dry, err)
				}
			}
			if got, err := redisconfig.Agree(ctx, client, name, was); err != nil || got.Total != 2 {
				t.Errorf("%s: afterwards %+v, %v", key, got, err)
			}
			client.Del(ctx, key)
		}
	}
	if _, err := Resize(ctx, client, name, 4, ResizeConfig{Idle: idle}); err != nil {
		t.Error(err)
	}
}

// Of a log that lies elsewhere than in Redis only what is done of it stands there. A resize that took it for an empty
// list would say that there is nothing to move, while nobody reads the tasks of the partitions that are no more.
func TestResizeRefusesALogElsewhere(t *testing.T) {
	t.Parallel()
	for what, note := range map[string]func(ctx context.Context, s *redisprogress.Store, g partition.Grant, tok partition.Token, writes int64) error{
		"its life": func(ctx context.Context, s *redisprogress.Store, g partition.Grant, tok partition.Token, writes int64) error {
			_, err := s.Reset(ctx, g, tok, writes, 0, "first")
			return err
		},
		"where it ends": func(ctx context.Context, s *redisprogress.Store, g partition.Grant, _ partition.Token, _ int64) error {
			return s.Ends(ctx, map[partition.ID]int64{g.ID: 7})
		},
	} {
		t.Run(what, func(t *testing.T) {
			ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
			was, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 4})
			if err != nil {
				t.Fatal(err)
			}
			store, err := redisprogress.NewStore(client, name)
			if err != nil {
				t.Fatal(err)
			}
			g, tok := partition.Grant{ID: 3, Epoch: 1}, partition.Token{Epoch: 1, Session: "a"}
			f, err := store.Open(ctx, g, tok, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(note(ctx, store, g, tok, f.Writes), store.Close(ctx, g, tok)); err != nil {
				t.Fatal(err)
			}
			for _, dry := range []bool{true, false} {
				if _, err := Resize(ctx, client, name, 2, ResizeConfig{Idle: idle, DryRun: dry}); err == nil || !strings.Contains(err.Error(), KeysOf(name, 3).Fence) {
					t.Errorf("dry %v: %v, want a refusal that names the fence", dry, err)
				}
			}
			if got, err := redisconfig.Agree(ctx, client, name, was); err != nil || got.Total != 4 {
				t.Errorf("afterwards %+v, %v", got, err)
			}
		})
	}
}

// A store that becomes full once it has begun, as producers go on until then, does not keep a resize from its end:
// nobody could work, and so empty the store, before somebody has raised its limit.
func TestResizeThatFillsUp(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	ctx, client := t.Context(), server.Client()
	w := newCrowd(t, client, 4, 3)
	looked := 0
	_, err := Resize(ctx, client, w.name, 7, ResizeConfig{Idle: func(context.Context) error {
		if looked++; looked == 2 { // it has begun
			server.Config("maxmemory", "1")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.check(7)
	if _, err := redisconfig.Agree(ctx, client, w.name, partition.Config{Total: 7}); err != nil {
		t.Error(err)
	}
	server.Config("maxmemory", "0")
	if _, err := redisconfig.BeginResize(ctx, client, w.name, 4, "in vain"); err != nil {
		t.Fatal(err)
	}
	server.Config("maxmemory", "1")
	begun, err := redisconfig.BeginResize(ctx, client, w.name, 4, "other")
	if err == nil {
		err = redisconfig.CancelResize(ctx, client, w.name, begun)
	}
	if got, errRead := redisconfig.Read(ctx, client, w.name); err != nil || errRead != nil || got.Total != 7 {
		t.Errorf("cancelled: %v; %+v, %v", err, got, errRead)
	}
}

// A trim that is repeated, or comes late, takes nothing.
func TestResizeTrimCompares(t *testing.T) {
	ctx, client := t.Context(), redistest.New(t)
	tag := KeysOf(redistest.Name(t), 0).tag
	list, set, counter := tag+":l", tag+":z", tag+":n"
	fence := tag + ":fence"
	client.HSet(ctx, fence, "t", "mine")
	client.RPush(ctx, list, "a", "b", "c")
	client.ZAdd(ctx, set, redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2, Member: "b"}, redis.Z{Score: 3, Member: "c"})
	for key, what := range map[string]string{list: "dead", set: "delayed"} {
		for i, want := range []int{1, 0} {
			if n, err := resizeTrimScript.Run(ctx, client, []string{key, counter + what, fence}, 0, 2, 60, what, "mine").Int(); err != nil || n != want {
				t.Errorf("%s, call %d: %d, %v, want %d", what, i, n, err, want)
			}
		}
	}
	if n, err := resizeTrimScript.Run(ctx, client, []string{list, counter + "dead", fence}, 2, 1, 60, "dead", "another's").Int(); err != nil || n != 0 {
		t.Errorf("without the fence: %d, %v, want 0", n, err)
	}
	// Nor does one take anything that is the second of its row, where no first one is known.
	if n, err := resizeTrimScript.Run(ctx, client, []string{list, counter, fence}, 2, 1, 60, "dead", "mine").Int(); err != nil || n != 0 {
		t.Errorf("a trim of others: %d, %v, want 0", n, err)
	}
	if l, z := client.LRange(ctx, list, 0, -1).Val(), client.ZRange(ctx, set, 0, -1).Val(); !slices.Equal(l, []string{"c"}) || !slices.Equal(z, l) {
		t.Errorf("left %q and %q", l, z)
	}
	for _, what := range []string{"dead", "delayed"} {
		if n, ttl := client.Get(ctx, counter+what).Val(), client.TTL(ctx, counter+what).Val(); n != "2" || ttl <= 0 || ttl > time.Minute {
			t.Errorf("%s: the count is %s and is kept for %v", what, n, ttl)
		}
	}
}

// What was pushed since comes after what was moved, and is not lost; said again it changes nothing.
// A store that is full is no obstacle: nothing becomes more.
func TestResizeInstall(t *testing.T) {
	t.Run("a store", func(t *testing.T) { testResizeInstall(t, redistest.New(t), func() {}) })
	t.Run("a full store", func(t *testing.T) {
		server := redistest.Server(t)
		testResizeInstall(t, server.Client(), func() { server.Config("maxmemory", "1") })
	})
}

func testResizeInstall(t *testing.T, client redis.UniversalClient, prepared func()) {
	ctx := t.Context()
	k := KeysOf(redistest.Name(t), 0)
	keys := []string{k.Pending, k.tag + ":moved:pending", k.Dead, k.tag + ":moved:dead", k.Delayed, k.tag + ":moved:delayed", k.Fence}
	client.HSet(ctx, k.Fence, "t", "mine")
	for _, list := range []int{0, 2} {
		client.RPush(ctx, keys[list], "c", "d", "e")
		client.RPush(ctx, keys[list+1], "a", "b")
	}
	client.ZAdd(ctx, keys[4], redis.Z{Score: 3, Member: "c"})
	client.ZAdd(ctx, keys[5], redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2, Member: "b"})
	prepared()
	for range 2 {
		if n, err := resizeInstallScript.Run(ctx, client, keys, "another's").Int(); err != nil || n != 0 {
			t.Errorf("under another token: %d, %v", n, err)
		}
		if n, err := resizeInstallScript.Run(ctx, client, keys, "mine").Int(); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		for _, list := range []int{0, 2} {
			if l := client.LRange(ctx, keys[list], 0, -1).Val(); !slices.Equal(l, []string{"a", "b", "c", "d", "e"}) {
				t.Errorf("%s holds %q", keys[list], l)
			}
		}
		if z := client.ZRange(ctx, keys[4], 0, -1).Val(); !slices.Equal(z, []string{"a", "b", "c"}) {
			t.Errorf("delayed are %q", z)
		}
		if n := client.Exists(ctx, keys[1], keys[3], keys[5]).Val(); n != 0 {
			t.Errorf("%d of what was moved are left", n)
		}
	}
}

// An owner was paused with a trip in hand: move what is due, read, settle. It wakes up while a resize
// takes the delayed tasks by their place, and moves nothing.
func TestResizeAndAnOwnerThatWakesUp(t *testing.T) {
	ctx, server := t.Context(), redistest.Server(t)
	client, zombie := redistest.Single(t, server.Client()), redistest.Single(t, server.Client())
	name := redistest.Name(t)
	var all []Message
	for i := range 10 {
		key := fmt.Sprint("key", i)
		all = append(all, Message{ID: fmt.Sprint("due", i), Key: key, Delay: time.Duration(1+i) * time.Millisecond},
			Message{ID: fmt.Sprint("later", i), Key: key, Delay: time.Hour})
	}
	if _, err := newProducer(t, client, name, ProducerConfig{Partitions: 1}).Enqueue(ctx, all...); err != nil {
		t.Fatal(err)
	}
	put := client.Time(ctx).Val()
	eventually(t, func() bool { return client.Time(ctx).Val().Sub(put) > 20*time.Millisecond }) // half of them are due
	old := redisprogress.New(zombie, KeysOf(name, 0).Keys, partition.Grant{Epoch: 1}, tokenOf(1))
	if _, err := old.Open(ctx, 0); err != nil {
		t.Fatal(err)
	}
	woken := false
	client.AddHook(&scripted{before: func(sha string, _ []redis.Cmder) error {
		if sha == resizeTrimScript.Hash() && !woken {
			woken = true
			pipe := zombie.Pipeline()
			old.Move(ctx, pipe, moveBatch, true)
			_, err := pipe.Exec(ctx)
			return err
		}
		return nil
	}})
	if _, err := Resize(ctx, client, name, 2, ResizeConfig{Idle: idle}); err != nil || !woken {
		t.Fatalf("it woke up: %t; %v", woken, err)
	}
	seen := make(map[string]int)
	for id := range partition.ID(2) {
		k := KeysOf(name, id)
		for _, element := range append(client.LRange(ctx, k.Pending, 0, -1).Val(), client.ZRange(ctx, k.Delayed, 0, -1).Val()...) {
			e, err := parseEnvelope(element)
			if err != nil {
				t.Fatal(err)
			}
			seen[e.id]++
		}
	}
	for _, m := range all {
		if seen[m.ID] != 1 {
			t.Errorf("%s is there %d times", m.ID, seen[m.ID])
		}
	}
}

// What is known of the runs of a task goes along with it, but what this build cannot read keeps all of its bytes: a newer
// one may have run it.
func TestResizeTakesRunsAlong(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	if _, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 3}); err != nil {
		t.Fatal(err)
	}
	k := KeysOf(name, 1)
	unread, unique := "not an envelope", envelope{id: "u", born: 1, unique: true}
	pipe := client.Pipeline()
	pipe.RPush(ctx, k.Pending, unread, appendEnvelope(nil, &unique))
	pipe.HSet(ctx, k.Tries, "0", "2 0 0 why", "1", "0 1 0 why")
	pipe.HSet(ctx, k.Fence, "t", "", "e", 1, "b", 0, "n", 1, "h", 2)
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := Resize(ctx, client, name, 2, ResizeConfig{Idle: idle}); err != nil {
		t.Fatal(err)
	}
	unique.crashes, unique.firstError = 1, "why"
	var found []string
	for id := range partition.ID(2) {
		found = append(found, client.LRange(ctx, KeysOf(name, id).Pending, 0, -1).Val()...)
	}
	slices.Sort(found)
	want := []string{unread, string(appendEnvelope(nil, &unique))}
	slices.Sort(want)
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	for _, key := range []string{redisconfig.Key(name), KeysOf(name, 0).Fence, k.Fence, KeysOf(name, 2).Fence} {
		if ttl := client.TTL(ctx, key).Val(); ttl != -1 {
			t.Errorf("%s lives %v, want for ever", key, ttl)
		}
	}
}
