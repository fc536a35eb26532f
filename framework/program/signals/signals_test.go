package signals

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// asked makes the test's binary a program that says when it was stopped, and ends with its input.
const asked = "COUNTOFF_TEST_STOPPED"

func TestMain(m *testing.M) {
	if os.Getenv(asked) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := Context(context.Background())
	defer stop()
	fmt.Println("listens")
	<-ctx.Done()
	fmt.Println("stopped by", context.Cause(ctx))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A program that is on its way to its end is not ended by the second half of a signal.
func TestTheSameSignalEndsNoProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for again := true; again; {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), asked+"=1")
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		lines.Scan()
		began := time.Now()
		_ = cmd.Process.Signal(os.Interrupt)
		lines.Scan()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		again = time.Since(began) >= Together // then it was another one
		in.Close()
		if err := cmd.Wait(); err != nil && !again {
			t.Errorf("it ended with %v", err)
		}
	}
}

// Who closes the terminal stops what runs in it; what nohup started stays.
func TestAClosedTerminalIsASignal(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for shell, want := range map[string]string{`exec "$0"`: "hangup", `trap "" HUP; exec "$0"`: "terminated"} {
		cmd := exec.Command("/bin/sh", "-c", shell, self)
		cmd.Env = append(os.Environ(), asked+"=1")
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		lines.Scan()
		_ = cmd.Process.Signal(syscall.SIGHUP)
		if want != "hangup" {
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
		if lines.Scan(); !strings.Contains(lines.Text(), want) {
			t.Errorf("%s: it says %q, want %s", shell, lines.Text(), want)
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: it ended with %v", shell, err)
		}
	}
}

// Listen hears what ends a program, and what else is asked for, until its context ends.
func TestListenHears(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1} {
		ctx, cancel := context.WithCancel(t.Context())
		heard := Listen(ctx, 1, syscall.SIGUSR1)
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-heard:
			if got != s {
				t.Errorf("heard %v, want %v", got, s)
			}
		case <-time.After(time.Minute):
			t.Errorf("%v is not heard", s)
		}
		cancel()
	}
}

func TestSignalsThatComeTogetherAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := make(chan os.Signal, 3)
		out := apart(t.Context(), in)
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 1}, {time.Millisecond, 1}, {Together - 2*time.Millisecond, 1}, {time.Millisecond, 2}, {time.Hour, 3}, {0, 3}} {
			time.Sleep(step.after)
			in <- syscall.SIGTERM
			synctest.Wait()
			if len(out) != step.want {
				t.Errorf("%v after the one before: %d signals, want %d", step.after, len(out), step.want)
			}
		}
		time.Sleep(time.Hour)
		in <- os.Interrupt // nobody takes them
		synctest.Wait()
		if <-out != syscall.SIGTERM || len(out) != 2 {
			t.Errorf("another signal, or %d left, want 2", len(out))
		}
	})
}
