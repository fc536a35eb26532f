package redisconfig_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFirstWritesOthersCompare(t *testing.T) {
	client := redistest.New(t)
	full := partition.Config{Total: 64, Hash: partition.ByID, Units: []string{"b:inbox", "a:inbox"}}
	sorted := partition.Config{Total: 64, Hash: partition.ByID, Units: []string{"a:inbox", "b:inbox"}}
	plain := partition.Config{Total: 256, Hash: partition.XXHash64}
	for _, c := range []struct {
		name        string
		first, want partition.Config
		producer    bool     // want is a producer's
		refused     []string // what the refusal must say; none: agreed
		got         partition.Config
	}{
		{"defaults", partition.Config{}, partition.Config{}, false, nil, plain},
		{"takes what stands", full, partition.Config{Units: full.Units}, false, nil, sorted},
		{"says the same", full, full, false, nil, sorted},
		{"a producer is not asked for units", full, partition.Config{Total: 64}, true, nil, sorted},
		{"another total", full, partition.Config{Total: 32, Units: full.Units}, false, []string{"64", "32"}, sorted},
		{"a producer's other total", full, partition.Config{Total: 32}, true, []string{"64", "32"}, sorted},
		{"another hash", full, partition.Config{Hash: partition.XXHash64, Units: full.Units}, false, []string{`"id"`, `"xxhash64"`}, sorted},
		{"no units", full, partition.Config{}, false, []string{"a:inbox", "[]"}, sorted},
		{"more units", partition.Config{}, full, false, []string{"a:inbox", "[]", "256", "64", "xxhash64"}, plain},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, name := t.Context(), redistest.Name(t)
			if _, err := redisconfig.Agree(ctx, client, name, c.first); err != nil {
				t.Fatal(err)
			}
			agree := redisconfig.Agree
			if c.producer {
				agree = redisconfig.AgreePartitions
			}
			got, err := agree(ctx, client, name, c.want)
			if fmt.Sprint(got) != fmt.Sprint(c.got) {
				t.Errorf("%+v stands, want %+v", got, c.got)
			}
			if (err != nil) != (c.refused != nil) || err != nil && !errors.Is(err, partition.ErrConfig) {
				t.Errorf("error %v, want refused %v", err, c.refused != nil)
			}
			for _, word := range append(c.refused, redisconfig.Key(name)) {
				if err != nil && !strings.Contains(err.Error(), word) {
					t.Errorf("the refusal does not say %s: %v", word, err)
				}
			}
			if got, err := redisconfig.Read(ctx, client, name); err != nil || fmt.Sprint(got) != fmt.Sprint(c.got) {
				t.Errorf("read %+v, %v, want %+v", got, err, c.got)
			}
		})
	}
}

// A producer comes first and writes no units; the first peer adds its own, the second
// is compared.
func TestProducerFirst(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	if _, err := redisconfig.AgreePartitions(ctx, client, name, partition.Config{Total: 16}); err != nil {
		t.Fatal(err)
	}
	got, err := redisconfig.Agree(ctx, client, name, partition.Config{Units: []string{"inbox"}})
	if err != nil || got.Total != 16 || fmt.Sprint(got.Units) != "[inbox]" {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := redisconfig.Agree(ctx, client, name, partition.Config{}); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("a peer without units: %v", err)
	}
}

// Of many first peers with different wishes one wins whole: whatever stands is what
// one of them wanted, and that one was not refused.
func TestFirstWinsWhole(t *testing.T) {
	client := redistest.New(t)
	wants := []partition.Config{
		{Total: 16, Hash: partition.ByID, Units: []string{"a"}},
		{Total: 32, Hash: partition.XXHash64},
	}
	for range 50 {
		name := redistest.Name(t)
		errs := make([]error, 8)
		var g errgroup.Group
		for i := range errs {
			g.Go(func() error {
				_, errs[i] = redisconfig.Agree(t.Context(), client, name, wants[i%2])
				return nil
			})
		}
		g.Wait()
		got, err := redisconfig.Read(t.Context(), client, name)
		if err != nil {
			t.Fatal(err)
		}
		for i, err := range errs {
			won := fmt.Sprint(got) == fmt.Sprint(wants[i%2])
			if won != (err == nil) {
				t.Fatalf("%+v stands; peer %d wanted %+v: %v", got, i, wants[i%2], err)
			}
		}
	}
}

