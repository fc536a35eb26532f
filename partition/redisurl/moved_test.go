package redisurl

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// A node of a cluster dies and another takes its place. Nobody says so, as the dead one does not answer: the client has to
// ask. Each miniredis says that it has all slots.
func TestNodeDiesAndAnotherHasItsSlots(t *testing.T) {
	t.Parallel()
	nodes := []*miniredis.Miniredis{miniredis.RunT(t), miniredis.RunT(t)}
	client, err := Open("redis://" + nodes[0].Addr() + "," + nodes[1].Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := t.Context()
	if err := client.Set(ctx, "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	dead, other := nodes[0], nodes[1]
	if other.Exists("key") {
		dead, other = other, dead
	}
	dead.Close()
	for end := time.Now().Add(40 * time.Second); !other.Exists("key"); { // go-redis asks once a minute
		if err = client.Set(ctx, "key", "value", 0).Err(); time.Now().After(end) {
			t.Fatalf("40 s later the client asks the dead one still: %v", err)
		}
	}
}
