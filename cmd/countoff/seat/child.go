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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/transition"
)

// A child is a command under its guard.
type child struct {
	cfg      Config
	grace    time.Duration // what the command has to end in when the ownership is lost
	validFor func() time.Duration
	clock    transition.Clock
	cmd      *exec.Cmd // the guard
	input    *queue    // to the command
	orders   *queue    // to the guard; see guard.go
	ended    chan struct{}
	code     int   // of the command; read it after ended
	failed   error // it could not be started

	mu      sync.Mutex
	ordered bool      // it was told to end
	guarded bool      // its guard has told it to end, of its own accord or as it was told
	awaited int       // units that it was told to release, and has not
	poked   time.Time // when it was last signalled, because a unit left or came

	// What the guard knows, by clock.
	until  time.Duration // the ownership stands
	killAt time.Duration // the command is to be dead
	last   *time.Timer   // of standIn; nil: the guard has ended
	late   bool          // standIn had to kill the command
}

// never is later than anything that happens.
const never = time.Duration(math.MaxInt64 / 2)

// errNotNow means that the command could not be started, and may be another time.
var errNotNow = errors.New("the command cannot be started now")

// lasting reports whether a start that failed with err would fail again: there is no such
// command, or the system takes neither its path nor its arguments. Anything else may pass: a
// file that is being written, a machine without memory, processes or descriptors to spare.
func lasting(err error) bool {
	return slices.ContainsFunc([]error{
		exec.ErrNotFound, syscall.ENOENT, syscall.EACCES, syscall.ENOEXEC,
		syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.E2BIG,
	}, func(is error) bool { return errors.Is(err, is) })
}

func startFault(err error) error {
	if lasting(err) {
		return fmt.Errorf("%w: %w", ErrStart, err)
	}
	return fmt.Errorf("%w: %w", errNotNow, err)
}

// start starts a command. The error is ErrStart or errNotNow.
func start(cfg Config, env []string, grace time.Duration, validFor func() time.Duration, heard func(*child, string)) (*child, error) {
	c := &child{
		cfg: cfg, grace: grace, validFor: validFor, clock: transition.NewClock(),
		input: newQueue(), orders: newQueue(), ended: make(chan struct{}), until: never, killAt: never,
	}
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	input, in, err := os.Pipe()
	if err != nil {
		return nil, startFault(err)
	}
	files = append(files, input)
	answers, answer, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, startFault(err)
	}
	files = append(files, answer)
	orders, control, err := os.Pipe()
	if err != nil {
		in.Close()
		answers.Close()
		return nil, startFault(err)
	}
	files = append(files, orders)

	args := append(append(cfg.Guard[1:len(cfg.Guard):len(cfg.Guard)], grace.String(), "--"), cfg.Command...)
	c.cmd = exec.Command(cfg.Guard[0], args...)
	c.cmd.Env = env
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = input, cfg.Out, cfg.Err
	c.cmd.ExtraFiles = []*os.File{answer, orders}
	c.cmd.WaitDelay = time.Second // something that the command has left behind may hold its output
	// A group of its own: what the command starts can be ended with it, and the keys of a
	// terminal speak to the peer alone.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		in.Close()
		answers.Close()
		control.Close()
		return nil, startFault(err)
	}
	c.last = time.AfterFunc(never, c.standIn)
	c.live()
	var all sync.WaitGroup
	all.Go(func() { c.input.write(in) })
	all.Go(func() { c.orders.write(control) })
	all.Go(func() { listen(answers, func(text string) { c.hear(text, heard) }) })
	go func() {
		c.wait(in, control, answers, &all)
		close(c.ended)
	}()
	return c, nil
}

// hear takes in a line that the guard has written, and passes on one of the command's.
func (c *child) hear(text string, heard func(*child, string)) {
	switch said, why, _ := strings.Cut(text, ": "); said {
	case saidNoStart:
		c.failed = fmt.Errorf("%w: %s", ErrStart, why)
	case saidNotNow:
		c.failed = fmt.Errorf("%w: %s", errNotNow, why)
	case saidEnded:
		c.mu.Lock()
		c.guarded = true
		c.mu.Unlock()
	default:
		heard(c, text)
	}
}

// wait waits for the end of the guard, then for that of all who use its pipes, and closes these.
func (c *child) wait(in, control, answers *os.File, all *sync.WaitGroup) {
	err := c.cmd.Wait()
	// Whatever the command has left behind is not to go on.
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	c.mu.Lock()
	c.last.Stop()
	c.last = nil
	c.mu.Unlock()
	c.input.close()
	c.orders.close()
	in.Close() // frees the writer, if nobody reads
	control.Close()
	_ = answers.SetReadDeadline(time.Now().Add(time.Second)) // it ends by itself, unless somebody has left the group
	all.Wait()
	answers.Close()
	c.code = c.cmd.ProcessState.ExitCode()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		c.failed = err
	}
}

