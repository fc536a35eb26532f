package redisledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// dial returns a client of server as most programs have one, other than server's own.
func dial(t testing.TB, server *redistest.Process, user, password string) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr(), Username: user, Password: password, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { client.Close() })
	return client
}

// until waits for ok.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

func TestRestartedServer(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "always")
	for _, c := range []struct {
		what    string
		restart func()
		forgets bool
	}{
		{"with its data", func() { server.Restart(true) }, false},
		{"killed, with its data", func() { server.Kill(); server.Start() }, false},
		{"without its data", func() { server.Restart(false) }, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			name := redistest.Name(t)
			makeName(t, server.Client(), name, partition.Config{})
			l := newLedger(t, server.Client(), name, redisledger.Config{})
			mine := settled(t, l, session(1), 1, 2)
			yours := settled(t, l, session(2), 3)
			c.restart()

			// A process that has never talked to the server comes first.
			stranger := newLedger(t, dial(t, server, "", ""), name, redisledger.Config{})
			a := mustSync(t, stranger, machine.Request{Session: session(3), Claim: []partition.ID{3, 4}})
			if a.Grace <= 0 || len(a.Mine) != 0 {
				t.Errorf("after the restart: grace %v, granted %v", a.Grace, held(a))
			}
			// Holders go on with what they had.
			for _, r := range []machine.Request{mine, yours} {
				a := mustSync(t, l, r)
				if fmt.Sprint(held(a)) != fmt.Sprint(r.Hold) || a.Grace <= 0 || a.Count < r.Top {
					t.Errorf("who held %v has %v in a grace of %v, count %d of %d", r.Hold, held(a), a.Grace, a.Count, r.Top)
				}
			}
			if err := l.Seal(t.Context(), machine.Roll{}); !errors.Is(err, transition.ErrStale) {
				t.Errorf("seal in a grace: %v", err)
			}
			if seen, err := l.Census(t.Context()); err != nil || len(seen.Grants) != 3 || seen.Config.Total != partition.DefaultTotal {
				t.Errorf("%+v, error %v", seen, err)
			}
		})
	}
}

