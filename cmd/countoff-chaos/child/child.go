package child

import (
	"os/exec"
	"runtime"
	"sync"
)

var (
	once  sync.Once
	calls chan call
)

type call struct {
	cmd  *exec.Cmd
	done chan error
}

// Start starts cmd so that it is killed when this process dies, where the system
// can do so (Linux).
//
// The kernel sends the signal when the thread that forked ends, not the process: one
// goroutine that keeps its thread for good does all the forking.
func Start(cmd *exec.Cmd) error {
	once.Do(func() {
		calls = make(chan call)
		go func() {
			runtime.LockOSThread()
			for c := range calls {
				dieWithParent(c.cmd)
				c.done <- c.cmd.Start()
			}
		}()
	})
	c := call{cmd, make(chan error, 1)}
	calls <- c
	return <-c.done
}
