// Package redisurl opens the Redis client that a URL describes, with the options
// countoff needs. Programs take such a URL from a flag or from COUNTOFF_REDIS_URL.
//
//	redis://[user:password@]host[:port][/db]   one server; rediss:// with TLS, unix:///path
//	redis://host1:port,host2:port              several hosts: a cluster, which has no other db than 0
//	redis://host:port?cluster=true             a cluster, found through one of its nodes
//	redis://host1,host2?master_name=NAME       Sentinels that know the master NAME; user:password@ is for both,
//	                                           username= and password= are those of the master where they differ, and password= where it wants none
//	rediss://host:port?ca=FILE                 TLS with an authority of our own; cert= and key=
//	                                           for a certificate of ours, name= for the server's
//
// Everything else that go-redis takes in a URL works too, as in ?read_timeout=2s.
package redisurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/countoff/countoff/partition/urltls"
)

// Variable is the environment variable that holds the URL where no flag does.
const Variable = "COUNTOFF_REDIS_URL"

// Open returns a client for raw. It does not connect: see [Reach]. Its errors never
// show the password.
//
// A call ends with its context, also while the server does not answer: without that
// a peer would learn too late that its lease cannot be renewed.
func Open(raw string) (redis.UniversalClient, error) { return open(raw, func(pool) {}) }

// OpenTasks is [Open] for the tasks of a peer whose ledger has a client of its own, and for who calls
// now and then, as a producer that may have nothing to say for hours. Connections that
// no call has used for 7 s are given up, unless the URL has a conn_max_idle_time: where something between has
// forgotten them without a word, each would cost a call the whole time it waits for its answer, one after the other.
func OpenTasks(raw string) (redis.UniversalClient, error) {
	return open(raw, func(p pool) {
		if *p.unused == 0 {
			*p.unused = 7 * time.Second
		}
	})
}

// OpenControl is [Open] for the ledger and the counter of a peer, and for no other calls: where answers
// are late tasks hold all connections of their client, and a lease that waits for one is lost.
// What the URL says of the pool is not for it. Connections are opened as they are needed,
// two or three for a consumer; none is given up for its age, as a ledger that may not ask for the run of its
// server takes a lost connection for a doubt, and none is for pipelines, whose losses are not counted.
func OpenControl(raw string) (redis.UniversalClient, error) {
	return open(raw, func(p pool) {
		const more, none = 100, -1 // than are ever under way, also for all consumers of an application; 0 is the default
		*p.size, *p.pipelines, *p.idle, *p.kept, *p.most, *p.dials = more, none, 0, 0, 0, 0
		*p.unused, *p.age = none, 0
	})
}

// A pool is what the options of each kind of client say of its connections.
type pool struct {
	size, pipelines, idle, kept, most, dials *int
	unused, age                              *time.Duration
}

// check says that go-redis has no room for so many: it would end the program.
func (p pool) check() error {
	const most = 1_000_000
	for _, n := range []struct {
		parameter string
		is, least int
	}{{"pool_size", *p.size, 0}, {"pipeline_pool_size", *p.pipelines, -1}, {"min_idle_conns", *p.idle, 0}, {"max_active_conns", *p.most, 0}} {
		if n.is < n.least || n.is > most {
			return fmt.Errorf("%s=%d: want %d to %d", n.parameter, n.is, n.least, most)
		}
	}
	return nil
}

func open(raw string, adjust func(pool)) (redis.UniversalClient, error) {
	t, err := parse(raw)
	var client redis.UniversalClient
	if err == nil {
		client, err = t.open(adjust)
	}
	if err != nil {
		return nil, fmt.Errorf("redis URL %s: %w", Redacted(raw), plain(raw, err))
	}
	return client, nil
}

