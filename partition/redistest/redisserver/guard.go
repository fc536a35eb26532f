package redisserver

import (
	"io"
	"os/exec"
	"strconv"
)

// A guard kills a server when this process dies: a program that is killed, as a test binary
// that panics or times out, runs no cleanup, and its servers must not outlive it. It is a
// shell that waits for a line or the end of its input: the end comes when we die. A terminal
// tells both of us of Ctrl-C, and that it is closed: the shell stays to see how we end.
type guard struct {
	shell *exec.Cmd
	leash io.WriteCloser
}

// newGuard guards the server of that process id; files, unless empty, is the folder that nobody else removes then.
func newGuard(pid int, files string) (*guard, error) {
	const script = `trap '' HUP INT QUIT TERM; read line || { kill -9 "$1"; test -z "$2" || rm -rf "$2"; }`
	g := &guard{shell: exec.Command("/bin/sh", "-c", script, "guard", strconv.Itoa(pid), files)}
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
	_, _ = io.WriteString(g.leash, "done\n")
	_ = g.leash.Close()
	_ = g.shell.Wait()
}
