package sender_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/examples/mail-sender/mail"
	"github.com/countoff/countoff/examples/mail-sender/mailbox"
	"github.com/countoff/countoff/examples/mail-sender/sender"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var born = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func hello(to string) mail.Mail {
	return mail.Mail{To: mail.Addresses{to}, Subject: "hi", Text: "there", HTML: "<p>there</p>", Headers: map[string]string{"X-Tag": "a"}}
}

func box(t *testing.T, cfg mailbox.Config) *mailbox.Server {
	t.Helper()
	s, err := mailbox.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newSender(t *testing.T, cfg sender.Config) *sender.Sender {
	t.Helper()
	if cfg.From == "" {
		cfg.From = "Post <post@sender.example>"
	}
	s, err := sender.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestSend(t *testing.T) {
	b := box(t, mailbox.Config{})
	s := newSender(t, sender.Config{URL: b.URL() + "?helo=peer-1"})
	for range 3 {
		if err := s.Send(t.Context(), "4f00", born, hello("Ann <ann@example.com>")); err != nil {
			t.Fatal(err)
		}
	}
	got := b.Deliveries(0)
	if len(got) != 3 {
		t.Fatalf("%d deliveries", len(got))
	}
	d := got[2]
	if d.Client != "peer-1" || d.MessageID != "4f00@sender.example" || d.From != "post@sender.example" ||
		len(d.To) != 1 || d.To[0] != "ann@example.com" || d.Subject != "hi" || !d.Accepted {
		t.Errorf("%+v", d)
	}
	if n := b.Connected("peer-1"); n != 1 {
		t.Errorf("%d connections for mails one after the other, want one that is kept", n)
	}
}

func TestRefusals(t *testing.T) {
	codes := map[string]int{"busy@example.com": 451, "gone@example.com": 550, "auth@example.com": 535}
	b := box(t, mailbox.Config{Verdict: func(to string, _ int) int { return codes[to] }})
	s := newSender(t, sender.Config{URL: b.URL()})
	for to, forGood := range map[string]bool{"busy@example.com": false, "gone@example.com": true, "auth@example.com": false} {
		err := s.Send(t.Context(), "1", born, hello(to))
		if err == nil || errors.Is(err, sender.ErrRefused) != forGood {
			t.Errorf("%s: %v, refused for good: want %v", to, err, forGood)
		}
	}
	if err := s.Send(t.Context(), "2", born, hello("ann@example.com")); err != nil {
		t.Errorf("after refusals on the same connection: %v", err)
	}
}

func TestConnectionClosedByServer(t *testing.T) {
	first := box(t, mailbox.Config{})
	s := newSender(t, sender.Config{URL: first.URL()})
	if err := s.Send(t.Context(), "1", born, hello("ann@example.com")); err != nil {
		t.Fatal(err)
	}
	addr := first.Addr()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := box(t, mailbox.Config{Addr: addr})
	if err := s.Send(t.Context(), "2", born, hello("ann@example.com")); err != nil {
		t.Errorf("the kept connection was closed by the server: %v", err)
	}
	if got := second.Deliveries(0); len(got) != 1 {
		t.Errorf("%d deliveries", len(got))
	}
}

func TestServerDown(t *testing.T) {
	b := box(t, mailbox.Config{})
	s := newSender(t, sender.Config{URL: b.URL()})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	err := s.Send(t.Context(), "1", born, hello("ann@example.com"))
	if err == nil || errors.Is(err, sender.ErrRefused) || !strings.Contains(err.Error(), b.Addr()) {
		t.Errorf("%v: want an error worth another try that names %s", err, b.Addr())
	}
}

// A handler must return soon after its context ended, wherever the server hangs.
func TestCancel(t *testing.T) {
	cause := errors.New("the partition is lost")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts (the backlog does) and never greets
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	slow := box(t, mailbox.Config{Latency: time.Hour})
	for name, url := range map[string]string{"greeting": "smtp://" + silent.Addr().String(), "data": slow.URL()} {
		t.Run(name, func(t *testing.T) {
			s := newSender(t, sender.Config{URL: url + "?timeout=1h"})
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Send(ctx, "1", born, hello("ann@example.com")) }()
			if name == "data" {
				waitFor(t, func() bool { return len(slow.Deliveries(0)) == 1 })
			}
			cancel(cause)
			select {
			case err := <-done:
				if !errors.Is(err, cause) || errors.Is(err, sender.ErrRefused) {
					t.Errorf("%v, want the cause", err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("Send did not return after its context ended")
			}
		})
	}
}

func TestTimeoutNamesTheServer(t *testing.T) {
	b := box(t, mailbox.Config{Latency: time.Hour})
	s := newSender(t, sender.Config{URL: b.URL() + "?timeout=50ms"})
	err := s.Send(t.Context(), "1", born, hello("ann@example.com"))
	if err == nil || !strings.Contains(err.Error(), "did not answer within 50ms") {
		t.Error(err)
	}
}

func TestTLSAndCredentials(t *testing.T) {
	web := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate of 127.0.0.1
	defer web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	serverTLS := &tls.Config{Certificates: web.TLS.Certificates}
	clientTLS := &tls.Config{RootCAs: roots}

	for name, c := range map[string]struct {
		box   mailbox.Config
		login string
		query string
		want  string // part of the error; empty: it works
	}{
		"smtps":                     {box: mailbox.Config{TLS: serverTLS, Implicit: true, User: "u", Password: "p@ss"}, login: "u:p%40ss@"},
		"starttls":                  {box: mailbox.Config{TLS: serverTLS, User: "u", Password: "p"}, login: "u:p@", query: "?starttls=must"},
		"plain text on loopback":    {box: mailbox.Config{User: "u", Password: "p"}, login: "u:p@", query: "?starttls=off"},
		"wrong password":            {box: mailbox.Config{TLS: serverTLS, User: "u", Password: "p"}, login: "u:SECRET@", want: "Authentication failed"},
		"no credentials":            {box: mailbox.Config{TLS: serverTLS, User: "u", Password: "p"}, want: "authentication required"},
		"starttls where it is none": {box: mailbox.Config{}, query: "?starttls=must", want: "STARTTLS"},
	} {
		t.Run(name, func(t *testing.T) {
			b := box(t, c.box)
			url := strings.Replace(b.URL(), "://", "://"+c.login, 1) + c.query
			err := newSender(t, sender.Config{URL: url, TLS: clientTLS}).Send(t.Context(), "1", born, hello("ann@example.com"))
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			case c.want != "" && errors.Is(err, sender.ErrRefused):
				t.Errorf("%v: speaks of us and not of the mail, must not refuse it for good", err)
			}
			if err != nil && strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%v: shows the password", err)
			}
		})
	}
}

func TestNewSaysAllFaultsAndNoSecret(t *testing.T) {
	for _, c := range []struct {
		cfg  sender.Config
		want []string
	}{
		{sender.Config{URL: "http://u:SECRET@h", From: "nobody"}, []string{`scheme "http"`, `from "nobody"`}},
		{sender.Config{URL: "smtp://u:SECRET@h:99999", From: "a@b.example"}, []string{"port"}},
		{sender.Config{URL: "smtp://", From: "a@b.example"}, []string{"no host"}},
		{sender.Config{URL: "smtp://h/x", From: "a@b.example"}, []string{"path"}},
		{sender.Config{URL: "smtp://u:SECRET@h:x", From: "a@b.example"}, []string{"cannot be read"}},
		{sender.Config{URL: "smtp://h?starttls=maybe", From: "a@b.example"}, []string{"off, try or must"}},
		{sender.Config{URL: "smtp://h?timeout=soon", From: "a@b.example"}, []string{"duration"}},
		{sender.Config{URL: "smtp://h?tls=1", From: "a@b.example"}, []string{"unknown option"}},
	} {
		_, err := sender.New(c.cfg)
		if err == nil {
			t.Errorf("%+v: no error", c.cfg)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v: does not say %q", err, want)
			}
		}
		if strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%v: shows the password", err)
		}
	}
}

func TestMessageID(t *testing.T) {
	for id, want := range map[string]string{
		"4f00-1":                "4f00-1@example.com",
		"with space>":           "",
		strings.Repeat("a", 65): "",
		"":                      "",
	} {
		got := sender.MessageID(id, "post@example.com")
		if want != "" && got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
		if strings.ContainsAny(got, " <>\r\n") || !strings.HasSuffix(got, "@example.com") {
			t.Errorf("%q: %q cannot stand in a header", id, got)
		}
		if got != sender.MessageID(id, "post@example.com") {
			t.Errorf("%q: not the same twice", id)
		}
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("what is waited for did not come")
		}
		<-time.After(time.Millisecond)
	}
}
