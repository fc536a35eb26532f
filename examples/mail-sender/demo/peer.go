package demo

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// patience is how long a peer that was told to leave may take.
const patience = 15 * time.Second

// A peer is one process of `mail-sender work`.
type peer struct {
	id    string
	cmd   *exec.Cmd
	leash io.WriteCloser // its stdin: when we die it ends, and the peer with it
	log   *os.File
	ended chan struct{} // closed when the process has ended
	err   error         // how; read it after ended
	told  bool          // to end; otherwise ending is a failure
}

// startPeer starts the demo's own program as a peer called id.
func (p *play) startPeer(id string) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.CreateTemp(p.dir, id+"-*.log")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "work", "--exit-with-stdin", "--log-level", "warn", "--http", "",
		"--redis", p.redisURL, "--name", p.name, "--id", id,
		"--smtp", p.smtp.URL()+"?helo="+id, "--from", from,
		"--partitions", fmt.Sprint(partitions), "--concurrency", fmt.Sprint(concurrency),
		"--lease", lease.String(), "--inbox", "")
	// The flags are all: no variable of the user's shell may change the play.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "COUNTOFF_GRACE=60s"}
	cmd.Stdout, cmd.Stderr = log, log
	leash, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start peer %s: %w", id, closing(err, log))
	}
	started := &peer{id: id, cmd: cmd, leash: leash, log: log, ended: make(chan struct{})}
	go func() {
		started.err = cmd.Wait()
		close(started.ended)
	}()
	return started, nil
}

// leave tells the peer to hand over and end, and waits for it.
func (p *peer) leave() error {
	p.told = true
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("tell %s to leave: %w", p.id, err)
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.kill()
		return fmt.Errorf("%s did not leave within %v: %s", p.id, patience, p.said())
	}
	if p.err != nil {
		return fmt.Errorf("%s left badly: %w: %s", p.id, p.err, p.said())
	}
	return nil
}

// kill ends the peer without goodbye and returns when it is dead.
func (p *peer) kill() {
	p.told = true
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.ended
}

// said returns the end of what the peer logged.
func (p *peer) said() string {
	b, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	const most = 2000
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return string(b)
}

// bury frees what is left of a peer that has ended.
func (p *peer) bury() {
	_ = p.leash.Close() // broken since its end
	_ = p.log.Close()
}

// closing closes c because of err, which says why.
func closing(err error, c io.Closer) error {
	_ = c.Close()
	return err
}
