//go:build unix

package seat

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What a health command says is copied as os/exec copies it: by what the buffer can do best.
func TestTailKeepsLittle(t *testing.T) {
	var said tail
	in := strings.NewReader(strings.Repeat("x\n", 1<<20) + "the last\n\n")
	if _, err := io.Copy(&said, struct{ io.Reader }{in}); err != nil {
		t.Fatal(err)
	}
	if said.line() != "the last" || len(said.kept) > mostSaid {
		t.Errorf("%d bytes are kept, the last line is %.100q", len(said.kept), said.line())
	}
}

// A health command that leaves something behind is as well as it says, and what it leaves ends.
func TestHealthCommandThatLeavesSomethingBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "held")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	p := newProbe("crawler", Health{Command: "{ echo >" + path + "; sleep 1000; } 3>" + path + " & exit 0", Timeout: time.Minute})
	if err := p.once(t.Context()); err != nil {
		t.Errorf("it ended with 0, and is not well: %v", err)
	}
	if err := held.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(held); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("what it left behind goes on")
	} else if err != nil {
		t.Error(err)
	}
}
