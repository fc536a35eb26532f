//go:build unix

package seat

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/countoff/countoff/transition"
)

// What the peer tells the guard, one a line.
const (
	orderUntil  = "until"  // until NANOSECONDS: the ownership stands until then, by bootNow
	orderSignal = "signal" // signal NUMBER: to the command
	orderEnd    = "end"    // end NANOSECONDS: the command has this long to end
	orderFree   = "free"   // free NANOSECONDS: as end, and nothing is owned any more that could be lost meanwhile
)

// What the guard says where the command answers.
const (
	saidNoStart = "guard nostart" // guard nostart: WHY; there is no such command
	saidNotNow  = "guard notnow"  // guard notnow: WHY; the command may start later
	saidEnded   = "guard ended"   // the command has to end
)

// codeStart is the code of a guard that could not start its command.
const codeStart = 126

const (
	answerFD  = 3 // the command's, for its answers
	controlFD = 4 // where orders come from; the end of it is the end of the peer
)

// An order of the peer.
type order struct {
	word   string
	number int64
}

func (o order) String() string { return fmt.Sprintf("%s %d", o.word, o.number) }

// Guard is the life of a guard, in a process of its own: args are the cancel grace, "--" and
// the command. It returns the code to end with.
//
// Nobody but the guard knows when the command has to end if the peer cannot say so: when the
// peer is gone, or has not said for too long that it still owns what the command works on.
func Guard(args []string) int {
	if len(args) < 3 || args[1] != "--" {
		fmt.Fprintln(os.Stderr, "countoff run: the guard is started by countoff run")
		return codeStart
	}
	grace, err := time.ParseDuration(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "countoff run:", err)
		return codeStart
	}
	// Caught and not ignored: what is ignored would be ignored by the command, too. A command
	// that reads from its terminal stops its whole group, but not who is to end it.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE,
		syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGTSTP)
	answer := os.NewFile(answerFD, "answers")
	syscall.CloseOnExec(answerFD)
	runtime.LockOSThread() // the command dies with the thread that started it: this one
	defer runtime.UnlockOSThread()
	syscall.CloseOnExec(controlFD)
	orders := make(chan order, 16)
	go read(os.NewFile(controlFD, "control"), orders)
	first, ok := <-orders
	if !ok || first.word != orderUntil {
		return codeStart // the peer is gone already
	}
	cmd := exec.Command(args[2], args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{answer}
	cmd.SysProcAttr = dieWithGuard()
	if err := cmd.Start(); err != nil {
		said := saidNotNow
		if lasting(err) {
			said = saidNoStart
		}
		fmt.Fprintf(answer, "%s: %v\n", said, err)
		return codeStart
	}
	os.Stdin.Close() // the command alone reads it: the peer is to learn when nobody does
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	g := &guard{cmd: cmd, grace: grace, answer: answer, told: make(chan struct{}), clock: transition.NewClock(), shared: bootNow}
	g.obey(first)
	code := g.watch(orders, ended)
	if g.killAt > 0 {
		<-g.told
	}
	if g.alone {
		_ = syscall.Kill(-syscall.Getpgrp(), syscall.SIGKILL) // the peer would do so
	}
	return code
}

type guard struct {
	cmd    *exec.Cmd
	grace  time.Duration
	answer io.Writer
	told   chan struct{}        // closed when the peer was told that the command has to end
	clock  transition.Clock     // its own, which never goes back
	shared func() time.Duration // bootNow, by which the peer speaks
	until  time.Duration        // the ownership stands
	killAt time.Duration        // the command is to be dead; 0: it may live
	alone  bool                 // the peer is gone
}

// glance is how often the clock is looked at, at least: timers stand still while the machine
// is suspended.
const glance = 100 * time.Millisecond

func (g *guard) watch(orders <-chan order, ended <-chan error) int {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case o, ok := <-orders:
			if !ok {
				orders, g.alone = nil, true
				g.end(g.grace)
				continue
			}
			g.obey(o)
		case <-timer.C:
		case err := <-ended:
			return codeOf(err)
		}
		now := g.clock(time.Now())
		if now >= g.until {
			g.end(g.grace)
		}
		if g.killAt > 0 && now >= g.killAt {
			g.kill()
		}
		next := min(g.until-now, glance)
		if g.killAt > 0 {
			next = min(g.killAt-now, glance)
		}
		timer.Reset(max(next, time.Millisecond))
	}
}

func (g *guard) obey(o order) {
	switch o.word {
	case orderUntil:
		now := g.clock(time.Now()) // before what is left is asked for
		g.until = max(g.until, now+time.Duration(o.number)-g.shared())
	case orderSignal:
		_ = g.cmd.Process.Signal(syscall.Signal(o.number)) // fails if it has ended
	case orderEnd:
		g.end(time.Duration(o.number))
	case orderFree:
		g.until = math.MaxInt64
		g.end(time.Duration(o.number))
		g.killAt = g.clock(time.Now()) + time.Duration(o.number) // also where the ownership that it knew of was over by then
	}
}

// end asks the command, and what it has started, to end within grace.
func (g *guard) end(grace time.Duration) {
	at := g.clock(time.Now()) + grace
	if g.killAt == 0 {
		_ = syscall.Kill(-syscall.Getpgrp(), syscall.SIGTERM) // which this process ignores
		g.killAt = at
		go g.tell()
	}
	g.killAt = min(g.killAt, at)
}

// tell tells the peer that the command has to end: before that is killed, since nobody is left
// to say so then. A peer that does not read is not waited for.
func (g *guard) tell() {
	fmt.Fprintln(g.answer, saidEnded)
	close(g.told)
}

// kill ends the command, with everything that it has started and this process: nobody is left
// to hear what code it had.
func (g *guard) kill() {
	_ = g.cmd.Process.Kill()
	_ = syscall.Kill(-syscall.Getpgrp(), syscall.SIGKILL)
}

// codeOf is the code of a command that has ended.
func codeOf(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal())
		}
		return exit.ExitCode()
	}
	if err != nil {
		return 1
	}
	return 0
}

// read passes the orders on until the peer is gone.
func read(f *os.File, orders chan<- order) {
	defer close(orders)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		word, number, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			orders <- order{word, n}
		}
	}
}
