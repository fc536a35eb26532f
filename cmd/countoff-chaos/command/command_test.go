package command

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/cmd/countoff-chaos/peer"
	"github.com/countoff/countoff/cmd/countoff-chaos/play"
)

// TestMain lets this test be the peers that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == peerCommand || os.Args[1] == busyCommand) {
		os.Exit(Main(nil))
	}
	os.Exit(m.Run())
}

// chaos runs the program and returns its last line.
func chaos(t *testing.T, args ...string) play.Summary {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server in PATH: install it, as in: apt-get install redis-server")
	}
	t.Setenv("TMPDIR", t.TempDir())
	var out, errs strings.Builder
	code := run(t.Context(), nil, append([]string{"--json", "--keep"}, args...), &out, &errs)
	var sum play.Summary
	if err := json.Unmarshal([]byte(strings.TrimSpace(out.String())), &sum); err != nil {
		t.Fatalf("exit code %d, last line %q: %v\n%s", code, out.String(), err, errs.String())
	}
	if code != 0 || !sum.OK {
		t.Errorf("exit code %d: %s\n%s", code, out.String(), errs.String())
	}
	if sum.Completed == 0 || sum.Faults == 0 {
		t.Errorf("nothing happened: %s", out.String())
	}
	return sum
}

// TestShort is the short form: a few of the faults that need the least time.
func TestShort(t *testing.T) {
	chaos(t, "--faults", "6", "--peers", "4", "--partitions", "16", "--rate", "80", "--seed", "3", "--only", "kill,term,cut-data,blink,restart")
}

// TestTwoHundredKills holds the bound of the takeover: it takes some two minutes, and
// runs only if it is asked for: make chaos-kills.
func TestTwoHundredKills(t *testing.T) {
	if os.Getenv("COUNTOFF_CHAOS") == "" {
		t.Skip("it takes some two minutes: set COUNTOFF_CHAOS=1")
	}
	sum := chaos(t, "--only", play.Kill, "--faults", "200", "--peers", "12")
	bound := peer.Timing(3 * time.Second).WithDefaults().Takeover()
	if got := time.Duration(sum.TakeoverMaxMS) * time.Millisecond; sum.Faults != 200 || got > bound {
		t.Errorf("%d kills, worst takeover %v: the bound is %v", sum.Faults, got, bound)
	}
	t.Logf("200 kills: worst takeover %d ms, bound %v", sum.TakeoverMaxMS, bound)
}

func TestFlags(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, args := range [][]string{
		{"--only", "kill,earthquake"}, {"--peers", "0"}, {"--lease", "1s"}, {"extra"}, {"--rate", "-1"}, {"--barrier", "--indexer", "interval"}, {"--only", "ledger-pause"}, {"--nonsense"},
		{"--faults", "0"}, {"--duration", "-1s"}, {"--report", filepath.Join(t.TempDir(), "none", "report.md")},
	} {
		var out, errs strings.Builder
		// With nothing left to run, who has not been refused by then has begun.
		if code := run(ended, nil, args, &out, &errs); code != 2 || strings.Contains(errs.String(), "journals and logs") {
			t.Errorf("%q: exit code %d, want 2\n%s", args, code, errs.String())
		}
		if errs.Len() == 0 {
			t.Errorf("%q: not a word why", args)
		}
	}
	o, err := parse(false, nil, os.Stderr)
	if err != nil || o.Seed == 0 || len(o.Kinds) != len(play.KindsOf(false)) {
		t.Errorf("defaults: %+v, %v", o, err)
	}
	// A short lease is refused with the least that is legal.
	if _, err := parse(false, []string{"--lease", "1s"}, os.Stderr); err == nil || errors.Unwrap(err) != nil && !strings.Contains(err.Error(), "least") {
		t.Errorf("a lease of 1 s: %v", err)
	}
}
