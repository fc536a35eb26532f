package redistest

import (
	"io"
	"os/exec"
	"strconv"
)

// A guard kills a server when this process dies: a test binary that panics, times
// out or is killed runs no cleanup, and its servers must not outlive it. It is a
// shell that waits for a line or the end of its input: the end comes when we die.
type guard struct {
	shell *exec.Cmd
	leash io.WriteCloser
}

func newGuard(pid int) (*guard, error) {
	g := &guard{shell: exec.Command("/bin/sh", "-c", "read line || kill -9 "+strconv.Itoa(pid))}
	leash, err := g.shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	g.leash = leash
	if err := g.shell.Start(); err != nil {
		return nil, err
	}
	return g, nil
}

// dismiss lets the guard go without a kill: the server has ended, and its process id
// may be somebody else's by now.
func (g *guard) dismiss() {
	if g == nil {
		return
	}
	io.WriteString(g.leash, "done\n")
	g.leash.Close()
	g.shell.Wait()
}
