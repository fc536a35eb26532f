package asynqfx_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/asynqfx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/asynqsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

const (
	peerVariable = "COUNTOFF_ASYNQFX_PEER" // "URL name id": the test binary is a peer
	// faultsVariable says how many faults TestPeersAreKilledAndPaused tries. Default 3.
	faultsVariable = "COUNTOFF_ASYNQFX_FAULTS"
	faultKeys      = 12
	faultLease     = 2500 * time.Millisecond // some die, and some stand still for longer
)

// TestPeer is a peer of TestPeersAreKilledAndPaused: a process of its own.
func TestPeer(t *testing.T) {
	var url, name, id string
	if n, _ := fmt.Sscan(os.Getenv(peerVariable), &url, &name, &id); n < 3 {
		t.Skip("for TestPeersAreKilledAndPaused")
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	mux := asynq.NewServeMux()
	mux.HandleFunc("step", func(ctx context.Context, task *asynq.Task) error {
		<-time.After(time.Duration(rand.N(8)) * time.Millisecond) // work takes its time, so that faults hit some
		key, n, _ := strings.Cut(string(task.Payload()), " ")
		retried, _ := asynq.GetRetryCount(ctx)
		token, _ := asynqsource.Token(ctx)
		return client.RPush(ctx, name+":"+key, fmt.Sprintf("%s %d %v", n, retried, token.Epoch)).Err()
	})
	code := frameworkfx.Run(
		asynqfx.Mux(name, asynqfx.Config{URL: url, Server: quiet}, mux),
		frameworkfx.Configure(name, framework.Config{Concurrency: 8, Timing: transition.Timing{Lease: faultLease, Settle: quick.Timing.Settle}, PodGrace: time.Minute}, framework.WithPeer(id, 1)),
	)
	if code != 0 {
		t.Errorf("the peer ended with %d", code)
	}
}

// A stage has peers that are processes.
type stage struct {
	t      *testing.T
	url    string
	name   string
	client redis.UniversalClient
	peers  []*exec.Cmd
	said   map[*exec.Cmd]*bytes.Buffer // read it when the process has ended
	born   int
}

func (s *stage) spawn(i int) {
	s.t.Helper()
	s.born++
	cmd := exec.Command(os.Args[0], "-test.run=^TestPeer$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), peerVariable+"="+fmt.Sprintf("%s %s peer-%d", s.url, s.name, s.born))
	said := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.peers[i], s.said[cmd] = cmd, said
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill() // most have ended
		_ = cmd.Wait()
	})
}

// journal is what the handlers have written down, by key.
func (s *stage) journal() map[string][]string {
	s.t.Helper()
	all := make(map[string][]string)
	for k := range faultKeys {
		key := fmt.Sprint("key-", k)
		lines, err := s.client.LRange(context.Background(), s.name+":"+key, 0, -1).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		all[key] = lines
	}
	return all
}

// Peers are killed, and paused past their lease, at random: nothing is lost, what runs
// twice is what was running, the order of each key is kept, and no task pays for it with
// a retry.
func TestPeersAreKilledAndPaused(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	faults := 3
	if n, err := strconv.Atoi(os.Getenv(faultsVariable)); err == nil {
		faults = n
	}
	server := redistest.Server(t)
	s := &stage{t: t, url: "redis://" + server.Addr(), name: redistest.Name(t), client: server.Client(), peers: make([]*exec.Cmd, 3), said: map[*exec.Cmd]*bytes.Buffer{}}
	if _, err := redisledger.Init(t.Context(), s.client, s.name, partition.Config{Total: 8}); err != nil {
		t.Fatal(err)
	}
	producer, err := asynqsource.NewClient(t.Context(), s.client, s.name, asynqsource.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.peers {
		s.spawn(i)
	}
	steps := 0
	feed := func(n int) {
		for range n {
			for k := range faultKeys {
				key := fmt.Sprint("key-", k)
				if _, err := producer.Enqueue(key, asynq.NewTask("step", fmt.Appendf(nil, "%s %d", key, steps)), asynq.MaxRetry(0)); err != nil {
					t.Fatal(err)
				}
			}
			steps++
		}
	}
	atWork := func(runs int) {
		t.Helper()
		for end := time.Now().Add(patience); count(s.journal()) < runs; <-time.After(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("nobody works: %d runs, want %d", count(s.journal()), runs)
			}
		}
	}
	for fault := range faults {
		before := count(s.journal())
		feed(30)
		atWork(before + 40 + rand.N(80))
		feed(5) // while they work
		i := rand.N(len(s.peers))
		if fault%2 == 0 {
			t.Logf("peer %d is killed", i)
			_ = s.peers[i].Process.Kill() // it is there
			_ = s.peers[i].Wait()
			s.spawn(i)
		} else {
			t.Logf("peer %d is paused", i)
			_ = s.peers[i].Process.Signal(syscall.SIGSTOP) // it is there
			feed(10)
			<-time.After(faultLease + faultLease/2)
			_ = s.peers[i].Process.Signal(syscall.SIGCONT) // it is there
		}
	}
	feed(10)
	end := time.Now().Add(patience)
	for {
		lost, err := s.verdict(steps)
		if err != nil {
			t.Fatal(err)
		}
		if lost == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d steps are lost", lost)
		}
		<-time.After(50 * time.Millisecond)
	}
	for _, p := range s.peers {
		_ = p.Process.Signal(syscall.SIGTERM) // it is there
		if err := p.Wait(); err != nil {
			t.Errorf("a peer ended with %v: %s", err, s.said[p])
		}
	}
	inspector := asynq.NewInspectorFromRedisClient(s.client)
	for id := range partition.ID(8) {
		info, err := inspector.GetQueueInfo(asynqsource.QueueOf(s.name, id))
		if errors.Is(err, asynq.ErrQueueNotFound) {
			continue
		}
		if err != nil || info.Size != 0 {
			t.Errorf("left over: %+v, %v", info, err)
		}
	}
	t.Logf("%d steps, %d runs", steps*faultKeys, count(s.journal()))
}

func count(journal map[string][]string) int {
	n := 0
	for _, lines := range journal {
		n += len(lines)
	}
	return n
}

// verdict says how many steps have not run yet, and what is wrong with those that have.
func (s *stage) verdict(steps int) (lost int, err error) {
	for key, lines := range s.journal() {
		seen, next := make(map[int]bool), 0
		for _, line := range lines {
			var n, retried int
			var epoch uint64
			if _, err := fmt.Sscan(line, &n, &retried, &epoch); err != nil {
				return 0, err
			}
			if retried != 0 {
				return 0, fmt.Errorf("%s: step %d has paid with a retry", key, n)
			}
			if seen[n] {
				continue // a crash, or a lease that ran out
			}
			if n != next {
				return 0, fmt.Errorf("%s: step %d ran when %d was due: %v", key, n, next, lines)
			}
			seen[n] = true
			next++
		}
		lost += steps - next
	}
	return lost, nil
}
