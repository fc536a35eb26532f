package play

import (
	"io"
	"os/exec"
	"reflect"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-chaos/checker"
	"github.com/countoff/countoff/cmd/countoff-chaos/store"
	"github.com/countoff/countoff/partition/redisurl"
)

// What stands in a store is noted before it is emptied, and what nobody can read too.
func TestWipeLooksFirst(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server in PATH: install it, as in: apt-get install redis-server")
	}
	ctx := t.Context()
	st, err := store.Single(ctx, t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	client, err := redisurl.Open(st.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	pipe := client.Pipeline()
	pipe.LPush(ctx, "chaos:inbox", `{"id":"i000000001"}`, "what is that")
	pipe.HSet(ctx, "{chaos:0}:fence", "b", 7)
	pipe.RPush(ctx, "{chaos:0}:pending", "p000000002", "p000000003")
	pipe.ZAdd(ctx, "{chaos:0}:done", redis.Z{Score: 7, Member: "7"})
	pipe.HSet(ctx, "{chaos:1}:lifted", "9", "p000000004")
	pipe.RPush(ctx, "{chaos:1}:dead", "p000000005", "p000000005")
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	s := &stage{cfg: Config{Partitions: 2, Log: io.Discard}, name: "chaos", inbox: "chaos:inbox", store: st, watch: &watch{}}
	s.restart(ctx, Wipe, 0)
	if len(s.losses) != 1 || len(s.troubles) > 0 {
		t.Fatalf("losses %v, troubles %q: want one loss", s.losses, s.troubles)
	}
	want := &checker.Store{
		Open: map[string]string{"i000000001": "inbox", `"what is that"`: "inbox", "p000000003": "pending", "p000000004": "lifted"},
		Dead: map[string]int{"p000000005": 2},
	}
	l := s.losses[0]
	if !reflect.DeepEqual(l.Held, want) || l.From != 0 || l.At == 0 || l.At > l.Until {
		t.Errorf("%+v held %+v, want %+v", l, l.Held, want)
	}
	if left, err := s.holds(ctx, client); err != nil || len(left.Open)+len(left.Dead) > 0 {
		t.Errorf("after it: %+v, %v", left, err)
	}
}
