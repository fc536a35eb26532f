//go:build unix

package seat

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

// busy returns the path of a program that is being written, which cannot be started for now.
func busy(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "command")
	written, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { written.Close() })
	if _, err := written.WriteString("#!/bin/sh\n"); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(path).Run(); !errors.Is(err, syscall.ETXTBSY) {
		t.Skipf("this system starts what is being written: %v", err)
	}
	return path
}

// What cannot be started for the moment is not told as what will never start, wherever the
// start fails: supervisors do not try that again.
func TestWhyACommandCannotBeStarted(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("no program\n"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.Symlink("loop", filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		filepath.Join(dir, "missing"):             ErrStart,
		"no-such-command-anywhere":                ErrStart,
		file("not-executable", 0o600):             ErrStart,
		file("no-program", 0o700):                 ErrStart,
		filepath.Join(dir, "loop"):                ErrStart,
		file("file", 0o700) + "/command":          ErrStart,
		dir + "/" + strings.Repeat("long", 1<<10): ErrStart,
		busy(t): errNotNow,
	} {
		for what, cfg := range map[string]Config{
			"command": {Command: []string{path}, Guard: []string{self, playGuard}},
			"guard":   {Command: []string{"true"}, Guard: []string{path, playGuard}},
		} {
			cfg.Out, cfg.Err = io.Discard, io.Discard
			c, err := start(cfg, os.Environ(), time.Second, func() time.Duration { return time.Hour }, func(*child, string) {})
			if err == nil {
				<-c.ended
				err = c.failed
			}
			if !errors.Is(err, want) || !strings.Contains(err.Error(), path) {
				t.Errorf("the %s is %s: %v, want %v", what, path, err, want)
			}
		}
	}
}

// A command with arguments that no system takes never starts, either.
func TestACommandWithTooManyArguments(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Command: []string{"true", strings.Repeat("x", 1<<23)}, Guard: []string{self, playGuard}, Out: io.Discard, Err: io.Discard}
	c, err := start(cfg, os.Environ(), time.Second, func() time.Duration { return time.Hour }, func(*child, string) {})
	if err == nil {
		<-c.ended
		err = c.failed
	}
	if !errors.Is(err, ErrStart) {
		t.Errorf("%v, want %v", err, ErrStart)
	}
}

// A command that cannot be started for the moment is waited with, and started when it can be.
func TestACommandThatStartsLater(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := busy(t)
	ended := make(chan error, 1)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	timing := transition.Timing{Lease: 2500 * time.Millisecond}
	out := make(tries, 64)
	go func() {
		ended <- Run(ctx, t.Context(), Config{
			Name: "crawler",
			Units: framework.UnitsConfig{
				Source: one{},
				Timing: timing,
				Control: func(layout partition.Config) (transition.Ledger, partition.Indexer, error) {
					return memledger.New(layout, timing, memledger.Options{}), nil, nil
				},
			},
			Command: []string{path}, Drain: time.Second, Out: io.Discard, Err: out, Guard: []string{self, playGuard},
		})
	}()
	var before time.Time
	for range 2 {
		select {
		case tr := <-out:
			if !strings.Contains(tr.said, "cannot be started now") || !strings.Contains(tr.said, "tried again") {
				t.Errorf("it says %q", tr.said)
			}
			if pause := tr.at.Sub(before); pause < patience/2 {
				t.Errorf("it is tried again after %v", pause)
			}
			before = tr.at
		case err := <-ended:
			t.Fatalf("it does not wait: %v", err)
		case <-time.After(30 * time.Second):
			t.Fatal("it is not tried")
		}
	}
	ready := filepath.Join(t.TempDir(), "ready")
	if err := os.WriteFile(ready, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(ready, path); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the command is not started")
	}
}

// one is a list of one unit.
type one struct{}

func (one) Layout(context.Context) (partition.Config, error) { return partition.Config{Total: 1}, nil }
func (one) Units(context.Context) ([]string, error)          { return []string{"unit"}, nil }

// tries takes in what is said, each time in one piece.
type tries chan tried

type tried struct {
	said string
	at   time.Time
}

func (c tries) Write(p []byte) (int, error) {
	c <- tried{string(p), time.Now()}
	return len(p), nil
}
