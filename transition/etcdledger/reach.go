package etcdledger

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/countoff/countoff/partition/urltls"
)

// Reach asks for a sign of life of the etcd that a URL describes, by a client of it, so that
// a program can say at its start that the URL leads nowhere. It knocks at the hosts itself
// first: calls of etcd's client end with their context, and do not say why.
func Reach(ctx context.Context, client *clientv3.Client, address string) error {
	cfg, prefix, err := parse(address)
	if err != nil {
		return err
	}
	hosts := strings.Join(cfg.Endpoints, " ")
	if err := knock(ctx, cfg); err != nil {
		return fmt.Errorf("etcdledger: cannot use etcd at %s: %w", hosts, err)
	}
	if _, err := client.Get(ctx, prefix+"/"); err != nil {
		hint := advice(err)
		if hint == "" {
			hint = "it answered with an error"
		}
		return fmt.Errorf("etcdledger: cannot use etcd at %s: %w (%s)", hosts, err, hint)
	}
	return nil
}

// knock returns nil if a host lets us in, else why none does.
func knock(ctx context.Context, cfg clientv3.Config) error {
	var errs []error
	for _, endpoint := range cfg.Endpoints {
		err := enter(ctx, endpoint[strings.Index(endpoint, "//")+2:], cfg.TLS)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// greeting begins every connection of HTTP/2: the preface, and SETTINGS that set nothing.
const greeting = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// enter greets a host as etcd's client does. A host that says nothing for a while may be busy.
func enter(ctx context.Context, host string, secrets *tls.Config) error {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var conn net.Conn
	var err error
	if secrets == nil {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", host)
	} else {
		secrets = secrets.Clone()
		secrets.NextProtos = []string{"h2"}
		conn, err = (&tls.Dialer{Config: secrets}).DialContext(ctx, "tcp", host)
	}
	if err != nil {
		return hinted(err, secrets != nil)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience)) // no connection of this kind refuses it
	answer := make([]byte, 9)                      // of a frame, its head
	if _, err = io.WriteString(conn, greeting); err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return nil
	}
	const settings = 4
	if err == nil && answer[3] != settings {
		err = errors.New("the answer is no HTTP/2")
	}
	return hinted(err, secrets != nil)
}

// hinted adds to err what to do about it.
func hinted(err error, secure bool) error {
	if err == nil {
		return nil
	}
	hint := urltls.Hint(err, "etcd://")
	var dial *net.OpError
	switch {
	case hint != "":
	case secure, errors.As(err, &dial) && dial.Op == "dial":
		hint = "is it running, and is this its address?"
	default:
		hint = "is it the port of etcd's clients? If it wants TLS: etcds://"
	}
	return fmt.Errorf("%w (%s)", err, hint)
}