// A user who may not call INFO cannot see the run of the server. The doubts of his
// clients take its place.
func TestUserWithoutInfo(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "always")
	admin := server.Client()
	name := redistest.Name(t)
	newUser := func() {
		err := admin.Do(t.Context(), "acl", "setuser", "peer", "on", ">secret", "~{"+name+"}:*", "&{"+name+"}:*", "+@all", "-info").Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	newUser()
	client := dial(t, server, "peer", "secret")
	makeName(t, client, name, partition.Config{})
	l := newLedger(t, client, name, redisledger.Config{})
	r := settled(t, l, session(1), 1)
	check := func(what string, l *redisledger.Ledger, want bool) {
		t.Helper()
		a := mustSync(t, l, r)
		if (a.Grace > 0) != want {
			t.Errorf("%s: a grace of %v", what, a.Grace)
		}
		if want { // over with it
			if err := admin.HSet(t.Context(), "{"+name+"}:meta", "grace", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("nothing happened", l, false)

	// More connections are no reason to doubt.
	c := client.Conn()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	check("another connection was opened", l, false)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}

	if err := admin.Do(t.Context(), "client", "kill", "user", "peer").Err(); err != nil {
		t.Fatal(err)
	}
	check("the connections were cut", l, true)
	check("nothing more happened", l, false)

	server.Restart(true)
	newUser()
	// The first to call is a process that never was connected before.
	r.Session = session(2)
	check("the server was restarted", newLedger(t, dial(t, server, "peer", "secret"), name, redisledger.Config{}), true)
	r.Session = session(1)
	check("the server was restarted, an old connection", l, true)
	check("nothing more happened", l, false)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Sync(ctx, r); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	check("a call was not answered", l, true)
}

// A user who may not use channels is without hints, and nothing else.
func TestUserWithoutChannels(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	name := redistest.Name(t)
	err := server.Client().Do(t.Context(), "acl", "setuser", "peer", "on", ">secret", "~{"+name+"}:*", "resetchannels", "+@all").Err()
	if err != nil {
		t.Fatal(err)
	}
	client := dial(t, server, "peer", "secret")
	makeName(t, client, name, partition.Config{})
	l := newLedger(t, client, name, redisledger.Config{})
	a := settled(t, l, session(1), 1)
	mustSync(t, l, machine.Request{Session: session(2), Claim: []partition.ID{1}})
	a.Release, a.Hold = a.Hold, nil
	mustSync(t, l, a)
	if b := mustSync(t, l, machine.Request{Session: session(2)}); len(b.Mine) != 1 {
		t.Errorf("the waiter got %v", held(b))
	}
	wantAdvice(t, l.Hints(t.Context(), session(1), func() {}), "&{name}:events")
}

// The advice in the errors names exactly what a user needs.
func TestUserWithWhatTheAdviceNames(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	name := redistest.Name(t)
	nobody := dial(t, server, "nobody", "secret")
	acl := func(user string, rules ...any) {
		t.Helper()
		args := append([]any{"acl", "setuser", user, "on", ">secret"}, rules...)
		if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	acl("nobody")
	_, err := newLedger(t, nobody, name, redisledger.Config{}).Sync(t.Context(), machine.Request{Session: session(1)})
	wantAdvice(t, err, "+@scripting")

	_, rules, _ := strings.Cut(err.Error(), "needs, for the keys ")
	rules = strings.NewReplacer(")", "", " and the channels", "", ", the commands of the ledger's scripts:", "", "{name}", "{"+name+"}").Replace(rules)
	var words []any
	for w := range strings.FieldsSeq(rules) {
		words = append(words, w)
	}
	acl("peer", words...)
	client := dial(t, server, "peer", "secret")
	makeName(t, client, name, partition.Config{})
	l := newLedger(t, client, name, redisledger.Config{})
	r := settled(t, l, session(1), 1)
	if _, err := l.Census(t.Context()); err != nil {
		t.Error(err)
	}
	heard := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-heard
		cancel()
	}()
	if err := l.Hints(ctx, session(1), func() { heard <- struct{}{} }); err != nil {
		t.Error(err)
	}
	r.State = machine.Gone
	mustSync(t, l, r)
	if err := redisledger.Destroy(t.Context(), client, name); err != nil {
		t.Error(err)
	}
}

// An emulator has no runs. A connection that is lost there, to a slow call maybe, is no
// reason to stop hand-overs for a lease.
func TestEmulatorDoesNotForget(t *testing.T) {
	s, m := miniStage(t)
	makeName(t, s.client, s.name, partition.Config{})
	l := newLedger(t, s.client, s.name, redisledger.Config{})
	r := settled(t, l, session(1), 1)
	m.Close()
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	if a := mustSync(t, l, r); a.Grace != 0 {
		t.Errorf("after a lost connection: a grace of %v", a.Grace)
	}
	if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if a := mustSync(t, l, r); a.Grace == 0 {
		t.Error("no grace although the scripts were lost")
	}
}

// What a Lua unpacks at once is bounded: a name of thousands gets its roll like one of two, and one
// peer may hold thousands of partitions.
func TestThousands(t *testing.T) {
	t.Parallel()
	const members, total = 2_100, 9_000 // four fields of a roll each, of which 8,000 can be unpacked
	client, name, cfg := redistest.Server(t).Client(), redistest.Name(t), partition.Config{Total: total}
	makeName(t, client, name, cfg)
	l := newLedger(t, client, name, redisledger.Config{Config: cfg})
	r := machine.Request{Session: session(1), Peer: "ann", Weight: 1}
	mustSync(t, l, r)
	for i := range total {
		r.Claim = append(r.Claim, partition.ID(i))
	}
	if a := mustSync(t, l, r); len(a.Mine) != total {
		t.Errorf("of %d that it claimed it has %d", total, len(a.Mine))
	}
	var next machine.Roll
	for i := range members {
		next.Members = append(next.Members, machine.RollMember{
			Member:     partition.Member{Session: session(i + 1), Peer: fmt.Sprintf("peer-%d", i), Index: i, Weight: 1},
			Partitions: []partition.ID{partition.ID(i)},
		})
	}
	if err := l.Seal(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	c, err := l.Census(t.Context())
	if err != nil || len(c.Roll.Members) != members || len(c.Grants) != total {
		t.Errorf("the roll has %d members, there are %d grants, error %v", len(c.Roll.Members), len(c.Grants), err)
	}
}
