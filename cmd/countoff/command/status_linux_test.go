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
