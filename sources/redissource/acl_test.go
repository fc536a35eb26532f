package redissource

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
)

// A user who may not use channels rings no bell, and loses time by it, not tasks: a script
// that failed there would do so after half of its writes, and be repeated.
func TestUserWithoutChannels(t *testing.T) {
	t.Parallel()
	ctx, server, name := t.Context(), redistest.Server(t), redistest.Name(t)
	admin := redistest.Single(t, server.Client())
	user := aclUser(t, server, "~{"+name+"*", "~"+name+"*", "resetchannels", "+@all")
	k := KeysOf(name, 0)
	waits := func() {
		if err := admin.HSet(ctx, k.Fence, "w", "1").Err(); err != nil {
			t.Fatal(err)
		}
	}
	length := func(what string, want int64) {
		t.Helper()
		if n := admin.LLen(ctx, k.Pending).Val(); n != want {
			t.Errorf("after %s the log has %d tasks, want %d", what, n, want)
		}
		if admin.HExists(ctx, k.Fence, "w").Val() {
			t.Errorf("after %s nobody would have been rung for", what)
		}
	}

	waits()
	p := newProducer(t, user, name, ProducerConfig{Partitions: 1})
	if _, err := p.Enqueue(ctx, Message{}); err != nil {
		t.Error(err)
	}
	length("an enqueue", 1)

	b := &inbox{t: t, client: user, name: name, layout: p.Config(), unit: Ingress{List: name + ":inbox", KeyField: "to"}}
	s := b.open(1)
	s.stop()
	<-s.ended
	l := inboxLine("ann", 0)
	b.push(l)
	waits()
	move := b.scripts(s, l)[0]
	for range 2 { // an owner repeats what failed
		if _, err := move.sc.Run(ctx, user, move.keys, move.args...).Result(); err != nil {
			t.Error(err)
		}
	}
	length("an ingress", 2)

	admin.RPush(ctx, k.Dead, "letter")
	waits()
	if err := requeueScript.Run(ctx, user, []string{k.Dead, k.Pending, k.Fence}, "letter", "envelope").Err(); err != nil {
		t.Error(err)
	}
	length("a requeue", 3)

	admin.HSet(ctx, k.Fence, "t", "1:s")
	waits()
	fire := []any{"1:s", 1, 1, "job", "", "1000", 1, "envelope"}
	if err := jobsFireScript.Run(ctx, user, []string{k.Fence, k.Pending, k.jobsKey()}, fire...).Err(); err != nil {
		t.Error(err)
	}
	length("a tick", 4)
}

// A right that is found missing within a script is told as one that is missing before it.
func TestRightThatAScriptLacksIsTold(t *testing.T) {
	t.Parallel()
	server, name := redistest.Server(t), redistest.Name(t)
	user := aclUser(t, server, "~{"+name+"*", "+@all", "-rpush")
	p := newProducer(t, user, name, ProducerConfig{Partitions: 1})
	_, err := p.Enqueue(t.Context(), Message{})
	var refused redis.Error
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "lacks a right") {
		t.Errorf("got %v", err)
	}
}

