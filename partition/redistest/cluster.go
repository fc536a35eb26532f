package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redistest/redisserver"
)

// Cluster returns a client of a cluster: the one ClusterVariable names, else three
// masters started for this test, which takes one to two seconds: start it in the
// parent of subtests and keep them apart by [Name]. Where there is no redis-server
// the test is skipped.
func Cluster(t testing.TB) redis.UniversalClient {
	t.Helper()
	if nodes := os.Getenv(ClusterVariable); nodes != "" {
		return connectCluster(t, strings.Split(nodes, ","))
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skipf("redistest: no redis-server in PATH and %s is not set: install it (apt-get install redis-server), "+
			"or start a cluster (redis-server --cluster-enabled yes three times, then redis-cli --cluster create) "+
			"and list its nodes there", ClusterVariable)
	}
	nodes := make([]*Process, 3)
	buses := make([]int, len(nodes))
	addrs := make([]string, len(nodes))
	for i := range nodes {
		bus, err := redisserver.FreePort()
		if err != nil {
			t.Fatalf("redistest: %v", err)
		}
		buses[i] = bus
		nodes[i] = Server(t,
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", "5000", "--cluster-port", strconv.Itoa(buses[i]))
		addrs[i] = nodes[i].Addr()
	}
	found(t, nodes, buses)
	client := connectCluster(t, addrs)
	until(t, func() error { return client.Ping(context.Background()).Err() })
	return client
}

// found makes one cluster of nodes: a third of the slots each, numbers that differ,
// and an introduction.
func found(t testing.TB, nodes []*Process, buses []int) {
	t.Helper()
	ctx := context.Background()
	do := func(p *Process, args ...any) {
		t.Helper()
		if err := p.client.Do(ctx, args...).Err(); err != nil {
			t.Fatalf("redistest: %v: %v", args, err)
		}
	}
	const slots = 16384
	for i, p := range nodes {
		do(p, "cluster", "addslotsrange", i*slots/len(nodes), (i+1)*slots/len(nodes)-1)
		do(p, "cluster", "set-config-epoch", i+1)
	}
	for i, p := range nodes[1:] {
		host, port, err := net.SplitHostPort(p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		do(nodes[0], "cluster", "meet", host, port, buses[i+1])
	}
	for _, p := range nodes {
		until(t, func() error {
			info, err := p.client.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			if !strings.Contains(info, "cluster_state:ok") ||
				!strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(len(nodes))) {
				return fmt.Errorf("no cluster yet:\n%s", info)
			}
			return nil
		})
	}
}
