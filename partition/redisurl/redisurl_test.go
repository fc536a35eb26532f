package redisurl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redistest"
)

func TestOpen(t *testing.T) {
	for raw, check := range map[string]func(t *testing.T, c redis.UniversalClient) bool{
		"redis://h": func(_ *testing.T, c redis.UniversalClient) bool {
			o := c.(*redis.Client).Options()
			return o.Addr == "h:6379" && o.ContextTimeoutEnabled && o.TLSConfig == nil
		},
		"rediss://u:p%40ss@h:7000/3?read_timeout=2s": func(_ *testing.T, c redis.UniversalClient) bool {
			o := c.(*redis.Client).Options()
			return o.Addr == "h:7000" && o.Username == "u" && o.Password == "p@ss" && o.DB == 3 && o.TLSConfig != nil && o.ReadTimeout == 2*time.Second
		},
		"redis://u:p@a:1,b:2,c": func(_ *testing.T, c redis.UniversalClient) bool {
			o := c.(*redis.ClusterClient).Options()
			return strings.Join(o.Addrs, " ") == "a:1 b:2 c:6379" && o.Password == "p" && o.ContextTimeoutEnabled
		},
		"redis://[::1]:7000,[::2],[::3]:7": func(_ *testing.T, c redis.UniversalClient) bool {
			return strings.Join(c.(*redis.ClusterClient).Options().Addrs, " ") == "[::1]:7000 [::2]:6379 [::3]:7"
		},
		"redis://a:1?cluster=true": func(_ *testing.T, c redis.UniversalClient) bool {
			o := c.(*redis.ClusterClient).Options()
			return strings.Join(o.Addrs, " ") == "a:1"
		},
		"redis://a,b/0": func(_ *testing.T, c redis.UniversalClient) bool {
			_, cluster := c.(*redis.ClusterClient)
			return cluster
		},
		"redis://s1,s2/2?master_name=m": func(_ *testing.T, c redis.UniversalClient) bool {
			return c.(*redis.Client).Options().DB == 2
		},
		"redis://s1,s2:5?master_name=m": func(_ *testing.T, c redis.UniversalClient) bool {
			_, failover := c.(*redis.Client)
			return failover
		},
		"redis://u:p@s1?master_name=m": func(_ *testing.T, c redis.UniversalClient) bool {
			o := c.(*redis.Client).Options()
			return o.Username == "u" && o.Password == "p"
		},
		"redis://u:p@s1?master_name=m&password=q": func(_ *testing.T, c redis.UniversalClient) bool {
			o := c.(*redis.Client).Options()
			return o.Username == "" && o.Password == "q"
		},
		"redis://u:p@s1?master_name=m&password=": func(_ *testing.T, c redis.UniversalClient) bool {
			o := c.(*redis.Client).Options()
			return o.Username == "" && o.Password == ""
		},
		"unix:///run/redis.sock": func(_ *testing.T, c redis.UniversalClient) bool {
			return c.(*redis.Client).Options().Network == "unix"
		},
	} {
		t.Run(raw, func(t *testing.T) {
			c, err := Open(raw)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if !check(t, c) {
				t.Errorf("%T %+v", c, c)
			}
		})
	}
}

