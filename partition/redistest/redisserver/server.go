package redisserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNone means that there is no redis-server in the PATH.
var ErrNone = errors.New("no redis-server in PATH: install it, as in: apt-get install redis-server")

// patience is how long a server may take to answer, or to end, generous for a busy machine.
const patience = 30 * time.Second

// A Server is one redis-server on a port of loopback that it keeps over restarts. It dies
// with this process. Its methods must not be called concurrently.
type Server struct {
	port  int
	dir   string
	args  []string // before those of Start
	conf  string   // a configuration file; empty: none
	env   []string
	cmd   *exec.Cmd     // nil: not running
	ended chan struct{} // closed when cmd has ended
	guard *guard

	temporary string // a folder that is removed when this process dies; empty: whoever made it does
}

// New returns a server that is not running yet. It keeps its files in dir.
func New(dir string, args ...string) (*Server, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, ErrNone
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	return &Server{port: port, dir: dir, args: args}, nil
}

// Temporary starts a server that keeps nothing. What it returns beside it ends it and removes its
// files.
func Temporary(ctx context.Context) (s *Server, end func(), err error) {
	dir, err := os.MkdirTemp("", "countoff-store-")
	if err != nil {
		return nil, nil, err
	}
	if s, err = New(dir, "--save", "", "--appendonly", "no"); err == nil {
		s.temporary = dir
		err = s.Start(ctx)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	return s, func() {
		s.Kill()
		_ = os.RemoveAll(dir)
	}, nil
}

// Addr is its host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Log is the file it writes what it says to.
func (s *Server) Log() string { return filepath.Join(s.dir, "log") }

// Configure gives it a configuration file of those lines.
func (s *Server) Configure(lines ...string) error {
	s.conf = filepath.Join(s.dir, "conf")
	return os.WriteFile(s.conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// Start runs it and waits until it answers, its data loaded.
func (s *Server) Start(ctx context.Context, args ...string) error {
	if s.cmd != nil {
		return fmt.Errorf("the server at %s runs already", s.Addr())
	}
	log, err := os.OpenFile(s.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	all := []string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--daemonize", "no"}
	if s.conf != "" {
		all = append([]string{s.conf}, all...) // the first argument, or it is none
	}
	cmd := exec.Command("redis-server", append(append(all, s.args...), args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), s.env...)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(ended)
	}()
	s.cmd, s.ended = cmd, ended
	if s.guard, err = newGuard(cmd.Process.Pid, s.temporary); err == nil {
		client := s.Client()
		err = s.Answers(ctx, client)
		_ = client.Close()
	}
	if err != nil {
		s.Kill()
		said, _ := os.ReadFile(s.Log())
		return fmt.Errorf("redis-server at %s does not start: %w\n%s", s.Addr(), err, said)
	}
	return nil
}

// Answers waits until this server, and nobody else who took the port, answers client.
func (s *Server) Answers(ctx context.Context, client redis.UniversalClient) error {
	pid := strconv.Itoa(s.cmd.Process.Pid)
	for end := time.Now().Add(patience); ; {
		info, err := client.InfoMap(ctx, "server").Result()
		if err == nil && info["Server"]["process_id"] == pid {
			if err = client.Ping(ctx).Err(); err == nil { // not while it loads
				return nil
			}
		}
		select {
		case <-s.ended:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("no answer for %v: %w", patience, err)
		}
	}
}

// Signal sends it a signal.
func (s *Server) Signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }

// Kill ends it with SIGKILL and returns when it is dead. What it had not written is lost. A dead
// one is left alone.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // fails only if it has ended
	s.buried()
}

// Shutdown ends it politely and returns when it is dead: it loads its append only file next time
// if it has one, else a snapshot of this moment. A dead one is left alone.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.cmd == nil {
		return nil
	}
	client := s.Client()
	defer func() { _ = client.Close() }()
	save := client.ShutdownSave
	if aof, err := client.ConfigGet(ctx, "appendonly").Result(); err == nil && aof["appendonly"] == "yes" {
		save = client.ShutdownNoSave // the append only file is what gets loaded
	}
	save(ctx) // its answer is the end of the connection
	select {
	case <-s.ended:
	case <-time.After(patience):
		return fmt.Errorf("redis-server at %s did not shut down within %v", s.Addr(), patience)
	}
	s.buried()
	return nil
}

// buried waits until it is dead, and leaves nothing of its process behind.
func (s *Server) buried() {
	<-s.ended
	s.guard.dismiss()
	s.sweep(s.cmd.Process.Pid)
	s.cmd = nil
}

// Wipe removes what a dead server has on its disk.
func (s *Server) Wipe() error {
	return errors.Join(os.RemoveAll(filepath.Join(s.dir, "appendonlydir")), os.RemoveAll(filepath.Join(s.dir, "dump.rdb")))
}

// Client returns a client that asks once: another one's tries to reach a server that has ended take a second.
func (s *Server) Client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
}

// FreePort returns a port of loopback that was free a moment ago.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