// The race above is too narrow for a test to hit each time: a store may run a
// pipeline of one client in the middle of another's. So look at what is sent.
func TestWritesRideInOneTransaction(t *testing.T) {
	client := redistest.New(t)
	var sent sentBatches
	client.AddHook(&sent)
	if _, err := redisconfig.Agree(t.Context(), client, redistest.Name(t), partition.Config{}); err != nil {
		t.Fatal(err)
	}
	if len(sent.batches) != 1 || !strings.HasPrefix(sent.batches[0], "multi hsetnx ") ||
		!strings.HasSuffix(sent.batches[0], " exec") {
		t.Errorf("sent %q, want one transaction", sent.batches)
	}
}

// sentBatches notes the names of the commands of each pipeline.
type sentBatches struct{ batches []string }

func (*sentBatches) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*sentBatches) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (s *sentBatches) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		names := make([]string, len(cmds))
		for i, c := range cmds {
			names[i] = c.Name()
		}
		if names[0] != "client" { // a new connection's handshake
			s.batches = append(s.batches, strings.Join(names, " "))
		}
		return next(ctx, cmds)
	}
}

// What peers, producers and tools go by is read where it is written, also if the client reads from
// a replica that lags.
func TestReadAtTheMaster(t *testing.T) {
	store, client := redistest.Lagging(t)
	ctx, name := t.Context(), redistest.Name(t)
	if _, err := redisconfig.Agree(ctx, store, name, partition.Config{Total: 16}); err != nil {
		t.Fatal(err)
	}
	if got, err := redisconfig.Read(ctx, client, name); err != nil || got.Total != 16 {
		t.Errorf("read %+v, %v", got, err)
	}
	for range 2 {
		if err := redisconfig.AgreeList(ctx, client, name, "list"); err != nil {
			t.Error(err)
		}
	}
	if err := redisconfig.AgreeList(ctx, client, name, "other"); !errors.Is(err, partition.ErrConfig) {
		t.Errorf("another list than the one that stands: %v", err)
	}
}

func TestBadInput(t *testing.T) {
	ctx, client := t.Context(), redistest.New(t)
	if _, err := redisconfig.Agree(ctx, client, "no spaces", partition.Config{}); err == nil {
		t.Error("a bad name was taken")
	}
	if _, err := redisconfig.Agree(ctx, client, redistest.Name(t), partition.Config{Total: -1}); err == nil {
		t.Error("-1 partitions were taken")
	}
	// Most have misspelt the name, and know nothing of its keys.
	none := redistest.Name(t)
	if _, err := redisconfig.Read(ctx, client, none); !errors.Is(err, redisconfig.ErrNone) || !strings.HasPrefix(err.Error(), "redisconfig: "+none+": ") {
		t.Errorf("nothing stands: %v, want ErrNone", err)
	}
	for field, value := range map[string]string{"total": "many", "hash": "", "protocol": "3"} {
		name := redistest.Name(t)
		if _, err := redisconfig.Agree(ctx, client, name, partition.Config{}); err != nil {
			t.Fatal(err)
		}
		client.HSet(ctx, redisconfig.Key(name), field, value)
		_, err := redisconfig.Agree(ctx, client, name, partition.Config{})
		if err == nil || !strings.Contains(err.Error(), redisconfig.Key(name)) {
			t.Errorf("%s %q: error %v, want one that names the key", field, value, err)
		}
		if field == "protocol" && !errors.Is(err, partition.ErrConfig) {
			t.Errorf("another protocol: %v, want ErrConfig", err)
		}
	}
}