// Who asks for no other kind has what the URL says. A ledger has connections that no pipeline has taken, that are not
// given up for their age, and that do not wait for those of tasks; those of tasks are given up before they are forgotten.
func TestKindsOfClients(t *testing.T) {
	type pool struct {
		size, pipelines, idle, kept, most, dials int
		unused, age                              time.Duration
	}
	of := func(c redis.UniversalClient) pool {
		if c, ok := c.(*redis.ClusterClient); ok {
			o := c.Options()
			return pool{o.PoolSize, o.PipelinePoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxConcurrentDials, o.ConnMaxIdleTime, o.ConnMaxLifetime}
		}
		o := c.(*redis.Client).Options()
		dials := o.MaxConcurrentDials
		if dials == o.PoolSize { // which is go-redis's default
			dials = 0
		}
		return pool{o.PoolSize, o.PipelinePoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, dials, o.ConnMaxIdleTime, o.ConnMaxLifetime}
	}
	const said = "pool_size=3&min_idle_conns=0&max_idle_conns=1&max_active_conns=4&max_concurrent_dials=2&conn_max_idle_time=6s&conn_max_lifetime=8s"
	for _, base := range []string{"redis://h?", "redis://a,b?", "redis://s?master_name=m&"} {
		for _, c := range []struct {
			name, said string
			open       func(string) (redis.UniversalClient, error)
			want       pool
		}{
			{"as said", said, Open, pool{3, 0, 0, 1, 4, 2, 6 * time.Second, 8 * time.Second}},
			{"tasks", "pool_size=3", OpenTasks, pool{3, 0, 0, 0, 0, 0, 7 * time.Second, 0}},
			{"tasks as said", said, OpenTasks, pool{3, 0, 0, 1, 4, 2, 6 * time.Second, 8 * time.Second}},
			{"control", said, OpenControl, pool{100, -1, 0, 0, 0, 0, -1, 0}},
		} {
			client, err := c.open(base + c.said)
			if err != nil {
				t.Fatal(err)
			}
			if got := of(client); got != c.want {
				t.Errorf("%s, %s: %+v, want %+v", base, c.name, got, c.want)
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestOpenRefusesAndTellsNoSecret(t *testing.T) {
	for raw, want := range map[string]string{
		"127.0.0.1:6379":                                       "want redis://",
		"http://u:SECRET@h":                                    `scheme "http"`,
		"redis://u:SECRET@h:port":                              "cannot be read",
		"redis://u:SECRET@h:70000":                             "port 70000: want 1 to 65535",
		"redis://[::1]:65536":                                  "port 65536",
		"redis://a:1,b:0":                                      "port 0",
		"redis://u:SEC/RET@h":                                  "",
		"redis://u:12/SECRET@h":                                "special characters of the password as %XX",
		"redis://u:12/SECRET@h?cluster=true":                   "special characters of the password",
		"redis://u:12/SEC/RET@h,i":                             "special characters of the password",
		"redis://u:12?SECRET@h":                                "special characters of the password",
		"redis://:#SECRET@h":                                   "write one that is part of the password, or of a path, as %23",
		"redis://u:12#SECRET@h,i":                              "as %23", // else a client of port 12 of the host u
		"redis://h/0#f":                                        "as %23",
		"redis://u:SEC%23RET@h":                                "",
		"redis://u:SECRET@h/x":                                 "database",
		"redis://u:SECRET@h?colour=1":                          "colour",
		"redis://u:SECRET@h?pool_size=-5":                      "pool_size=-5: want 0 to 1000000",
		"redis://u:SECRET@a,b?min_idle_conns=-1":               "min_idle_conns=-1: want 0",
		"redis://u:SECRET@h?master_name=m&pool_size=9999999":   "pool_size=9999999: want 0",
		"redis://h?cluster=maybe":                              "true or false",
		"redis://u:SECRET@a,b/1":                               "database 1: a cluster has number 0 alone",
		"redis://u:SECRET@h/15?cluster=true":                   "database 15: a cluster",
		"redis://u:SECRET@a:1?addr=":                           "",
		"redis://u:SECRET@h?ca=/x.pem":                         "ca= is for rediss://",
		"rediss://u:SECRET@h?ca=/no/such/file":                 "no such file",
		"rediss://u:SECRET@h?cert=/x.pem":                      "go together",
		"redis://a?master_name=m&sentinel_password=SECRET&x=y": "x",
	} {
		c, err := Open(raw)
		if err == nil {
			c.Close()
			if want != "" {
				t.Errorf("%s: no error", raw)
			}
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "RET@") {
			t.Errorf("%s: %v: want %q and no secret", raw, err, want)
		}
	}
}

func TestReach(t *testing.T) {
	mini, client := redistest.Mini(t)
	if err := Reach(t.Context(), client, "redis://h"); err != nil {
		t.Error(err)
	}
	mini.SetError("MISCONF Redis is configured to save RDB snapshots")
	if err := Reach(t.Context(), client, "redis://h"); err == nil || !strings.Contains(err.Error(), "free its disk") {
		t.Error(err)
	}
	mini.SetError("")
	mini.RequireAuth("SECRET")
	c, err := Open("redis://:WRONG@" + mini.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = Reach(t.Context(), c, "redis://:WRONG@"+mini.Addr())
	if err == nil || !strings.Contains(err.Error(), "check user and password") || strings.Contains(err.Error(), "redis://:WRONG") {
		t.Error(err)
	}
	addr := mini.Addr()
	mini.Close()
	err = Reach(t.Context(), c, "redis://"+addr)
	if err == nil || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "is it running") {
		t.Error(err)
	}
}

// A server that takes no more clients runs, and its address is right.
func TestReachAServerThatIsFullOfClients(t *testing.T) {
	full := redistest.Server(t)
	if err := full.Client().ConfigSet(t.Context(), "maxclients", "1").Err(); err != nil {
		t.Fatal(err)
	}
	c, err := Open("redis://" + full.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := Reach(t.Context(), c, "redis://"+full.Addr()); err == nil || !strings.Contains(err.Error(), "maxclients") {
		t.Error(err)
	}
}

// A URL with master_name leads to Sentinels, and they know its name.
func TestReachThroughSentinels(t *testing.T) {
	mini, _ := redistest.Mini(t)
	url := "redis://" + mini.Addr() + "?master_name=m&max_retries=-1"
	want := func(hint string) {
		t.Helper()
		c, err := Open(url)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := Reach(t.Context(), c, url); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("it says %v, want %q", err, hint)
		}
	}
	want("it is no Sentinel")
	stranger := func(c *server.Peer, _ string, _ []string) { c.WriteLen(-1) } // as a Sentinel answers
	if err := mini.Server().Register("SENTINEL", stranger); err != nil {
		t.Fatal(err)
	}
	want("knows no master of that name")
}

func TestReachWhoWantsACertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	url := "rediss://" + server.Listener.Addr().String() + "?max_retries=-1&ca=" + ca
	c, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := Reach(t.Context(), c, url); err == nil || !strings.Contains(err.Error(), "?cert=FILE&key=FILE") {
		t.Error(err)
	}

	secret, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600); err != nil {
		t.Fatal(err)
	}
	url += "&cert=" + ca + "&key=" + key
	with, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	defer with.Close()
	if err := Reach(t.Context(), with, url); err == nil || strings.Contains(err.Error(), "certificate") {
		t.Errorf("with a certificate it is let in, and finds no Redis: %v", err)
	}
}

// A Redis without TLS waits for the end of what it takes for a command.
func TestReachWhoDoesNotSpeakTLS(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	url := "rediss://" + silent.Addr().String() + "?max_retries=-1"
	c, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := Reach(ctx, c, url); err == nil || !strings.Contains(err.Error(), "does the port speak TLS?") {
		t.Error(err)
	}
}

// A cluster is reached although the nodes that are asked first stand still.
func TestReachBesideANodeThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"h:1"}})
		defer client.Close()
		client.AddHook(&frozen{still: 3})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := Reach(ctx, client, "redis://h"); err != nil {
			t.Error(err)
		}
	})
}

// frozen answers no call of the first ones.
type frozen struct{ still int32 }

func (*frozen) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *frozen) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, _ redis.Cmder) error {
		if atomic.AddInt32(&f.still, -1) < 0 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

func (*frozen) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
