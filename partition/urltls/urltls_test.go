package urltls_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
