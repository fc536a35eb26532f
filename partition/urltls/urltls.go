// Package urltls reads the TLS settings of a URL, the same for every store:
//
//	ca    file of the authorities to trust instead of the system's, in PEM
//	cert  file of a certificate of our own, with key, the file of its private key
//	name  the name in the server's certificate, if that is not the host's
//
// Packages redisurl, kafkasource, etcdledger and natscounter use it.
package urltls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"sync/atomic"
)

var parameters = []string{"ca", "cert", "key", "name"}

// Is reports whether a parameter is one of these.
func Is(parameter string) bool { return slices.Contains(parameters, parameter) }

// Said returns the first of these parameters that q has, and "" if it has none: of a URL
// that does not use TLS it is a mistake.
func Said(q url.Values) string {
	for _, p := range parameters {
		if q.Has(p) {
			return p
		}
	}
	return ""
}

// Config reads the files that q names and returns a configuration with what q says,
// TLS 1.2 or later. An error says which parameter it is about, and shows no secret. cert and key are read again for
// each connection, since a certificate that is renewed is put into the same files; ca is not.
func Config(q url.Values) (*tls.Config, error) {
	ca, cert, key := q.Get("ca"), q.Get("cert"), q.Get("key")
	if (cert == "") != (key == "") {
		return nil, errors.New("cert= and key= go together")
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: q.Get("name")}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: no certificate in %s", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		c.GetClientCertificate = renewed(cert, key, &pair)
	}
	return c, nil
}

// renewed returns what reads a certificate of our own for a connection. While its files are being replaced they may
// not go together: the one before, at first stands, is good until then. As package tls does with those that it is
// given, none is shown to a server that trusts none of its authorities: it may let in who has none.
func renewed(cert, key string, stands *tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	var last atomic.Pointer[tls.Certificate]
	last.Store(stands)
	return func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if pair, err := tls.LoadX509KeyPair(cert, key); err == nil {
			last.Store(&pair)
		}
		if ours := last.Load(); asked.SupportsCertificate(ours) == nil {
			return ours, nil
		}
		return new(tls.Certificate), nil
	}
}

// Hint says what to do about an error of TLS, and "" if err is none. plain is the scheme of
// a URL without TLS, as in "redis://".
func Hint(err error, plain string) string {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case errors.As(err, &authority):
		return "trust its authority: ?ca=FILE"
	case errors.As(err, &host):
		return "?name= says which name is in its certificate"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the server's certificate, if the clock of this machine is right"
	case errors.As(err, &alert) && alert.Op == "remote error": // what package tls calls an alert of the other side
		return "if it wants a certificate of its clients: ?cert=FILE&key=FILE, one that it trusts and that has not ended"
	case errors.As(err, &record):
		return "the port does not speak TLS: use " + plain
	}
	return ""
}