// While the number of partitions is changed nobody may begin; one who takes it up again
// finishes what stands, and towards nothing else.
func TestResize(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	if _, err := redisconfig.BeginResize(ctx, client, name, 32, "x"); !errors.Is(err, redisconfig.ErrNone) {
		t.Errorf("nothing stands: %v", err)
	}
	was, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 16, Units: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := redisconfig.BeginResize(ctx, client, name, 16, "x"); err != nil || r.Config.Total != 16 || r.Standing {
		t.Errorf("to what it is: %+v, %v", r, err)
	}
	if _, err := redisconfig.BeginResize(ctx, client, name, -1, "x"); err == nil {
		t.Error("to -1")
	}
	if got, err := redisconfig.Read(ctx, client, name); err != nil || got.Total != 16 {
		t.Errorf("refusals left %+v, %v", got, err)
	}
	first, err := redisconfig.BeginResize(ctx, client, name, 32, "first")
	if err != nil || first.Config.Total != 16 || first.To != 32 || first.ID != "first" || first.Standing {
		t.Fatalf("%+v, %v", first, err)
	}
	finish := "countoff resize " + name + " --partitions 32)"
	for what, agree := range map[string]func() error{
		"peer":     func() error { _, err := redisconfig.Agree(ctx, client, name, was); return err },
		"producer": func() error { _, err := redisconfig.AgreePartitions(ctx, client, name, partition.Config{}); return err },
		"reader":   func() error { _, err := redisconfig.Read(ctx, client, name); return err },
	} {
		if err := agree(); !errors.Is(err, partition.ErrConfig) || !strings.Contains(err.Error(), "16 to 32 (") || !strings.Contains(err.Error(), finish) {
			t.Errorf("a %s meanwhile: %v", what, err)
		}
	}
	if r, err := redisconfig.BeginResize(ctx, client, name, 32, "second"); err != nil || r.ID != "first" || !r.Standing {
		t.Errorf("taken up: %+v, %v", r, err)
	}
	if _, err := redisconfig.BeginResize(ctx, client, name, 64, "third"); !errors.Is(err, partition.ErrConfig) || !strings.Contains(err.Error(), finish) {
		t.Errorf("elsewhere: %v", err)
	}
	if err := redisconfig.CancelResize(ctx, client, name, first); err != nil {
		t.Fatal(err)
	}
	if got, err := redisconfig.Agree(ctx, client, name, was); err != nil || got.Total != 16 {
		t.Errorf("after the cancel: %+v, %v", got, err)
	}
	again, err := redisconfig.BeginResize(ctx, client, name, 32, "again")
	if err != nil || again.ID != "again" {
		t.Fatalf("%+v, %v", again, err)
	}
	if err := redisconfig.EndResize(ctx, client, name, again); err != nil {
		t.Fatal(err)
	}
	was.Total = 32
	if got, err := redisconfig.Agree(ctx, client, name, was); err != nil || got.Total != 32 || len(got.Units) != 1 {
		t.Errorf("after the end: %+v, %v", got, err)
	}
}

// Of two that begin at once, one begins and the other finds it: with the same goal it takes it up, with another
// it is refused.
func TestOfTwoResizesOneBegins(t *testing.T) {
	for _, to := range []int{4, 8} {
		client, name := redistest.New(t), redistest.Name(t)
		ctx := t.Context()
		if _, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 2}); err != nil {
			t.Fatal(err)
		}
		between := &afterRead{}
		hooked(t, client, between)
		between.then = func() {
			if r, err := redisconfig.BeginResize(ctx, client, name, 4, "second"); err != nil || r.ID != "second" || r.Standing {
				t.Errorf("the one between: %+v, %v", r, err)
			}
		}
		r, err := redisconfig.BeginResize(ctx, client, name, to, "first")
		if to == 4 && (err != nil || r.ID != "second" || !r.Standing) || to == 8 && !errors.Is(err, partition.ErrConfig) {
			t.Errorf("to %d: %+v, %v", to, r, err)
		}
	}
}

// hooked adds a hook to client: of a cluster to its nodes, as a transaction is one node's.
func hooked(t *testing.T, client redis.UniversalClient, hook redis.Hook) {
	t.Helper()
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		client.AddHook(hook)
		return
	}
	if err := cluster.ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error {
		node.AddHook(hook)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// An afterRead hook calls then once after the first HGETALL.
type afterRead struct{ then func() }

func (*afterRead) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*afterRead) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (a *afterRead) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if then := a.then; cmd.Name() == "hgetall" && then != nil {
			a.then = nil
			then()
		}
		return err
	}
}

