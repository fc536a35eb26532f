package natstest

import (
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// patience is how long a server may take to start.
const patience = time.Minute

// Start starts a server in this process that lives as long as t, changed by with before it
// starts, and returns its URL.
func Start(t testing.TB, with ...func(*server.Options)) string {
	t.Helper()
	return start(t, options(t.TempDir(), server.RANDOM_PORT), with...).ClientURL()
}

// StartCluster starts a cluster of three servers in this process that lives as long as t,
// and returns the URLs of all.
func StartCluster(t testing.TB) []string {
	t.Helper()
	const size = 3
	var ports []int
	var routes []*url.URL
	for range size {
		port := freePort(t)
		ports = append(ports, port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprint("127.0.0.1:", port)})
	}
	var all []*server.Server
	for i := range size {
		o := options(t.TempDir(), server.RANDOM_PORT)
		o.ServerName = fmt.Sprint("s", i)
		o.Cluster = server.ClusterOpts{Name: "countoff", Host: "127.0.0.1", Port: ports[i]}
		o.Routes = routes
		all = append(all, start(t, o))
	}
	var urls []string
	deadline := time.Now().Add(patience)
	for _, s := range all {
		urls = append(urls, s.ClientURL())
		for !s.JetStreamIsCurrent() {
			if time.Now().After(deadline) {
				t.Fatal("the cluster of NATS has no leader")
			}
			<-time.After(10 * time.Millisecond)
		}
	}
	return urls
}

func start(t testing.TB, o *server.Options, with ...func(*server.Options)) *server.Server {
	t.Helper()
	for _, w := range with {
		w(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	go s.Start() // returns once it accepts
	if !s.ReadyForConnections(patience) {
		t.Fatal("NATS does not start")
	}
	return s
}

func options(dir string, port int) *server.Options {
	return &server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true, JetStream: true, StoreDir: dir}
}

func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
