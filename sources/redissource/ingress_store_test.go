package redissource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
)

// The store fails over to a replica that lacks the newest writes: of the list, its
// fence and its plan, but not of the partitions, which are on other servers. Lines that
// come now get positions that were given before, and must not be taken for those.
func TestIngressFailOver(t *testing.T) {
	t.Parallel()
	bothInboxes(t, 4, func(t *testing.T, b *inbox) {
		ctx := t.Context()
		fence := "{" + b.unit.List + "}:fence"
		b.push(inboxLine("ann", 0))
		s := b.open(1)
		b.arrived(1)
		replica := b.fence() // the list is empty and no plan stands
		b.push(inboxLine("ann", 1), inboxLine("ann", 2))
		b.arrived(3)
		// The replica is promoted; its run id is another one.
		replica["r"] = "another run"
		if err := b.client.HSet(ctx, fence, replica).Err(); err != nil {
			t.Fatal(err)
		}
		b.push(inboxLine("ann", 3), inboxLine("ann", 4), inboxLine("ann", 5))
		b.eachOnce(6)
		seen := make(map[string]bool)
		for _, e := range b.logs()[partition.Of("ann", 4)] {
			if seen[e.id] {
				t.Errorf("two lines are called %s", e.id)
			}
			seen[e.id] = true
		}
		select {
		case <-s.ended:
			t.Errorf("the ownership ended: %v", s.end)
		default:
		}
	})
}

