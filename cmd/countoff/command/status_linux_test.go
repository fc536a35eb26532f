package command

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The rows of the map fit into a terminal that is narrow.
func TestStatusOnANarrowTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	t.Setenv("TERM", "xterm")
	s := newShell(t)
	s.run("init n --partitions 128")
	was := os.Stdout
	defer func() { os.Stdout = was }()
	os.Stdout = terminal
	for want, size := range map[string]unix.Winsize{"\n    32  ": {Row: 24, Col: 50}, "\n    16  ": {Row: 5, Col: 30}} {
		if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &size); err != nil {
			t.Skip(err)
		}
		if out := s.run("status n"); !strings.Contains(out, want) {
			t.Errorf("with %d columns it shows\n%s", size.Col, out)
		}
	}
}

// pty returns both ends of a terminal of 24 rows.
func pty(t *testing.T) (master, terminal *os.File) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	terminal, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { terminal.Close() })
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}); err != nil {
		t.Skip(err)
	}
	return master, terminal
}

// Who watches while the store goes away wants to know what it was like: what stands there stays, and the error above it.
func TestWatchKeepsWhatItSaw(t *testing.T) {
	master, terminal := pty(t)
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	s := newShell(t)
	s.run("init n --partitions 8")
	var silent silence
	s.url = "redis://" + through(t, strings.TrimPrefix(s.url, "redis://"), &silent)
	was := os.Stdout
	defer func() { os.Stdout = was }()
	os.Stdout = terminal
	var screen output
	read := make(chan struct{})
	go func() { // until the terminal is closed
		defer close(read)
		for b := make([]byte, 4096); ; {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			_, _ = screen.Write(b[:n])
		}
	}()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.start(ctx, &output{}, "watch n --every 100ms --timeout 1s") }()
	wait(t, func() bool { return strings.Contains(screen.String(), "8 partitions") })
	silent.Store(true)
	wait(t, func() bool {
		_, behind, failed := strings.Cut(screen.String(), "deadline exceeded")
		_, picture, kept := strings.Cut(behind, "ago:")
		return failed && kept && strings.Contains(picture, "8 partitions")
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	terminal.Close()
	<-read
}

// Who gives no payload and has no pipe would wait for a prompt.
func TestEnqueueSaysThatItReadsATerminal(t *testing.T) {
	master, terminal := pty(t)
	s := newShell(t)
	s.run("init n --partitions 1")
	var out output
	cmd := s.command(&out, "enqueue n")
	cmd.SetIn(terminal)
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(t.Context()) }()
	wait(t, func() bool {
		return strings.Contains(out.String(), "reads the payload from this terminal: Ctrl-D ends it")
	})
	if _, err := master.WriteString("x\n\x04"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || !strings.Contains(out.String(), "partition 0") {
		t.Errorf("%v: %s", err, out.String())
	}
}
