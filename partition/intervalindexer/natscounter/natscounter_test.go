package natscounter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/indexertest"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/partition/intervalindexer/countertest"
	"github.com/countoff/countoff/partition/intervalindexer/natscounter"
	"github.com/countoff/countoff/partition/intervalindexer/natscounter/natstest"
)

func TestMain(m *testing.M) {
	natstest.Main()
	goleak.VerifyTestMain(m)
}

// open returns a counter for a URL, whose connection stands.
func open(t *testing.T, url string) (*natscounter.Counter, *nats.Conn) {
	t.Helper()
	conn, cfg, err := natscounter.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	c, err := natscounter.New(conn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, conn
}

func connected(t *testing.T, conn *nats.Conn) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !conn.IsConnected(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no connection: %v", conn.LastError())
		}
	}
}

// counter returns a counter on a server, at work.
func counter(t *testing.T, url string) *natscounter.Counter {
	t.Helper()
	c, conn := open(t, url)
	connected(t, conn)
	return c
}

func TestCounts(t *testing.T) {
	ctx, url := t.Context(), natstest.Start(t)
	c := counter(t, url+"/counts")
	a, b, none := "{mail}:7", "{mail}:7:0", "{mail}:8"
	for i := range int64(3) {
		if v, err := c.Incr(ctx, a, 1500*time.Millisecond*time.Duration(i+20)); v != i+1 || err != nil {
			t.Fatalf("incr: %d, %v, want %d", v, err, i+1)
		}
	}
	if _, err := c.Incr(ctx, b, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(ctx, a, none, b); !slices.Equal(got, []int64{3, 0, 1}) || err != nil {
		t.Errorf("get: %v, %v", got, err)
	}
	if n, err := c.Get(ctx); len(n) != 0 || err != nil {
		t.Errorf("get nothing: %v, %v", n, err)
	}
	kv, stream := bucket(t, url, "counts")
	for key, want := range map[string]string{"mail.7": "33s", "mail.7.0": "1m0s"} { // whole seconds, the last Incr's
		m, err := stream.GetLastMsgForSubject(ctx, "$KV.counts."+key)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if ttl := m.Header.Get("Nats-TTL"); ttl != want {
			t.Errorf("%s lives for %s, want %s", key, ttl, want)
		}
	}
	if info, err := stream.Info(ctx); err != nil || info.State.Msgs != 2 {
		t.Errorf("%d messages stand for 2 keys, %v", info.State.Msgs, err)
	}
	if err := kv.Delete(ctx, "mail.7.0"); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(ctx, b); !slices.Equal(got, []int64{0}) || err != nil {
		t.Errorf("deleted: %v, %v", got, err)
	}
	if v, err := c.Incr(ctx, b, time.Minute); v != 1 || err != nil {
		t.Errorf("after it was deleted: %d, %v", v, err)
	}
	if _, err := kv.PutString(ctx, "mail.7", "seven"); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Get(ctx, a); err == nil {
		t.Errorf("seven is %v", v)
	}
	if v, err := c.Incr(ctx, a, time.Minute); err == nil {
		t.Errorf("seven and one is %v", v)
	}
}

// bucket returns what others see of a bucket.
func bucket(t *testing.T, url, name string) (jetstream.KeyValue, jetstream.Stream) {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KV_"+name)
	if err != nil {
		t.Fatal(err)
	}
	return kv, stream
}

// What has expired is counted from the beginning again, whether or not the bucket still
// marks that it was there.
func TestExpires(t *testing.T) {
	ctx, url := t.Context(), natstest.Start(t)
	c := counter(t, url)
	if _, err := c.Incr(ctx, "k", time.Millisecond); err != nil { // a second
		t.Fatal(err)
	}
	kv, _ := bucket(t, url, "countoff")
	watch, err := kv.Watch(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for e := range watch.Updates() {
		if e != nil && e.Operation() != jetstream.KeyValuePut { // the mark
			break
		}
	}
	if got, err := c.Get(ctx, "k"); !slices.Equal(got, []int64{0}) || err != nil {
		t.Errorf("expired: %v, %v", got, err)
	}
	for want := range int64(2) {
		if v, err := c.Incr(ctx, "k", time.Minute); v != want+1 || err != nil {
			t.Errorf("after it expired: %d, %v, want %d", v, err, want+1)
		}
	}
}

// Of many that increment at once each gets a number of its own, and none is left out: on one
// server and on a cluster, whose replicas may answer with what was.
func TestManyAtOnce(t *testing.T) {
	for name, urls := range map[string]func(*testing.T) []string{
		"one":     func(t *testing.T) []string { return []string{natstest.Start(t)} },
		"cluster": func(t *testing.T) []string { return natstest.StartCluster(t) },
	} {
		t.Run(name, func(t *testing.T) {
			servers := urls(t)
			var counters []*natscounter.Counter
			for _, url := range servers {
				counters = append(counters, counter(t, fmt.Sprint(url, "?replicas=", len(servers))))
			}
			// Servers that have just found each other may lose an answer: each is to have given one.
			for _, c := range counters {
				for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
					_, err := c.Incr(t.Context(), "another", time.Minute)
					if err == nil {
						break
					}
					if time.Now().After(deadline) {
						t.Fatal(err)
					}
				}
			}
			const many = 30
			got := make([]int64, many)
			var wg sync.WaitGroup
			for i := range many {
				wg.Go(func() {
					var err error
					if got[i], err = counters[i%len(counters)].Incr(t.Context(), "k", time.Minute); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			slices.Sort(got)
			for i, n := range got {
				if n != int64(i)+1 {
					t.Fatalf("the numbers are %v", got)
				}
			}
		})
	}
}

// Keys of names that a bucket would not allow, and of names that look alike.
func TestKeys(t *testing.T) {
	ctx, url := t.Context(), natstest.Start(t)
	c := counter(t, url)
	keys := []string{"{a.b}:1", "{a}:1", "{a_b}:1", "{a=2Eb}:1", "{..}:1", "{a.b}:1:0", "{a*}:1"}
	for i, key := range keys {
		for range i + 1 {
			if _, err := c.Incr(ctx, key, time.Minute); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
		}
	}
	got, err := c.Get(ctx, keys...)
	if !slices.Equal(got, []int64{1, 2, 3, 4, 5, 6, 7}) || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	kv, _ := bucket(t, url, "countoff")
	if e, err := kv.Get(ctx, "a=2Eb.1.0"); err != nil || string(e.Value()) != "6" {
		t.Errorf("nats kv get countoff a=2Eb.1.0: %v, %v", e, err)
	}
}

// More keys are read than at once.
func TestGetMany(t *testing.T) {
	c := counter(t, natstest.Start(t))
	var keys []string
	for i := range 300 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	if _, err := c.Incr(t.Context(), "k299", time.Minute); err != nil {
		t.Fatal(err)
	}
	got, err := c.Get(t.Context(), keys...)
	if err != nil || len(got) != 300 || got[299] != 1 || slices.Max(got[:299]) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// A bucket that somebody deletes is made again: what stood in it is forgotten.
func TestBucketIsDeleted(t *testing.T) {
	ctx, url := t.Context(), natstest.Start(t)
	c := counter(t, url)
	for _, call := range []func() error{
		func() error { _, err := c.Incr(ctx, "k", time.Minute); return err },
		func() error { _, err := c.Get(ctx, "k"); return err },
		func() error { return c.Reach(ctx) },
	} {
		if err := call(); err != nil {
			t.Fatal(err)
		}
		_, stream := bucket(t, url, "countoff")
		conn, err := nats.Connect(url)
		if err != nil {
			t.Fatal(err)
		}
		js, _ := jetstream.New(conn)
		if err := js.DeleteStream(ctx, stream.CachedInfo().Config.Name); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	if v, err := c.Incr(ctx, "k", time.Minute); v != 1 || err != nil {
		t.Errorf("after it was deleted: %d, %v", v, err)
	}
}

// A server that does not answer gives errors, not zeros: they would mean that nobody came.
// What was asked of it is not done later.
func TestUnreachable(t *testing.T) {
	server := natstest.StartProcess(t)
	c, conn := open(t, server.URL())
	connected(t, conn)
	if _, err := c.Incr(t.Context(), "a", time.Minute); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for conn.IsConnected() {
		<-time.After(5 * time.Millisecond)
	}
	if v, err := c.Incr(t.Context(), "a", time.Minute); err == nil {
		t.Errorf("incr: %d", v)
	}
	if v, err := c.Get(t.Context(), "a", "b"); err == nil {
		t.Errorf("get: %v", v)
	}
	server.Start()
	connected(t, conn)
	if got, err := c.Get(t.Context(), "a", "b"); !slices.Equal(got, []int64{1, 0}) || err != nil {
		t.Errorf("from its file: %v, %v", got, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := c.Incr(ended, "a", time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %d, %v", v, err)
	}
	if v, err := c.Get(ended, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v, %v", v, err)
	}
	if v, err := c.Incr(t.Context(), "a", time.Minute); v != 2 || err != nil {
		t.Errorf("something was counted late: %d, %v", v, err)
	}
}

// What is wrong with a server is said with what to do.
func TestErrorsSayWhatToDo(t *testing.T) {
	user := func(o *server.Options) { o.Username, o.Password = "u", "p" }
	for name, c := range map[string]struct {
		with func(*server.Options)
		url  func(url string) string
		want []string
	}{
		"no JetStream": {
			with: func(o *server.Options) { o.JetStream = false },
			want: []string{"nats-server -js"},
		},
		"an account without": {
			with: func(o *server.Options) {
				account := server.NewAccount("mails")
				o.Accounts = []*server.Account{account, server.NewAccount("SYS")}
				o.SystemAccount = "SYS"
				o.Users = []*server.User{{Username: "u", Password: "p", Account: account}}
			},
			url:  func(url string) string { return strings.Replace(url, "//", "//u:p@", 1) },
			want: []string{"accounts {"},
		},
		"no user": {
			with: user,
			want: []string{"authorization violation", "nats://user:password@"},
		},
		"another password": {
			with: user,
			url:  func(url string) string { return strings.Replace(url, "//", "//u:q@", 1) },
			want: []string{"authorization violation", "nats://user:password@"},
		},
		"no permission": {
			with: func(o *server.Options) {
				o.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{
					Publish:   &server.SubjectPermission{Allow: []string{"$JS.API.>"}},
					Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
				}}}
			},
			url:  func(url string) string { return strings.Replace(url, "//", "//u:p@", 1) },
			want: []string{`Publish to "$KV.countoff.k"`, "lacks a permission"},
		},
		"nobody there": {
			url:  func(string) string { return "nats://127.0.0.1:1" },
			want: []string{"not connected: RECONNECTING", "do the hosts of the URL answer"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := natstest.Start(t, func(o *server.Options) {
				if c.with != nil {
					c.with(o)
				}
			})
			if c.url != nil {
				url = c.url(url)
			}
			counter, conn := open(t, url)
			for deadline := time.Now().Add(time.Minute); name != "nobody there" && !conn.IsConnected() && conn.LastError() == nil; <-time.After(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("neither a connection nor an error")
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			n, err := counter.Incr(ctx, "k", time.Minute)
			if err == nil {
				t.Fatalf("incr: %d", n)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("says %q, want %q", err, want)
				}
			}
		})
	}
}

// The permissions of the documentation are enough.
func TestPermissions(t *testing.T) {
	of := func(publish ...string) *server.Permissions {
		return &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: publish},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}
	}
	peer := []string{
		"$KV.countoff.mail-sender.>",
		"$JS.API.DIRECT.GET.KV_countoff.$KV.countoff.mail-sender.>",
		"$JS.API.STREAM.INFO.KV_countoff",
	}
	url := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "first", Password: "p", Permissions: of(append(peer, "$JS.API.STREAM.CREATE.KV_countoff", "$JS.API.INFO")...)},
			{Username: "peer", Password: "p", Permissions: of(peer...)},
		}
	})
	for _, user := range []string{"first", "peer"} {
		c := counter(t, strings.Replace(url, "//", "//"+user+":p@", 1))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if _, err := c.Incr(ctx, "{mail-sender}:7", time.Minute); err != nil {
			t.Error(err)
		}
		if _, err := c.Get(ctx, "{mail-sender}:6", "{mail-sender}:7"); err != nil {
			t.Error(err)
		}
		cancel()
	}
}

