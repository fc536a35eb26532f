//go:build unix

package seat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A probe runs the health command again and again, by itself: it may take longer than a
// peer that wants to know how it is may wait.
type probe struct {
	cfg  Health
	name string

	mu    sync.Mutex
	err   error         // of the last run
	known chan struct{} // closed when there was one
}

func newProbe(name string, cfg Health) *probe {
	return &probe{cfg: cfg, name: name, known: make(chan struct{})}
}

// run probes until ctx ends.
func (p *probe) run(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		err := p.once(ctx)
		if ctx.Err() != nil {
			return // that it was interrupted says nothing
		}
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		if first {
			close(p.known)
		}
		pause.Reset(p.cfg.Every)
	}
}

// check says what the last run said. Before there was one it waits for that.
func (p *probe) check(ctx context.Context) error {
	select {
	case <-p.known:
	case <-ctx.Done():
		return errors.New("the health command has not ended once yet")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// mostSaid is how much of what a health command says is kept: its end.
const mostSaid = 4 << 10

// once runs the command once.
func (p *probe) once(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	var said tail
	cmd := exec.CommandContext(within, "sh", "-c", p.cfg.Command)
	cmd.Env = append(os.Environ(), nameVariable+"="+p.name)
	cmd.Stdout, cmd.Stderr = &said, &said
	// A group of its own, so that what it starts ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // whatever it has left behind
	}
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it ended with 0, and what it left held its output
		return nil
	case within.Err() != nil:
		return fmt.Errorf("the health command did not end within %v", p.cfg.Timeout)
	}
	if last := said.line(); last != "" {
		return fmt.Errorf("the health command: %w: %s", err, last)
	}
	return fmt.Errorf("the health command: %w", err)
}

// A tail keeps the end of what is written to it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-mostSaid):]...)
	t.kept = append(t.kept[:0], t.kept[max(0, len(t.kept)-mostSaid):]...)
	return len(p), nil
}

// line returns the last line that is not empty.
func (t *tail) line() string {
	text := strings.TrimSpace(string(t.kept))
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
