package command

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// Of the reason that stands in the store only what a terminal may have is said.
func TestSinceIsForATerminal(t *testing.T) {
	t.Parallel()
	if got := since(time.Unix(0, 0), "\x1b[2Jhid"); got != "1970-01-01T00:00:00Z (\ufffd[2Jhid)" {
		t.Errorf("%q", got)
	}
}

// Peers whose ledger is in another store hear of no pause here, of no drain and of no requirement, and work on.
func TestPauseBesideALedgerElsewhere(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	letters(t, s, nil, nil)
	for _, line := range []string{"drain n ann", "drain n ann --force", "pause n", "pause n --wait 0s", "require n 0=gpu", "require n --none"} {
		if said := s.fails(exit.Failed, line); !strings.Contains(said, "who takes part is not known") || strings.Contains(said, "nothing of it runs") || strings.Contains(said, "nobody takes part") {
			t.Errorf("%s says %q", line, said)
		}
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.fails(exit.Failed, "pause n")
	s.fails(exit.Failed, "resume n")
	s.run("init n --partitions 4")
	if out := s.run("resume n"); out != "n was not paused\n" {
		t.Errorf("%q", out)
	}
	for _, line := range []string{"pause n --wait -1s", "pause n --why", "pause", "pause n m", "resume"} {
		s.fails(exit.Usage, line)
	}
	s.fails(exit.Usage, "pause n --why", "two\nlines")
	l, err := redisledger.New(s.client(), "n", redisledger.Config{Config: partition.Config{Total: 4}})
	if err != nil {
		t.Fatal(err)
	}
	ann := transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{0, 1, 3}}
	a, err := l.Sync(t.Context(), ann)
	if err != nil || len(a.Mine) != 3 {
		t.Fatal(a, err)
	}
	// ann does not end: the pause stands all the same.
	if said := s.fails(exit.Failed, "pause n --wait 1ms --why", "the database moves"); !strings.Contains(said, "n is paused, but partitions and ingress lists that are still worked on: ann 3") {
		t.Errorf("said %q", said)
	}
	if out := s.run("status n"); !strings.Contains(out, "WRONG  paused: nobody works, since ") || !strings.Contains(out, " (the database moves): countoff resume goes on") {
		t.Errorf("status says:\n%s", out)
	}
	if out := s.run("names"); !strings.Contains(out, "n     4           1 (paused)") {
		t.Errorf("names says:\n%s", out)
	}
	if out := s.run("plan n --strategy ring"); !strings.Contains(out, "by the strategy ring") {
		t.Errorf("plan of another strategy says:\n%s", out)
	}
	if out := s.run("plan n --peers 2"); !strings.Contains(out, "n is paused") {
		t.Errorf("plan says:\n%s", out)
	}
	// Asked again it waits for who still works, until it is interrupted.
	ctx, cancel := context.WithCancel(t.Context())
	var out output
	ended := make(chan error, 1)
	go func() { ended <- s.start(ctx, &out, "pause n --wait 10m") }()
	wait(t, func() bool {
		return strings.Contains(out.String(), "n was paused already, since ") && strings.Contains(out.String(), " (the database moves)")
	})
	cancel()
	if err := <-ended; codeOf(err) != exit.Hard || !strings.Contains(err.Error(), "n is paused, but ") {
		t.Errorf("interrupted: %v", err)
	}
	go func() { ended <- s.start(t.Context(), &out, "pause n --wait 10m") }()
	ann.Claim = nil
	for _, m := range a.Mine {
		ann.Release = append(ann.Release, m.Grant)
	}
	if _, err := l.Sync(t.Context(), ann); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || !strings.Contains(out.String(), "nothing of it runs") {
		t.Errorf("%v, said %q", err, out.String())
	}
	if out := s.run("resume n"); out != "n is resumed\n" {
		t.Errorf("%q", out)
	}
	ann.Claim, ann.Release = []partition.ID{0, 1, 3}, nil
	if a, err = l.Sync(t.Context(), ann); err != nil || len(a.Mine) != 3 {
		t.Fatal(a, err)
	}
	for line, want := range map[string]string{"history n": "ann gave 0-1 3 up, which was nobody's then\n", "history n --partition 3": "up, which was nobody's then, as the name was paused\n"} {
		if out := s.run(line); !strings.Contains(out, want) {
			t.Errorf("%s does not say %q:\n%s", line, want, out)
		}
	}
	if err := s.client().Del(t.Context(), "{n}:sessions").Err(); err != nil {
		t.Fatal(err)
	}
	if out := s.run("pause n --wait 0s"); out != "n is paused (countoff resume n goes on)\n" {
		t.Errorf("%q", out)
	}
	// The store forgot ann, who works: nobody knows that she does, and nobody says that she does not.
	if said := s.fails(exit.Failed, "pause n --wait 1ms"); !strings.Contains(said, "n is paused, but the store is new, restarted or forgot: who works has ") {
		t.Errorf("in a grace it says %q", said)
	}
	if out := s.run("history n"); strings.Count(out, "the name was paused") != 2 || strings.Count(out, "the name was resumed") != 1 {
		t.Errorf("history says:\n%s", out)
	}
}

