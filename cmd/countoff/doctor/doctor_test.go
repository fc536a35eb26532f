package doctor_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/cmd/countoff/doctor"
	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func examine(t *testing.T, client redis.UniversalClient, name string) []doctor.Finding {
	t.Helper()
	of := func(context.Context) (status.Place, error) { return status.Place{Client: client}, nil }
	all, err := doctor.Examine(t.Context(), client, nil, name, of, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// of returns the findings of one check.
func of(all []doctor.Finding, check string) (out []doctor.Finding) {
	for _, f := range all {
		if f.Check == check {
			out = append(out, f)
		}
	}
	return out
}

// wants says that check has exactly one finding, of that severity and with that word.
func wants(t *testing.T, all []doctor.Finding, check string, severity doctor.Severity, word string) {
	t.Helper()
	found := of(all, check)
	if len(found) != 1 || found[0].Severity != severity || !strings.Contains(found[0].String(), word) {
		t.Errorf("%s: want one %s with %q, found %v", check, severity, word, found)
	}
	for _, f := range found {
		if (severity == doctor.Warning || severity == doctor.Danger) && (f.Risk == "" || f.Do == "") {
			t.Errorf("%s says not what is at risk or what to do: %+v", check, f)
		}
	}
}

func initName(t *testing.T, client redis.UniversalClient) string {
	t.Helper()
	name := redistest.Name(t)
	if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 2}); err != nil {
		t.Fatal(err)
	}
	return name
}

// A node of a cluster that stands still leaves time for the name, whose keys another has.
func TestANodeThatStandsStillLeavesTimeForTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		direct, cluster := redistest.Frozen(t)
		if _, err := redisledger.Init(t.Context(), direct, "n1", partition.Config{Total: 2}); err != nil { // its slot is 3671
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		of := func(context.Context) (status.Place, error) { return status.Place{Client: cluster}, nil }
		all, err := doctor.Examine(ctx, cluster, nil, "n1", of, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprint(all)
		if !strings.Contains(said, "2 partitions") || strings.Contains(said, "what stands under n1") {
			t.Errorf("it says %s", said)
		}
		if !slices.ContainsFunc(all, func(f doctor.Finding) bool { return f.Check == "server" && f.Node == "frozen:1" }) {
			t.Errorf("of what stands still it says %s", said)
		}
	})
}

