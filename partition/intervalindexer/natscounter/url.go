package natscounter

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countoff/countoff/partition/urltls"
)

// Open opens a connection for a URL and returns what the URL says of the bucket:
//
//	nats://[user:password@|token@]host[:port][,host[:port]…][/bucket][?creds=FILE][&replicas=N]
//
// tls:// is the same over TLS, with the authorities of the system, or with those in ?ca=FILE;
// ?cert=FILE&key=FILE are a certificate of the peer's own, and ?name=NAME is the name in the
// server's, if that is not the host's. The default port is 4222,
// the default bucket countoff; replicas is for a bucket that is made. It does not wait for the
// connection, and the connection is never given up. Whoever opens one closes it.
func Open(address string) (*nats.Conn, Config, error) {
	options, cfg, err := parse(address)
	if err != nil {
		return nil, Config{}, err
	}
	conn, err := options.Connect()
	if err != nil {
		return nil, Config{}, fmt.Errorf("natscounter: %w", err)
	}
	return conn, cfg, nil
}

func parse(address string) (nats.Options, Config, error) {
	bad := func(why string) (nats.Options, Config, error) {
		return nats.Options{}, Config{}, fmt.Errorf("natscounter: %s: want nats://[user:password@|token@]host[:port][,host…][/bucket][?creds=FILE&replicas=N]", why)
	}
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok || scheme != "nats" && scheme != "tls" {
		return bad("the URL does not begin with nats:// or tls://")
	}
	o := nats.GetDefaultOptions()
	o.Name = "countoff"
	o.MaxReconnect, o.ReconnectWait, o.ReconnectJitter = -1, 250*time.Millisecond, 100*time.Millisecond
	o.RetryOnFailedConnect, o.IgnoreAuthErrorAbort = true, true
	o.ReconnectBufSize = -1                                         // nothing is counted late
	o.PingInterval, o.MaxPingsOut = 2*time.Second, 2                // a host that is gone without a word
	o.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {} // calls return it
	rest, query, _ := strings.Cut(rest, "?")
	hosts, bucket, _ := strings.Cut(rest, "/")
	if at := strings.LastIndex(hosts, "@"); at >= 0 {
		user, password, both := strings.Cut(hosts[:at], ":")
		user, err1 := url.PathUnescape(user)
		password, err2 := url.PathUnescape(password)
		switch {
		case errors.Join(err1, err2) != nil || user == "":
			return bad("user and password, or the token, are not understood")
		case both:
			o.User, o.Password = user, password
		default:
			o.Token = user
		}
		hosts = hosts[at+1:]
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "4222")
		}
		if strings.HasPrefix(host, ":") || strings.ContainsAny(host, "# ") {
			return bad(fmt.Sprintf("host %q is not understood", host))
		}
		o.Servers = append(o.Servers, scheme+"://"+host)
	}
	cfg := Config{Bucket: strings.Trim(bucket, "/")}
	values, err := url.ParseQuery(query)
	if err != nil {
		return bad("what follows the ? is not understood")
	}
	if scheme == "tls" {
		o.Secure = true
		if o.TLSConfig, err = urltls.Config(values); err != nil {
			return bad(err.Error())
		}
	}
	for key := range values {
		switch value := values.Get(key); {
		case urltls.Is(key):
			if scheme != "tls" {
				return bad(key + "= is for tls://")
			}
		case key == "creds":
			if err := nats.UserCredentials(value)(&o); err != nil {
				return bad(fmt.Sprintf("creds: %v", err))
			}
		case key == "replicas":
			if cfg.Replicas, err = strconv.Atoi(value); err != nil || cfg.Replicas < 1 {
				return bad(fmt.Sprintf("%s replicas", value))
			}
		default:
			return bad(fmt.Sprintf("%s is not known", key))
		}
	}
	if err := cfg.Validate(); err != nil {
		return nats.Options{}, Config{}, err
	}
	return o, cfg, nil
}