// A bucket that was made without times to live is refused: its keys would stay for ever.
func TestBucketWithoutTTL(t *testing.T) {
	url := natstest.Start(t)
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, _ := jetstream.New(conn)
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "old"}); err != nil {
		t.Fatal(err)
	}
	if _, err := counter(t, url+"/old").Incr(t.Context(), "k", time.Minute); err == nil || !strings.Contains(err.Error(), "--marker-ttl") {
		t.Errorf("says %v", err)
	}
}

// What NATS refuses is not tried again, as what another was faster with is: it would be counted twice where it was done
// all the same, and be told as a lack of time.
func TestAFullBucketIsTold(t *testing.T) {
	url := natstest.Start(t)
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, _ := jetstream.New(conn)
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "full", MaxBytes: 1, LimitMarkerTTL: time.Second}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := counter(t, url+"/full").Incr(ctx, "k", time.Minute); ctx.Err() != nil || err == nil || !strings.Contains(err.Error(), "maximum bytes") {
		t.Errorf("says %v", err)
	}
}

// A bucket whose keys live for less than a count must is refused, until that is mended: counts
// would be gone before anybody read them.
func TestBucketForgetsTooSoon(t *testing.T) {
	ctx, url := t.Context(), natstest.Start(t)
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, _ := jetstream.New(conn)
	cfg := jetstream.KeyValueConfig{Bucket: "brief", TTL: time.Minute, LimitMarkerTTL: time.Second}
	if _, err := js.CreateKeyValue(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	c := counter(t, url+"/brief")
	if n, err := c.Incr(ctx, "k", time.Minute); n != 1 || err != nil {
		t.Errorf("as long as the bucket keeps it: %d, %v", n, err)
	}
	if _, err := c.Incr(ctx, "k", time.Minute+time.Second); err == nil || !strings.Contains(err.Error(), "--ttl 1m1s") {
		t.Errorf("says %v", err)
	}
	cfg.TTL = time.Hour
	if _, err := js.UpdateKeyValue(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Incr(ctx, "k", time.Minute+time.Second); n != 2 || err != nil {
		t.Errorf("after it was mended: %d, %v", n, err)
	}
}

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"redis://x":             "does not begin with nats://",
		"nats://:4222":          "is not understood",
		"nats://:p@x":           "user and password",
		"nats://u:%zz@x":        "user and password",
		"nats://x#1":            "is not understood",
		"nats://x?replicas=0":   "0 replicas",
		"nats://x?creds=/none":  "creds",
		"nats://x?replicas=two": "two replicas",
		"nats://x?replicas=9":   "9 replicas: want 1 to 5",
		"nats://x?color=red":    "color is not known",
		"nats://x?ca=/none":     "ca= is for tls://",
		"tls://x?ca=/none":      "ca: ",
		"tls://x?cert=/none":    "go together",
		"tls://x?cert=/a&key=b": "cert and key: ",
		"nats://x/a.b":          `bucket "a.b"`,
	} {
		if conn, _, err := natscounter.Open(url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", url, err, want)
			if conn != nil {
				conn.Close()
			}
		}
	}
	conn, cfg, err := natscounter.Open("tls://u%40x:p@127.0.0.1:1,localhost:2/b?replicas=3")
	if err != nil || cfg != (natscounter.Config{Bucket: "b", Replicas: 3}) {
		t.Fatalf("%v, %v", cfg, err)
	}
	defer conn.Close()
	if o := conn.Opts; o.User != "u@x" || o.Password != "p" || !o.Secure || !slices.Equal(o.Servers, []string{"tls://127.0.0.1:1", "tls://localhost:2"}) {
		t.Errorf("%q %q %v %v", o.User, o.Password, o.Secure, o.Servers)
	}
	token, _, err := natscounter.Open("nats://t%40ken@127.0.0.1?name=a@b")
	if err == nil || token != nil {
		t.Errorf("name= is for tls://, and says %v", err)
	}
	token, _, err = natscounter.Open("tls://t%40ken@127.0.0.1,[::1]?name=a@b")
	if err != nil {
		t.Fatal(err)
	}
	defer token.Close()
	if o := token.Opts; o.User != "" || o.Token != "t@ken" || !slices.Equal(o.Servers, []string{"tls://127.0.0.1:4222", "tls://[::1]:4222"}) {
		t.Errorf("%q %q %v", o.User, o.Token, o.Servers)
	}
}

