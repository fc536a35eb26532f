package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countoff/countoff/partition/redistest"
)

// program is where TestMain has built it: what a user runs is what is tested.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "scraper-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "scraper")
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "github.com/countoff/countoff/examples/scraper")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// run runs the program and returns what it printed and its code.
func run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// The demo ends by itself, its last line is its report, and its numbers hold: with peers that
// are killed and stand still, as processes, on a real server too, which it leaves as it was.
func TestDemo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sites")
	var sites []string
	for i := range 24 {
		sites = append(sites, fmt.Sprintf("site-%d", i))
	}
	if err := os.WriteFile(file, []byte(strings.Join(sites, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	server := redistest.Server(t)
	out, code := run(t, "--plain", "--json", "--lease", "3s", "--sites", file, "--redis", "redis://"+server.Addr())
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var report struct{ Sites, Visits, Handovers, Takeovers, Double int }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &report); err != nil {
		t.Fatalf("last line: %v\n%s", err, out)
	}
	if report.Sites != 26 || report.Double != 0 || report.Handovers == 0 || report.Takeovers == 0 || report.Visits < 200 {
		t.Errorf("%+v\n%s", report, out)
	}
	if left := server.Client().Keys(t.Context(), "*").Val(); len(left) != 0 {
		t.Errorf("it left %q", left)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--lease", "1s"},
		{"--lease", "0s"},
		{"extra"},
		{"work", "--name", "{no}"},
		{"work", "--every", "0s"},
		{"--sites", "no-such-file"},
		{"load"},
		{"load", "no-such-file"},
	} {
		if out, code := run(t, args...); code != 2 {
			t.Errorf("%v: code %d\n%s", args, code, out)
		}
	}
}

// All that is wrong is said at once, each thing once.
func TestUsageSaysAllThatIsWrong(t *testing.T) {
	for args, want := range map[string][]string{
		"work --name {no} --lease 1s --every 0s --id _ --redis http://x": {`name "{no}": `, "lease 1s is too short", "--every 0s: want", `peer id "_": `, `scheme "http"`},
		"work --lease 0s": {"--lease 0s: want more than 0"},
		"demo --lease -1s --sites no-such-file --redis http://x": {"--lease -1s: want", "no-such-file: ", `scheme "http"`},
		"load --name {no} --redis http://x no-such-file":         {`name "{no}": `, "no-such-file: ", `scheme "http"`},
	} {
		out, code := run(t, strings.Fields(args)...)
		if code != 2 || strings.Count(out, "\n") != len(want) {
			t.Errorf("%s: code %d, want 2 and %d lines:\n%s", args, code, len(want), out)
		}
		for _, says := range want {
			if strings.Count(out, says) != 1 {
				t.Errorf("%s does not say %q once:\n%s", args, says, out)
			}
		}
	}
}
