package kafkasource

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Options returns what a URL says of the brokers:
//
//	kafka://host:9092,host2:9092
//	kafka://user:password@host:9092?sasl=scram-sha-512
//	kafkas://user:password@host:9093?sasl=plain&ca=/etc/kafka/ca.pem
//
// kafkas is kafka over TLS. Parameters: sasl (plain, scram-sha-256 or scram-sha-512;
// needed with a user), ca (file of the authorities to trust instead of the system's),
// cert and key (files of a certificate of our own), name (the name in the broker's
// certificate, if it is not the host's). The port may be left out: 9092, with TLS 9093.
func Options(address string) ([]kgo.Opt, error) {
	u, err := url.Parse(address)
	if err != nil {
		// The error of url.Parse has the whole URL in it, with the password.
		return nil, errors.New("kafkasource: the URL cannot be parsed: want kafka://host:9092, with special characters of the password as %XX")
	}
	secure := u.Scheme == "kafkas"
	if u.Scheme != "kafka" && !secure {
		return nil, fmt.Errorf("kafkasource: URL %s: want kafka:// or kafkas://", u.Redacted())
	}
	if u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("kafkasource: URL %s: want brokers and no path, as in kafka://host:9092", u.Redacted())
	}
	opts := []kgo.Opt{kgo.SeedBrokers(seeds(u.Host, secure)...)}
	query := u.Query()
	mechanism, err := login(u.User, query.Get("sasl"))
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	if secure {
		t, err := secrets(query)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(t))
	}
	for name := range query {
		switch name {
		case "sasl":
		case "ca", "cert", "key", "name":
			if !secure {
				return nil, fmt.Errorf("kafkasource: URL %s: the parameter %s is for kafkas://", u.Redacted(), name)
			}
		default:
			return nil, fmt.Errorf("kafkasource: URL %s: unknown parameter %s", u.Redacted(), name)
		}
	}
	return opts, nil
}

func seeds(hosts string, secure bool) []string {
	list := strings.Split(hosts, ",")
	for i, h := range list {
		if _, _, err := net.SplitHostPort(h); err != nil && secure { // without, the client's default does
			list[i] = h + ":9093"
		}
	}
	return list
}

// login returns how to authenticate; nil: not at all.
func login(user *url.Userinfo, mechanism string) (sasl.Mechanism, error) {
	if user == nil {
		if mechanism != "" {
			return nil, fmt.Errorf("kafkasource: URL: sasl=%s needs a user and a password", mechanism)
		}
		return nil, nil
	}
	password, _ := user.Password()
	switch strings.ToLower(mechanism) {
	case "plain":
		return plain.Auth{User: user.Username(), Pass: password}.AsMechanism(), nil
	case "scram-sha-256":
		return scram.Auth{User: user.Username(), Pass: password}.AsSha256Mechanism(), nil
	case "scram-sha-512":
		return scram.Auth{User: user.Username(), Pass: password}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("kafkasource: URL: a user needs sasl=plain, scram-sha-256 or scram-sha-512, not %q", mechanism)
}

// secrets reads the files of a TLS configuration.
func secrets(query url.Values) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: query.Get("name")}
	if file := query.Get("ca"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("kafkasource: ca: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kafkasource: ca: no certificate in %s", file)
		}
	}
	cert, key := query.Get("cert"), query.Get("key")
	if (cert == "") != (key == "") {
		return nil, errors.New("kafkasource: URL: cert and key go together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("kafkasource: cert and key: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// explainDial adds to an error of the connection what to do about it.
func explainDial(err error) error {
	var first *kgo.ErrFirstReadEOF
	var record tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case errors.As(err, &first):
		return fmt.Errorf("%w (the port may want TLS, kafkas://, or SASL, ?sasl=)", err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w (the broker has hung up: it may refuse the user or the password)", err)
	case errors.As(err, &record):
		return fmt.Errorf("%w (the port does not speak TLS: use kafka://)", err)
	case errors.As(err, &authority):
		return fmt.Errorf("%w (trust its authority: ?ca=FILE)", err)
	case errors.As(err, &host):
		return fmt.Errorf("%w (?name= says which name is in the certificate)", err)
	}
	return err
}
