package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countoff/countoff/examples/mail-sender/mailbox"
	"github.com/countoff/countoff/framework/program/signals"
	"github.com/countoff/countoff/framework/status"
)

// slow is an SMTP server that has something in flight all the time.
var slow = mailbox.Config{Latency: 50 * time.Millisecond}

// Peers come and go by the book: nothing is lost, doubled or out of order.
func TestScale(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow)
	s.lease = longLease
	var workers []*worker
	grow := func(n int) {
		for len(workers) < n {
			workers = append(workers, s.work(fmt.Sprintf("w%d", len(workers))))
		}
		s.shared(n)
	}
	grow(3)
	f := s.feed(60)
	grow(6)
	for _, w := range workers[:4] {
		w.leave()
	}
	s.shared(2)
	f.stop()
	if doubled := s.settled(); len(doubled) > 0 {
		t.Errorf("doubled without a crash: %v", doubled)
	}
	for _, w := range workers[4:] {
		w.leave()
	}
}

// A peer dies without goodbye: its share is taken over, and only what it was sending
// is sent again.
func TestKill(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow)
	victim := s.work("victim")
	s.work("a")
	s.work("b")
	s.shared(3)
	f := s.feed(60)
	s.until("the victim to be sending", func() error { return s.sending("victim") })
	victim.kill()
	s.shared(2)
	f.stop()
	if doubled := s.settled("victim"); len(doubled) > 0 {
		t.Errorf("doubled by peers that live: %v", doubled)
	}
}

// A peer is stopped for longer than its lease and comes back: what it still does is
// void, and it works on as a peer like any other.
func TestPause(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow)
	victim := s.work("victim")
	s.work("a")
	s.work("b")
	s.shared(3)
	f := s.feed(60)
	s.until("the victim to be sending", func() error { return s.sending("victim") })
	victim.signal(syscall.SIGSTOP)
	s.shared(2)
	victim.signal(syscall.SIGCONT)
	s.shared(3)
	f.stop()
	if doubled := s.settled("victim"); len(doubled) > 0 {
		t.Errorf("doubled by peers that were never stopped: %v", doubled)
	}
	victim.leave()
}

// Redis dies under load and comes back with what its append-only file holds: nobody
// loses a partition, and nothing is lost. It writes before it answers: with everysec it
// answers for up to two seconds before it writes, while a sync takes its time.
func TestRedisRestart(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow, "--appendonly", "yes", "--appendfsync", "always")
	s.lease = 2 * lease // the store may take its time to come back
	workers := []*worker{s.work("a"), s.work("b"), s.work("c")}
	s.shared(3)
	f := s.feed(60)
	for range 2 {
		s.until("all to be sending", func() error {
			for _, w := range workers {
				if err := s.sending(w.id); err != nil {
					return err
				}
			}
			return nil
		})
		f.hold()
		s.redis.Kill()
		s.redis.Start()
		f.release()
		before := len(s.box.Deliveries(0))
		s.until("mails to flow again", func() error {
			if n := len(s.box.Deliveries(0)) - before; n < 50 {
				return fmt.Errorf("%d since the restart", n)
			}
			return nil
		})
	}
	f.stop()
	if doubled := s.settled(); len(doubled) > 0 {
		t.Errorf("doubled by a restart of the store: %v", doubled)
	}
	for _, w := range workers {
		w.leave()
	}
}

// sending reports whether the client has a mail under way.
func (s *stage) sending(client string) error {
	for _, d := range s.box.Deliveries(0) {
		if d.Client == client && d.Ended.IsZero() {
			return nil
		}
	}
	return fmt.Errorf("%s is not sending", client)
}

