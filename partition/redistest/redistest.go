package redistest

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The environment variables that take tests to servers of the caller's choice.
const (
	// ServerVariable is the URL of one server, as in redis://127.0.0.1:7001.
	ServerVariable = "COUNTOFF_REDIS"
	// ClusterVariable lists nodes of a cluster, host:port, separated by commas.
	ClusterVariable = "COUNTOFF_REDIS_CLUSTER"
)

// patience is how long a test waits for a server, generous for a busy machine.
const patience = 30 * time.Second

// New returns a client of a Redis that holds nothing under any name [Name] gives
// out: a miniredis of the test's own, or, where ClusterVariable or ServerVariable says so,
// that cluster or server. The latter are shared between tests and not cleaned up:
// point the variables at servers that are thrown away, and take every name from
// Name.
//
// The client is closed when the test ends. Scripts whose keys span slots fail the
// test.
func New(t testing.TB) redis.UniversalClient {
	t.Helper()
	if nodes := os.Getenv(ClusterVariable); nodes != "" {
		return connectCluster(t, strings.Split(nodes, ","))
	}
	if url := os.Getenv(ServerVariable); url != "" {
		opt, err := redis.ParseURL(url)
		if err != nil {
			t.Fatalf("redistest: %s: %v", ServerVariable, err)
		}
		return connect(t, unhurried(opt))
	}
	_, client := Mini(t)
	return client
}

// Mini returns a miniredis and a client of it, whatever the environment says: for
// tests that move its clock or make it fail.
func Mini(t testing.TB) (*miniredis.Miniredis, redis.UniversalClient) {
	t.Helper()
	m := miniredis.RunT(t)
	return m, connect(t, unhurried(&redis.Options{Addr: m.Addr()}))
}

// Bubble returns a Redis that lives in the testing/synctest bubble it is called in:
// its clock is the bubble's, keys expire by it, and no socket is opened. Close both
// before the bubble ends, which the test's cleanup does.
func Bubble(t testing.TB) (*miniredis.Miniredis, redis.UniversalClient) {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	return m, connect(t, &redis.Options{
		Addr:   "bubble",
		Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		// Nobody ever waits for a connection: go-redis keeps the timers of those who wait
		// for all clients of the process, and one of another bubble is a fatal error.
		PoolSize: 1000,
	})
}

// Frozen returns a client of a Redis in a [Bubble], and one of a cluster where that has the first half
// of the slots. The other half are on a node that stands still: it takes connections and answers nothing.
func Frozen(t testing.TB) (direct redis.UniversalClient, cluster *redis.ClusterClient) {
	t.Helper()
	m, direct := Bubble(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"bubble:1", "frozen:1"},
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{
				{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: "bubble:1"}}},
				{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: "frozen:1"}}},
			}, nil
		},
		Dialer: func(_ context.Context, _, addr string) (net.Conn, error) {
			if addr == "bubble:1" {
				return m.Dial()
			}
			ours, theirs := net.Pipe()
			t.Cleanup(func() { theirs.Close() })
			return ours, nil
		},
		ContextTimeoutEnabled:    true,
		DisableRoutingPolicies:   true, // go-redis would ask a node of its choice which commands there are
		PoolSize:                 1000, // see Bubble
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		client.Close()
		time.Sleep(time.Second) // of the bubble: until who read the slots anew has ended
	})
	return direct, client
}

// Name returns a task processing name that no other test uses.
func Name(t testing.TB) string {
	t.Helper()
	readable := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, t.Name())
	if len(readable) > 40 {
		readable = readable[len(readable)-40:]
	}
	return readable + "-" + strings.ToLower(rand.Text()[:12])
}

// unhurried gives a server on a busy machine as long as a test does. Who waits for an answer no longer than three
// seconds, as is the default, sends the call again: what it does is done twice then.
func unhurried(opt *redis.Options) *redis.Options {
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout = patience, patience, patience, patience
	return opt
}

