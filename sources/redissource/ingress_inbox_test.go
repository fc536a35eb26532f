package redissource

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
)

// An inbox is a list with its partitions, and what a test does with them.
type inbox struct {
	t      testing.TB
	client redis.UniversalClient
	name   string
	layout partition.Config
	unit   Ingress
}

func newInbox(t testing.TB, client redis.UniversalClient, total int) *inbox {
	name := redistest.Name(t)
	return &inbox{
		t: t, client: client, name: name,
		layout: partition.Config{Total: total}.WithDefaults(),
		unit:   Ingress{List: name + ":inbox", KeyField: "to", Type: "mail"},
	}
}

// bothInboxes tests with one script for all, and by way of a plan.
func bothInboxes(t *testing.T, total int, test func(t *testing.T, b *inbox)) {
	t.Run("single", func(t *testing.T) { test(t, newInbox(t, redistest.Single(t, redistest.New(t)), total)) })
	t.Run("planned", func(t *testing.T) { test(t, newInbox(t, redistest.New(t), total)) })
}

func tokenOf(epoch partition.Epoch) partition.Token {
	return partition.Token{Epoch: epoch, Session: partition.Session(fmt.Sprintf("session-%d", epoch))}
}

// start opens the list; the test's end closes it.
func (b *inbox) start(client redis.UniversalClient, epoch partition.Epoch) (*ingressStream, error) {
	_, single := client.(*redis.Client)
	g := partition.Grant{ID: partition.FirstUnit, Epoch: epoch}
	s, err := startIngress(b.t.Context(), client, b.name, b.layout, b.unit, g, tokenOf(epoch), single)
	if err != nil {
		return nil, err
	}
	in := s.(*ingressStream)
	b.t.Cleanup(func() {
		in.stop()
		<-in.ended
	})
	return in, nil
}

func (b *inbox) open(epoch partition.Epoch) *ingressStream {
	b.t.Helper()
	s, err := b.start(b.client, epoch)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func inboxLine(to string, n int) string { return fmt.Sprintf(`{"to":%q,"n":%d}`, to, n) }

// push pushes as most producers do.
func (b *inbox) push(lines ...string) {
	b.t.Helper()
	args := make([]any, len(lines))
	for i, l := range lines {
		args[i] = l
	}
	var err error
	if b.unit.Oldest == Left {
		err = b.client.RPush(context.Background(), b.unit.List, args...).Err()
	} else {
		err = b.client.LPush(context.Background(), b.unit.List, args...).Err()
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// logs returns what is in the partitions.
func (b *inbox) logs() map[partition.ID][]envelope {
	out := make(map[partition.ID][]envelope)
	for id := range partition.ID(b.layout.Total) {
		out[id] = logOf(b.t, b.client, b.name, id)
	}
	return out
}

// dead returns the dead letters of a partition.
func (b *inbox) dead(id partition.ID) []letter {
	var out []letter
	for _, raw := range b.client.LRange(context.Background(), KeysOf(b.name, id).Dead, 0, -1).Val() {
		l, err := parseLetter(raw)
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}

// arrived waits until n tasks and dead letters are in the partitions and the list is
// empty.
func (b *inbox) arrived(n int) {
	b.t.Helper()
	eventually(b.t, func() bool {
		ctx, got := context.Background(), int64(0)
		pipe := b.client.Pipeline()
		left := pipe.LLen(ctx, b.unit.List)
		var counts []*redis.IntCmd
		for id := range partition.ID(b.layout.Total) {
			k := KeysOf(b.name, id)
			counts = append(counts, pipe.LLen(ctx, k.Pending), pipe.LLen(ctx, k.Dead))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return false
		}
		for _, c := range counts {
			got += c.Val()
		}
		return left.Val() == 0 && got >= int64(n)
	})
}

// exactlyOnceInOrder checks that n lines made by line are in the partitions, each
// once, those of a key in one partition and in order.
func (b *inbox) exactlyOnceInOrder(n int) {
	b.t.Helper()
	count := make(map[int]int)
	for id, log := range b.logs() {
		last := make(map[string]int)
		for _, e := range log {
			var l struct{ N int }
			if err := json.Unmarshal(e.payload, &l); err != nil {
				b.t.Fatal(err)
			}
			count[l.N]++
			if before, ok := last[e.key]; ok && before >= l.N {
				b.t.Errorf("line %d of key %s comes after %d", l.N, e.key, before)
			}
			last[e.key] = l.N
			if home := partition.Of(e.key, b.layout.Total); home != id {
				b.t.Errorf("line %d is in partition %v, want %v", l.N, id, home)
			}
		}
	}
	for i := range n {
		if count[i] != 1 {
			b.t.Errorf("line %d is in the partitions %d times", i, count[i])
		}
	}
	if len(count) != n {
		b.t.Errorf("%d different lines, want %d", len(count), n)
	}
}

func (b *inbox) fence() map[string]string {
	return b.client.HGetAll(context.Background(), "{"+b.unit.List+"}:fence").Val()
}

// eachOnce waits until n lines are in the partitions, and checks that each is there once.
func (b *inbox) eachOnce(n int) {
	b.t.Helper()
	eventually(b.t, func() bool { return len(b.counts()) == n })
	for i, times := range b.counts() {
		if times != 1 {
			b.t.Errorf("line %d is there %d times", i, times)
		}
	}
}

// another returns a second client of the same server.
func (b *inbox) another(single bool) redis.UniversalClient {
	o, ok := b.client.(interface{ Options() *redis.Options })
	if !ok {
		b.t.Skip("not one server")
	}
	opt := *o.Options()
	c := redis.NewClient(&opt)
	b.t.Cleanup(func() { c.Close() })
	if single {
		return c
	}
	return redistest.Careful(c)
}

// counts returns how often each line is in the partitions, as a task or a dead letter.
func (b *inbox) counts() map[int]int {
	out := make(map[int]int)
	add := func(payload string) {
		var l struct{ N int }
		if err := json.Unmarshal([]byte(payload), &l); err != nil {
			b.t.Fatal(err)
		}
		out[l.N]++
	}
	for _, log := range b.logs() {
		for _, e := range log {
			add(string(e.payload))
		}
	}
	for id := range partition.ID(b.layout.Total) {
		for _, l := range b.dead(id) {
			add(l.body)
		}
	}
	return out
}

// exactlyOnce checks that n lines made by inboxLine are there, each once.
func (b *inbox) exactlyOnce(n int) {
	b.t.Helper()
	count := b.counts()
	for i := range n {
		if count[i] != 1 {
			b.t.Errorf("line %d is there %d times", i, count[i])
		}
	}
}

// differentIDs checks that there are n tasks, and no two of one name.
func (b *inbox) differentIDs(n int) {
	b.t.Helper()
	seen := make(map[string]int)
	all := 0
	for _, log := range b.logs() {
		for _, e := range log {
			all++
			if seen[e.id]++; seen[e.id] == 2 {
				b.t.Errorf("two tasks are called %s", e.id)
			}
		}
	}
	if all != n {
		b.t.Errorf("%d tasks, want %d", all, n)
	}
}

// learn makes the store know the scripts, so that each is executed at its first call.
func (b *inbox) learn() {
	for _, s := range []script{
		ingressOpenScript, ingressCloseScript, ingressMoveScript, ingressPlanScript, ingressTrimScript, pushScript,
	} {
		if err := s.Load(context.Background(), b.client).Err(); err != nil {
			b.t.Fatal(err)
		}
	}
}