// What is moved is one call's: who takes over has the end of it, and nobody cancels it.
func TestResizeChangesHands(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	if _, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	begun, err := redisconfig.BeginResize(ctx, client, name, 4, "id")
	if err != nil {
		t.Fatal(err)
	}
	a, err := redisconfig.MoveResize(ctx, client, name, begun, "a")
	if err != nil || a.Mover != "a" {
		t.Fatal(a, err)
	}
	if _, err := redisconfig.MoveResize(ctx, client, name, begun, "late"); !errors.Is(err, redisconfig.ErrTaken) {
		t.Errorf("one that has not seen a: %v", err)
	}
	if err := redisconfig.CancelResize(ctx, client, name, begun); err != nil {
		t.Error(err)
	}
	seen, err := redisconfig.BeginResize(ctx, client, name, 4, "other")
	if err != nil || seen.ID != "id" || seen.Mover != "a" {
		t.Fatalf("after a cancel that came late: %+v, %v", seen, err)
	}
	b, err := redisconfig.MoveResize(ctx, client, name, seen, "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := redisconfig.EndResize(ctx, client, name, a); !errors.Is(err, redisconfig.ErrTaken) {
		t.Errorf("the end of a, after b took over: %v", err)
	}
	if err := redisconfig.EndResize(ctx, client, name, b); err != nil {
		t.Error(err)
	}
	if err := redisconfig.EndResize(ctx, client, name, b); !errors.Is(err, redisconfig.ErrTaken) {
		t.Errorf("the end again: %v", err)
	}
	if got, err := redisconfig.Read(ctx, client, name); err != nil || got.Total != 4 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Who cannot read or write the configuration is told what to do, also where the server
// hides the reason behind a transaction that was discarded.
func TestARefusalSaysWhatToDo(t *testing.T) {
	p := redistest.Server(t)
	taken := redistest.Name(t)
	if err := p.Client().Set(t.Context(), redisconfig.Key(taken), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := redisconfig.Agree(t.Context(), p.Client(), taken, partition.Config{}); err == nil || !strings.Contains(err.Error(), "another program writes keys of this name") {
		t.Errorf("of a key that is something else it says %v", err)
	}
	known := taken + "-known"
	if _, err := redisconfig.Agree(t.Context(), p.Client(), known, partition.Config{}); err != nil {
		t.Fatal(err)
	}
	_, err := redisconfig.Agree(t.Context(), p.Client(), known, partition.Config{Total: 7, Hash: partition.Murmur2, Units: []string{"inbox"}})
	for _, want := range []string{"countoff resize " + known + " --partitions 7", "give this program that one", "countoff init --unit LIST", "countoff destroy " + known} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of another configuration it says %v, want %q", err, want)
		}
	}
	if err := p.Client().Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := redisconfig.AgreePartitions(t.Context(), p.Client(), known, partition.Config{}); err == nil || !strings.Contains(err.Error(), "this is a replica") {
		t.Errorf("of a replica, where the name is known, it says %v to a producer", err)
	}
	if _, err := redisconfig.Agree(t.Context(), p.Client(), taken+"-2", partition.Config{}); err == nil || !strings.Contains(err.Error(), "this is a replica") {
		t.Errorf("of a replica it says %v", err)
	}
}

// What a refusal says can be copied into a shell, whatever a list is called.
func TestWhatToDoCanBeCopied(t *testing.T) {
	t.Parallel()
	for want, lists := range map[string][]string{
		"countoff ingress n --none":                      nil,
		"countoff ingress n mail:inbox a,b":              {"mail:inbox", "a,b"},
		`countoff ingress n '{n}:a b' 'bob'\''s' 'köln'`: {"{n}:a b", "bob's", "köln"},
		"countoff ingress -- n -x -y '$HOME'":            {"-x", "-y", "$HOME"},
	} {
		if got := redisconfig.ToChangeIngress("n", lists); !strings.HasSuffix(got, ": "+want) {
			t.Errorf("of %q it says %q, want %q", lists, got, want)
		}
	}
}

// A URL that leads to the wrong database, or takes one server for a cluster, is told as that.
func TestAdviceOfAURL(t *testing.T) {
	p := redistest.Server(t)
	opts := *redistest.Single(t, p.Client()).Options()
	opts.DB = 99
	far := redis.NewClient(&opts)
	defer far.Close()
	if advice := redisconfig.Advice(far.Ping(t.Context()).Err()); !strings.Contains(advice, "number at the end of the URL") {
		t.Errorf("of a database that is not there it says %q", advice)
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{opts.Addr}, MaxRedirects: -1})
	defer cluster.Close()
	if advice := redisconfig.Advice(cluster.Ping(t.Context()).Err()); !strings.Contains(advice, "is no cluster") {
		t.Errorf("of a single server it says %q", advice)
	}
	// The key of a name is another node's.
	server, single := redistest.Mini(t)
	server.SetError("MOVED 8782 127.0.0.1:7433")
	if _, err := redisconfig.Read(t.Context(), single, "n"); err == nil || !strings.Contains(err.Error(), "(the key is of another node of a cluster: if the URL names one node alone, ") {
		t.Errorf("of one node of a cluster it says %v", err)
	}
}