// A script that finds a right missing in its middle has pushed what stands before it: who is refused then is not
// told that nothing was enqueued. The right to say what was pushed is missing before the first push: who tries
// again, as the owner of an ingress list does for ever, would push again each time.
func TestRightThatIsLackedAfterAPush(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		right    string
		before   int64 // pushed while he had the right: there is a mark
		messages []Message
		pushed   int64
		doubt    bool
	}{
		{"-zadd", 0, []Message{{Key: "k"}, {Key: "k", Delay: time.Hour}}, 1, true},
		{"-set", 0, []Message{{Key: "k"}}, 0, false},
		{"-set", 1, []Message{{Key: "k"}}, 0, false},
		{"-@write", 0, []Message{{Key: "k"}}, 0, false}, // who only looks, and may run scripts
		{"-hmget", 0, []Message{{Key: "k"}}, 0, false},  // nobody else has written a key
	} {
		server, name := redistest.Server(t), redistest.Name(t)
		user := aclUser(t, server, "~{"+name+"*", "+@all")
		p := newProducer(t, user, name, ProducerConfig{Partitions: 1})
		admin := redistest.Single(t, server.Client())
		for range c.before {
			if _, err := p.Enqueue(t.Context(), Message{Key: "k"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := admin.Do(t.Context(), "acl", "setuser", "peer", c.right).Err(); err != nil {
			t.Fatal(err)
		}
		_, err := p.Enqueue(t.Context(), c.messages...)
		if err == nil || errors.Is(err, ErrUnknown) != c.doubt || !strings.Contains(err.Error(), "lacks a right") {
			t.Errorf("%s: %v", c.right, err)
		}
		if n := admin.LLen(t.Context(), KeysOf(name, 0).Pending).Val() - c.before; n != c.pushed {
			t.Errorf("%s after %d: %d tasks were pushed, want %d", c.right, c.before, n, c.pushed)
		}
	}
}

// A task that is taken from where it is stays taken if the script fails behind that: who may take it and
// not push it is told so, and takes nothing.
func TestNobodyTakesWhatHeMayNotPush(t *testing.T) {
	t.Parallel()
	ctx, server, name := t.Context(), redistest.Server(t), redistest.Name(t)
	admin := redistest.Single(t, server.Client())
	user := aclUser(t, server, "~{"+name+"*", "+@all", "-rpush")
	k := KeysOf(name, 0)
	task := string(appendEnvelope(nil, &envelope{id: "a"}))
	admin.ZAdd(ctx, k.Delayed, redis.Z{Score: 1e15, Member: task})
	admin.RPush(ctx, k.Dead, encodeLetter(&letter{reason: "why", body: task}))

	told := func(what string, took bool, err error) {
		t.Helper()
		if took || err == nil || !strings.Contains(err.Error(), "lacks a right") {
			t.Errorf("%s: took %v, %v; want that a right is lacking", what, took, err)
		}
	}
	if err := DelayedTasks(ctx, user, name, []partition.ID{0}, "", func(d Delayed) bool {
		took, err := RunNow(ctx, user, name, d)
		told("run now", took, err)
		return true
	}); err != nil {
		t.Error(err)
	}
	if err := DeadLetters(ctx, user, name, []partition.ID{0}, func(d DeadLetter) bool {
		took, err := Requeue(ctx, user, name, d)
		told("requeue", took, err)
		return true
	}); err != nil {
		t.Error(err)
	}
	if delayed, dead := admin.ZCard(ctx, k.Delayed).Val(), admin.LLen(ctx, k.Dead).Val(); delayed != 1 || dead != 1 {
		t.Errorf("%d delayed tasks and %d dead letters are left, want both", delayed, dead)
	}

	// A tick that is recorded counts as fired.
	admin.HSet(ctx, k.Fence, "t", "1:s")
	if err := jobsFireScript.Run(ctx, user, []string{k.Fence, k.Pending, k.jobsKey()}, "1:s", 1, 1, "job", "", "1000", 1, task).Err(); err == nil {
		t.Error("fired without the right to push")
	}
	if recorded := admin.HGetAll(ctx, k.jobsKey()).Val(); len(recorded) > 0 {
		t.Errorf("recorded is %v, and nothing was enqueued", recorded)
	}
}

// A line that is pushed and stays in its list is pushed again with each attempt: who may not take it off pushes nothing.
func TestNobodyPushesLinesThatHeMayNotTakeOff(t *testing.T) {
	t.Parallel()
	ctx, server, name := t.Context(), redistest.Server(t), redistest.Name(t)
	admin := redistest.Single(t, server.Client())
	user := aclUser(t, server, "~{"+name+"*", "~"+name+"*", "+@all", "-ltrim")
	p := newProducer(t, user, name, ProducerConfig{Partitions: 1})
	b := &inbox{t: t, client: user, name: name, layout: p.Config(), unit: Ingress{List: name + ":inbox", KeyField: "to"}}
	s := b.open(1)
	s.stop()
	<-s.ended
	l := inboxLine("ann", 0)
	b.push(l)
	move := b.scripts(s, l)[0]
	if _, err := move.sc.Run(ctx, user, move.keys, move.args...).Result(); err == nil {
		t.Error("moved without the right to take off")
	}
	if n := admin.LLen(ctx, KeysOf(name, 0).Pending).Val(); n > 0 {
		t.Errorf("%d tasks were pushed, and the line is in the list", n)
	}
}

// aclUser returns a client of a user who has the rights of rules.
func aclUser(t *testing.T, server *redistest.Process, rules ...any) *redis.Client {
	t.Helper()
	args := append([]any{"acl", "setuser", "peer", "on", ">secret"}, rules...)
	if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "peer", Password: "secret", ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	return client
}

// A tick that is pushed and not recorded is pushed again with each attempt, and lines that are taken off while their
// base stays give their positions to others: who may not write that down pushes nothing.
func TestNobodyPushesWhatHeMayNotRecord(t *testing.T) {
	t.Parallel()
	ctx, server, name := t.Context(), redistest.Server(t), redistest.Name(t)
	admin := redistest.Single(t, server.Client())
	user := aclUser(t, server, "~{"+name+"*", "~"+name+"*", "+@all")
	p := newProducer(t, user, name, ProducerConfig{Partitions: 1})
	b := &inbox{t: t, client: user, name: name, layout: p.Config(), unit: Ingress{List: name + ":inbox", KeyField: "to"}}
	s := b.open(1)
	s.stop()
	<-s.ended
	l := inboxLine("ann", 0)
	b.push(l)
	move := b.scripts(s, l)[0]
	k := KeysOf(name, 0)
	admin.HSet(ctx, k.Fence, "t", "1:s")
	if err := admin.Do(ctx, "acl", "setuser", "peer", "-hset").Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := jobsFireScript.Run(ctx, user, []string{k.Fence, k.Pending, k.jobsKey()}, "1:s", 1, 1, "job", "", "1000", 1, "envelope").Err()
		if err == nil || !redisconfig.Forbidden(err) {
			t.Errorf("a tick: %v", err)
		}
		if _, err := move.sc.Run(ctx, user, move.keys, move.args...).Result(); err == nil || !redisconfig.Forbidden(err) {
			t.Errorf("a line: %v", err)
		}
	}
	if pushed := admin.LRange(ctx, k.Pending, 0, -1).Val(); len(pushed) > 0 {
		t.Errorf("pushed were %q", pushed)
	}
	if n := admin.LLen(ctx, b.unit.List).Val(); n != 1 {
		t.Errorf("%d lines are left, want the one", n)
	}
}
