package redistest

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redistest/redisserver"
)

// A Process is a redis-server of one test's own. Its methods must not be called
// concurrently, except that clients may be used all the time.
type Process struct {
	t      testing.TB
	server *redisserver.Server
	client redis.UniversalClient
}

// Server starts a redis-server that dies with the test. It keeps nothing on disk
// unless args, which are those of redis-server, say so: "--appendonly", "yes". The
// test is skipped where there is no redis-server.
func Server(t testing.TB, args ...string) *Process {
	t.Helper()
	p := &Process{t: t}
	dir := t.TempDir()
	args = append([]string{
		"--save", "", "--appendonly", "no", "--enable-debug-command", "yes",
		"--repl-diskless-sync-delay", "0", // a replica waits for no other one
	}, args...)
	// Between choosing a free port and the server's bind another process may
	// take it: choose again.
	for attempt := 1; ; attempt++ {
		server, err := redisserver.New(dir, args...)
		if errors.Is(err, redisserver.ErrNone) {
			t.Skipf("redistest: %v", err)
		}
		if err == nil {
			err = server.Start(context.Background())
		}
		if err == nil {
			p.server = server
			break
		}
		if attempt == 5 {
			t.Fatalf("redistest: %v", err)
		}
	}
	t.Cleanup(p.Kill)
	p.client = connect(t, &redis.Options{Addr: p.Addr()})
	return p
}

// Addr is the server's host:port. It stays the same over restarts.
func (p *Process) Addr() string { return p.server.Addr() }

// Client returns a client that survives restarts as clients do: by dialling again.
func (p *Process) Client() redis.UniversalClient { return p.client }

// Restart stops the server and starts it again on the same port: with what it held
// (a polite shutdown; it loads its append only file if it has one, else a snapshot
// of this moment), or empty.
func (p *Process) Restart(keepData bool) {
	p.t.Helper()
	if keepData {
		p.must(p.server.Shutdown(context.Background()))
	} else {
		p.Kill()
		p.must(p.server.Wipe())
	}
	p.Start()
}

// Kill ends the server without goodbye (SIGKILL). What it had not written is lost.
// Killing a dead server does nothing.
func (p *Process) Kill() { p.server.Kill() }

// Start starts a killed server again, on what is on its disk. Its client has got through
// to it when Start returns: go-redis counts failed dials over all restarts, and from so many
// on refuses for up to a second without trying.
func (p *Process) Start() {
	p.t.Helper()
	ctx := context.Background()
	p.must(p.server.Start(ctx))
	p.must(p.server.Answers(ctx, p.client))
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

func (p *Process) signal(s os.Signal) {
	p.t.Helper()
	p.must(p.server.Signal(s))
}

func (p *Process) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("redistest: %v", err)
	}
}
