package redisquorum

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/transition/quorum"
)

// Epochs rise when peers come and go, which may be once a week. A firewall has forgotten the connections by then, and
// a number that goes out on them finds no majority.
func TestConnectionsAreNotKeptForHours(t *testing.T) {
	t.Parallel()
	q, err := Open("mails", []string{"redis://a", "redis://b", "redis://c"}, quorum.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for _, r := range q.registers {
		if idle := r.client.(*redis.Client).Options().ConnMaxIdleTime; idle <= 0 || idle > 10*time.Second {
			t.Errorf("%v: a connection that nobody uses is kept for %v", r, idle)
		}
	}
}
