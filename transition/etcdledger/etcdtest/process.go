package etcdtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// The variables that make a test binary the etcd of a [Process].
const (
	dirV    = "COUNTOFF_ETCDTEST_DIR"
	clientV = "COUNTOFF_ETCDTEST_CLIENT"
	peerV   = "COUNTOFF_ETCDTEST_PEER"
)

// A Process is an etcd of one member in a process of its own, with its data on disk.
type Process struct {
	t            testing.TB
	dir          string
	client, peer string // URLs
	cmd          *exec.Cmd
}

// Main is the first call of a TestMain whose tests use a [Process]: it does not return in
// the process that is to be one.
func Main() {
	if os.Getenv(dirV) == "" {
		return
	}
	go func() { // ends with whoever started it
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(1)
	}()
	etcd, err := embed.StartEtcd(config(os.Getenv(dirV), os.Getenv(clientV), os.Getenv(peerV), "process"))
	if err == nil {
		err = <-etcd.Err()
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// StartProcess starts an etcd that lives as long as t.
func StartProcess(t testing.TB) *Process {
	t.Helper()
	p := &Process{t: t, dir: t.TempDir(), client: "http://" + freePort(t), peer: "http://" + freePort(t)}
	p.Start()
	t.Cleanup(p.Kill)
	return p
}

// Endpoint returns where clients find it.
func (p *Process) Endpoint() string { return p.client }

// Start starts it again, with what is on its disk, and returns when it answers.
func (p *Process) Start() {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), dirV+"="+p.dir, clientV+"="+p.client, peerV+"="+p.peer)
	p.cmd.Stderr = os.Stderr
	if _, err := p.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	client, err := clientv3.New(quiet(p.client))
	if err != nil {
		p.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := client.Get(ctx, "there"); err != nil {
		p.t.Fatalf("etcd does not start: %v", err)
	}
}

// Kill ends it without a word. What it has acknowledged is on its disk.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// Pause stops it and lets its connections stand, until Resume.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume lets it go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func freePort(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
