package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/countoff/countoff/cmd/countoff-chaos/child"
	"github.com/countoff/countoff/cmd/countoff-chaos/peer"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/etcdledger"
)

// The word with which the program runs itself again as an etcd, and how many words there
// are then: a folder, and the URLs for clients and peers follow.
const (
	serverCommand = "_etcd"
	serverWords   = 5
)

// serve is an etcd of one member until it fails.
func serve(dir, clients, peers string) error {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	for at, set := range map[string]func([]url.URL){
		clients: func(u []url.URL) { cfg.ListenClientUrls, cfg.AdvertiseClientUrls = u, u },
		peers:   func(u []url.URL) { cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = u, u },
	} {
		u, err := url.Parse(at)
		if err != nil {
			return err
		}
		set([]url.URL{*u})
	}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	return <-etcd.Err()
}

// A server is an etcd in a process of its own, with its data on disk.
type server struct {
	dir, addr, peer string
	cmd             *exec.Cmd // nil: not running
}

const prefix = "/chaos"

// start starts a server that keeps its data in dir.
func start(ctx context.Context, dir string) (*server, error) {
	s := &server{dir: filepath.Join(dir, "etcd")}
	var err1, err2 error
	s.addr, err1 = freePort()
	s.peer, err2 = freePort()
	if err := errors.Join(err1, err2, os.MkdirAll(s.dir, 0o700)); err != nil {
		return nil, err
	}
	return s, s.Start(ctx)
}

// Addr implements play.LedgerServer.
func (s *server) Addr() string { return s.addr }

// URL implements play.LedgerServer.
func (s *server) URL(addr string) string { return "etcd://" + addr + prefix }

// Open implements play.LedgerServer.
func (s *server) Open(url, name string, layout partition.Config, timing transition.Timing) (peer.OpenLedger, error) {
	return open(url, name, layout, timing)
}

// Init implements play.LedgerServer.
func (s *server) Init(ctx context.Context, name string, layout partition.Config) error {
	client, prefix, err := etcdledger.Open(s.URL(s.addr))
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = etcdledger.Init(ctx, client, prefix, name, layout)
	return err
}

// Start implements play.LedgerServer.
func (s *server) Start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s.cmd = exec.Command(self, serverCommand, s.dir, "http://"+s.addr, "http://"+s.peer)
	s.cmd.Stderr = os.Stderr
	if err := child.Start(s.cmd); err != nil {
		s.cmd = nil
		return err
	}
	client, _, err := etcdledger.Open(s.URL(s.addr))
	if err != nil {
		return err
	}
	defer client.Close()
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := client.Get(ctx, "there"); err != nil {
		s.Kill()
		return fmt.Errorf("etcd at %s does not answer within %v: %w", s.addr, patience, err)
	}
	return nil
}

// Kill implements play.LedgerServer.
func (s *server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // fails only if it has ended
	_ = s.cmd.Wait()         // it was killed
	s.cmd = nil
}

// Pause implements play.LedgerServer.
func (s *server) Pause() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume implements play.LedgerServer.
func (s *server) Resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
