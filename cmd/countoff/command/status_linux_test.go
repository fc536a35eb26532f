package command

import (
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
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 50}); err != nil {
		t.Skip(err)
	}
	t.Setenv("TERM", "xterm")
	s := newShell(t)
	s.run("init n --partitions 128")
	was := os.Stdout
	defer func() { os.Stdout = was }()
	os.Stdout = terminal
	if out := s.run("status n"); !strings.Contains(out, "\n    32  ") {
		t.Errorf("it shows\n%s", out)
	}
}
