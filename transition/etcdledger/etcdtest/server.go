package etcdtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// clusters makes every cluster of this process another one.
var clusters atomic.Int64

// A Server is an etcd of one member in this process, which forgets everything at its end.
type Server struct {
	t       testing.TB
	etcd    *embed.Etcd
	client  *clientv3.Client
	cluster int64
	dir     string
	kept    string // a backup of dir
}

// Start starts a server that lives as long as t.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir(), cluster: clusters.Add(1)}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// Client returns a client of the server. It must not be closed.
func (s *Server) Client() *clientv3.Client { return s.client }

// Replace puts another cluster in the place of this one: with all keys, as where a backup was
// restored as etcd advises, or with none. Clients follow.
func (s *Server) Replace(keep bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	all, err := s.client.Get(ctx, "\x00", clientv3.WithFromKey())
	if err != nil {
		s.t.Fatal(err)
	}
	s.stopServer()
	s.dir, s.cluster = s.t.TempDir(), clusters.Add(1)
	s.startServer()
	s.client.SetEndpoints(s.endpoint())
	for _, kv := range all.Kvs {
		if !keep {
			break
		}
		if _, err := s.client.Put(ctx, string(kv.Key), string(kv.Value)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Keep makes a backup of the disk, for [Server.SetBack]. Clients follow.
func (s *Server) Keep() { s.swap(func() { s.kept = s.copyOf(s.dir) }) }

// SetBack puts the backup in the place of all there is: an older state of the same cluster.
// Clients follow.
func (s *Server) SetBack() { s.swap(func() { s.dir = s.copyOf(s.kept) }) }

// swap does something to the disk of a server that does not run.
func (s *Server) swap(do func()) {
	s.t.Helper()
	s.stopServer()
	do()
	s.startServer()
	s.client.SetEndpoints(s.endpoint())
}

func (s *Server) copyOf(dir string) string {
	s.t.Helper()
	c := s.t.TempDir()
	if err := os.CopyFS(c, os.DirFS(dir)); err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *Server) endpoint() string { return s.etcd.Clients[0].Addr().String() }

func (s *Server) start() {
	s.startServer()
	client, err := Dial(s.endpoint())
	if err != nil {
		s.t.Fatal(err)
	}
	s.client = client
}

func (s *Server) startServer() {
	s.t.Helper()
	cfg := config(s.dir, "http://127.0.0.1:0", "http://127.0.0.1:0", fmt.Sprint("test-", os.Getpid(), "-", s.cluster))
	cfg.UnsafeNoFsync = true // nobody pulls the plug
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.etcd = etcd
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(time.Minute):
		s.t.Fatal("etcd does not start")
	}
}

func (s *Server) stop() {
	_ = s.client.Close()
	s.stopServer()
}

func (s *Server) stopServer() {
	s.etcd.Close()
	for range s.etcd.Err() { // until all of it has ended
	}
}

// Dial returns a client for one endpoint.
func Dial(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(quiet("http://" + endpoint))
}

func quiet(endpoint string) clientv3.Config {
	return clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()}
}

func config(dir, clientURL, peerURL, cluster string) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.InitialClusterToken = cluster
	clients, _ := url.Parse(clientURL)
	peers, _ := url.Parse(peerURL)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*clients}, []url.URL{*clients}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peers}, []url.URL{*peers}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return cfg
}
