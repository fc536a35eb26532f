package command

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/countoff/countoff/framework/program/exit"
)

// jammed takes the first so many writes.
type jammed struct {
	room int
	err  error
}

func (f *jammed) Write(p []byte) (int, error) {
	if f.room--; f.room < 0 {
		return 0, &fs.PathError{Op: "write", Path: "/dev/stdout", Err: f.err}
	}
	return len(p), nil
}

// What could not be printed is a failure of the command, if nobody has had enough of it: then
// nothing is said.
func TestOutputThatIsNotTaken(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 4")
	s.run("index n --id ann --lease 2500ms") // what history tells of
	for _, line := range []string{
		"status n", "status n --json", "history n", "history n --json", "explain n key", "explain n key --json", "plan n --peers 2", "plan n --peers 2 --json", "watch n", "dashboard --listen 127.0.0.1:0",
		"index n --lease 2500ms", "index n --follow --lease 2500ms", "doctor n", "doctor n --json", "require n", "dead list n", "delayed list n", "tasks n", "tasks n --by key", "init n --partitions 4", "version",
	} {
		for _, c := range []struct {
			why  error
			code int
			says string
		}{
			{syscall.ENOSPC, exit.Failed, "not all of the output was written: write /dev/stdout: no space left on device"},
			{syscall.EPIPE, 141, ""},
		} {
			cmd := s.command(&output{}, line)
			cmd.SetOut(&jammed{err: c.why})
			err := cmd.ExecuteContext(t.Context())
			if code := codeOf(err); code != c.code {
				t.Errorf("countoff %s, %v: code %d, want %d: %v", line, c.why, code, c.code, err)
			}
			if said := errors.Is(err, exit.ErrSaid); said != (c.says == "") || err != nil && !said && err.Error() != c.says {
				t.Errorf("countoff %s, %v: it says %v", line, c.why, err)
			}
		}
	}
	cmd := s.command(&output{}, "history n")
	cmd.SetOut(&jammed{room: 1, err: syscall.ENOSPC})
	if err := cmd.ExecuteContext(t.Context()); codeOf(err) != exit.Failed {
		t.Errorf("of which the first line was taken: %v", err)
	}
}

// What else is wrong is said beside it.
func TestOutputThatIsNotTakenBesideAnError(t *testing.T) {
	p := &printed{to: &jammed{err: syscall.ENOSPC}}
	if _, err := p.Write(nil); err == nil {
		t.Fatal("taken")
	}
	if err := p.end(os.ErrDeadlineExceeded); codeOf(err) != exit.Unreachable || !strings.Contains(err.Error(), "timeout\nnot all") {
		t.Errorf("%d: %v", codeOf(err), err)
	}
	p = &printed{to: &jammed{err: syscall.EPIPE}}
	if _, err := p.Write(nil); err == nil {
		t.Fatal("taken")
	}
	if err := p.end(os.ErrDeadlineExceeded); !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, exit.ErrSaid) {
		t.Errorf("%v", err)
	}
}
