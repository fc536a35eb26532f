package etcdledger

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/etcdledger/etcdtest"
)

// reach says what Reach says of address.
func reach(t *testing.T, address string) string {
	t.Helper()
	client, _, err := Open(address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := Reach(ctx, client, address); err != nil {
		return err.Error()
	}
	return ""
}

func wantWords(t *testing.T, got string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(got, w) {
			t.Errorf("got %q, want it to say %q", got, w)
		}
	}
}

// A URL that leads nowhere is told at once and with its reason, also one with a user, for
// whom etcd's client would log in before it exists.
func TestReachNobody(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, user := range []string{"", "u:p@"} {
		wantWords(t, reach(t, "etcd://"+user+closed.Addr().String()), "connection refused", "is it running")
	}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("-ERR unknown command 'PRI'\r\n"))
			_ = c.Close()
		}
	}()
	defer func() {
		other.Close()
		<-ended
	}()
	wantWords(t, reach(t, "etcd://"+other.Addr().String()), "is it the port of etcd's clients")
}

// What is wrong with certificates is told with the option that mends it.
func TestReachOverTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	file := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	der, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	ca, key := file("ca.pem", "CERTIFICATE", server.Certificate().Raw), file("key.pem", "PRIVATE KEY", der)
	at := "etcds://" + server.Listener.Addr().String()
	for query, word := range map[string]string{
		"":                          "?ca=FILE",
		"?ca=" + ca + "&name=other": "?name=",
		"?ca=" + ca:                 "?cert=FILE&key=FILE",
		"?ca=" + ca + "&cert=" + ca + "&key=" + key: "",
	} {
		cfg, _, err := parse(at + query)
		if err != nil {
			t.Fatal(err)
		}
		err = knock(t.Context(), cfg)
		switch {
		case word == "" && err != nil:
			t.Errorf("with all that is needed: %v", err)
		case word != "" && err == nil:
			t.Errorf("%s: let in, want to hear of %s", query, word)
		case err != nil:
			wantWords(t, err.Error(), word)
		}
	}
}

// The name that a URL gives is looked for in the certificate by a peer at work as well: that of the host need not be there.
func TestCallsLookForTheNameOfTheURL(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	asked := make(chan string, 1)
	server.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		select {
		case asked <- hello.ServerName:
		default:
		}
		return nil, nil
	}}
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	client, prefix, err := Open("etcds://" + server.Listener.Addr().String() + "?name=example.com&ca=" + ca)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = client.Get(ctx, prefix) // it is no etcd
	}()
	if got := <-asked; got != "example.com" {
		t.Errorf("it looks for %q", got)
	}
	cancel()
	<-ended
}

