package etcdledger

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Open opens a client for a URL and returns the prefix of its keys:
//
//	etcd://[user:password@]host[:port][,host[:port]…][/prefix]
//
// etcds:// is the same over TLS, with the authorities of the system. The default port is
// 2379, the default prefix /countoff. It does not wait for a connection. Whoever opens a
// client closes it.
func Open(address string) (client *clientv3.Client, prefix string, err error) {
	cfg, prefix, err := parse(address)
	if err != nil {
		return nil, "", err
	}
	client, err = clientv3.New(cfg)
	if err != nil {
		return nil, "", fmt.Errorf("etcdledger: %w", err)
	}
	return client, prefix, nil
}

func parse(address string) (clientv3.Config, string, error) {
	cfg := clientv3.Config{
		DialTimeout: 5 * time.Second,
		// A host that is gone without a word is noticed within a lease. etcd allows one
		// ping in 5 s.
		DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 2 * time.Second, PermitWithoutStream: true,
		Logger: zap.NewNop(), // calls return the same as errors
	}
	bad := func(why string) (clientv3.Config, string, error) {
		return clientv3.Config{}, "", fmt.Errorf("etcdledger: %s: want etcd://[user:password@]host[:port][,host…][/prefix]", why)
	}
	scheme, rest, ok := strings.Cut(address, "://")
	way := "http://"
	switch {
	case !ok || scheme != "etcd" && scheme != "etcds":
		return bad("the URL does not begin with etcd:// or etcds://")
	case scheme == "etcds":
		cfg.TLS, way = &tls.Config{MinVersion: tls.VersionTLS12}, "https://"
	}
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
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "2379")
		}
		if strings.HasPrefix(host, ":") || strings.ContainsAny(host, "?# ") {
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