func (t target) open(adjust func(pool)) (redis.UniversalClient, error) {
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // nobody here listens to them
	const dials = 1                                                            // a call that fails is repeated by those who know what it means
	switch {
	case t.sentinel:
		opt, err := redis.ParseFailoverURL(t.url)
		if err != nil {
			return nil, err
		}
		if !t.apart { // to go-redis those of the URL are the Sentinels' alone
			opt.Username, opt.Password = opt.SentinelUsername, opt.SentinelPassword
		}
		opt.ContextTimeoutEnabled, opt.DialerRetries = true, dials
		conns := pool{&opt.PoolSize, &opt.PipelinePoolSize, &opt.MinIdleConns, &opt.MaxIdleConns, &opt.MaxActiveConns, &opt.MaxConcurrentDials, &opt.ConnMaxIdleTime, &opt.ConnMaxLifetime}
		if err := t.settle(conns, adjust, opt.TLSConfig); err != nil {
			return nil, err
		}
		return redis.NewFailoverClient(opt), nil
	case t.cluster:
		opt, err := redis.ParseClusterURL(t.url)
		if err != nil {
			return nil, err
		}
		opt.ContextTimeoutEnabled, opt.DialerRetries, opt.MaintNotificationsConfig = true, dials, quiet
		conns := pool{&opt.PoolSize, &opt.PipelinePoolSize, &opt.MinIdleConns, &opt.MaxIdleConns, &opt.MaxActiveConns, &opt.MaxConcurrentDials, &opt.ConnMaxIdleTime, &opt.ConnMaxLifetime}
		if err := t.settle(conns, adjust, opt.TLSConfig); err != nil {
			return nil, err
		}
		cluster := redis.NewClusterClient(opt)
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(moved{cluster}) })
		cluster.OnNewNode(new(whole).listen)
		cluster.AddHook(stepped{})
		return cluster, nil
	}
	opt, err := redis.ParseURL(t.url)
	if err != nil {
		return nil, err
	}
	opt.ContextTimeoutEnabled, opt.DialerRetries, opt.MaintNotificationsConfig = true, dials, quiet
	conns := pool{&opt.PoolSize, &opt.PipelinePoolSize, &opt.MinIdleConns, &opt.MaxIdleConns, &opt.MaxActiveConns, &opt.MaxConcurrentDials, &opt.ConnMaxIdleTime, &opt.ConnMaxLifetime}
	if err := t.settle(conns, adjust, opt.TLSConfig); err != nil {
		return nil, err
	}
	return redis.NewClient(opt), nil
}

// settle checks what the URL says of the connections, has adjust change it, and puts what it says of TLS into c.
func (t target) settle(conns pool, adjust func(pool), c *tls.Config) error {
	if err := conns.check(); err != nil {
		return err
	}
	adjust(conns)
	t.secure(c)
	return nil
}

// target is a URL as go-redis reads it, and what it leads to.
type target struct {
	url               string
	cluster, sentinel bool
	apart             bool        // the servers behind Sentinels have a user and password of their own, or none
	secrets           *tls.Config // nil: those of go-redis
}

// secure puts what the URL says of TLS into c, which go-redis has made from its rest.
func (t target) secure(c *tls.Config) {
	if c == nil || t.secrets == nil {
		return
	}
	c.RootCAs, c.GetClientCertificate = t.secrets.RootCAs, t.secrets.GetClientCertificate
	if t.secrets.ServerName != "" {
		c.ServerName = t.secrets.ServerName
	}
}

// secrets takes what a URL says of TLS out of q; nil: nothing.
func secrets(scheme string, q url.Values) (*tls.Config, error) {
	switch said := urltls.Said(q); {
	case said == "":
		return nil, nil
	case scheme != "rediss":
		return nil, fmt.Errorf("%s= is for rediss://", said)
	}
	c, err := urltls.Config(q)
	maps.DeleteFunc(q, func(parameter string, _ []string) bool { return urltls.Is(parameter) })
	return c, err
}

func parse(raw string) (target, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return target{}, errors.New("want redis://, rediss:// or unix://, as in redis://127.0.0.1:6379")
	}
	if scheme != "redis" && scheme != "rediss" && scheme != "unix" {
		return target{}, fmt.Errorf("scheme %q: want redis, rediss or unix", scheme)
	}
	if strings.Contains(rest, "#") {
		return target{}, errFragment
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	first, more, several := strings.Cut(hosts, ",")
	u, err := url.Parse(scheme + "://" + user + first + path)
	if err != nil {
		return target{}, errUnreadable // err quotes the URL with its password
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if err := checkPort(host); err != nil {
			return target{}, err
		}
	}
	q := u.Query()
	own, err := secrets(scheme, q)
	if err != nil {
		return target{}, err
	}
	if several {
		for host := range strings.SplitSeq(more, ",") {
			if _, _, err := net.SplitHostPort(host); err != nil {
				host = net.JoinHostPort(strings.Trim(host, "[]"), defaultPort(q))
			}
			q.Add("addr", host)
		}
	}
	t := target{sentinel: q.Has("master_name"), cluster: q.Has("addr"), apart: q.Has("username") || q.Has("password"), secrets: own}
	if q.Has("cluster") {
		if t.cluster = q.Get("cluster") == "true"; !t.cluster && q.Get("cluster") != "false" {
			return target{}, fmt.Errorf("cluster=%s: want true or false", q.Get("cluster"))
		}
		q.Del("cluster")
	}
	if db := strings.Trim(u.Path, "/"); t.cluster && !t.sentinel && scheme != "unix" && db != "" && db != "0" {
		// go-redis passes over it: who means to be apart from others by it would share their names.
		return target{}, fmt.Errorf("database %s: a cluster has number 0 alone: what is to be apart takes names of its own", db)
	}
	if t.sentinel && u.Port() == "" {
		u.Host += ":" + defaultPort(q)
	}
	u.RawQuery = q.Encode()
	t.url = u.String()
	return t, nil
}