// An order that was taken back while its command waits, or that a fail-over has forgotten, does not stand: nobody is
// told that it does, nor that anything else is why somebody works.
func TestOrdersThatAreGone(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 4")
	l, err := redisledger.New(s.client(), "n", redisledger.Config{Config: partition.Config{Total: 4}, Timing: transition.Timing{Lease: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sync(t.Context(), transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{0, 1, 3}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ give, back, says string }{
		{"drain n ann --wait 10m", "recall n ann", "ann is drained, but no longer: it was recalled"},
		{"pause n --wait 10m", "resume n", "n is paused, but no longer: it was resumed"},
	} {
		var out output
		ended := make(chan error, 1)
		go func() { ended <- s.start(t.Context(), &out, c.give) }()
		wait(t, func() bool { return strings.Contains(out.String(), "\n") })
		s.run(c.back)
		wait(t, func() bool { return len(ended) == 1 })
		if err := <-ended; codeOf(err) != exit.Failed || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.give, err)
		}
	}
}

// Since when an order stands is compared with what peers and status say, all by the store's clock.
func TestOrdersStandSinceTheStoresTime(t *testing.T) {
	t.Parallel()
	mini, client := redistest.Mini(t)
	s := shell{t, "redis://" + mini.Addr(), ""}
	s.run("init n --partitions 4")
	now := time.Now().Add(-24 * time.Hour).Truncate(time.Millisecond).UTC()
	mini.SetTime(now)
	s.run("pause n --wait 0s")
	s.run("drain n ann --force --wait 0s")
	cfg, err := redisconfig.Read(t.Context(), client, "n")
	if err != nil {
		t.Fatal(err)
	}
	if d, _ := cfg.Drains("ann"); !cfg.Paused.Since.Equal(now) || !d.Since.Equal(now) {
		t.Errorf("paused since %v, drained since %v, the store says %v", cfg.Paused.Since, d.Since, now)
	}
}

// Of a cluster the time is asked of the node that has the name: another may not answer, and a pause would wait for it.
func TestOrdersAskTheNodeOfTheName(t *testing.T) {
	t.Parallel()
	cluster := redis.NewClusterClient(redistest.Cluster(t).(*redis.ClusterClient).Options()) // it knows no node yet
	t.Cleanup(func() { _ = cluster.Close() })
	var mu sync.Mutex
	var asked []string
	cluster.OnNewNode(func(node *redis.Client) {
		node.AddHook(timeAsked(func() {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, node.Options().Addr)
		}))
	})
	var of []string
	for range 12 {
		name := redistest.Name(t)
		node, err := cluster.MasterForKey(t.Context(), redisconfig.Key(name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&stand{client: cluster}).now(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		of = append(of, node.Options().Addr)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(asked, of) {
		t.Errorf("asked %q, want %q", asked, of)
	}
}

// timeAsked is called before each TIME.
type timeAsked func()

func (timeAsked) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f timeAsked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "time" {
			f()
		}
		return next(ctx, cmd)
	}
}

func (timeAsked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A resume that is refused does not call itself a pause.
func TestARefusedResume(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	s := shell{t, "redis://" + server.Addr(), ""}
	s.run("init n --partitions 2")
	if err := server.Client().Do(t.Context(), "acl", "setuser", "look", "on", ">secret", "~*", "&*", "+@all", "-@write").Err(); err != nil {
		t.Fatal(err)
	}
	s.url = "redis://look:secret@" + server.Addr()
	for line, what := range map[string]string{"pause n": "pause: ", "resume n": "resume: "} {
		if said := s.fails(exit.Unreachable, line); !strings.Contains(said, "n: "+what) {
			t.Errorf("%s says %s", line, said)
		}
	}
}

// That nobody works since replicas are missing is told by whoever is asked.
func TestMissingReplicasAreTold(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	s := shell{t, "redis://" + server.Addr(), ""}
	s.run("init n --partitions 4")
	l, err := redisledger.New(server.Client(), "n", redisledger.Config{Config: partition.Config{Total: 4}, Timing: transition.Timing{Lease: time.Hour}, WaitReplicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	ann := transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live}
	if _, err := l.Sync(t.Context(), ann); err == nil {
		t.Error("without a replica it is well")
	}
	const said = "0 of the 1 replicas that peers wait for follow the Redis of the ledger (WaitReplicas): " +
		"peers that wait for so many work on with what they have, and gain or give up no partition; whose lease has run out, as in a fail-over, stands still until they follow"
	if out := s.run("status n"); !strings.Contains(out, "WRONG  replicas: "+said) {
		t.Errorf("status says:\n%s", out)
	}
	if out := s.run("resume n"); !strings.HasPrefix(out, "n was not paused\nbut replicas: "+said) {
		t.Errorf("resume says %q", out)
	}
	var out output
	if err := s.start(t.Context(), &out, "doctor n"); codeOf(err) != exit.Verdict || !strings.Contains(out.String(), said) {
		t.Errorf("doctor says %v\n%s", err, out.String())
	}
	host, port, _ := strings.Cut(server.Addr(), ":")
	redistest.Server(t, "--replicaof", host+" "+port)
	wait(t, func() bool { return !strings.Contains(s.run("status n"), "WaitReplicas") })
	if out := s.run("resume n"); out != "n was not paused\n" {
		t.Errorf("with a replica resume says %q", out)
	}
}
