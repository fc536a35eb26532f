package etcdledger

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/countoff/countoff/partition/urltls"
)

// Open opens a client for a URL and returns the prefix of its keys:
//
//	etcd://[user:password@]host[:port][,host[:port]…][/prefix]
//	etcds://…[?ca=FILE][&cert=FILE&key=FILE][&name=NAME]
//
// etcds:// is the same over TLS, with the authorities of the system or those in ca. cert and
// key are a certificate of the client's own, which may take the place of user and password;
// name is the name in the server's, if that is not the host's. The default port is 2379, the
// default prefix /countoff. It does not wait for a connection: see [Reach]. Whoever opens a
// client closes it.
func Open(address string) (client *clientv3.Client, prefix string, err error) {
	cfg, prefix, err := parse(address)
	if err != nil {
		return nil, "", err
	}
	// With a user etcd's client logs in before it is returned, and is none if nobody answers.
	// With a token it waits for its first call, finds out that this one is not valid, and
	// logs in.
	user, password := cfg.Username, cfg.Password
	if user != "" {
		cfg.Username, cfg.Password, cfg.Token = "", "", "none yet"
	}
	client, err = clientv3.New(cfg)
	if err != nil {
		return nil, "", fmt.Errorf("etcdledger: %w", err)
	}
	if user != "" {
		client.Username, client.Password, client.Token = user, password, ""
	}
	return client, prefix, nil
}

func parse(address string) (clientv3.Config, string, error) {
	cfg := clientv3.Config{
		DialTimeout: 5 * time.Second,
		// A host that is gone without a word is noticed while something waits for it. Of who only
		// pings etcd closes the connection, and gRPC says so on stderr.
		DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
		MaxCallSendMsgSize: math.MaxInt32, // how much is too much is for etcd to say: --max-request-bytes
		Logger:             zap.NewNop(),  // calls return the same as errors
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(led),
			// After an outage gRPC's own pauses, up to two minutes, would keep the peers from their leases.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: 5 * time.Second,
			}),
		},
	}
	bad := func(why string) (clientv3.Config, string, error) {
		return clientv3.Config{}, "", fmt.Errorf("etcdledger: %s: want etcd://[user:password@]host[:port][,host…][/prefix], or etcds:// with ?ca=FILE&cert=FILE&key=FILE&name=NAME", why)
	}
	scheme, rest, ok := strings.Cut(address, "://")
	way := "http://"
	switch {
	case !ok || scheme != "etcd" && scheme != "etcds":
		return bad("the URL does not begin with etcd:// or etcds://")
	case scheme == "etcds":
		way = "https://"
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, prefix, _ := strings.Cut(rest, "/")
	if at := strings.LastIndex(hosts, "@"); at >= 0 {
		user, password, ok := strings.Cut(hosts[:at], ":")
		var err1, err2 error
		cfg.Username, err1 = url.PathUnescape(user)
		cfg.Password, err2 = url.PathUnescape(password)
		if errors.Join(err1, err2) != nil || !ok || user == "" {
			return bad("user and password are not understood")
		}
		hosts = hosts[at+1:]
	}
	secrets, err := secure(scheme == "etcds", query)
	if err != nil {
		return bad(err.Error())
	}
	cfg.TLS = secrets
	if secrets != nil && secrets.ServerName != "" {
		// For each member etcd's client has gRPC look for the host of its URL in the certificate, whatever cfg.TLS says.
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithAuthority(secrets.ServerName))
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "2379")
		}
		if strings.HasPrefix(host, ":") || strings.ContainsAny(host, "# ") {
			return bad(fmt.Sprintf("host %q is not understood", host))
		}
		cfg.Endpoints = append(cfg.Endpoints, way+host)
	}
	prefix = strings.Trim(prefix, "/")
	if prefix == "" {
		prefix = "countoff"
	}
	return cfg, "/" + prefix, nil
}

// secure returns what the URL says of TLS; nil: it does not use TLS.
func secure(used bool, query string) (*tls.Config, error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("what comes after ? is not understood")
	}
	for option := range q {
		switch {
		case !urltls.Is(option):
			return nil, fmt.Errorf("%s= is not known", option)
		case !used:
			return nil, fmt.Errorf("%s= is for etcds://", option)
		}
	}
	if !used {
		return nil, nil
	}
	return urltls.Config(q)
}
