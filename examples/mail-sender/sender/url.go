package sender

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	gomail "github.com/wneessen/go-mail"
)

// server is what an SMTP URL says.
type server struct {
	host           string
	port           int
	implicit       bool // TLS from the first byte
	starttls       gomail.TLSPolicy
	user, password string
	helo           string // empty: the host's name
	timeout        time.Duration
}

// parseURL reads smtp://[user:password@]host[:port][?starttls=…&helo=…&timeout=…].
// Its errors never show the password.
func parseURL(raw string) (server, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// The error of url.Parse quotes the whole text, with its password.
		return server{}, errors.New("sender: the SMTP URL cannot be read: want smtp://[user:password@]host[:port] or smtps://…")
	}
	fault := func(format string, args ...any) (server, error) {
		return server{}, fmt.Errorf("sender: %s: "+format, append([]any{u.Redacted()}, args...)...)
	}
	s := server{host: u.Hostname(), timeout: DefaultTimeout}
	s.user = u.User.Username()
	s.password, _ = u.User.Password()
	switch u.Scheme {
	case "smtp":
		s.port = 25
		if s.user != "" {
			s.port = 587
		}
	case "smtps":
		s.port, s.implicit = 465, true
	default:
		return fault("scheme %q: want smtp:// or smtps://", u.Scheme)
	}
	if s.host == "" {
		return fault("no host")
	}
	if p := u.Port(); p != "" {
		if s.port, err = strconv.Atoi(p); err != nil || s.port < 1 || s.port > 65535 {
			return fault("port %q: want 1 to 65535", p)
		}
	}
	if u.Path != "" && u.Path != "/" {
		return fault("path %q: an SMTP URL has none", u.Path)
	}
	s.starttls = gomail.TLSOpportunistic
	if s.user != "" && !loopback(s.host) {
		s.starttls = gomail.TLSMandatory
	}
	for name, values := range u.Query() {
		value := values[len(values)-1]
		switch name {
		case "starttls":
			policy, ok := map[string]gomail.TLSPolicy{
				"off": gomail.NoTLS, "try": gomail.TLSOpportunistic, "must": gomail.TLSMandatory,
			}[value]
			if !ok {
				return fault("starttls=%q: want off, try or must", value)
			}
			s.starttls = policy
		case "helo":
			s.helo = value
		case "timeout":
			if s.timeout, err = time.ParseDuration(value); err != nil || s.timeout <= 0 {
				return fault("timeout=%q: want a duration such as 19s", value)
			}
		default:
			return fault("unknown option %q: want starttls, helo or timeout", name)
		}
	}
	if s.implicit {
		s.starttls = gomail.NoTLS
	}
	return s, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// options are those of a go-mail client for one connection. NOOP before and RSET
// after each mail are left out: a dead connection shows itself at MAIL, before
// anything of the mail was sent, and a server forgets a mail it has answered.
func (s server) options(config *tls.Config, dial gomail.DialContextFunc) []gomail.Option {
	opts := []gomail.Option{
		gomail.WithPort(s.port), gomail.WithTimeout(s.timeout), gomail.WithTLSPolicy(s.starttls),
		gomail.WithTLSConfig(config), gomail.WithDialContextFunc(dial), gomail.WithoutNoop(), gomail.WithoutRset(),
	}
	if s.helo != "" {
		opts = append(opts, gomail.WithHELO(s.helo))
	}
	if s.user == "" {
		return opts
	}
	plain, login := gomail.SMTPAuthPlain, gomail.SMTPAuthLogin
	if !s.implicit && s.starttls == gomail.NoTLS {
		plain, login = gomail.SMTPAuthPlainNoEnc, gomail.SMTPAuthLoginNoEnc // asked for by starttls=off
	}
	return append(opts, gomail.WithUsername(s.user), gomail.WithPassword(s.password),
		gomail.WithOpportunisticSMTPAuth(gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthSCRAMSHA1, plain, login))
}
