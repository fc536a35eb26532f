package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/examples/mail-sender/mailbox"
	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/redissource"
)

// programs is where TestMain has built them: what a user runs is what is tested.
var programs string

// suite are variables for the tests themselves, as COUNTOFF_REDIS: countoff says of each that no command reads it.
var suite = slices.DeleteFunc(os.Environ(), func(v string) bool { return !strings.HasPrefix(v, "COUNTOFF_") })

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "mail-sender-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir+string(filepath.Separator),
			"github.com/countoff/countoff/examples/mail-sender", "github.com/countoff/countoff/cmd/countoff")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
		programs = dir
		// The tests wait for processes and leases most of the time. -parallel on the
		// command line goes before this.
		if err := flag.Set("test.parallel", "12"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

const (
	patience = 2 * time.Minute
	shares   = 16

	// A peer that gets no time for half of its lease counts as dead, on a busy machine too: where none has to die it is
	// long.
	lease     = 5 * time.Second
	longLease = 20 * time.Second
)

// A stage is a real redis-server, an SMTP server that counts, and workers.
type stage struct {
	t      *testing.T
	name   string
	redis  *redistest.Process
	client redis.UniversalClient
	box    *mailbox.Server
	lease  time.Duration // of workers

	mu   sync.Mutex
	sent map[string]int // mails by recipient, numbered from 0
}

func newStage(t *testing.T, cfg mailbox.Config, redisArgs ...string) *stage {
	t.Helper()
	s := &stage{t: t, name: "mail-sender", redis: redistest.Server(t, redisArgs...), lease: lease, sent: map[string]int{}}
	s.client = s.redis.Client()
	box, err := mailbox.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.box = box
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	s.countoff("init", s.name, "--partitions", fmt.Sprint(shares), "--unit", s.name+":inbox")
	return s
}

func (s *stage) url() string { return "redis://" + s.redis.Addr() }

// countoff runs the tool and returns what it printed.
func (s *stage) countoff(args ...string) string {
	s.t.Helper()
	out, code := run(s.t, "countoff", append(args, "--redis", s.url())...)
	if code != 0 {
		s.t.Fatalf("countoff %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// run runs a program to its end and returns what it printed and its exit code.
func run(t *testing.T, program string, args ...string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(programs, program), args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return slices.Contains(suite, v) })
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %s: %v", program, strings.Join(args, " "), err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// A worker is a process of `mail-sender work`.
type worker struct {
	t     *testing.T
	id    string
	cmd   *exec.Cmd
	ended chan struct{}
	mu    sync.Mutex
	log   bytes.Buffer
}

func (w *worker) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(b)
}

// said returns what the worker logged so far.
func (w *worker) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

// work starts a worker called id.
func (s *stage) work(id string, more ...string) *worker {
	s.t.Helper()
	args := append([]string{"work", "--redis", s.url(), "--smtp", s.box.URL() + "?helo=" + id, "--id", id,
		"--name", s.name, "--lease", s.lease.String(), "--http", "", "--concurrency", "8"}, more...)
	w := &worker{t: s.t, id: id, cmd: exec.Command(filepath.Join(programs, "mail-sender"), args...), ended: make(chan struct{})}
	w.cmd.Stdout, w.cmd.Stderr = w, w
	if err := w.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		_ = w.cmd.Wait() // how it ended is in ProcessState
		close(w.ended)
	}()
	s.t.Cleanup(func() {
		w.kill()
		if s.t.Failed() {
			s.t.Logf("%s said:\n%s", id, tail(w.said(), 4000))
		}
	})
	return w
}

func tail(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return "…" + s[len(s)-most:]
}

func (w *worker) signal(sig syscall.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(sig); err != nil {
		w.t.Fatalf("%s: signal %v: %v", w.id, sig, err)
	}
}

func (w *worker) kill() {
	_ = w.cmd.Process.Kill() // fails only if it has ended
	<-w.ended
}

// code waits for the worker's end and returns its exit code.
func (w *worker) code() int {
	w.t.Helper()
	select {
	case <-w.ended:
	case <-time.After(patience):
		w.t.Fatalf("%s did not end", w.id)
	}
	return w.cmd.ProcessState.ExitCode()
}

// leave sends the worker home and checks that it went in good order.
func (w *worker) leave() {
	w.t.Helper()
	w.signal(syscall.SIGTERM)
	if code := w.code(); code != 0 {
		w.t.Errorf("%s left with exit code %d", w.id, code)
	}
}

// until waits for ok and fails the test with what it last said.
func (s *stage) until(what string, ok func() error) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("waited %v for %s: %v", patience, what, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// shared waits until exactly n peers share all partitions evenly.
func (s *stage) shared(n int) {
	s.t.Helper()
	s.until(fmt.Sprintf("%d peers to share the partitions", n), func() error {
		st, err := status.Read(s.t.Context(), s.client, s.name)
		if err != nil {
			return err
		}
		peers := slices.DeleteFunc(slices.Clone(st.Peers), func(p status.Peer) bool { return !p.Present() })
		for _, h := range st.Partitions {
			if h.State != status.Owned {
				return fmt.Errorf("partition %v is %s", h.ID, h.State)
			}
		}
		for _, p := range peers {
			if p.Index < 0 || p.Partitions < shares/n || p.Partitions > shares/n+1 {
				return fmt.Errorf("%s has %d partitions", p.ID, p.Partitions)
			}
		}
		if len(peers) != n {
			return fmt.Errorf("%d peers", len(peers))
		}
		return nil
	})
}

// next numbers the next mail to a recipient.
func (s *stage) next(to string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sent[to]
	s.sent[to]++
	body, err := json.Marshal(map[string]string{"to": to, "subject": fmt.Sprintf("mail %d", n), "text": "x"})
	if err != nil {
		s.t.Error(err)
	}
	return string(body)
}

// total is how many mails were sent.
func (s *stage) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.sent {
		n += k
	}
	return n
}

// A feed sends mails until it is stopped: by a Producer and by LPUSH to the inbox,
// each to recipients of its own. Where the store goes down, LPUSH is held: of one
// whose answer is lost nobody can tell whether it was done. The Producer knows.
type feed struct {
	stop    func()
	hold    func()
	release func()
}

func (s *stage) feed(perSecond int) *feed {
	s.t.Helper()
	producer, err := redissource.NewProducer(s.t.Context(), s.client, s.name, redissource.ProducerConfig{})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	var inbox sync.Mutex // held while LPUSH must not
	var wg sync.WaitGroup
	every := time.Second / time.Duration(max(perSecond/2, 1))
	loop := func(do func(n int) error) {
		wg.Go(func() {
			t := time.NewTicker(every)
			defer t.Stop()
			for n := 0; ; n++ {
				select {
				case <-t.C:
				case <-ctx.Done():
					return
				}
				if err := do(n); err != nil {
					s.t.Error(err)
					return
				}
			}
		})
	}
	loop(func(n int) error {
		to := fmt.Sprintf("producer-%d@example.com", n%17)
		message := redissource.Message{Type: "mail", Key: to, Payload: []byte(s.next(to))}
		for deadline := time.Now().Add(patience); ; <-time.After(100 * time.Millisecond) {
			_, err := producer.Enqueue(context.Background(), message)
			if err == nil || errors.Is(err, redissource.ErrUnknown) || time.Now().After(deadline) {
				return err
			}
			// Refused, and so not enqueued: again.
		}
	})
	loop(func(n int) error {
		inbox.Lock()
		defer inbox.Unlock()
		return s.client.LPush(context.Background(), s.name+":inbox", s.next(fmt.Sprintf("inbox-%d@example.com", n%13))).Err()
	})
	f := &feed{hold: inbox.Lock, release: inbox.Unlock}
	f.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		if err := producer.Close(context.Background()); err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(f.stop)
	return f
}

// settled waits until every mail has arrived, and checks the order of each
// recipient's first deliveries. It returns the deliveries beyond a mail's last by
// the client that made them: what was doubled, and by whom. Those of the clients that
// were killed or stopped do not count: what one had on the wire then may have ended before
// its successor sent it again, or may begin after, when it goes on.
func (s *stage) settled(stopped ...string) (doubled map[string]int) {
	s.t.Helper()
	var deliveries map[string][]mailbox.Delivery
	s.until("every mail to arrive", func() error {
		deliveries = map[string][]mailbox.Delivery{}
		for _, d := range s.box.Deliveries(0) {
			if d.Accepted {
				id := d.To[0] + " " + d.Subject
				deliveries[id] = append(deliveries[id], d)
			}
		}
		if missing := s.total() - len(deliveries); missing != 0 {
			return fmt.Errorf("%d of %d mails have not arrived", missing, s.total())
		}
		return nil
	})
	doubled = map[string]int{}
	for to, n := range s.sent {
		var last time.Time
		for i := range n {
			all := deliveries[fmt.Sprintf("%s mail %d", to, i)]
			if len(all) == 0 {
				s.t.Errorf("%s: mail %d did not arrive", to, i)
				continue
			}
			slices.SortFunc(all, func(a, b mailbox.Delivery) int { return a.Began.Compare(b.Began) })
			if first := all[0]; first.Began.Before(last) {
				s.t.Errorf("%s: mail %d arrived before an earlier one", to, i)
			} else {
				last = first.Began
			}
			all = slices.DeleteFunc(all, func(d mailbox.Delivery) bool { return slices.Contains(stopped, d.Client) })
			for _, d := range all[:max(len(all)-1, 0)] {
				doubled[d.Client]++
			}
		}
	}
	return doubled
}

// logged reports whether the worker wrote a log line with that message.
func (w *worker) logged(message string) bool {
	for line := range strings.Lines(w.said()) {
		var entry struct{ Msg string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == message {
			return true
		}
	}
	return false
}