// checkPort says that there is no such port: nothing would answer there, as if the server were down.
func checkPort(host string) error {
	i := strings.LastIndex(host, ":")
	port := host[i+1:]
	if i < 0 || port == "" || strings.HasSuffix(port, "]") {
		return nil // without one; [::1] has none either
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %s: want 1 to 65535", port)
	}
	return nil
}

// defaultPort is that of a Sentinel where a master's name says they are Sentinels.
func defaultPort(q url.Values) string {
	if q.Has("master_name") {
		return "26379"
	}
	return "6379"
}

var errUnreadable = errors.New("cannot be read: want redis://[user:password@]host[:port][/db], special characters of the password as %XX")

// errFragment is of what a URL cuts off: redis://:12#pass@host would lead to port 12 of this host.
var errFragment = errors.New("a # ends a URL: write one that is part of the password, or of a path, as %23")

// plain keeps the reason and drops what may be the password: the URL that url.Error repeats, and all that is said
// where a / or ? has an @ behind it. Such a password was not escaped, and is read as database and parameters.
func plain(raw string, err error) error {
	_, rest, _ := strings.Cut(raw, "://")
	if i := strings.IndexAny(rest, "/?"); i >= 0 && strings.Contains(rest[i:], "@") {
		return errUnreadable
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// Redacted returns raw with its password replaced, for logs and errors, however
// broken raw is.
func Redacted(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		scheme, rest = "", raw
	} else {
		scheme += "://"
	}
	// The password ends at the last @ of what may hold it: a password that was not
	// escaped may contain / and ?.
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return scheme + withoutSecrets(rest)
	}
	user, _, secret := strings.Cut(rest[:at], ":")
	if secret {
		user += ":xxxxx"
	}
	return scheme + user + "@" + withoutSecrets(rest[at+1:])
}

// withoutSecrets hides the password of Sentinels, which is a parameter.
func withoutSecrets(rest string) string {
	before, query, ok := strings.Cut(rest, "?")
	if !ok {
		return rest
	}
	fields := strings.Split(query, "&")
	for i, f := range fields {
		if name, _, ok := strings.Cut(f, "="); ok && strings.Contains(strings.ToLower(name), "password") {
			fields[i] = name + "=xxxxx"
		}
	}
	return before + "?" + strings.Join(fields, "&")
}

// Reach asks the server for a sign of life, so that a program can say at its start
// that raw leads nowhere.
func Reach(ctx context.Context, client redis.UniversalClient, raw string) error {
	err := ping(ctx, client)
	if err == nil {
		return nil
	}
	hint := urltls.Hint(err, "redis://")
	var reply redis.Error
	switch {
	case hint != "":
	case strings.HasPrefix(raw, "rediss://") && errors.Is(err, context.DeadlineExceeded):
		hint = "is it running, is this its address, and does the port speak TLS? A Redis without waits in silence: redis://"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		hint = "it has hung up: it has as many clients as its maxclients allows, or the port may want TLS, rediss://"
	case errors.Is(err, redis.Nil): // one of them answered, whatever the others did
		hint = "a Sentinel knows no master of that name: master_name is to be one that SENTINEL MASTERS lists"
	case strings.Contains(err.Error(), "unknown command") && strings.Contains(err.Error(), "get-master-addr-by-name"):
		hint = "it is no Sentinel: without master_name the URL is that of the servers themselves"
	case errors.As(err, &reply):
		switch {
		case redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "WRONGPASS"):
			hint = "check user and password in the URL"
		case redis.HasErrorPrefix(err, "LOADING"):
			hint = "it is loading its data: try again soon"
		case redis.HasErrorPrefix(err, "MISCONF"):
			hint = "it refuses every write because it could not save to disk: free its disk or mend its permissions"
		default:
			hint = "it answered with an error"
		}
	default:
		hint = "is it running, and is this its address?"
	}
	return fmt.Errorf("cannot use Redis at %s: %w (%s)", Redacted(raw), err, hint)
}

// ping asks for a sign of life. Of a cluster any node is asked, for that and for which nodes there are: where
// one stands still another ping may ask others, an eighth of the time later.
func ping(ctx context.Context, client redis.UniversalClient) error {
	end, ok := ctx.Deadline()
	if _, cluster := client.(*redis.ClusterClient); !ok || !cluster {
		return client.Ping(ctx).Err()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const most = 4
	answers := make(chan error, most)
	another := time.NewTicker(max(time.Until(end)/8, 1))
	defer another.Stop()
	for asked, answered := 0, 0; ; {
		if asked < most {
			asked++
			go func() { answers <- client.Ping(ctx).Err() }()
		}
		select {
		case err := <-answers:
			if answered++; err == nil || answered == asked {
				return err
			}
		case <-another.C:
		}
	}
}