// connect returns a client that the test's end closes.
func connect(t testing.TB, opt *redis.Options) redis.UniversalClient {
	t.Helper()
	// The handshake for maintenance notifications only makes noise here.
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClient(opt)
	t.Cleanup(func() { client.Close() })
	OneSlot(t, client)
	return Careful(client)
}

// Careful returns client as one that hides that there is one server only: code that
// asks a client whether it is a *redis.Client, to touch several slots in one script,
// takes the way it takes on a cluster. That way is the one to test by default, as
// OneSlot can see its faults, and what is returned by [New] and [Another] is careful.
//
// It is the one type that does so: each type with the methods of a client takes a
// second to compile.
func Careful(client *redis.Client) redis.UniversalClient { return careful{client} }

type careful struct{ *redis.Client }

// Hidden returns client as one in a struct that embeds it, of which nobody sees whose it is. It says that the slots
// are on so many masters. It is no key of a map, as such structs need not be.
func Hidden(client redis.UniversalClient, masters int) redis.UniversalClient {
	h := hidden{client, nil}
	for n := range 2 * masters { // each has several ranges
		h.slots = append(h.slots, redis.ClusterSlot{Start: n, End: n, Nodes: []redis.ClusterNode{{ID: strconv.Itoa(n % masters)}}})
	}
	return h
}

type hidden struct {
	redis.UniversalClient
	slots []redis.ClusterSlot
}

func (h hidden) ClusterSlots(ctx context.Context) *redis.ClusterSlotsCmd {
	cmd := redis.NewClusterSlotsCmd(ctx, "cluster", "slots")
	cmd.SetVal(h.slots)
	if h.slots == nil {
		cmd.SetErr(errors.New("ERR This instance has cluster support disabled"))
	}
	return cmd
}

// Another returns another client, with connections of its own, of the server or the
// cluster that client, which came from this package, talks to.
func Another(t testing.TB, client redis.UniversalClient) redis.UniversalClient {
	t.Helper()
	switch c := client.(type) {
	case interface{ Options() *redis.Options }:
		opt := *c.Options()
		return connect(t, &opt)
	case *redis.ClusterClient:
		opt := *c.Options()
		other := redis.NewClusterClient(&opt)
		t.Cleanup(func() { other.Close() })
		OneSlot(t, other)
		return other
	}
	t.Fatalf("redistest: a client %T", client)
	return nil
}

// Single returns a plain *redis.Client of the server that client, which came from
// this package, talks to: for tests of what is only done where there is one server.
// Its scripts may touch several slots. On a cluster the test is skipped.
func Single(t testing.TB, client redis.UniversalClient) *redis.Client {
	t.Helper()
	c, ok := client.(careful)
	if !ok {
		t.Skip("redistest: not one server")
	}
	opt := *c.Options()
	plain := redis.NewClient(&opt)
	t.Cleanup(func() { plain.Close() })
	return plain
}

func connectCluster(t testing.TB, nodes []string) redis.UniversalClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                    nodes,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { client.Close() })
	OneSlot(t, client)
	return client
}

// Lagging returns a client of a store, and one of the same that sends what it may to a
// replica, which has not heard of anything yet: for tests that what counts is read where it
// was written.
func Lagging(t testing.TB) (store, client redis.UniversalClient) {
	t.Helper()
	master, store := Mini(t)
	replica, _ := Mini(t)
	nodes := []redis.ClusterNode{{Addr: master.Addr()}, {Addr: replica.Addr()}}
	c := redis.NewClusterClient(&redis.ClusterOptions{
		ReadOnly: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: nodes}}, nil
		},
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { c.Close() })
	return store, c
}

// until waits for ok and fails the test, with what was last wrong, when it does not
// come true.
func until(t testing.TB, ok func() error) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(patience)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("redistest: after %v: %v", patience, err)
		}
		<-tick.C
	}
}