func TestServer(t *testing.T) {
	t.Parallel()
	p := redistest.Server(t, "--maxmemory", "0", "--maxmemory-policy", "noeviction")
	client := p.Client()
	name := initName(t, client)
	for _, c := range []struct {
		set      [][2]string
		check    string
		severity doctor.Severity
		word     string
	}{
		{nil, "version", doctor.Fine, "Redis "},
		{nil, "clock", doctor.Fine, "apart"},
		{nil, "replicas", doctor.Note, "there is one copy"},
		{nil, "persistence", doctor.Danger, "nothing is kept on disk"},
		{nil, "memory", doctor.Note, "no limit"},
		{[][2]string{{"save", "3600 1"}}, "persistence", doctor.Warning, "snapshots only"},
		{[][2]string{{"appendonly", "yes"}, {"appendfsync", "everysec"}}, "persistence", doctor.Fine, "every second"},
		{[][2]string{{"appendfsync", "always"}}, "persistence", doctor.Fine, "before each answer"},
		{[][2]string{{"appendfsync", "no"}}, "persistence", doctor.Warning, "when the system likes"},
		{[][2]string{{"maxmemory-policy", "allkeys-lru"}}, "memory", doctor.Warning, "no limit, allkeys-lru"},
		{[][2]string{{"maxmemory", "100mb"}}, "memory", doctor.Danger, "throws keys away"},
		{[][2]string{{"maxmemory-policy", "volatile-lru"}}, "memory", doctor.Warning, "what expires"},
		{[][2]string{{"maxmemory-policy", "noeviction"}}, "memory", doctor.Fine, "of 100 MiB"},
	} {
		for _, s := range c.set {
			p.Config(s[0], s[1])
		}
		wants(t, examine(t, client, name), c.check, c.severity, c.word)
	}
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	master := redistest.Server(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica := redistest.Server(t, "--replicaof", host+" "+port)
	client := master.Client()
	name := initName(t, client)
	deadline := time.After(30 * time.Second)
	for {
		if n, err := client.Do(t.Context(), "wait", 1, 1000).Int(); err == nil && n == 1 {
			break
		}
		select {
		case <-deadline:
			t.Fatal("the replica does not follow")
		default:
		}
	}
	wants(t, examine(t, client, name), "replicas", doctor.Warning, "min-replicas-to-write 0")
	wants(t, examine(t, replica.Client(), name), "replicas", doctor.Danger, "the address is a replica's")
	master.Config("min-replicas-to-write", "1")
	wants(t, examine(t, client, name), "replicas", doctor.Fine, "1, min-replicas-to-write 1")
	master.Config("min-replicas-max-lag", "0")
	wants(t, examine(t, client, name), "replicas", doctor.Warning, "min-replicas-max-lag 0, which switches it off")
}

// An emulator refuses CONFIG and most of INFO: that is told, and nothing else is wrong.
func TestEmulator(t *testing.T) {
	_, client := redistest.Mini(t)
	all := examine(t, client, initName(t, client))
	for _, check := range []string{"version", "persistence", "memory", "replicas"} {
		wants(t, all, check, doctor.Note, "does not tell")
	}
	if doctor.Worst(all) != doctor.Note {
		t.Errorf("the worst is %s: %v", doctor.Worst(all), all)
	}
	wants(t, examine(t, client, "nobodys"), "name", doctor.Note, "nobody has used nobodys yet")
}

func TestName(t *testing.T) {
	_, client := redistest.Mini(t)
	name := initName(t, client)
	join := func(session, peer, deployment string, lease time.Duration) {
		l, err := redisledger.New(client, name, redisledger.Config{
			Config: partition.Config{Total: 2}, Timing: transition.Timing{Lease: lease}, Deployment: deployment,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Sync(t.Context(), transition.Request{
			Session: partition.Session(session), Peer: peer, Weight: 1, State: machine.Live, Claim: []partition.ID{0, 1},
			Strategy: map[string]string{"aa": "sticky", "bb": "jump"}[session],
		}); err != nil {
			t.Fatal(err)
		}
	}
	join("aa", "peer-aa", "ours", 10*time.Second)
	wants(t, examine(t, client, name), "name", doctor.Fine, "2 partitions, hash xxhash64; a dead peer's partitions are another's within 13.5s")
	pauser, err := redisledger.New(client, name, redisledger.Config{Config: partition.Config{Total: 2}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []partition.Pause{{Since: time.Now(), Why: "the database moves"}, {}} {
		if err := pauser.Pause(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if all := examine(t, client, name); p.Why != "" {
			wants(t, all, "paused", doctor.Warning, "(the database moves)")
			if f := of(all, "name")[0]; strings.Contains(f.What, "another's") { // nobody takes over meanwhile
				t.Errorf("paused: %s", f.What)
			}
		}
	}
	for peer, told := range map[string]struct {
		severity doctor.Severity
		word     string
	}{
		"peer-aa": {doctor.Note, "peer-aa is to have nothing, since "},
		"nobody":  {doctor.Warning, "(its disk is slow), and does not take part"},
	} {
		if err := pauser.Drain(t.Context(), partition.Drain{Peer: peer, Since: time.Now(), Why: "its disk is slow"}); err != nil {
			t.Fatal(err)
		}
		wants(t, examine(t, client, name), "drained", told.severity, told.word)
		if err := pauser.Recall(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
	}
	join("bb", "peer-bb", "theirs", 5*time.Second)
	if _, err := redisconfig.Agree(t.Context(), client, name, partition.Config{Total: 4}); err == nil {
		t.Fatal("accepted")
	}
	all := examine(t, client, name)
	wants(t, all, "two-deployments", doctor.Danger, `"ours" (peer-aa) and "theirs" (peer-bb)`)
	wants(t, all, "two-strategies", doctor.Warning, `by "jump" (peer-bb) and "sticky" (peer-aa)`)
	wants(t, all, "refused", doctor.Warning, "total 2 stands there, this program wants 4")
	if f := of(all, "refused")[0]; !strings.Contains(f.Do, "the line says what differs") { // it may be a barrier as well
		t.Errorf("who was refused is to do this: %s", f.Do)
	}
	wants(t, all, "budgets", doctor.Warning, "10s (peer-aa); 5s (peer-bb)")
	if !slices.IsSortedFunc(all, func(a, b doctor.Finding) int {
		ranks := []doctor.Severity{doctor.Danger, doctor.Warning, doctor.Note, doctor.Fine}
		return slices.Index(ranks, a.Severity) - slices.Index(ranks, b.Severity)
	}) || doctor.Worst(all) != doctor.Danger {
		t.Errorf("the worst does not come first: %v", all)
	}
	join("cc", "peer-aa", "ours", 5*time.Second)
	wants(t, examine(t, client, name), "budgets", doctor.Warning, "10s (peer-aa#aa); 5s (peer-aa#cc, peer-bb)")
}

func TestAnIngressThatIsNoList(t *testing.T) {
	_, client := redistest.Mini(t)
	name := redistest.Name(t)
	list := name + ":inbox"
	if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 2, Units: []string{list}}); err != nil {
		t.Fatal(err)
	}
	if err := client.SAdd(t.Context(), list, "a").Err(); err != nil {
		t.Fatal(err)
	}
	wants(t, examine(t, client, name), "ingress", doctor.Danger, list+" is no list")
	if err := client.Del(t.Context(), list).Err(); err != nil {
		t.Fatal(err)
	}
	if found := of(examine(t, client, name), "ingress"); len(found) > 0 {
		t.Errorf("still told: %v", found)
	}
}

// Two names with one ingress list take it from each other, and each says in the logs of its peers alone that it was fenced.
func TestAnIngressOfTwoNames(t *testing.T) {
	_, client := redistest.Mini(t)
	name := redistest.Name(t)
	cfg := partition.Config{Total: 2, Units: []string{name + ":inbox", "{" + name + "}:bulk"}}
	l, err := redisledger.New(client, name, redisledger.Config{Config: cfg, Timing: transition.Timing{Lease: 10 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	fence := func(key, token string) {
		t.Helper()
		if err := client.HSet(t.Context(), key, "t", token).Err(); err != nil {
			t.Fatal(err)
		}
	}
	quiet := func(when string) {
		t.Helper()
		if found := of(examine(t, client, name), "shared-ingress"); len(found) > 0 {
			t.Errorf("%s: %v", when, found)
		}
	}
	inbox, bulk := "{"+name+":inbox}:fence", "{"+name+"}:bulk:fence"
	if _, err := redisledger.Init(t.Context(), client, name, cfg); err != nil {
		t.Fatal(err)
	}
	fence(inbox, "7:zz")
	quiet("nobody has it on record")
	if _, err := l.Sync(t.Context(), transition.Request{
		Session: "aa", Peer: "peer-aa", Weight: 1, State: machine.Live, Claim: []partition.ID{partition.FirstUnit, partition.FirstUnit + 1},
	}); err != nil {
		t.Fatal(err)
	}
	for when, token := range map[string]string{"it is its own": "1:aa", "nobody has opened it": ""} {
		fence(inbox, token)
		quiet(when)
	}
	fence(inbox, "1:zz")
	wants(t, examine(t, client, name), "shared-ingress", doctor.Danger, name+":inbox")
	fence(inbox, "9:aa")
	fence(bulk, "9:zz")
	wants(t, examine(t, client, name), "shared-ingress", doctor.Danger, "{"+name+"}:bulk")
	if err := client.Set(t.Context(), bulk, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	wants(t, examine(t, client, name), "ingress", doctor.Danger, bulk+" is no hash")
	quiet("one is told of as no hash, and the other its own")
	// What hides the other is told, and not the first once more.
	hidden := refusal{key: inbox}
	client.AddHook(&hidden)
	told := examine(t, client, name)
	wants(t, told, "shared-ingress", doctor.Note, "the node is away")
	if found := of(told, "shared-ingress"); strings.Contains(fmt.Sprint(found), "WRONGTYPE") {
		t.Errorf("it says %v", found)
	}
	hidden.key = ""
	if err := client.HSet(t.Context(), redisconfig.Key(name), queuestat.Field, "critical").Err(); err != nil {
		t.Fatal(err)
	}
	fence(inbox, "9:zz")
	quiet("they are queues of asynq")
}

// A refusal keeps whoever asks for the fields of a key from an answer; it stands for a node of a cluster.
type refusal struct {
	key string
	redis.Hook
}

func (r *refusal) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *refusal) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (r *refusal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if args := cmd.Args(); args[0] == "hget" && args[1] == r.key {
				cmd.SetErr(errors.New("the node is away"))
			}
		}
		return err
	}
}

// A queue that is consumed under another name than it is filled under looks like one that has
// nothing to do.
func TestQueuesThatNobodyFilled(t *testing.T) {
	_, client := redistest.Mini(t)
	name := redistest.Name(t)
	if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 2, Units: []string{"old"}}); err != nil {
		t.Fatal(err)
	}
	if found := of(examine(t, client, name), "queues"); len(found) > 0 {
		t.Errorf("its partitions are no queues, and told is %v", found)
	}
	set := func(queues ...string) {
		t.Helper()
		if err := client.HSet(t.Context(), redisconfig.Key(name), queuestat.Field, strings.Join(queues, "\n")).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("critical", "defaults")
	if err := client.SAdd(t.Context(), queuestat.All, "critical", "default").Err(); err != nil {
		t.Fatal(err)
	}
	all := examine(t, client, name)
	wants(t, all, "queues", doctor.Warning, "no task was ever enqueued to old, defaults\n")
	wants(t, all, "queues", doctor.Warning, "other queues that asynq knows: default")
	set() // name:0 and name:1 are not others
	if err := client.SAdd(t.Context(), queuestat.All, name+":1").Err(); err != nil {
		t.Fatal(err)
	}
	wants(t, examine(t, client, name), "queues", doctor.Warning, "other queues that asynq knows: critical, default")
	if found := of(examine(t, client, name), "queues"); strings.Contains(fmt.Sprint(found), name+":1") {
		t.Errorf("a queue of the name is taken for another: %v", found)
	}
	if err := client.SAdd(t.Context(), queuestat.All, "old").Err(); err != nil {
		t.Fatal(err)
	}
	set() // name:0 and name:1, which countoff names itself
	if found := of(examine(t, client, name), "queues"); len(found) > 0 {
		t.Errorf("all are filled, and told is %v", found)
	}
}

// A key of a queue that another program has overwritten keeps its owner from everything: it is named, also where
// what stands under the name cannot be read because of it.
func TestQueuesThatAreOverwritten(t *testing.T) {
	_, client := redistest.Mini(t)
	name := redistest.Name(t)
	if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 2, Units: []string{"old"}}); err != nil {
		t.Fatal(err)
	}
	key := "{" + name + ":1}:tries"
	if err := client.Set(t.Context(), key, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if found := of(examine(t, client, name), "overwritten"); len(found) > 0 {
		t.Errorf("its partitions are no queues, and told is %v", found)
	}
	if err := client.HSet(t.Context(), redisconfig.Key(name), queuestat.Field, "").Err(); err != nil {
		t.Fatal(err)
	}
	wants(t, examine(t, client, name), "overwritten", doctor.Danger, key+" is a string and no hash: another program writes it")
	client.Del(t.Context(), key)
	for _, queue := range []string{name + ":0", "old"} {
		queue = "{" + queue + "}:"
		for key, put := range map[string]func(key string) error{
			"asynq:" + queue + "pending":          func(key string) error { return client.LPush(t.Context(), key, "x").Err() },
			"asynq:" + queue + "active":           func(key string) error { return client.LPush(t.Context(), key, "x").Err() },
			"asynq:" + queue + "lease":            func(key string) error { return client.ZAdd(t.Context(), key, redis.Z{}).Err() },
			"asynq:" + queue + "scheduled":        func(key string) error { return client.ZAdd(t.Context(), key, redis.Z{}).Err() },
			"asynq:" + queue + "retry":            func(key string) error { return client.ZAdd(t.Context(), key, redis.Z{}).Err() },
			"asynq:" + queue + "archived":         func(key string) error { return client.ZAdd(t.Context(), key, redis.Z{}).Err() },
			"asynq:" + queue + "completed":        func(key string) error { return client.ZAdd(t.Context(), key, redis.Z{}).Err() },
			"asynq:" + queue + "aggregation_sets": func(key string) error { return client.ZAdd(t.Context(), key, redis.Z{}).Err() },
			"asynq:" + queue + "groups":           func(key string) error { return client.SAdd(t.Context(), key, "x").Err() },
			queue + "fence":                       func(key string) error { return client.HSet(t.Context(), key, "e", 1).Err() },
			queue + "tries":                       func(key string) error { return client.HSet(t.Context(), key, "x", 1).Err() },
			queue + "suspects":                    func(key string) error { return client.SAdd(t.Context(), key, "x").Err() },
		} {
			if err := put(key); err != nil {
				t.Fatal(err)
			}
			if found := of(examine(t, client, name), "overwritten"); len(found) > 0 {
				t.Errorf("%s is what it should be, and told is %v", key, found)
			}
			client.Del(t.Context(), key)
			client.Set(t.Context(), key, "x", 0)
			wants(t, examine(t, client, name), "overwritten", doctor.Danger, key+" is a string")
			client.Del(t.Context(), key)
		}
	}
}

// A source that is told no queues has queues by key: what waits in default, which a server that
// was told none consumed, waits for ever.
func TestQueuesThatAreForgotten(t *testing.T) {
	_, client := redistest.Mini(t)
	name := initName(t, client)
	if err := client.HSet(t.Context(), redisconfig.Key(name), queuestat.Field, "").Err(); err != nil {
		t.Fatal(err)
	}
	none := func(when string) {
		t.Helper()
		if found := of(examine(t, client, name), "queues"); len(found) > 0 {
			t.Errorf("%s, and told is %v", when, found)
		}
	}
	none("asynq knows no queue")
	fill := func(queues ...any) {
		t.Helper()
		if err := client.SAdd(t.Context(), queuestat.All, queues...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	fill("default", "low")
	all := examine(t, client, name)
	wants(t, all, "queues", doctor.Warning, "no task was ever enqueued to the queues by key, "+name+":0 .. "+name+":1; other queues that asynq knows: default, low")
	wants(t, all, "queues", doctor.Warning, "is Source.Queues or Ingress missing in its peers?")
	fill(name + ":1")
	none("one is filled by key")
}

// Who enqueues lists a queue once: where the store has lost the list since, tasks go on coming.
func TestQueuesThatAreNotListed(t *testing.T) {
	_, client := redistest.Mini(t)
	name := initName(t, client)
	set := func(queues string) {
		t.Helper()
		if err := client.HSet(t.Context(), redisconfig.Key(name), queuestat.Field, queues).Err(); err != nil {
			t.Fatal(err)
		}
	}
	fill := func(queue string) {
		t.Helper()
		if err := client.Incr(t.Context(), "asynq:{"+queue+"}:processed").Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("critical\ndefaults")
	fill("critical")
	all := examine(t, client, name)
	wants(t, all, "queues", doctor.Warning, "no task was ever enqueued to defaults\n")
	wants(t, all, "queue-unlisted", doctor.Note, "asynq does not list queues that were filled: critical\n")
	set("")
	if err := client.SAdd(t.Context(), queuestat.All, "default").Err(); err != nil {
		t.Fatal(err)
	}
	wants(t, examine(t, client, name), "queues", doctor.Warning, "no task was ever enqueued to the queues by key")
	fill(name + ":1")
	all = examine(t, client, name)
	if found := of(all, "queues"); len(found) > 0 {
		t.Errorf("tasks were enqueued by key, and told is %v", found)
	}
	wants(t, all, "queue-unlisted", doctor.Note, name+":1\n")
	if err := client.SAdd(t.Context(), queuestat.All, name+":1").Err(); err != nil {
		t.Fatal(err)
	}
	if found := of(examine(t, client, name), "queue-unlisted"); len(found) > 0 {
		t.Errorf("it is listed, and told is %v", found)
	}
}

// With fewer partitions than before, what is in the queues behind them waits for ever.
func TestTasksBeyondThePartitions(t *testing.T) {
	_, client := redistest.Mini(t)
	name := initName(t, client)
	if err := client.HSet(t.Context(), redisconfig.Key(name), queuestat.Field, "").Err(); err != nil {
		t.Fatal(err)
	}
	fill := func(queue string) {
		t.Helper()
		if err := client.SAdd(t.Context(), queuestat.All, queue).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.LPush(t.Context(), queuestat.Pending(queue), "a-task").Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, queue := range []string{name + ":1", name + ":02", name + ":x", name + "-other:7", "default"} {
		fill(queue)
	}
	if err := client.SAdd(t.Context(), queuestat.All, name+":2", name+":3").Err(); err != nil {
		t.Fatal(err)
	}
	if found := of(examine(t, client, name), "queue-beyond"); len(found) > 0 {
		t.Errorf("nothing waits behind the partitions, and told is %v", found)
	}
	fill(name + ":10")
	if err := client.ZAdd(t.Context(), "asynq:{"+name+":3}:scheduled", redis.Z{Member: "a-task"}).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.SAdd(t.Context(), "asynq:{"+name+":2}:groups", "a-group").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.ZAdd(t.Context(), "asynq:{"+name+":2}:g:a-group", redis.Z{Member: "a-task"}).Err(); err != nil {
		t.Fatal(err)
	}
	wants(t, examine(t, client, name), "queue-beyond", doctor.Danger,
		"tasks wait in queues that are no partitions of "+name+", which has 2: "+name+":2, "+name+":3, "+name+":10\n")
	list(t, client, "another", name+":3", "default")
	wants(t, examine(t, client, name), "queue-beyond", doctor.Danger, "which has 2: "+name+":2, "+name+":10\n")
}

// list lists an asynq.Server, as it does itself.
func list(t *testing.T, client redis.UniversalClient, id string, queues ...string) {
	t.Helper()
	text := func(b []byte, field byte, s string) []byte {
		return append(append(b, field<<3|2, byte(len(s))), s...)
	}
	said := text(append(text(nil, 1, "host-"+id), 2<<3, 42), 3, id)
	for _, q := range queues {
		said = text(said, 5, string(append(text(nil, 1, q), 2<<3, 1)))
	}
	said = text(said, 8, string(binary.AppendUvarint([]byte{1 << 3}, 1_700_000_000)))
	key := queuestat.AllServers + ":{" + id + "}"
	if err := client.Set(t.Context(), key, said, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.ZAdd(t.Context(), queuestat.AllServers, redis.Z{Member: key}).Err(); err != nil {
		t.Fatal(err)
	}
}

// Whoever else consumes a queue of the name is told of: its own peers say so in their log alone.
func TestWhoElseConsumesItsQueues(t *testing.T) {
	_, client := redistest.Mini(t)
	name := initName(t, client)
	if err := client.HSet(t.Context(), redisconfig.Key(name), queuestat.Field, "critical\ndefault").Err(); err != nil {
		t.Fatal(err)
	}
	list(t, client, "ours", "critical", "default", queuestat.Mark(name))
	list(t, client, "elsewhere", "low")
	all := examine(t, client, name)
	if found := slices.Concat(of(all, "plain-server"), of(all, "shared-queue")); len(found) > 0 {
		t.Errorf("nobody else consumes them, and told is %v", found)
	}
	list(t, client, "plain", "low", "default")
	list(t, client, "theirs", "critical", queuestat.Mark("n1"))
	all = examine(t, client, name)
	wants(t, all, "plain-server", doctor.Danger, `a plain asynq.Server consumes queue "default" (host host-plain, pid 42, since 2023-11-14T22:13:20Z)`)
	if found := of(all, "coverage"); len(found) > 0 {
		t.Errorf("it is told twice: %v", found)
	}
	wants(t, all, "shared-queue", doctor.Danger, `queue "critical" is consumed by the peers of the name n1 (host host-theirs, pid 42, since `)
	list(t, client, "q", "default")
	all = examine(t, client, name)
	wants(t, all, "plain-server", doctor.Danger, `since 2023-11-14T22:13:20Z), a plain asynq.Server consumes queue "default" (host host-q, `)
	if found := of(all, "plain-server"); len(found) != 1 {
		t.Errorf("of two plain servers it says %v", found)
	}
	if err := client.Del(t.Context(), queuestat.AllServers+":{plain}", queuestat.AllServers+":{q}").Err(); err != nil {
		t.Fatal(err)
	}
	if found := of(examine(t, client, name), "plain-server"); len(found) > 0 {
		t.Errorf("what it said of itself has expired, and told is %v", found)
	}
	if err := client.Set(t.Context(), queuestat.AllServers+":{theirs}", "\xff", 0).Err(); err != nil {
		t.Fatal(err)
	}
	wants(t, examine(t, client, name), "plain-server", doctor.Note, "the store does not tell")
}

// What status finds about the partitions is examined too.
func TestCoverage(t *testing.T) {
	mini, client := redistest.Mini(t)
	name := initName(t, client)
	l, err := redisledger.New(client, name, redisledger.Config{Config: partition.Config{Total: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sync(t.Context(), transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{0, 1}}); err != nil {
		t.Fatal(err)
	}
	census, err := l.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Seal(t.Context(), transition.Roll{Membership: census.Membership}); err != nil {
		t.Fatal(err)
	}
	mini.HDel("{"+name+"}:transition", "1")
	wants(t, examine(t, client, name), "coverage", doctor.Danger, "unowned: partition 1: it is granted to nobody")
}

// A name that cannot be read is a danger of its own, beside what the server says of itself, which
// may be why.
func TestANameThatCannotBeRead(t *testing.T) {
	mini, client := redistest.Mini(t)
	name := initName(t, client)
	for _, c := range []struct {
		key, field, value string // that do harm
		word              string
	}{
		{redisconfig.Key(name), "protocol", "9", "speaks 1 and 2"},
		{redisconfig.Key(name), "protocol", "resizing", "finish it: countoff resize"},
		{"{" + name + "}:roll", "", "x", "find them with TYPE"},
		{"{" + name + "}:sessions", "s", "x", "is not understood"},
	} {
		was := mini.HGet(c.key, c.field)
		if c.field == "" {
			_ = mini.Set(c.key, c.value)
		} else {
			mini.HSet(c.key, c.field, c.value)
		}
		all := examine(t, client, name)
		wants(t, all, "name", doctor.Danger, c.word)
		wants(t, all, "clock", doctor.Fine, "apart")
		switch {
		case c.field == "":
			mini.Del(c.key)
		case was == "":
			mini.HDel(c.key, c.field)
		default:
			mini.HSet(c.key, c.field, was)
		}
	}
	gone := func(context.Context) (status.Place, error) { return status.Place{}, fmt.Errorf("read: %w", io.EOF) }
	if _, err := doctor.Examine(t.Context(), client, nil, name, gone, time.Now); !errors.Is(err, io.EOF) {
		t.Errorf("a store that has gone away meanwhile: %v", err)
	}
}

// A user who may ask for nothing is told so once, whatever was asked for.
func TestWhoMayNotAsk(t *testing.T) {
	server := redistest.Server(t)
	name := initName(t, server.Client())
	if err := server.Client().Do(t.Context(), "ACL", "SETUSER", "few", "on", ">x", "~*", "&*", "+@all", "-@admin", "-@dangerous").Err(); err != nil {
		t.Fatal(err)
	}
	client, err := redisurl.Open("redis://few:x@" + server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	all := examine(t, client, name)
	wants(t, all, "memory", doctor.Note, "does not tell")
	for _, f := range all {
		if strings.Count(f.What, "NOPERM") > 1 {
			t.Errorf("%s: %s", f.Check, f.What)
		}
	}
}