// A process that only counts off has an index beside the workers, and takes nothing
// from them: whoever came first, every mail is sent.
func TestIndexBesideWorkers(t *testing.T) {
	t.Parallel()
	s := newStage(t, slow)
	s.lease = longLease
	follow := func(id string) {
		cmd := exec.Command(filepath.Join(programs, "countoff"), "index", s.name, "--follow", "--id", id,
			"--lease", s.lease.String(), "--redis", s.url())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // fails only if it has ended
			_ = cmd.Wait()
		})
		s.until(id+" to have an index", func() error {
			st, err := status.Read(t.Context(), s.client, s.name)
			if err != nil {
				return err
			}
			for _, p := range st.Peers {
				if p.ID == id && p.Index >= 0 {
					return nil
				}
			}
			return fmt.Errorf("%+v", st.Peers)
		})
	}
	follow("first")
	w := s.work("w")
	f := s.feed(60)
	s.until("the worker to be sending", func() error { return s.sending("w") })
	follow("last")
	before := s.total()
	s.until("mails after the last came", func() error {
		if n := s.total() - before; n < 40 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	f.stop()
	if doubled := s.settled(); len(doubled) > 0 {
		t.Errorf("doubled: %v", doubled)
	}
	w.leave()
}

// A send that is interrupted says how many mails the store has, and ends with a code.
func TestSendInterrupted(t *testing.T) {
	t.Parallel()
	s := newStage(t, mailbox.Config{})
	for _, c := range []struct {
		why  string
		args []string
	}{
		{"while it generates", []string{"-n", "100000000"}},
		{"while it waits for stdin", []string{"--file", "-"}},
	} {
		st, err := status.Read(t.Context(), s.client, s.name)
		if err != nil {
			t.Fatal(err)
		}
		before := st.Totals().Pending
		cmd := exec.Command(filepath.Join(programs, "mail-sender"), append([]string{"send", "--redis", s.url()}, c.args...)...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		for range 600 { // more than a batch
			fmt.Fprintf(stdin, "%s\n", `{"to":"ann@example.com","subject":"hi","text":"x"}`)
		}
		s.until("mails to be enqueued "+c.why, func() error {
			st, err := status.Read(t.Context(), s.client, s.name)
			if err == nil && st.Totals().Pending == before {
				err = errors.New("none is")
			}
			return err
		})
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // how it ended is in ProcessState
		if code := cmd.ProcessState.ExitCode(); code != 6 {
			t.Errorf("%s: exit code %d, want 6", c.why, code)
		}
		if st, err = status.Read(t.Context(), s.client, s.name); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%d mails enqueued", st.Totals().Pending-before)
		if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "interrupted") {
			t.Errorf("%s: want %q:\n%s", c.why, want, out.String())
		}
	}
}

// A worker that is stopped while it waits for its store has nothing to hand over, and ends well.
func TestStoppedBeforeTheStoreIsReached(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd := exec.Command(filepath.Join(programs, "mail-sender"), "work", "--redis", "redis://127.0.0.1:1", "--wait", patience.String(), "--http", "")
		logs, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		lines := bufio.NewScanner(logs)
		for lines.Scan() && !strings.Contains(lines.Text(), "not reached yet") {
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", sig, err)
		}
	}
}

// The second SIGTERM stops at once, with an exit code that says so; what was being
// sent is sent again by the next peer.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s := newStage(t, mailbox.Config{Latency: time.Hour})
	s.lease = longLease
	w := s.work("w")
	s.shared(1)
	if err := s.client.LPush(context.Background(), s.name+":inbox", s.next("ann@example.com")).Err(); err != nil {
		t.Fatal(err)
	}
	s.until("the mail to be under way", func() error { return s.sending("w") })
	w.signal(syscall.SIGTERM)
	w.signal(syscall.SIGINT) // as who signals the process and then its group; of two of a kind the kernel makes one
	s.until("the worker to note the first signal", func() error {
		if w.logged("stopping") {
			return nil
		}
		return fmt.Errorf("it has not")
	})
	noted := time.Now()
	s.until("the second signal to be another one", func() error {
		if left := signals.Together - time.Since(noted); left > 0 {
			return fmt.Errorf("it would not be for %v", left)
		}
		return nil
	})
	w.signal(syscall.SIGTERM)
	if code := w.code(); code != 6 {
		t.Errorf("exit code %d, want 6", code)
	}
}
