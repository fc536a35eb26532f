package play

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/countoff/countoff/cmd/countoff-chaos/checker"
	"github.com/countoff/countoff/cmd/countoff-chaos/child"
	"github.com/countoff/countoff/cmd/countoff-chaos/journal"
	"github.com/countoff/countoff/cmd/countoff-chaos/peer"
	"github.com/countoff/countoff/cmd/countoff-chaos/proxy"
)

// leaving is how long a peer that was told to leave may take.
const leaving = 30 * time.Second

// A process is one process of a peer.
type process struct {
	id      string // of the peer
	name    string // of this process of it
	cmd     *exec.Cmd
	log     *os.File
	journal string
	control *proxy.Proxy // nil: its traffic cannot be broken
	data    *proxy.Proxy
	ended   chan struct{}
	err     error // read it after ended

	mu     sync.Mutex
	busy   bool // under a fault
	told   bool // to end; otherwise ending is a trouble
	killed journal.Time
	frozen []checker.Span
	struck []checker.Span
	away   away
}

// away says since when a process cannot work, and why; a zero time: it can.
type away struct {
	since journal.Time
	kind  string
}

// enter starts a process of peer id.
func (s *stage) enter(id string) error {
	s.mu.Lock()
	s.count++
	p := &process{id: id, name: fmt.Sprintf("%s.%d", id, s.count), ended: make(chan struct{})}
	s.mu.Unlock()
	p.journal = filepath.Join(s.dir, p.name+".journal")
	cfg := peer.Config{
		Name: s.name, Peer: id, Journal: p.journal, Inbox: s.inbox,
		Partitions: s.cfg.Partitions, Concurrency: s.cfg.Concurrency, Lease: s.cfg.Lease, Interval: s.cfg.Interval, Barrier: s.cfg.Barrier,
		Control: s.store.URL(""), Data: s.store.URL(""),
	}
	var err error
	if !s.store.HasReplica() {
		to, url := s.store.Addr(), s.store.URL
		if s.cfg.Ledger != nil {
			to, url = s.cfg.Ledger.Addr(), s.cfg.Ledger.URL
		}
		if p.control, err = proxy.Start(to); err != nil {
			return err
		}
		if p.data, err = proxy.Start(s.store.Addr()); err != nil {
			p.close()
			return err
		}
		cfg.Control, cfg.Data = url(p.control.Addr()), s.store.URL(p.data.Addr())
	}
	if p.log, err = os.Create(filepath.Join(s.dir, p.name+".log")); err != nil {
		p.close()
		return err
	}
	p.cmd = exec.Command(s.cfg.Self, append([]string{s.cfg.PeerCommand}, cfg.Args()...)...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=2"}
	if err := child.Start(p.cmd); err != nil {
		p.close()
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	s.mu.Lock()
	s.all = append(s.all, p)
	s.cast = append(s.cast, p)
	s.mu.Unlock()
	go s.wait(p)
	return nil
}

// wait notes the end of a process.
func (s *stage) wait(p *process) {
	p.err = p.cmd.Wait()
	at := journal.Now()
	p.mu.Lock()
	told := p.told
	if p.away.since == 0 {
		p.away = away{at, "end"}
	}
	p.mu.Unlock()
	s.mu.Lock()
	for i, other := range s.cast {
		if other == p {
			s.cast = append(s.cast[:i:i], s.cast[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	if !told {
		s.trouble("%s ended by itself: %v: %s", p.name, p.err, p.said())
		p.mu.Lock()
		p.killed = at // what it was doing ended here
		p.mu.Unlock()
	}
	p.close()
	close(p.ended)
}

func (p *process) close() {
	if p.control != nil {
		p.control.Close()
	}
	if p.data != nil {
		p.data.Close()
	}
	if p.log != nil {
		_ = p.log.Close() // the process has its own
	}
}

// kill ends p without goodbye and returns when it is dead.
func (p *process) kill(kind string) {
	p.mu.Lock()
	now := journal.Now()
	p.told = true
	if p.killed == 0 {
		p.killed = now
	}
	if p.away.since == 0 {
		p.away = away{now, kind}
	}
	p.mu.Unlock()
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.ended
}

// awake waits until p hears signals, which a process that has just begun on a busy
// machine does not: its journal is there then.
func (p *process) awake() {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	patience := time.After(leaving)
	for {
		if _, err := os.Stat(p.journal); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return
		case <-patience:
			return
		}
	}
}

// leave tells p to hand over and end, and waits for it.
func (p *process) leave() error {
	p.awake()
	p.mu.Lock()
	p.told = true
	p.mu.Unlock()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("tell %s to leave: %w", p.name, err)
	}
	select {
	case <-p.ended:
	case <-time.After(leaving):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its stacks go to its log
		select {
		case <-p.ended:
		case <-time.After(time.Second):
		}
		p.kill("stuck")
		return fmt.Errorf("%s did not leave within %v: %s", p.name, leaving, p.said())
	}
	if p.err != nil {
		return fmt.Errorf("%s left badly: %w: %s", p.name, p.err, p.said())
	}
	return nil
}

// freeze stops p from running for a while. A long time counts as being away.
func (p *process) freeze(d time.Duration, kind string, long bool) {
	span := checker.Span{From: journal.Now()}
	if long {
		p.leaves(kind)
	}
	_ = p.cmd.Process.Signal(syscall.SIGSTOP) // one that has ended is told elsewhere
	pause(d, p.ended)
	span.Until = journal.Now()
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	p.mu.Lock()
	p.frozen = append(p.frozen, span)
	p.mu.Unlock()
	p.returns()
}

// leaves and returns note that p cannot work, and that it can again.
func (p *process) leaves(kind string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away.since == 0 {
		p.away = away{journal.Now(), kind}
	}
}

func (p *process) returns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed == 0 {
		p.away = away{}
	}
}

// said returns the end of what p logged.
func (p *process) said() string {
	b, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	const most = 3000
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return string(b)
}

// pause waits for d, or for end.
func pause(d time.Duration, end <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-end:
	}
}
