package command

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/sources/unitsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// Peers of work units take no tasks: one that is enqueued under their name would wait for ever.
func TestNoTaskForUnits(t *testing.T) {
	s := newShell(t)
	units, err := unitsource.New(s.client(), "crawler", unitsource.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := units.Layout(t.Context()); err != nil {
		t.Fatal(err)
	}
	if said := s.fails(exit.Config, "enqueue crawler", "x"); !strings.Contains(said, "SADD '{crawler}:units'") {
		t.Errorf("it says %q", said)
	}
}

// Where the peers of a name work on something else than lists in Redis, who enqueues is told that nobody
// reads them, and how to take it back.
func TestEnqueueWhereNobodyReads(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	client := s.client()
	s.run("init n --partitions 4")
	const told = "nobody reads what is put here"
	if out := s.run("enqueue n --key k", "before the peers"); strings.Contains(out, told) {
		t.Errorf("without peers it says %s", out)
	}
	l, err := redisledger.New(client, "n", redisledger.Config{Config: partition.Config{Total: 4}, Timing: transition.Timing{Lease: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sync(t.Context(), transition.Request{
		Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{0, 1, 2, 3},
	}); err != nil {
		t.Fatal(err)
	}
	out := s.run("enqueue n --id i --key k", "x")
	if !strings.Contains(out, told) || !strings.Contains(out, "{n:N}:pending") {
		t.Errorf("it says %s", out)
	}
	id := partition.Of("k", 4)
	if n := client.LLen(t.Context(), redissource.KeysOf("n", id).Pending).Val(); n != 2 {
		t.Errorf("%d tasks lie where it says", n)
	}
	if err := client.HSet(t.Context(), redissource.KeysOf("n", 2).Fence, "epoch", 1).Err(); err != nil {
		t.Fatal(err)
	}
	if out := s.run("enqueue n --key k", "y"); strings.Contains(out, told) {
		t.Errorf("where a list was opened it says %s", out)
	}
}

// Where nothing comes from stdin nothing is made: a slip of the pen leaves no name behind.
func TestNothingIsEnqueuedUnderANewName(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.stdin = ""
	if said := s.fails(exit.Usage, "enqueue slip"); !strings.Contains(said, "nothing came from stdin") {
		t.Errorf("it says %q", said)
	}
	s.run("enqueue slip --lines")
	if keys := s.client().Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("it left %q", keys)
	}
	s.stdin = "one\ntwo\n"
	if out := s.run("enqueue n --lines"); strings.Count(out, " partition ") != 2 || !strings.Contains(out, "n was new") {
		t.Errorf("of two lines it says %s", out)
	}
}

// A read from a terminal or a pipe that never ends does not keep it from ending.
func TestEnqueueIsToldToStop(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	for _, line := range []string{"enqueue n --lines", "enqueue n"} {
		stdin, w := io.Pipe()
		ctx, stop := context.WithCancel(t.Context())
		var out output
		cmd := s.command(&out, line)
		cmd.SetIn(stdin)
		done := make(chan error, 1)
		go func() { done <- cmd.ExecuteContext(ctx) }()
		fmt.Fprintln(w, "one")
		if strings.HasSuffix(line, "--lines") {
			wait(t, func() bool { return strings.Contains(out.String(), " partition ") })
		}
		stop()
		select {
		case err := <-done:
			if codeOf(err) != exit.Hard {
				t.Errorf("countoff %s: code %d, want %d: %v", line, codeOf(err), exit.Hard, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("countoff %s: still reads stdin", line)
		}
		w.Close()
	}
}

// Who asks for replicas where there are none is told so before anything is enqueued, and of lines that the master
// has and too few replicas not that they are there.
func TestEnqueueForReplicas(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	if said := s.fails(exit.Usage, "enqueue n x --replicas -1"); !strings.Contains(said, "--replicas -1: must not be negative") {
		t.Errorf("it says %q", said)
	}
	if said := s.fails(exit.Failed, "enqueue n x --replicas 1"); !strings.Contains(said, "Replicas 1: the server has 0 that answer") {
		t.Errorf("it says %q", said)
	}
	few := &redissource.ReplicasError{Want: 1}
	err := enqueueLines(strings.NewReader("a\nb\n"), func(payloads ...[]byte) ([]redissource.Result, error) {
		return []redissource.Result{{Err: few}}, few
	})
	if err == nil || !strings.HasPrefix(err.Error(), "in doubt: line 1; not enqueued: all after 1: the master has it, but only 0 of 1 replicas have") {
		t.Error(err)
	}
}