// A restart of the store costs neither a line nor the ownership, and doubles nothing.
func TestIngressStoreRestarts(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "always")
	for _, single := range []bool{true, false} {
		client := server.Client()
		if single {
			client = redistest.Single(t, client)
		}
		b := newInbox(t, client, 4)
		s := b.open(1)
		var lines []string
		for i := range 600 {
			lines = append(lines, inboxLine(fmt.Sprint(i%7), i))
		}
		b.push(lines[:300]...)
		server.Kill()
		server.Start()
		eventually(t, func() bool { return client.Ping(t.Context()).Err() == nil })
		b.push(lines[300:]...)
		b.arrived(600)
		b.exactlyOnceInOrder(600)
		select {
		case <-s.ended:
			t.Errorf("the ownership ended: %v", s.end)
		default:
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The fence is deleted by hand: the owner is lost, the next one goes on, and no line
// is taken for an earlier one.
func TestIngressFenceIsLost(t *testing.T) {
	bothInboxes(t, 2, func(t *testing.T, b *inbox) {
		b.push(inboxLine("ann", 0), inboxLine("bob", 1))
		s := b.open(1)
		b.arrived(2)
		b.client.Del(t.Context(), "{"+b.unit.List+"}:fence")
		b.push(inboxLine("ann", 2), inboxLine("bob", 3))
		if _, err := s.Fetch(t.Context(), 1); !errors.Is(err, sources.ErrFenced) {
			t.Errorf("Fetch: %v", err)
		}
		b.open(2)
		b.arrived(4)
		b.exactlyOnceInOrder(4)
	})
}

// Somebody pushes at the wrong end between the read and the move: no line is lost.
func TestIngressWrongEnd(t *testing.T) {
	for _, single := range []bool{true, false} {
		for name, sc := range map[string]script{"move": ingressMoveScript, "plan": ingressPlanScript, "trim": ingressTrimScript} {
			if single != (name == "move") {
				continue
			}
			t.Run(name, func(t *testing.T) {
				b := newInbox(t, redistest.New(t), 4)
				b.learn()
				client := b.another(single)
				done := false
				client.AddHook(&scripted{before: func(sha string, _ []redis.Cmder) error {
					if sha == sc.Hash() && !done {
						done = true
						return b.client.RPush(context.Background(), b.unit.List, inboxLine("eve", 4)).Err()
					}
					return nil
				}})
				b.push(inboxLine("ann", 0), inboxLine("bob", 1), inboxLine("cid", 2), inboxLine("dan", 3))
				if _, err := b.start(client, 1); err != nil {
					t.Fatal(err)
				}
				b.arrived(5)
				eventually(t, func() bool { return len(b.counts()) == 5 })
				for i, n := range b.counts() {
					if n != 1 && name != "trim" {
						t.Errorf("line %d is there %d times", i, n)
					}
				}
			})
		}
	}
}

// Lines are taken out by hand after they were planned: the plan is void, and what is
// left is not lost.
func TestIngressLinesTakenOut(t *testing.T) {
	for _, lines := range []int{2, 3} { // fewer than the plan has, and as many
		b := newInbox(t, redistest.New(t), 4)
		b.learn()
		client := b.another(false)
		client.AddHook(&scripted{before: func(sha string, cmds []redis.Cmder) error {
			if sha != pushScript.Hash() {
				return nil
			}
			// One target hears of it, and its mark says so.
			for _, c := range again(cmds[:1]) {
				_ = b.client.Process(context.Background(), c)
			}
			return errNetwork
		}})
		b.push(inboxLine("ann", 0), inboxLine("bob", 1), inboxLine("cid", 2))
		s, err := b.start(client, 1)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool { return len(b.counts()) > 0 })
		s.stop()
		<-s.ended
		before := b.counts()
		b.client.Del(t.Context(), b.unit.List)
		for i, to := range []string{"ann", "bob", "cid"}[:lines] {
			b.push(inboxLine(to, 3+i))
		}
		if _, err := b.start(b.another(false), 2); err != nil {
			t.Fatal(err)
		}
		b.arrived(len(before) + lines)
		for i := range lines {
			before[3+i] = 1
		}
		if c := b.counts(); !maps.Equal(c, before) {
			t.Errorf("lines %v, want %v", c, before)
		}
	}
}

// A full store lets lines through: it is what empties it.
func TestIngressOnFullStore(t *testing.T) {
	server := redistest.Server(t)
	b := newInbox(t, redistest.Single(t, server.Client()), 4)
	b.push(inboxLine("ann", 0), inboxLine("bob", 1))
	server.Config("maxmemory", "1")
	s := b.open(1)
	b.arrived(2)
	b.exactlyOnceInOrder(2)
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.open(2).Close(t.Context()); err != nil { // and where it has been before
		t.Error(err)
	}
}

// On a cluster a full target refuses, which is told, and a batch that its refusal has
// held up for long is forced on it: the list may be what fills it.
func TestIngressOnFullTarget(t *testing.T) {
	server := redistest.Server(t)
	b := newInbox(t, server.Client(), 4)
	b.push(inboxLine("ann", 0), inboxLine("bob", 1))
	server.Config("maxmemory", "1")
	s := b.open(1)
	if _, err := s.Fetch(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Fetch: %v", err)
	}
	if n := b.client.LLen(t.Context(), b.unit.List).Val(); n != 2 {
		t.Errorf("%d lines are left, want 2", n)
	}
	s.stop()
	<-s.ended
	lines, err := s.read(t.Context(), 2)
	if err != nil || s.standing == nil {
		t.Fatalf("%q, %v, plan %v", lines, err, s.standing)
	}
	s.full = true
	held := &logstream.Trouble{}
	held.Next(time.Now().Add(-forceAfter), false)
	if err := s.push(t.Context(), s.standing, lines, held); err != nil {
		t.Errorf("forced: %v", err)
	}
	if _, err := s.trim(t.Context(), s.standing, lines); err != nil {
		t.Errorf("taken off the full store: %v", err)
	}
	server.Config("maxmemory", "0")
	b.open(2)
	b.arrived(2)
	b.exactlyOnceInOrder(2)
}

// A batch that was planned for another number of partitions is not pushed: its targets
// may be no partitions any more.
func TestIngressPlanOfAnotherCount(t *testing.T) {
	b := newInbox(t, redistest.New(t), 8)
	b.learn()
	client := b.another(false)
	client.AddHook(&scripted{before: func(sha string, _ []redis.Cmder) error {
		if sha == pushScript.Hash() {
			return errNetwork
		}
		return nil
	}})
	b.push(inboxLine("ann", 0))
	s, err := b.start(client, 1)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return b.client.Exists(t.Context(), "{"+b.unit.List+"}:plan").Val() == 1 })
	s.stop()
	<-s.ended
	b.layout.Total = 2
	if _, err := b.start(b.another(false), 2); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("opened: %v", err)
	}
}

