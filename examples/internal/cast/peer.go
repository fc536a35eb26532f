package cast

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/countoff/countoff/framework/program/exit"
)

// patience is how long a peer that was told to leave may take.
const patience = 20 * time.Second

// A Peer is one process of `PROGRAM work`, where the program is the one that plays. Its methods
// are for one goroutine, except Leave of different peers.
type Peer struct {
	ID string

	cmd   *exec.Cmd
	leash io.WriteCloser // its stdin: when we die it ends, and the peer with it
	log   *os.File
	ended chan struct{} // closed when the process has ended
	told  bool          // to end; otherwise ending is a failure
}

// Enter starts a peer called id, which logs to a file in dir. No variable of the user's shell may
// change the play: its environment is PATH, TMPDIR and env.
func Enter(dir, id string, env []string, flags ...string) (*Peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.CreateTemp(dir, id+"-*.log")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{"work", "--exit-with-stdin", "--id", id}, flags...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}, env...)
	cmd.Stdout, cmd.Stderr = log, log
	leash, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start peer %s: %w", id, errors.Join(err, log.Close()))
	}
	p := &Peer{ID: id, cmd: cmd, leash: leash, log: log, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // ProcessState says how
	}()
	return p, nil
}

// Leave tells the peer to hand over and end, and waits for it.
func (p *Peer) Leave() error {
	p.told = true
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("tell %s to leave: %w", p.ID, err)
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Kill()
		return fmt.Errorf("%s did not leave within %v: %s", p.ID, patience, p.said())
	}
	how, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if how.Signaled() && how.Signal() == syscall.SIGTERM {
		return nil // it did not listen yet, so it had nothing to hand over
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("%s left badly (%s): %s", p.ID, p.cmd.ProcessState, p.said())
	}
	return nil
}

// Told reports whether the peer was told to end, or killed.
func (p *Peer) Told() bool { return p.told }

// Kill ends the peer without goodbye and returns when it is dead. It may stand still.
func (p *Peer) Kill() {
	p.told = true
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.ended
}

// Pause has the peer stand still, as a machine does that is put to sleep.
func (p *Peer) Pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume has it go on.
func (p *Peer) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Fallen returns why the peer has ended although nobody told it to; nil: it has not.
func (p *Peer) Fallen() error {
	select {
	case <-p.ended:
		if !p.told {
			return fmt.Errorf("%s ended by itself (%s): %s", p.ID, p.cmd.ProcessState, p.said())
		}
	default:
	}
	return nil
}

// Dismiss kills the peer if it is still there, and frees what is left of it.
func (p *Peer) Dismiss() {
	p.Kill()
	_ = p.leash.Close() // broken since its end
	_ = p.log.Close()
}

// said returns the end of what the peer logged.
func (p *Peer) said() string {
	b, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	const most = 2000
	return string(b[max(len(b)-most, 0):])
}

// EndWith ends the process with its stdin: whoever held the other end is gone. It is what the flag
// --exit-with-stdin of a peer means.
func EndWith(stdin io.Reader) {
	_, _ = io.Copy(io.Discard, stdin)
	os.Exit(exit.Hard)
}
