package urltls_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition/urltls"
)

func query(t *testing.T, raw string) url.Values {
	t.Helper()
	q, err := url.ParseQuery(raw)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]string{
		"cert=a.pem":               "cert= and key= go together",
		"key=a.pem":                "cert= and key= go together",
		"ca=" + dir + "/missing":   "ca: open " + dir,
		"ca=" + empty:              "ca: no certificate in " + empty,
		"cert=" + empty + "&key=x": "cert and key: open x",
	} {
		if _, err := urltls.Config(query(t, raw)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
	c, err := urltls.Config(query(t, "name=store.internal&db=3"))
	if err != nil || c.ServerName != "store.internal" || c.RootCAs != nil || c.MinVersion != tls.VersionTLS12 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestSaid(t *testing.T) {
	for raw, want := range map[string]string{"": "", "db=3": "", "db=3&name=": "name", "key=a&ca=b": "ca"} {
		if got := urltls.Said(query(t, raw)); got != want || got != "" && !urltls.Is(got) {
			t.Errorf("%q: said %q, want %q", raw, got, want)
		}
	}
	if urltls.Is("db") {
		t.Error("db is of TLS")
	}
}

// What goes wrong between a client and a server of TLS, and what the person in front of it reads.
func TestHint(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	plain := httptest.NewServer(nil)
	defer plain.Close()
	trusting := x509.NewCertPool()
	trusting.AddCert(server.Certificate())
	shake := func(address string, c *tls.Config) error {
		conn, err := tls.Dial("tcp", address, c)
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1)) // a server refuses a client after the handshake
		return err
	}
	secure := server.Listener.Addr().String()
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"an authority that is not known": {shake(secure, &tls.Config{}), "?ca=FILE"},
		"another name":                   {shake(secure, &tls.Config{RootCAs: trusting, ServerName: "other.internal"}), "?name="},
		"a certificate that has ended":   {shake(secure, &tls.Config{RootCAs: trusting, Time: func() time.Time { return time.Now().AddDate(1000, 0, 0) }}), "renew"},
		"no certificate of ours":         {shake(secure, &tls.Config{RootCAs: trusting}), "?cert=FILE&key=FILE"},
		"no TLS":                         {shake(plain.Listener.Addr().String(), &tls.Config{}), "use redis://"},
		"nobody there":                   {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, ""},
		"none":                           {nil, ""},
	} {
		if got := urltls.Hint(c.err, "redis://"); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: of %v it says %q, want %q", name, c.err, got, c.want)
		}
	}
}

// A wallet is a folder with a certificate of one's own, and what a server is known by.
type wallet struct {
	*testing.T
	dir string
}

func (w wallet) write(file, kind string, der []byte) {
	w.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		w.Fatal(err)
	}
}

// renew puts another certificate there.
func (w wallet) renew(name string) {
	w.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		w.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		w.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		w.Fatal(err)
	}
	w.write("cert", "CERTIFICATE", der)
	w.write("key", "PRIVATE KEY", secret)
}

// shown returns what says which certificate a server sees with the next connection.
func (w wallet) shown(server *httptest.Server) func() string {
	w.Helper()
	w.write("ca", "CERTIFICATE", server.Certificate().Raw)
	in := func(file string) string { return filepath.Join(w.dir, file) }
	c, err := urltls.Config(query(w.T, "ca="+in("ca")+"&cert="+in("cert")+"&key="+in("key")))
	if err != nil {
		w.Fatal(err)
	}
	return func() string {
		w.Helper()
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: c.Clone(), DisableKeepAlives: true}}
		answer, err := client.Get(server.URL)
		if err != nil {
			w.Fatal(err)
		}
		defer answer.Body.Close()
		got, err := io.ReadAll(answer.Body)
		if err != nil {
			w.Fatal(err)
		}
		return string(got)
	}
}

// asking is a server that asks for certificates.
func asking(t *testing.T, c *tls.Config) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shown := r.TLS.PeerCertificates; len(shown) > 0 {
			_, _ = io.WriteString(w, shown[0].Subject.CommonName)
		}
	}))
	server.TLS = c
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// A certificate ends one day, and whoever renews it puts another in the same files while peers are at work: the next
// connection shows that, and while the files are being written the one before.
func TestACertificateIsRenewed(t *testing.T) {
	w := wallet{t, t.TempDir()}
	w.renew("first")
	shown := w.shown(asking(t, &tls.Config{ClientAuth: tls.RequireAnyClientCert}))
	is := func(want string) {
		t.Helper()
		if got := shown(); got != want {
			t.Errorf("the server sees the certificate of %q, want that of %q", got, want)
		}
	}
	is("first")
	w.renew("second")
	is("second")
	w.write("key", "PRIVATE KEY", []byte("half of it"))
	is("second")
}

// A server that trusts other authorities, and lets in who has no certificate, is shown none: it would refuse ours.
func TestACertificateIsNotForAllServers(t *testing.T) {
	w := wallet{t, t.TempDir()}
	w.renew("ours")
	others := x509.NewCertPool()
	others.AddCert(asking(t, nil).Certificate())
	if got := w.shown(asking(t, &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: others}))(); got != "" {
		t.Errorf("the server sees the certificate of %q", got)
	}
}