// The name was resized while an owner slept.
func TestIngressOfResizedName(t *testing.T) {
	bothInboxes(t, 2, func(t *testing.T, b *inbox) {
		for id := range partition.ID(2) {
			b.client.HSet(t.Context(), KeysOf(b.name, id).Fence, "p", 4)
		}
		s := b.open(1)
		b.push(inboxLine("ann", 0))
		if _, err := s.Fetch(t.Context(), 1); !errors.Is(err, partition.ErrConfig) {
			t.Errorf("Fetch: %v", err)
		}
		if n := b.client.LLen(t.Context(), b.unit.List).Val(); n != 1 {
			t.Error("it moved a line")
		}
	})
}

// An owner that was given up for dead, and was not, plans nothing once the name is resized: who comes
// next could not follow it, and the list would stand still.
func TestAnOwnerThatSleptPlansNothingForAResizedName(t *testing.T) {
	for where, store := range map[string]func(testing.TB) redis.UniversalClient{
		"any": redistest.New, "cluster": redistest.Cluster,
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			b := newInbox(t, store(t), 2)
			was := partition.Config{Total: 2, Units: []string{b.unit.List}}
			if _, err := redisconfig.Agree(t.Context(), b.client, b.name, was); err != nil {
				t.Fatal(err)
			}
			slept := b.open(1)
			if _, err := Resize(t.Context(), b.client, b.name, 4, ResizeConfig{Idle: idle}); err != nil {
				t.Fatal(err)
			}
			b.push(inboxLine("ann", 0))
			if _, err := slept.Fetch(t.Context(), 1); !errors.Is(err, sources.ErrFenced) {
				t.Errorf("Fetch: %v", err)
			}
			b.layout.Total = 4
			b.open(2)
			b.arrived(1)
		})
	}
}

// A name that was made with a list that no source takes can be changed and removed all the same: nothing but DEL
// helped, key by key.
func TestANameWithAListThatNobodyTakes(t *testing.T) {
	t.Parallel()
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	if _, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 2, Units: []string{"a{b", name + ":inbox"}}); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		if _, err := Resize(ctx, client, name, 4, ResizeConfig{Idle: idle, DryRun: dry}); err != nil {
			t.Errorf("resize, dry %v: %v", dry, err)
		}
	}
	if n, err := Destroy(ctx, client, name); err != nil || n == 0 {
		t.Errorf("destroy: %d keys, %v", n, err)
	}
	gone := false
	set := func(context.Context, redis.UniversalClient, string, []string, []string) error {
		gone = true
		return nil
	}
	if _, err := ChangeIngress(ctx, client, name, []string{name + ":inbox"}, set); err != nil || !gone {
		t.Errorf("other lists: %v", err)
	}
}

// A list that goes must not have half of a batch in the partitions, and an owner that slept plans
// none for it any more. What stays is left alone.
func TestChangeIngress(t *testing.T) {
	bothInboxes(t, 2, func(t *testing.T, b *inbox) {
		ctx, stays := t.Context(), b.name+":stays"
		was := partition.Config{Total: 2, Units: []string{b.unit.List, stays}}
		if _, err := redisconfig.Agree(ctx, b.client, b.name, was); err != nil {
			t.Fatal(err)
		}
		var asked [][]string
		change := func(to ...string) error {
			_, err := ChangeIngress(ctx, b.client, b.name, to, func(_ context.Context, _ redis.UniversalClient, name string, from, to []string) error {
				asked = append(asked, []string{name}, from, to)
				return nil
			})
			return err
		}
		other := "{" + b.name + "}:other"
		b.client.HSet(ctx, other, "a", "b")
		for _, to := range [][]string{{b.unit.List, other}, {other}} {
			if err := change(to...); err == nil || !strings.Contains(err.Error(), "is a hash and no list") {
				t.Errorf("%q: %v", to, err)
			}
		}
		slept := b.open(1)
		for _, to := range [][]string{{""}, {stays, stays}, {b.name + ":1"}, {"a}b"}} {
			if err := change(to...); err == nil {
				t.Errorf("%q: no error", to)
			}
		}
		if err := change(b.unit.List); err != nil { // nothing is known of what goes
			t.Error(err)
		}
		tag, err := ingressTag(stays)
		if err != nil {
			t.Fatal(err)
		}
		b.client.HSet(ctx, tag+":plan", "k", 1)
		if err := change(b.unit.List); !errors.Is(err, ErrPlanned) {
			t.Errorf("half a batch is in the partitions: %v", err)
		}
		if err := change(); !errors.Is(err, ErrPlanned) {
			t.Errorf("half a batch of the second of two is in the partitions: %v", err)
		}
		if err := change(stays); err != nil {
			t.Error(err)
		}
		b.push(inboxLine("ann", 0))
		if _, err := slept.Fetch(ctx, 1); !errors.Is(err, sources.ErrFenced) {
			t.Errorf("Fetch: %v", err)
		}
		if n := b.client.LLen(ctx, b.unit.List).Val(); n != 1 {
			t.Errorf("%d lines are left of one", n)
		}
		want := [][]string{{b.name}, was.Units, {b.unit.List}, {b.name}, was.Units, {stays}}
		if !reflect.DeepEqual(asked, want) {
			t.Errorf("written was %q, want %q", asked, want)
		}
	})
}