// A server that takes no more clients hangs up, mostly before its reason is read.
func TestAdviceOfAServerThatIsFullOfClients(t *testing.T) {
	full := redistest.Server(t)
	if err := full.Client().ConfigSet(t.Context(), "maxclients", "1").Err(); err != nil {
		t.Fatal(err)
	}
	second := redis.NewClient(&redis.Options{Addr: full.Addr(), MaxRetries: -1})
	defer second.Close()
	if err := second.Ping(t.Context()).Err(); !strings.Contains(redisconfig.Advice(err), "maxclients") {
		t.Errorf("of %v it says %q", err, redisconfig.Advice(err))
	}
	mini, client := redistest.Mini(t)
	mini.SetError("ERR max number of clients reached")
	if err := client.Ping(t.Context()).Err(); !strings.Contains(redisconfig.Advice(err), "maxclients") {
		t.Errorf("of %v it says %q", err, redisconfig.Advice(err))
	}
}

// A server that is sent more than it takes hangs up, mostly while it is sent that, before its reason can be read.
func TestAdviceOfWhatIsTooLarge(t *testing.T) {
	server := redistest.Server(t, "--proto-max-bulk-len", "1mb")
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer client.Close()
	err := client.Set(t.Context(), "k", make([]byte, 64<<20), 0).Err()
	if !strings.Contains(redisconfig.Advice(err), "proto-max-bulk-len") {
		t.Errorf("of %v it says %q", err, redisconfig.Advice(err))
	}
}

// A server may lack a command, and a Sentinel lacks nearly all: the reply tells only what is unknown, or
// from a script not even that.
func TestAdviceOfAMissingCommand(t *testing.T) {
	client := redistest.Server(t, "--rename-command", "HGETALL", "", "--rename-command", "TIME", "").Client()
	_, err := redisconfig.Read(t.Context(), client, "n")
	wantMissing(t, err)
	wantMissing(t, redisconfig.Explain(client.Eval(t.Context(), "return redis.call('TIME')", nil).Err()))
}

func wantMissing(t *testing.T, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "rename-command") || !strings.Contains(err.Error(), "?master_name=NAME") {
		t.Errorf("it says %v", err)
	}
}

// A peer can start on a store that refuses writes because it is full, and an
// unreachable store is no refusal.
func TestFullOrUnreachable(t *testing.T) {
	p := redistest.Server(t)
	ctx, name := t.Context(), redistest.Name(t)
	if _, err := redisconfig.Agree(ctx, p.Client(), name, partition.Config{}); err != nil {
		t.Fatal(err)
	}
	p.Config("maxmemory", "1")
	if _, err := redisconfig.Agree(ctx, p.Client(), name, partition.Config{}); err != nil {
		t.Errorf("on a full store: %v", err)
	}
	p.Kill()
	client := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1})
	defer client.Close()
	if _, err := redisconfig.Agree(context.Background(), client, name, partition.Config{}); err == nil || errors.Is(err, partition.ErrConfig) {
		t.Errorf("on a dead store: %v", err)
	}
}

