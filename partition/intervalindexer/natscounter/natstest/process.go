package natstest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// The variables that make a test binary the NATS of a [Process].
const (
	dirV  = "COUNTOFF_NATSTEST_DIR"
	portV = "COUNTOFF_NATSTEST_PORT"
)

// A Process is a NATS in a process of its own, with its data on disk.
type Process struct {
	t    testing.TB
	dir  string
	port int
	cmd  *exec.Cmd
}

// Main is the first call of a TestMain whose tests use a [Process]: it does not return in
// the process that is to be one.
func Main() {
	if os.Getenv(dirV) == "" {
		return
	}
	port, err := strconv.Atoi(os.Getenv(portV))
	if err == nil {
		var s *server.Server
		if s, err = server.NewServer(options(os.Getenv(dirV), port)); err == nil {
			go s.Start()
			if s.ReadyForConnections(patience) {
				fmt.Println("ready")
				_, _ = os.Stdin.Read(make([]byte, 1)) // it ends with whoever started it
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}

// StartProcess starts a NATS that lives as long as t.
func StartProcess(t testing.TB) *Process {
	t.Helper()
	p := &Process{t: t, dir: t.TempDir(), port: freePort(t)}
	p.Start()
	t.Cleanup(p.Kill)
	return p
}

// URL returns where clients find it.
func (p *Process) URL() string { return fmt.Sprint("nats://127.0.0.1:", p.port) }

// Start starts it again, with what is on its disk, and returns when it answers.
func (p *Process) Start() {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), dirV+"="+p.dir, portV+"="+strconv.Itoa(p.port))
	p.cmd.Stderr = os.Stderr
	if _, err := p.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		p.t.Fatalf("NATS does not start: %q, %v", line, err)
	}
}

// Kill ends it without a word. What it has acknowledged is in its files.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