// A peer at work whose connections are refused, as by a certificate that has ended, says why with each call that fails: that
// its time was over says nothing of it.
func TestCallsSayWhyThereIsNoConnection(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for address, word := range map[string]string{
		"etcds://" + server.Listener.Addr().String():     "x509: ",
		"etcds://u:p@" + server.Listener.Addr().String(): "x509: ",
		"etcd://127.0.0.1:1":                             "connection refused",
	} {
		client, prefix, err := Open(address)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		l, err := New(client, prefix, "name", Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Sync(ctx, transition.Request{Session: "a", Peer: "a", Weight: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", address, err)
		} else {
			wantWords(t, err.Error(), word)
		}
	}
}

// Who is refused by the certificate that he shows, or for want of one, often sees only that connections end: what to look
// at is said with each call that fails over TLS, and only there.
func TestCallsTellOfCertificates(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for address, told := range map[string]bool{
		"etcds://" + server.Listener.Addr().String() + "?ca=" + ca: true,
		"etcd://127.0.0.1:1": false,
	} {
		client, prefix, err := Open(address)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		l, err := New(client, prefix, "name", Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Sync(ctx, transition.Request{Session: "a", Peer: "a", Weight: 1})
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "cert= with key=") != told {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// Who was away for long is asked again within a moment, and the leases of the peers are renewed: left to itself gRPC
// would not look for two minutes.
func TestALongOutageEndsWithIt(t *testing.T) {
	away, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	knocks, ended := make(chan struct{}, 100), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := away.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
			knocks <- struct{}{}
		}
	}()
	defer func() {
		away.Close()
		<-ended
	}()
	client, _, err := Open("etcd://" + away.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	client.ActiveConnection().Connect()
	patience := time.After(15 * time.Second)
	for n := range 8 { // gRPC's own pauses are 40 s by then
		select {
		case <-knocks:
		case <-patience:
			t.Fatalf("%d connections were tried in 15 s", n)
		}
	}
}

// A user of etcd logs in with the first call, and hears which right he lacks.
func TestUser(t *testing.T) {
	s := etcdtest.Start(t)
	ctx, admin := t.Context(), s.Client()
	for _, do := range []func() error{
		func() error { _, err := admin.UserAdd(ctx, "root", "r"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := admin.RoleAdd(ctx, "countoff"); return err },
		func() error {
			all := clientv3.GetPrefixRangeEnd("/mine/")
			_, err := admin.RoleGrantPermission(ctx, "countoff", "/mine/", all, clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := admin.UserAdd(ctx, "peer", "p"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "peer", "countoff"); return err },
		func() error { _, err := admin.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	host := strings.TrimPrefix(admin.Endpoints()[0], "http://")
	if got := reach(t, "etcd://peer:p@"+host+"/mine"); got != "" {
		t.Error(got)
	}
	// A member that is away keeps nobody from the others.
	if got := reach(t, "etcd://peer:p@127.0.0.1:1,"+host+"/mine"); got != "" {
		t.Error(got)
	}
	wantWords(t, reach(t, "etcd://peer:p@"+host+"/other"), "readwrite on the prefix")
	wantWords(t, reach(t, "etcd://peer:wrong@"+host+"/mine"), "user and password")
	wantWords(t, reach(t, "etcd://"+host+"/mine"), "user and password")
	client, prefix, err := Open("etcd://peer:p@" + host + "/mine")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if made, err := Init(ctx, client, prefix, "name", partition.Config{}); !made || err != nil {
		t.Errorf("made: %v, %v", made, err)
	}
	// A watch that is refused is told, too.
	for address, word := range map[string]string{"peer:p@" + host + "/other": "readwrite on the prefix", "peer:wrong@" + host + "/mine": "user and password"} {
		refused, prefix, err := Open("etcd://" + address)
		if err != nil {
			t.Fatal(err)
		}
		defer refused.Close()
		l, err := New(refused, prefix, "name", Config{})
		if err != nil {
			t.Fatal(err)
		}
		waits, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := l.Hints(waits, "a", func() {}); err == nil {
			t.Errorf("%s: nobody said that the watch is refused", address)
		} else {
			wantWords(t, err.Error(), "name: hints: ", word)
		}
	}
}

// A program has several names by one client, whose watches etcd knows by the token that the first of them was opened with: a
// token ends, and a name that is begun after that hears what happens all the same.
func TestHintsOfAUserWhoseTokenHasEnded(t *testing.T) {
	s := etcdtest.Start(t)
	ctx, admin := t.Context(), s.Client()
	for _, do := range []func() error{
		func() error { _, err := admin.UserAdd(ctx, "root", "r"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := admin.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	client, prefix, err := Open("etcd://root:r@" + strings.TrimPrefix(admin.Endpoints()[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, name := range []string{"first", "second"} {
		l, err := New(client, prefix, name, Config{})
		if err != nil {
			t.Fatal(err)
		}
		listening, cancel := context.WithCancel(ctx)
		hints, ended := make(chan struct{}, 1), make(chan struct{})
		go func() {
			defer close(ended)
			_ = l.Hints(listening, "a", func() {
				select {
				case hints <- struct{}{}:
				default:
				}
			})
		}()
		defer func() { cancel(); <-ended }()
		select {
		case <-hints: // the watch stands
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: no hint in 10 s", name)
		}
		if _, err := client.UserChangePassword(ctx, "root", "r"); err != nil { // which ends its tokens
			t.Fatal(err)
		}
	}
}
