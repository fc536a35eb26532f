package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/examples/internal/cast"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
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

// What is another's stays, also of a demo whose name begins as this one's, or ends so.
func TestItRemovesOnlyItsOwn(t *testing.T) {
	ctx, server := t.Context(), redistest.Server(t)
	store, err := cast.Open(ctx, "redis://"+server.Addr(), "", "accounts", partition.Config{Total: queues})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(ctx, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	}()
	keys := func(name string) []string {
		return []string{
			"asynq:{" + name + "-plain}:pending", "asynq:{" + name + ":0}:t:1", "{" + name + ":0}:fence",
			journal(name) + account(0), journal(name+"-plain") + account(0),
		}
	}
	theirs := slices.Concat(keys(store.Name+"1"), keys("my-"+store.Name), keys("of"+store.Name+"x"))
	for _, key := range slices.Concat(theirs, keys(store.Name)) {
		store.Client.Set(ctx, key, "x", 0)
	}
	if err := raze(ctx, store); err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(store.Client.Keys(ctx, "*").Val(), func(key string) bool { return strings.HasPrefix(key, "{"+store.Name+"}") })
	slices.Sort(left)
	slices.Sort(theirs)
	if !slices.Equal(left, theirs) {
		t.Errorf("it left %q, want %q", left, theirs)
	}
}

// A demo that is stopped says what it could not remove.
func TestAStoppedDemoSaysWhatItLeft(t *testing.T) {
	server, stopped := redistest.Server(t), errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := demo(ctx, "redis://"+server.Addr(), "accounts", writer(func([]byte) {
		cancel(stopped)
		server.Kill()
	}))
	if !errors.Is(err, stopped) || !strings.Contains(err.Error(), "was left on the store") {
		t.Fatalf("it says %v", err)
	}
	if says := err.Error(); !strings.Contains(says, "| xargs redis-cli UNLINK") || !regexp.MustCompile(`SREM asynq:queues \S+-plain \S+:0 .*:7$`).MatchString(says) {
		t.Errorf("what to do about asynq's queues it does not say: %v", err) // countoff destroy leaves them
	}
}

// A writer is told what is written.
type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
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
