package redisfx_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx/fxtest"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition/redisledger"
)

// permissions is what docs/stores.md gives to a user of countoff, for names that
// begin with NAME.
const permissions = "~{NAME* ~NAME* &{NAME* +@all -@admin -@dangerous"

// A peer works over TLS with an authority of its own, as a user who may do no more than the
// stores page says; INFO is not among it.
func TestTLSAndLeastPermissions(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	port := freePort(t)
	server := redistest.Server(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
	name := redistest.Name(t)
	rules := []any{"ACL", "SETUSER", "worker", "on", ">se%cret"}
	for _, rule := range strings.Fields(strings.ReplaceAll(permissions, "NAME", name)) {
		rules = append(rules, rule)
	}
	admin := server.Client()
	if err := admin.Do(t.Context(), rules...).Err(); err != nil {
		t.Fatal(err)
	}
	address := "rediss://worker:se%25cret@127.0.0.1:" + port
	trusted := address + "?ca=" + url.QueryEscape(cert)

	stranger, err := redisurl.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	for deadline := time.Now().Add(patience); ; { // on a busy machine the handshake may take longer than a call may
		err := redisurl.Reach(t.Context(), stranger, address)
		if errors.Is(err, context.DeadlineExceeded) && time.Now().Before(deadline) {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "?ca=FILE") {
			t.Errorf("without the authority: %v", err)
		}
		break
	}
	work(t, trusted, name, 16, 200)
	log, err := admin.ACLLog(t.Context(), 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range log {
		if e.Object != "info" { // asked for, and done without
			t.Errorf("refused: %s %s of %s", e.Reason, e.Object, e.Username)
		}
	}
}

// The partitions of one queue spread over the nodes of a cluster, and so does the work on
// them. (The ledger and each ingress of a name are on one node.)
func TestAQueueSpreadsOverACluster(t *testing.T) {
	t.Parallel()
	cluster, ok := redistest.Cluster(t).(*redis.ClusterClient)
	if !ok {
		t.Fatal("it is no cluster")
	}
	const partitions = 1024
	spread := make(map[string]int)
	for id := range partition.ID(partitions) {
		node, err := cluster.MasterForKey(t.Context(), redissource.KeysOf("mail-sender", id).Pending)
		if err != nil {
			t.Fatal(err)
		}
		spread[node.Options().Addr]++
	}
	for node, n := range spread {
		if share := float64(n*len(spread)) / partitions; share < 0.8 || share > 1.2 {
			t.Errorf("%s has %d of %d partitions, %.2f of an even share", node, n, partitions, share)
		}
	}
	if len(spread) != 3 {
		t.Errorf("the partitions are on %d nodes", len(spread))
	}
	address := ""
	for node := range spread {
		address = "redis://" + node + "?cluster=true"
	}
	work(t, address, redistest.Name(t), 96, 600)
}

// work lets two peers handle n tasks, the second of which joins when half are done.
func work(t *testing.T, address, name string, partitions, n int) {
	t.Helper()
	client, err := redisurl.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: partitions}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	done, half, all := make(map[string]int), make(chan struct{}), make(chan struct{})
	handle := func(_ context.Context, task *framework.Task) error {
		mu.Lock()
		defer mu.Unlock()
		done[task.ID]++
		switch len(done) {
		case n / 2:
			close(half)
			half = make(chan struct{}) // only once, should a task come again
		case n:
			close(all)
			all = make(chan struct{})
		}
		return nil
	}
	start := func(id string) *fxtest.App {
		app := fxtest.New(t, frameworkfx.Module, redisfx.Source(name, redisfx.Config{URL: address}),
			frameworkfx.Configure(name, quick, framework.WithPeer(id, 1)), frameworkfx.Otherwise(name, handle))
		app.RequireStart()
		return app
	}
	producer, err := redissource.NewProducer(t.Context(), client, name, redissource.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	push := func(from, to int) {
		for i := from; i < to; i++ {
			if _, err := producer.Enqueue(t.Context(), redissource.Message{ID: fmt.Sprint(i), Key: fmt.Sprint("k", i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	await := func(what string, c chan struct{}) {
		select {
		case <-c:
		case <-time.After(patience):
			mu.Lock()
			defer mu.Unlock()
			t.Fatalf("%s: %d of %d were handled", what, len(done), n)
		}
	}
	firstHalf, whole := half, all
	ann := start("ann")
	defer ann.RequireStop()
	push(0, n/2)
	await("one peer", firstHalf)
	bob := start("bob")
	defer bob.RequireStop()
	push(n/2, n)
	await("two peers", whole)
}

// certificate makes a certificate for loopback that signs itself, as files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	made := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, made, made, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// freePort returns a port of loopback that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
