package redisclient_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx/fxtest"

	"github.com/countoff/countoff/framework/frameworkfx/internal/redisclient"
	"github.com/countoff/countoff/partition/redisconfig"
)

// Nothing is on stderr that is not the application's.
func TestAClientIsQuiet(t *testing.T) {
	const child = "COUNTOFF_TEST_QUIET"
	if os.Getenv(child) != "" {
		l := fxtest.NewLifecycle(t)
		clients, err := redisclient.Open(l, "redis://127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		l.RequireStart()
		defer l.RequireStop()
		if clients.Tasks.Ping(t.Context()).Err() == nil || clients.Control.Ping(t.Context()).Err() == nil {
			t.Fatal("somebody is there")
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$") // go-redis keeps to the stderr that the process began with
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "redis") {
		t.Errorf("%v: %q", err, out)
	}
}

// A Ring that the application provides is refused before anything is made with it: its Subscribe would end the program.
func TestARingIsRefused(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer single.Close()
	for want, given := range map[string]redisclient.Given{
		"mails: a *redis.Ring":             {Tasks: ring},
		"mails, the ledger: a *redis.Ring": {Tasks: single, Control: ring},
	} {
		if _, err := redisclient.Of(fxtest.NewLifecycle(t), "mails", "", given); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Nor is a nil client taken that an interface hides, as where a constructor returns early: the start would panic
// again and again.
func TestANilClientIsRefused(t *testing.T) {
	t.Parallel()
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer single.Close()
	for want, given := range map[string]redisclient.Given{
		"mails: the client is a nil *redis.Client":             {Tasks: (*redis.Client)(nil)},
		"mails, the ledger: the client is a nil *redis.Client": {Tasks: single, Control: (*redis.Client)(nil)},
	} {
		if _, err := redisclient.Of(fxtest.NewLifecycle(t), "mails", "", given); err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// That there is no client is said by who knows why, and not by all who were to have it as well.
func TestThatThereIsNoClientIsSaidOnce(t *testing.T) {
	why, other := errors.New("no URL"), fmt.Errorf("two reasons: %w, %w", errors.New("one"), errors.New("another"))
	none := fmt.Errorf("source: %w", redisconfig.ErrNoClient)
	for _, c := range []struct {
		errs []error
		want string
	}{
		{[]error{nil, nil}, ""},
		{[]error{why, none}, "no URL"},
		{[]error{why, nil, errors.Join(other, none), none}, "no URL\ntwo reasons: one, another"},
	} {
		got := ""
		if err := redisclient.Faults(c.errs...); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.errs, got, c.want)
		}
	}
}