// In real time.
func TestConformance(t *testing.T) {
	shared := counter(t, natstest.Start(t))
	var names atomic.Int64
	indexertest.Run(t, indexertest.Harness{New: func(t *testing.T) indexertest.Group {
		config := intervalindexer.Config{Interval: 600 * time.Millisecond, Partitions: partition.Config{Total: 16}}
		g := countertest.Group(t, shared, fmt.Sprint("name", names.Add(1)), config)
		g.Settle = 8 * config.Interval // five would do on a machine that does nothing else
		return g
	}})
}

// Peers whose server is killed and comes back with its files have the places again that they
// had before.
func TestServerIsKilled(t *testing.T) {
	nats := natstest.StartProcess(t)
	config := intervalindexer.Config{Interval: 500 * time.Millisecond, Partitions: partition.Config{Total: 16}}
	const peers = 3
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	var last [peers]atomic.Pointer[partition.View]
	var missed atomic.Int64
	for i := range peers {
		c, conn := open(t, nats.URL())
		connected(t, conn)
		x, err := intervalindexer.New(c, "mail", config, intervalindexer.WithMissed(func(uint64, error) { missed.Add(1) }))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := x.Index(ctx, func(v partition.View) { last[i].Store(&v) }); err != nil {
				t.Error(err)
			}
		})
	}
	agreed := func() (places [peers]int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
			taken := map[int]bool{}
			for i := range peers {
				if v := last[i].Load(); v != nil && v.Replicas == peers && v.Index >= 0 {
					taken[v.Index], places[i] = true, v.Index
				}
			}
			if len(taken) == peers {
				return places
			}
			if time.Now().After(deadline) {
				t.Fatalf("peers do not agree: %v %v %v", last[0].Load(), last[1].Load(), last[2].Load())
			}
		}
	}
	before := agreed()
	nats.Kill()
	for deadline := time.Now().Add(time.Minute); missed.Load() < 3*peers; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody missed an interval")
		}
	}
	for i := range peers {
		if v := last[i].Load(); v.Index != -1 { // nobody is a member who was not counted for long
			t.Errorf("peer %d says %+v while the server is down", i, *v)
		}
	}
	nats.Start()
	if after := agreed(); after != before {
		t.Errorf("places %v, and %v before", after, before)
	}
}
