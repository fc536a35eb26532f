//go:build unix

package seat

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// playGuard makes the test's own program a guard.
const playGuard = "run-guard"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == playGuard {
		os.Exit(Guard(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

// A trial is a child that has begun, and knows whether anything of it lives.
type trial struct {
	*child
	t     *testing.T
	left  atomic.Int64 // of the ownership, in nanoseconds
	heard chan string
	held  *os.File // open for writing in the command and in what it starts
}

// try starts a child whose command is script, which must not end before it is told to.
func try(t *testing.T, grace time.Duration, script string) *trial {
	t.Helper()
	path := filepath.Join(t.TempDir(), "held")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &trial{t: t, heard: make(chan string, 16), held: held}
	r.left.Store(int64(time.Hour))
	cfg := Config{
		Command: []string{"sh", "-c", "exec 9>'" + path + "'; " + script},
		Drain:   time.Hour, Out: os.Stderr, Err: os.Stderr, Guard: []string{self, playGuard},
	}
	validFor := func() time.Duration { return time.Duration(r.left.Load()) }
	r.child, err = start(cfg, os.Environ(), grace, validFor, func(_ *child, text string) { r.heard <- text })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) // fails if it has ended
		<-r.ended
	})
	r.says("begun")
	return r
}

func (r *trial) says(want string) {
	r.t.Helper()
	select {
	case got := <-r.heard:
		if got != want {
			r.t.Fatalf("the command says %q, want %q", got, want)
		}
	case <-time.After(20 * time.Second):
		r.t.Fatalf("the command does not say %q", want)
	}
}

// stopGuard makes the guard stand still, until it is killed.
func (r *trial) stopGuard() {
	r.t.Helper()
	if err := syscall.Kill(r.cmd.Process.Pid, syscall.SIGSTOP); err != nil {
		r.t.Fatal(err)
	}
}

// ends waits until the child has ended, with all that its command has started.
func (r *trial) ends() {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(20 * time.Second):
		r.t.Fatal("it does not end")
	}
	if err := r.held.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	if _, err := io.ReadAll(r.held); errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Fatal("something that the command has started goes on")
	} else if err != nil {
		r.t.Fatal(err)
	}
}

// deaf is a command that goes on, with all that it starts, until it is killed.
const deaf = `trap '' TERM; echo begun >&3; while :; do sleep 1000; done`

// A guard that stands still ends nothing, and whoever waits for the end of the command would
// wait for ever: its peer does what the guard owes.
func TestAGuardThatStandsStill(t *testing.T) {
	for what, over := range map[string]func(*trial){
		"the command has to end": func(r *trial) { r.end(50*time.Millisecond, "") },
		"nothing is owned":       func(r *trial) { r.free(50 * time.Millisecond) },
		"the ownership runs out": func(r *trial) {
			r.left.Store(1)
			r.live()
			r.left.Store(0)
			r.live()
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := try(t, 50*time.Millisecond, deaf)
			r.stopGuard()
			over(r)
			r.ends()
			if !r.late {
				t.Error("nothing tells that it was the peer")
			}
		})
	}
}

// A peer speaks to its guard for as long as it lives, also while that stands still: it neither
// waits for it nor keeps all that it has said.
func TestAGuardThatDoesNotRead(t *testing.T) {
	r := try(t, time.Second, deaf)
	r.stopGuard()
	said := make(chan struct{})
	go func() {
		for range 10_000 { // more than a pipe holds
			r.live()
			r.notify(syscall.SIGHUP)
		}
		close(said)
	}()
	select {
	case <-said:
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for the guard")
	}
	r.orders.mu.Lock()
	defer r.orders.mu.Unlock()
	if n := len(r.orders.lines); n > 2 {
		t.Errorf("%d orders wait, want one of a kind", n)
	}
}

// What the keys of a terminal and the terminal itself send to the group of the command neither
// stops the guard nor ends it.
func TestTheGuardIsNotStoppedWithItsCommand(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGTSTP, syscall.SIGQUIT} {
		t.Run(s.String(), func(t *testing.T) {
			r := try(t, time.Second, `trap '' TTIN TTOU TSTP QUIT; trap 'echo told >&3; exit 7' TERM; echo begun >&3; while :; do sleep 0.02; done`)
			if err := syscall.Kill(-r.cmd.Process.Pid, s); err != nil {
				t.Fatal(err)
			}
			r.end(20*time.Second, "")
			r.says("told")
			r.ends()
			if r.code != 7 {
				t.Errorf("it ended with %d", r.code)
			}
		})
	}
}