func TestCluster(t *testing.T) {
	client, name := redistest.Cluster(t), redistest.Name(t)
	if got, err := redisconfig.Agree(t.Context(), client, name, partition.Config{}); err != nil || got.Total != partition.DefaultTotal {
		t.Errorf("%+v, %v", got, err)
	}
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (r refusal) RedisError()   {}

// The trace of a refusal says what differs, and not what its reader knows.
func TestTheTraceOfARefusal(t *testing.T) {
	client, ctx, name := redistest.New(t), t.Context(), redistest.Name(t)
	for _, total := range []int{4, 8} {
		_, _ = redisconfig.Agree(ctx, client, name, partition.Config{Total: total}) // the second is refused
	}
	lines, err := client.LRange(ctx, redisconfig.RefusedKey(name), 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	want := "total 4 stands there, this program wants 8 (to change it, stop all peers: countoff resize " + name + " --partitions 8)"
	if all := redisconfig.ParseRefused(lines, 0); len(all) != 1 || all[0].What != want {
		t.Errorf("%+v", all)
	}
}

// What each peer of a fleet meets at once leaves one trace, and that of a program that was refused stands.
func TestTheTraceOfWhatAFleetMeets(t *testing.T) {
	client, ctx, name := redistest.New(t), t.Context(), redistest.Name(t)
	redisconfig.NoteRefused(ctx, client, name, fmt.Errorf("total 5: %w", partition.ErrConfig))
	meet := func(long time.Duration) []string {
		var fleet sync.WaitGroup
		for i := range 20 {
			fleet.Go(func() {
				if err := redisconfig.NoteRefusedOnce(ctx, client, name, "topic/", long, fmt.Errorf("topic/%d: lost: %w", i, partition.ErrConfig)); err != nil {
					t.Error(err)
				}
			})
		}
		fleet.Wait()
		lines, err := client.LRange(ctx, redisconfig.RefusedKey(name), 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		return lines
	}
	first := meet(time.Hour)
	if len(first) != 2 || !strings.Contains(first[0], "\ttopic/") || !strings.HasSuffix(first[1], "\ttotal 5") {
		t.Errorf("there is %q", first)
	}
	_ = redisconfig.NoteRefusedOnce(ctx, client, name, "topic/", 0, fmt.Errorf("topic/30: lost: %w", partition.ErrConfig))
	_ = redisconfig.NoteRefusedOnce(ctx, client, name, "other/", time.Hour, fmt.Errorf("other/1: lost: %w", partition.ErrConfig))
	_ = redisconfig.NoteRefusedOnce(ctx, client, name, "none/", time.Hour, errors.New("none/1: no refusal"))
	later := meet(time.Hour)
	if len(later) != 4 || !strings.HasSuffix(later[0], "other/1: lost") || !strings.HasSuffix(later[1], "topic/30: lost") {
		t.Errorf("later there is %q", later)
	}
}

// Who was refused for a number of partitions that no longer stands needs nobody's help. A change that is
// called off leaves the trace.
func TestAResizeEndsTheTraceOfRefusals(t *testing.T) {
	client, ctx, name := redistest.New(t), t.Context(), redistest.Name(t)
	for _, total := range []int{4, 8} {
		_, _ = redisconfig.Agree(ctx, client, name, partition.Config{Total: total}) // the second is refused
	}
	for _, c := range []struct {
		end  func(context.Context, redis.UniversalClient, string, redisconfig.Resize) error
		left int64
	}{{redisconfig.CancelResize, 1}, {redisconfig.EndResize, 0}} {
		r, err := redisconfig.BeginResize(ctx, client, name, 8, "id")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.end(ctx, client, name, r); err != nil {
			t.Fatal(err)
		}
		if n := client.LLen(ctx, redisconfig.RefusedKey(name)).Val(); n != c.left {
			t.Errorf("%d refusals are told, want %d", n, c.left)
		}
	}
}

// What is refused for good is told at once, with what to do about it, and once; what
// passes by itself, such as a fail-over, is waited for.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		err              error
		refused, lasting bool
		advice           string
	}{
		{refusal("OOM command not allowed when used memory > 'maxmemory'."), true, true, "maxmemory"},
		{refusal("MISCONF Redis is configured to save RDB snapshots"), true, true, "free its disk"},
		{refusal("ERR The user executing the script can't publish to the channel mentioned in the command script: 1, on @user_script:9."), true, true, "docs/stores.md"},
		{refusal("ERR ACL failure in script: User peer has no permissions to run the 'rpush' command"), true, true, "docs/stores.md"},
		{refusal("NOPERM User x has no permissions"), true, true, "docs/stores.md"},
		{refusal("WRONGTYPE Operation against a key"), true, true, "another program"},
		{refusal("ERR unknown command"), true, true, "rename-command"},
		{refusal("READONLY You can't write against a read only replica."), false, false, "master"},
		{refusal("NOREPLICAS Not enough good replicas to write."), false, false, "min-replicas-to-write"},
		{refusal("LOADING Redis is loading the dataset in memory"), false, false, "it will answer"},
		{refusal("ERR Protocol error: invalid bulk length"), true, true, "proto-max-bulk-len"},
		{refusal("CLUSTERDOWN The cluster is down"), false, false, "every slot"},
		{refusal("TRYAGAIN Multiple keys request during rehashing of slot"), false, false, "--cluster fix"},
		{refusal("BUSY Redis is busy running a script."), false, false, ""},
		{redis.ErrPoolTimeout, false, false, "pool_size"},
		{redis.ErrPoolExhausted, false, false, "pool_size"},
		{redis.ErrClosed, false, true, ""},
		{errors.New("connection reset by peer"), false, false, ""},
		// What is so large that its refusal comes before it was sent: the refusal is lost.
		{&net.OpError{Op: "write", Err: syscall.ECONNRESET}, false, false, "proto-max-bulk-len"},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, false, false, "maxclients"},
	} {
		err := fmt.Errorf("fetch: %w", c.err)
		if redisconfig.Refused(err) != c.refused || redisconfig.Lasting(err) != c.lasting {
			t.Errorf("%v: refused %t, lasting %t", err, redisconfig.Refused(err), redisconfig.Lasting(err))
		}
		once := redisconfig.Explain(err)
		twice := redisconfig.Explain(fmt.Errorf("open: %w", once))
		if !errors.Is(twice, c.err) || !strings.Contains(once.Error(), c.advice) || twice.Error() != "open: "+once.Error() {
			t.Errorf("explained %q, and again %q", once, twice)
		}
		if (c.advice == "") != (once == err) {
			t.Errorf("%q is explained, want %q", once, c.advice)
		}
	}
	if redisconfig.Explain(nil) != nil || redisconfig.Lasting(nil) {
		t.Error("no error is explained, or lasts")
	}
}

