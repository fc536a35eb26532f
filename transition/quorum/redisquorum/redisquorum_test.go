package redisquorum_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition/quorum"
	"github.com/countoff/countoff/transition/quorum/redisquorum"
)

// The client's pool looks once a second whether it was closed while it could not dial.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

func open(t testing.TB, servers []*redistest.Process) *redisquorum.Quorum {
	t.Helper()
	var urls []string
	for _, s := range servers {
		urls = append(urls, "redis://"+s.Addr())
	}
	q, err := redisquorum.Open("mails", urls, quorum.Config{Patience: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q
}

// Masters are killed and come back with their files, come back empty and are admitted
// again, and sleep: numbers rise all the same.
func TestMastersComeAndGo(t *testing.T) {
	for _, size := range []int{3, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			var servers []*redistest.Process
			for range size {
				servers = append(servers, redistest.Server(t, durable...))
			}
			processes := []*redisquorum.Quorum{open(t, servers), open(t, servers)}
			if n, err := processes[0].Admit(t.Context()); err != nil || n != size {
				t.Fatalf("admitted %d: %v", n, err)
			}
			if risks := processes[0].Examine(t.Context()); len(risks) > 0 {
				t.Errorf("risks %v", risks)
			}
			ctx, stop := context.WithCancel(t.Context())
			var mu sync.Mutex
			given, most := map[uint64]bool{}, uint64(0)
			var callers sync.WaitGroup
			for i := range 6 {
				callers.Go(func() {
					for ctx.Err() == nil {
						mu.Lock()
						floor := most
						mu.Unlock()
						n, err := processes[i%2].Next(ctx)
						if err != nil {
							if ctx.Err() == nil {
								t.Errorf("next: %v", err)
								return
							}
							continue
						}
						mu.Lock()
						if given[n] || n <= floor {
							t.Errorf("%d was given after %d, before: %v", n, floor, given[n])
						}
						given[n], most = true, max(most, n)
						mu.Unlock()
					}
				})
			}
			more := func() { // numbers go on
				t.Helper()
				mu.Lock()
				now := most
				mu.Unlock()
				for deadline := time.Now().Add(30 * time.Second); ; {
					n, err := processes[0].Next(t.Context())
					if err == nil && n > now {
						return
					}
					if time.Now().After(deadline) {
						t.Fatalf("after %d came %d, %v", now, n, err)
					}
				}
			}
			away := servers[:size/2] // a minority
			for round := range 3 {
				more()
				for _, s := range away {
					s.Kill()
				}
				more()
				for _, s := range away {
					s.Start()
				}
				more()
				servers[(round+1)%size].Pause()
				more()
				servers[(round+1)%size].Resume()
				more()
			}
			for _, s := range away {
				s.Restart(false)
			}
			more()
			admitted := 0
			for deadline := time.Now().Add(30 * time.Second); admitted < len(away); {
				n, err := processes[1].Admit(t.Context())
				admitted += n
				if time.Now().After(deadline) {
					t.Fatalf("admitted %d of %d: %v", admitted, len(away), err)
				}
			}
			for _, s := range servers[size/2 : size/2*2] { // another minority: the new ones must count
				s.Kill()
			}
			more()
			stop()
			callers.Wait()
			t.Logf("%d numbers", len(given))
		})
	}
}

func TestExamine(t *testing.T) {
	good, lax, off := redistest.Server(t, durable...), redistest.Server(t, "--appendonly", "yes"), redistest.Server(t)
	q := open(t, []*redistest.Process{good, lax, off})
	var all []string
	for _, r := range q.Examine(t.Context()) {
		all = append(all, r.Register+" "+r.Text)
	}
	text := strings.Join(all, "\n")
	for _, want := range []string{
		good.Addr() + " holds no number", lax.Addr() + " appendfsync is everysec", off.Addr() + " appendonly is no",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not said:\n%s", want, text)
		}
	}
	off.Kill()
	if risks := q.Examine(t.Context()); len(risks) == 0 || !strings.Contains(risks[len(risks)-1].Text, "does not answer") {
		t.Errorf("of a dead one: %v", risks)
	}
}

// Masters that are lost together are no masters of their own.
func TestExamineWhatIsNotIndependent(t *testing.T) {
	t.Parallel()
	master, replica := redistest.Server(t, durable...), redistest.Server(t, durable...)
	host, port, _ := net.SplitHostPort(master.Addr())
	if err := replica.Client().SlaveOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	q, err := redisquorum.Open("mails", []string{"redis://" + master.Addr(), "redis://" + master.Addr() + "/1", "redis://" + replica.Addr()}, quorum.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	for _, want := range []string{master.Addr() + "/1 is the same server as redis://" + master.Addr(), replica.Addr() + " is a replica"} {
		for deadline := time.Now().Add(30 * time.Second); ; { // a replica that loads says nothing else
			said := fmt.Sprint(q.Examine(t.Context()))
			if strings.Contains(said, want) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%q is not said: %s", want, said)
			}
		}
	}
}

func TestOpenSaysAllThatIsWrong(t *testing.T) {
	_, err := redisquorum.Open("mails", []string{"redis://:secret@a:1", "redis://:secret@a:1", "http://b"}, quorum.Config{})
	if err == nil || !strings.Contains(err.Error(), "twice") || !strings.Contains(err.Error(), "http") || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
	for _, few := range [][]string{nil, {"redis://a:1"}, {"redis://a:1", "redis://b:1"}} {
		if _, err = redisquorum.Open("mails", few, quorum.Config{}); err == nil || !strings.Contains(err.Error(), "want three or five") {
			t.Errorf("%v", err)
		}
	}
	_, err = redisquorum.Open("mails", []string{"redis://a:1", "redis://b:1", "redis://c:1", "redis://d:1"}, quorum.Config{})
	if err == nil || !strings.Contains(err.Error(), "4 of the masters that witness the epochs: want three or five") {
		t.Errorf("%v", err)
	}
	_, err = redisquorum.Open("bad name", []string{"redis://a:1", "redis://b:1", "redis://c:1", "http://d"}, quorum.Config{})
	for _, once := range []string{`name "bad name"`, "4 of the masters", `scheme "http"`} {
		if err == nil || strings.Count(err.Error(), once) != 1 {
			t.Errorf("want %q once in\n%v", once, err)
		}
	}
}

// One process gives numbers to many callers. The goal is 5,000 a second over three masters
// that write each to their disks.
func BenchmarkNext(b *testing.B) {
	var servers []*redistest.Process
	for range 3 {
		servers = append(servers, redistest.Server(b, durable...))
	}
	q := open(b, servers)
	if _, err := q.Admit(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(50)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := q.Next(b.Context()); err != nil {
				b.Error(err)
				return
			}
		}
	})
	perSecond := float64(b.N) / b.Elapsed().Seconds()
	b.ReportMetric(perSecond, "numbers/s")
	verdict := 0.0
	if perSecond >= 5000 {
		verdict = 1
	}
	b.ReportMetric(verdict, "ok(≥5k/s)")
}

// What a Ring has of a name is elsewhere once a server is away.
func TestRingIsRefused(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	if _, err := redisquorum.New(ring, "mail", "a"); err == nil || !strings.Contains(err.Error(), "give a *redis.Client") {
		t.Errorf("got %v", err)
	}
}

// The register may stand where the tasks are: no list may be called like its key.
func TestNoListIsTheRegister(t *testing.T) {
	t.Parallel()
	if redisconfig.CheckLists("n", redisquorum.Key("n")) == nil {
		t.Error("a list may be called " + redisquorum.Key("n"))
	}
}