// A guard that kills its command, and itself with that, has said before that it has to end: it
// was not killed by somebody else.
func TestAGuardSaysWhomItKills(t *testing.T) {
	r := try(t, time.Second, deaf)
	r.orders.put(order{orderEnd, int64(50 * time.Millisecond)}.String()) // as where its own clock says so
	r.ends()
	if r.code >= 0 || !r.asked() {
		t.Errorf("it ended with %d, asked for: %t", r.code, r.asked())
	}
}

// A command that writes whatever it likes stops nobody from hearing what comes after it: the
// guard, too, would wait for room in the pipe, and nothing would be handed over any more.
func TestListenReadsOn(t *testing.T) {
	in := strings.NewReader("released 1:s a\n" + strings.Repeat("x", 3<<20) + "\n\nreleased 1:s b\r\nguard ended")
	var heard []string
	listen(in, func(line string) { heard = append(heard, line) })
	if want := []string{"released 1:s a", "", "released 1:s b\r", "guard ended"}; !slices.Equal(heard, want) {
		t.Errorf("heard %.200q", heard)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("%d bytes were not read: %v", len(rest), err)
	}
}

// Where the clock that the processes have in common is the wall clock, it may be set: what an
// earlier order said must not let the command live on by as much.
func TestGuardWhenTheSharedClockIsSet(t *testing.T) {
	own, shared := time.Duration(0), 1000*time.Hour
	g := &guard{clock: func(time.Time) time.Duration { return own }, shared: func() time.Duration { return shared }}
	until := func(d time.Duration) { g.obey(order{orderUntil, int64(shared + d)}) }
	until(10 * time.Second)
	shared -= time.Hour
	own += 5 * time.Second
	until(10 * time.Second)
	if g.until != own+10*time.Second {
		t.Errorf("set back: the ownership stands for %v, want 10s", g.until-own)
	}
	until(time.Second) // said earlier than what was heard before
	if g.until != own+10*time.Second {
		t.Errorf("an earlier instant counts: %v", g.until-own)
	}
}

// What the guard knew of may run out between the end of the ownership and the word of it: the
// command has its time all the same, unless its peer is in a hurry then.
func TestGuardWhenNothingIsOwnedAnyMore(t *testing.T) {
	own := time.Hour
	g := &guard{clock: func(time.Time) time.Duration { return own }, until: own, killAt: own + time.Second}
	own += time.Millisecond
	g.obey(order{orderFree, int64(20 * time.Second)})
	if want := own + 20*time.Second; g.killAt != want || g.until <= want {
		t.Errorf("killed at %v, owned until %v, now is %v", g.killAt, g.until, own)
	}
	g.obey(order{orderEnd, int64(time.Second)})
	if want := own + time.Second; g.killAt != want {
		t.Errorf("in a hurry: killed at %v, now is %v", g.killAt, own)
	}
}

// countoff run inside the command of another countoff run: what is left out as too long is not
// that of the outer one.
func TestUnitsOfAnOuterRunAreNotHandedOn(t *testing.T) {
	t.Setenv(unitsVariable, "of the outer run")
	t.Setenv(tokensVariable, "of the outer run")
	var many []framework.Unit
	for i := range 5000 {
		many = append(many, framework.Unit{Name: fmt.Sprintf("https://example.org/a/long/path/%05d", i), Token: partition.Token{Epoch: 1, Session: "s"}})
	}
	for _, units := range [][]framework.Unit{nil, many[:1], many} {
		for _, v := range environment("inner", 0, 1, units) {
			if strings.Contains(v, "of the outer run") {
				t.Errorf("with %d units its command finds %s", len(units), v)
			}
		}
	}
}

// Anybody may write the list of units: what is said of one moves no cursor.
func TestAUnitIsNotObeyedByTheTerminal(t *testing.T) {
	var said strings.Builder
	c := &child{cfg: Config{Err: &said}, orders: newQueue(), clock: transition.NewClock(), until: never, killAt: never}
	c.end(time.Hour, "köln\x1b[2J was not released within 1s")
	if want := "countoff run: the command has to end: köln\ufffd[2J was not released within 1s\n"; said.String() != want {
		t.Errorf("it says %q, want %q", said.String(), want)
	}
}