func TestResizeKeepsTheProtocolOfTags(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	if _, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 4}); err != nil {
		t.Fatal(err)
	}
	client.HSet(ctx, redisconfig.Key(name), "protocol", partition.TagsProtocol, "requires", "0-1=gpu")
	r, err := redisconfig.BeginResize(ctx, client, name, 8, "id")
	if err != nil {
		t.Fatal(err)
	}
	if err := redisconfig.EndResize(ctx, client, name, r); err != nil {
		t.Fatal(err)
	}
	if p := client.HGet(ctx, redisconfig.Key(name), "protocol").Val(); p != "2" {
		t.Errorf("after a resize of a name that asks for tags its protocol is %s: builds that know no tags get in", p)
	}
}

// Of a cluster the names on a node that stands still are missing, and those of the others are told.
func TestNamesWithoutANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Frozen(t)
		name := "n"
		for redistest.Slot(redisconfig.Key(name)) > 8191 {
			name += "n"
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := redisconfig.Agree(ctx, client, name, partition.Config{Total: 8, Hash: partition.XXHash64}); err != nil {
			t.Fatal(err)
		}
		if names, err := redisconfig.Names(ctx, client); len(names) != 1 || err == nil || ctx.Err() != nil {
			t.Errorf("names %v, %v; %v", names, err, ctx.Err())
		}
	})
}

// Who wants TLS and who does not, and whose authority is unknown, the URL says: a peer that meets such a
// server waits for it, and its log is all there is to tell.
func TestAdviceOnTLS(t *testing.T) {
	hangsUp := func(t *testing.T) string { // as a port for TLS does to who speaks without
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = connection.Read(make([]byte, 512))
				connection.Close()
			}
		}()
		t.Cleanup(func() { listener.Close(); <-ended })
		return listener.Addr().String()
	}
	ofItsOwn := func(t *testing.T) string { // a certificate of an authority that nobody here knows
		server := httptest.NewUnstartedServer(nil)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	for _, c := range []struct {
		name    string
		address func(*testing.T) string
		tls     *tls.Config
		advice  string
	}{
		{"wants TLS", hangsUp, nil, "rediss://"},
		{"unknown authority", ofItsOwn, &tls.Config{}, "?ca=FILE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: c.address(t), TLSConfig: c.tls, MaxRetries: -1})
			defer client.Close()
			if _, err := redisconfig.Read(t.Context(), client, "mail"); err == nil || !strings.Contains(err.Error(), c.advice) {
				t.Errorf("got error %v, want one that says %q", err, c.advice)
			}
		})
	}
}