// mostLine is more than any answer is long: a word, a token and a unit.
const mostLine = 1 << 17

// listen passes on each line of r until it ends. It reads on whatever it is told, and leaves out
// what is longer than an answer: the guard speaks on the same pipe, and would wait for room in it.
func listen(r io.Reader, heard func(string)) {
	in := bufio.NewReaderSize(r, mostLine)
	long := false // what is read is the rest of a line that is left out
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			long = true
			continue
		case len(line) > 0 && !long:
			heard(strings.TrimSuffix(string(line), "\n"))
		}
		if err != nil {
			return
		}
		long = false
	}
}

// say puts a line on the command's input. It does not wait for a command that does not read.
func (c *child) say(text string) { c.input.put(text) }

// live lets the guard know until when the ownership stands.
func (c *child) live() {
	now, at := bootNow(), c.clock(time.Now()) // before what is left is asked for
	left := c.validFor()
	c.mu.Lock()
	c.lapse()
	if left > 0 {
		c.until = at + left
	}
	c.rearm()
	c.mu.Unlock()
	if left > 0 {
		c.orders.instead(order{orderUntil, (now + left).Nanoseconds()})
	}
}

// notify signals the command.
func (c *child) notify(s os.Signal) {
	n, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	c.mu.Lock()
	c.poked = time.Now()
	c.mu.Unlock()
	c.orders.instead(order{orderSignal, int64(n)})
}

// end asks the command to end, and ends it after grace. why is said, if it is said at all.
func (c *child) end(grace time.Duration, why string) {
	c.orders.put(order{orderEnd, grace.Nanoseconds()}.String())
	c.mu.Lock()
	news := !c.ordered
	c.ordered = true
	c.killAt = min(c.killAt, c.clock(time.Now())+grace)
	c.rearm()
	c.mu.Unlock()
	if news && why != "" {
		fmt.Fprintf(c.cfg.Err, "countoff run: the command has to end: %s\n", partitionmap.Printable(why))
	}
}

// free is the end of a command whose peer owns nothing any more: no lease is left that could
// run out before grace.
func (c *child) free(grace time.Duration) {
	c.orders.put(order{orderFree, grace.Nanoseconds()}.String())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ordered = true
	c.until, c.killAt = never, c.clock(time.Now())+grace
	c.rearm()
}

// lapse notes that the ownership has run out, as far as the guard knows. The caller holds mu.
func (c *child) lapse() {
	if now := c.clock(time.Now()); now >= c.until {
		c.until, c.killAt = never, min(c.killAt, now+c.grace)
	}
}

// overdue is when the peer kills the command in the guard's place: after the guard should have,
// and before the cancel grace is over. The caller holds mu.
func (c *child) overdue() time.Duration { return c.killAt + c.grace/2 }

// rearm sets the timer of standIn. The caller holds mu.
func (c *child) rearm() {
	if c.last != nil {
		c.last.Reset(min(c.until, c.overdue()) - c.clock(time.Now()))
	}
}

// standIn kills the command if its guard should have: that may stand still. Then nobody else
// ends the command; this peer waits for its end, and when the lease has run out the next owner
// does not.
func (c *child) standIn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		return // the timer ran out as the guard ended
	}
	c.lapse()
	if c.clock(time.Now()) < c.overdue() {
		c.rearm()
		return
	}
	c.late = true
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
}

// await says that the command has n more units to release.
func (c *child) await(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaited += n
}

// asked reports whether the command, which has ended, did so because it was told to.
func (c *child) asked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ordered || c.guarded || c.late || c.awaited > 0
}

// unguarded is why a command ended whose guard was killed: it died with that, or did it, as
// kill -9 0 does. Nil: its guard was not.
func (c *child) unguarded() error {
	if c.code >= 0 {
		return nil
	}
	return fmt.Errorf("the guard of the command was killed, and the command with it (%v)", c.cmd.ProcessState)
}

// mistook reports whether the command, which has ended, may have taken its signal for the
// order to end: many do, if only because a signal ends what they read from. That it had
// released already what was to leave changes nothing.
func (c *child) mistook() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.poked.IsZero() && time.Since(c.poked) < c.cfg.Drain
}

// signalled is the code of a command that its signal has ended; -1: there is none.
func (c *child) signalled() int {
	if n, ok := c.cfg.Signal.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return -1
}
