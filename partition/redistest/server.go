package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Process is a redis-server of one test's own. Its methods must not be called
// concurrently, except that clients may be used all the time.
type Process struct {
	t      testing.TB
	port   int
	dir    string
	args   []string
	cmd    *exec.Cmd     // nil: not running
	ended  chan struct{} // closed when cmd has ended
	guard  *guard
	client redis.UniversalClient
}

// Server starts a redis-server that dies with the test. It keeps nothing on disk
// unless args, which are those of redis-server, say so: "--appendonly", "yes". The
// test is skipped where there is no redis-server.
func Server(t testing.TB, args ...string) *Process {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redistest: no redis-server in PATH: install it, as in: apt-get install redis-server")
	}
	p := &Process{t: t, dir: t.TempDir(), args: args}
	t.Cleanup(p.Kill)
	// Between choosing a free port and the server's bind another process may
	// take it: choose again.
	for attempt := 1; ; attempt++ {
		p.port = freePort(t)
		err := p.start()
		if err == nil {
			break
		}
		if attempt == 5 {
			t.Fatal(err)
		}
	}
	p.client = connect(t, &redis.Options{Addr: p.Addr()})
	return p
}

// Addr is the server's host:port. It stays the same over restarts.
func (p *Process) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// Client returns a client that survives restarts as clients do: by dialling again.
func (p *Process) Client() redis.UniversalClient { return p.client }

// Restart stops the server and starts it again on the same port: with what it held
// (a polite shutdown; it loads its append only file if it has one, else a snapshot
// of this moment), or empty.
func (p *Process) Restart(keepData bool) {
	p.t.Helper()
	if keepData && p.cmd != nil {
		p.shutdown()
	}
	p.Kill()
	if !keepData {
		p.wipe()
	}
	p.Start()
}

// Kill ends the server without goodbye (SIGKILL). What it had not written is lost.
// Killing a dead server does nothing.
func (p *Process) Kill() {
	if p.cmd == nil {
		return
	}
	p.cmd.Process.Kill() // fails only if it has ended
	<-p.ended
	p.guard.dismiss()
	p.cmd = nil
}

// Start starts a killed server again, on what is on its disk. Its client has got through
// to it when Start returns: go-redis counts failed dials over all restarts, and from so many
// on refuses for up to a second without trying.
func (p *Process) Start() {
	p.t.Helper()
	if p.cmd != nil {
		p.t.Fatal("redistest: the server runs already")
	}
	err := p.start()
	if err == nil {
		err = p.answers(p.client)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// Pause stops the server from answering (SIGSTOP); connections stay open.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

// Config sets a parameter of the running server, as in Config("maxmemory", "2mb").
func (p *Process) Config(name, value string) {
	p.t.Helper()
	if err := p.client.ConfigSet(context.Background(), name, value).Err(); err != nil {
		p.t.Fatalf("redistest: config set %s %s: %v", name, value, err)
	}
}

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("redistest: signal %v: %v", s, err)
	}
}

// start runs the server and waits until it answers.
func (p *Process) start() error {
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{
		"--port", strconv.Itoa(p.port), "--bind", "127.0.0.1", "--dir", p.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--enable-debug-command", "yes",
		"--repl-diskless-sync-delay", "0", // a replica waits for no other one
	}, p.args...)
	p.cmd = exec.Command("redis-server", args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return err
	}
	p.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		cmd.Wait() // how it ended is in the log
		close(ended)
	}(p.cmd, p.ended)
	p.guard, err = newGuard(p.cmd.Process.Pid)
	if err == nil {
		client := p.once()
		err = p.answers(client)
		client.Close()
	}
	if err != nil {
		p.Kill()
		said, _ := os.ReadFile(log.Name())
		return fmt.Errorf("redistest: redis-server does not start: %w\n%s", err, said)
	}
	return nil
}

// once returns a client that asks once: the server's own tries for a second to reach one that has ended.
func (p *Process) once() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1})
}

// answers waits until our own server, not somebody else's who took the port, answers client.
func (p *Process) answers(client redis.UniversalClient) error {
	pid := strconv.Itoa(p.cmd.Process.Pid)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for {
		info, err := client.InfoMap(context.Background(), "server").Result()
		if err == nil && info["Server"]["process_id"] == pid {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return errors.New("it ended at once")
		case <-timeout:
			return err
		}
	}
}

// shutdown ends the server politely and waits for it.
func (p *Process) shutdown() {
	p.t.Helper()
	ctx := context.Background()
	client := p.once()
	defer client.Close()
	save := client.ShutdownSave
	if aof, err := client.ConfigGet(ctx, "appendonly").Result(); err == nil && aof["appendonly"] == "yes" {
		save = client.ShutdownNoSave // the append only file is what gets loaded
	}
	save(ctx) // its answer is the end of the connection
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("redistest: redis-server did not shut down within %v", patience)
	}
}

// wipe empties the server's disk.
func (p *Process) wipe() {
	p.t.Helper()
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		p.t.Fatalf("redistest: %v", err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(p.dir, e.Name())); err != nil {
			p.t.Fatalf("redistest: %v", err)
		}
	}
}

// freePort returns a loopback port that was free a moment ago.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
