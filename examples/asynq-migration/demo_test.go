package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition/redistest"
)

// TestMain makes the test binary a peer where the demo starts itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "work" {
		main()
	}
	os.Exit(m.Run())
}

func TestTheDemoLosesNothingAndKeepsTheOrder(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out strings.Builder
	if err := demo(ctx, "", "accounts", &out); err != nil {
		t.Error(err)
	}
	t.Log("\n" + out.String())
	if strings.Count(out.String(), "400 steps: 0 lost") != 2 {
		t.Error("something was lost")
	}
}

// What an earlier demo has done is not counted again, and nothing of it stays on a store that is the user's.
func TestTwoDemosOnOneStore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server := redistest.Server(t)
	for range 2 {
		var out strings.Builder
		if err := demo(ctx, "redis://"+server.Addr(), "accounts", &out); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
		left := slices.DeleteFunc(server.Client().Keys(ctx, "*").Val(), func(key string) bool {
			// What asynq writes of its servers expires, and leaves its lists with the next look at them.
			return key == "asynq:servers" || key == "asynq:workers" || server.Client().TTL(ctx, key).Val() > 0
		})
		if len(left) != 0 {
			t.Errorf("it left %q", left)
		}
	}
}

// A demo that was killed takes its peers with it.
func TestThePeersDoNotOutliveTheDemo(t *testing.T) {
	server := redistest.Server(t)
	cmd := exec.Command(os.Args[0], "work", "--exit-with-stdin", "--redis", "redis://"+server.Addr())
	leash, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = leash.Close()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exit.Hard {
		t.Errorf("it ended with %v", err)
	}
}

// It says what it was told, and not what that cut off.
func TestADemoThatIsStopped(t *testing.T) {
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	if err := demo(ctx, "", "accounts", io.Discard); !errors.Is(err, stopped) {
		t.Errorf("it says %v", err)
	}
}

func TestWhatItEndsWith(t *testing.T) {
	for arg, want := range map[string]int{"--help": 0, "--nonsense": 2, "nonsense": 2, "--redis=redis://127.0.0.1:1": 3} {
		if code := run([]string{arg}); code != want {
			t.Errorf("%s ends with %d, want %d", arg, code, want)
		}
	}
}
