package play

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// patience is how long a peer that was told to leave may take.
const patience = 20 * time.Second

// A peer is one process of `scraper work`.
type peer struct {
	id    string
	cmd   *exec.Cmd
	leash io.WriteCloser // its stdin: when we die it ends, and the peer with it
	log   *os.File
	ended chan struct{}
	told  bool // to end; otherwise ending is a failure
}

func (p *play) enter(id string) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.CreateTemp(p.dir, id+"-*.log")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "work", "--exit-with-stdin", "--redis", p.redisURL, "--name", p.name, "--id", id,
		"--lease", p.cfg.Lease.String(), "--every", every.String())
	// No variable of the user's shell may change the play.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	cmd.Stdout, cmd.Stderr = log, log
	leash, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("start %s: %w", id, err)
	}
	c := &peer{id: id, cmd: cmd, leash: leash, log: log, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(c.ended)
	}()
	p.cast = append(p.cast, c)
	return c, nil
}

// leave tells the peer to hand over and end, and waits for it.
func (c *peer) leave() error {
	c.told = true
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("tell %s to leave: %w", c.id, err)
	}
	select {
	case <-c.ended:
	case <-time.After(patience):
		return fmt.Errorf("%s did not leave within %v: %s", c.id, patience, c.said())
	}
	if !c.cmd.ProcessState.Success() {
		return fmt.Errorf("%s left badly (%s): %s", c.id, c.cmd.ProcessState, c.said())
	}
	return nil
}

// kill ends the peer without goodbye and returns when it is dead.
func (c *peer) kill() {
	c.told = true
	_ = c.cmd.Process.Kill() // fails only if it has ended
	<-c.ended
}

func (c *peer) alive() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// said returns the end of what the peer logged.
func (c *peer) said() string {
	b, err := os.ReadFile(c.log.Name())
	if err != nil {
		return err.Error()
	}
	const most = 2000
	return string(b[max(len(b)-most, 0):])
}
