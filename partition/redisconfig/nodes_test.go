package redisconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
)

// What a Ring has of a name is elsewhere once a server is away.
func TestRingIsRefused(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	_, agreed := redisconfig.Lists.Agree(t.Context(), ring, "mail", partition.Config{})
	_, names := redisconfig.Names(t.Context(), ring)
	embedded := redisconfig.Fits(struct{ *redis.Ring }{ring})
	for what, err := range map[string]error{"a client": redisconfig.Fits(ring), "what embeds one": embedded, "a peer": agreed, "names": names} {
		if err == nil || !strings.Contains(err.Error(), "give a *redis.Client") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A name is on one server of a cluster, and of a client that hides that there are others one is asked: it
// would tell of some names, and the next time of others.
func TestNamesOfAHiddenCluster(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	if _, err := redisconfig.Agree(t.Context(), client, name, partition.Config{}); err != nil {
		t.Fatal(err)
	}
	names, err := redisconfig.Names(t.Context(), redistest.Hidden(client, 2))
	if err == nil || !strings.Contains(err.Error(), "give the *redis.ClusterClient itself") {
		t.Errorf("%q, %v", names, err)
	}
	if _, err := redisconfig.Names(t.Context(), client); err != nil {
		t.Errorf("by the client itself: %v", err)
	}
	for masters := range 2 { // none where the server is no cluster's, and one that has all slots is all there is
		if _, err := redisconfig.Names(t.Context(), redistest.Hidden(client, masters)); err != nil {
			t.Errorf("of %d masters: %v", masters, err)
		}
	}
}

func TestNilClientIsRefused(t *testing.T) {
	for _, client := range []redis.UniversalClient{(*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		if err := redisconfig.Fits(client); err == nil || err.Error() != fmt.Sprintf("the client is a nil %T", client) {
			t.Errorf("%T: %v", client, err)
		}
	}
	if err := redisconfig.Fits(nil); err == nil || !strings.HasPrefix(err.Error(), "no Redis client") {
		t.Errorf("none at all: %v", err)
	}
}