func TestIngressOnCluster(t *testing.T) {
	t.Parallel()
	b := newInbox(t, redistest.Cluster(t), 32)
	s := b.open(1)
	const n = 700
	var lines []string
	for i := range n {
		lines = append(lines, inboxLine(fmt.Sprint(i%50), i))
	}
	for part := range slices.Chunk(lines, 90) {
		b.push(part...)
	}
	b.arrived(n)
	b.exactlyOnceInOrder(n)
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// So it is for the user of docs/stores.md, who may not ask for the run id: where nothing tells
// what was lost, each opening begins an era.
func TestIngressFailOverWithoutInfo(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	name := redistest.Name(t)
	user := aclUser(t, server, "~{"+name+"*", "~"+name+"*", "&{"+name+"*", "+@all", "-@admin", "-@dangerous")
	b := &inbox{
		t: t, client: struct{ redis.UniversalClient }{user}, name: name, // taken for a cluster: by way of a plan
		layout: newProducer(t, user, name, ProducerConfig{Partitions: 4}).Config(), unit: Ingress{List: name + ":inbox", KeyField: "to"},
	}
	b.push(inboxLine("ann", 0))
	b.open(1)
	b.arrived(1)
	replica := b.fence()
	b.push(inboxLine("ann", 1), inboxLine("ann", 2))
	b.arrived(3)
	if err := b.client.HSet(t.Context(), "{"+b.unit.List+"}:fence", replica).Err(); err != nil {
		t.Fatal(err)
	}
	b.push(inboxLine("ann", 3), inboxLine("ann", 4), inboxLine("ann", 5))
	b.eachOnce(6)
}

// The ledger and the list's shard forgot, so that epochs begin anew, and the partitions have not: an
// owner is refused with the epoch that he has to be above, and the one who is above it makes another
// plan than that one left. Nothing is lost; what one partition took of the first plan comes again.
func TestIngressWhoseEpochsBeginAnew(t *testing.T) {
	ctx := t.Context()
	b := newInbox(t, redistest.New(t), 4) // by way of a plan
	tag := "{" + b.unit.List + "}"
	b.push(inboxLine("ann", 0))
	s := b.open(5000)
	b.arrived(1)
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	b.client.Del(ctx, tag+":fence", tag+":plan")
	b.push(inboxLine("ann", 1), inboxLine("bob", 2))
	s = b.open(3)
	patience, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var fenced *sources.FencedError
	if _, err := s.Fetch(patience, 1); !errors.As(err, &fenced) || fenced.Stored != 5000 {
		t.Fatalf("its owner hears %v, want that 5000 stands", err)
	}
	b.open(5001)
	eventually(t, func() bool { return b.client.LLen(ctx, b.unit.List).Val() == 0 })
	if n := b.counts(); n[0] != 1 || n[1] != 1 || n[2] < 1 {
		t.Errorf("the lines are there so often: %v", n)
	}
}

// A plan that is none, as another program writes it, is told with what is wrong with it.
func TestIngressPlanIsNone(t *testing.T) {
	s := &ingressStream{plan: "{a}:plan"}
	_, err := s.parsePlan([]string{"2", "sum", "1", "4", "0"})
	if err == nil || !strings.HasPrefix(err.Error(), "{a}:plan is no plan") || !strings.HasSuffix(err.Error(), ": 1 targets for 2 lines") {
		t.Errorf("it says %v", err)
	}
}

// A list may be called as another name and a number, and its fence would be that of a partition: nobody opens it, and
// who gives the list up leaves the fence to its owner.
func TestIngressIsNoPartitionOfAnotherName(t *testing.T) {
	client, name, ctx := redistest.New(t), redistest.Name(t), t.Context()
	p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
	if _, err := p.Enqueue(ctx, Message{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	src, err := New(client, name, Config{Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := src.Open(ctx, partition.Grant{Epoch: 1}, tokenOf(1))
	if err != nil {
		t.Fatal(err)
	}
	list := name + ":0"
	b := &inbox{t: t, client: client, name: name + "-other", layout: partition.Config{Total: 1}, unit: Ingress{List: list}}
	b.push("line")
	if s, err := b.start(client, 2); !errors.Is(err, partition.ErrConfig) || !strings.Contains(err.Error(), "take another name for the list") {
		t.Errorf("opened: %v", err)
		if err == nil {
			_ = s.Close(ctx)
		}
	}
	for taken, refused := range map[string]bool{"{" + list + "}:pending": true, "{" + name + ":1}:pending": false} { // it has one partition
		b := &inbox{t: t, client: client, name: b.name, layout: b.layout, unit: Ingress{List: taken}}
		s, err := b.start(client, 2)
		if err == nil {
			_ = s.Close(ctx)
		}
		if errors.Is(err, partition.ErrConfig) != refused || refused && !strings.Contains(err.Error(), "a partition of the name "+name+" ") {
			t.Errorf("%s: opened: %v", taken, err)
		}
	}
	if err := closeUnits(ctx, client, []string{list}); err != nil {
		t.Error(err)
	}
	if _, err := redisconfig.Agree(ctx, client, b.name, partition.Config{Total: 1, Hash: partition.XXHash64, Units: []string{list}}); err != nil {
		t.Fatal(err)
	}
	var away looksFail
	away.fails.Store(true)
	client.AddHook(&away)
	if _, err := Destroy(ctx, client, b.name); !errors.Is(err, errNetwork) {
		t.Errorf("who cannot see whose fence it is: %v", err)
	}
	away.fails.Store(false)
	if _, err := Destroy(ctx, client, b.name); err != nil {
		t.Error(err)
	}
	tasks, err := owner.Fetch(ctx, 1)
	if err != nil || len(tasks) != 1 || tasks[0].ID != "a" {
		t.Errorf("the owner of the partition fetched %v, %v", tasks, err)
	}
	if err := owner.Close(ctx); err != nil {
		t.Error(err)
	}
}

// looksFail has it fail to ask whether a hash has a field, while it says so.
type looksFail struct{ fails atomic.Bool }

func (*looksFail) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*looksFail) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (f *looksFail) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hexists" && f.fails.Load() {
			cmd.SetErr(errNetwork)
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// What a list is called says that another name may have it. The node that knows is not the list's, and does not keep it
// from being opened while it stands still.
func TestIngressDoesNotWaitForTheNodeOfAnotherName(t *testing.T) {
	m, _ := redistest.Mini(t)
	name := redistest.Name(t)
	other := &stillFor{key: redisconfig.Key(name + "-other")}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: ":" + m.Port()}}}}, nil
		},
		NewClient: func(opt *redis.Options) *redis.Client {
			c := redis.NewClient(opt)
			c.AddHook(other)
			return c
		},
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { client.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	g := partition.Grant{ID: partition.FirstUnit, Epoch: 1}
	s, err := startIngress(ctx, client, name, partition.Config{Total: 1}, Ingress{List: "{" + name + "-other:42}:inbox"}, g, tokenOf(1), false)
	if err != nil {
		t.Fatal(err)
	}
	if !other.asked.Load() {
		t.Error("the other name was not looked for")
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// stillFor is a node that does not answer what is asked of a key.
type stillFor struct {
	key   string
	asked atomic.Bool
}

func (h *stillFor) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *stillFor) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *stillFor) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) < 2 || args[1] != h.key {
			return next(ctx, cmd)
		}
		h.asked.Store(true)
		<-ctx.Done()
		cmd.SetErr(ctx.Err())
		return ctx.Err()
	}
}
