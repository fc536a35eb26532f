package redissource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/sourcetest"
)

func TestIngressMoves(t *testing.T) {
	bothInboxes(t, 4, func(t *testing.T, b *inbox) {
		for _, side := range []Side{Right, Left} {
			b.name, b.unit.Oldest = redistest.Name(t), side
			b.unit.List = b.name + ":inbox"
			b.push(inboxLine("ann", 0), inboxLine("bob", 0), inboxLine("ann", 1))
			s := b.open(7)
			b.push(inboxLine("ann", 2), inboxLine("bob", 1))
			b.arrived(5)
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			logs := b.logs()
			for _, key := range []string{"ann", "bob"} {
				id := partition.Of(key, 4)
				var got []string
				for _, e := range logs[id] {
					if e.key == key {
						got = append(got, string(e.payload))
					}
					if e.typ != "mail" || time.Since(e.born.Time()) > time.Minute || !strings.HasPrefix(e.id, b.unit.List+"-") {
						t.Errorf("envelope %+v", e)
					}
				}
				want := []string{inboxLine(key, 0), inboxLine(key, 1), inboxLine(key, 2)}
				if !slices.Equal(got, want[:len(got)]) || len(got) < 2 {
					t.Errorf("%v: %s: %q", side, key, got)
				}
			}
		}
	})
}

// Positions, and so ids, go on from owner to owner.
func TestIngressIDs(t *testing.T) {
	bothInboxes(t, 1, func(t *testing.T, b *inbox) {
		b.push(inboxLine("a", 0))
		s := b.open(3)
		b.arrived(1)
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.push(inboxLine("a", 1))
		b.open(9)
		b.arrived(2)
		want := []string{b.unit.List + "-3000-0", b.unit.List + "-3000-1"}
		if got := idsOf(b.logs()[0]); !slices.Equal(got, want) {
			t.Errorf("ids %v, want %v", got, want)
		}
	})
}

// What cannot be routed is kept whole among the dead letters, once.
func TestIngressLosesNoLine(t *testing.T) {
	bothInboxes(t, 4, func(t *testing.T, b *inbox) {
		bad := []string{"hello", `{"cc":"ann"}`, "\x00\xff", "[1]"}
		var lines []string
		for i, l := range bad {
			lines = append(lines, inboxLine("ann", i), l)
		}
		b.push(lines...)
		buried := new(sourcetest.Burials)
		b.unit.buried = buried.Tell
		s := b.open(1)
		b.arrived(len(lines))
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		var got []string
		for _, l := range b.dead(lostLines) {
			if !l.raw || l.reason == "" || !strings.Contains(l.reason, b.unit.List) {
				t.Errorf("letter %+v", l)
			}
			got = append(got, l.body)
		}
		if !slices.Equal(got, bad) {
			t.Errorf("dead letters %q, want %q", got, bad)
		}
		want := []sources.Buried{{Grant: s.grant, Tasks: len(bad), Position: 1, Reason: b.dead(lostLines)[0].reason}}
		if told := buried.All(); !slices.Equal(told, want) {
			t.Errorf("it told of %+v, want %+v", told, want)
		}
	})
}

// A function that panics would end one owner after the other.
func TestAnIngressKeyThatPanics(t *testing.T) {
	bothInboxes(t, 4, func(t *testing.T, b *inbox) {
		b.unit.KeyField = ""
		b.unit.Key = func(line []byte) (string, error) { return string(line[2]), nil }
		b.push("good", "no", "well")
		b.open(1)
		b.arrived(3)
		if dead := b.dead(lostLines); len(dead) != 1 || dead[0].body != "no" || !strings.Contains(dead[0].reason, "Key panicked") {
			t.Errorf("dead letters %+v", dead)
		}
	})
}

// A line that comes twice is two tasks, also once both have failed in the same way.
func TestEqualLinesAreTwoTasks(t *testing.T) {
	bothInboxes(t, 1, func(t *testing.T, b *inbox) {
		line := inboxLine("ann", 0)
		b.push(line, line)
		b.open(1)
		b.arrived(2)
		if log := b.logs()[0]; log[0].born == log[1].born {
			t.Errorf("both were born at %d: %+v", log[0].born, log)
		}
	})
}

// Keys decide with the hash of the name, and a key that does not fit it is lost as
// any other line is: not at all.
func TestIngressHashByID(t *testing.T) {
	bothInboxes(t, 8, func(t *testing.T, b *inbox) {
		b.layout.Hash = partition.ByID
		b.push(`{"to":21}`, `{"to":"ann"}`)
		b.open(1)
		b.arrived(2)
		if n := len(b.logs()[5]); n != 1 || len(b.dead(lostLines)) != 1 {
			t.Errorf("%d tasks, %d dead letters", n, len(b.dead(lostLines)))
		}
	})
}

func TestIngressManyAndLarge(t *testing.T) {
	bothInboxes(t, 8, func(t *testing.T, b *inbox) {
		const n = 3*ingressLines + 7
		var lines []string
		for i := range n {
			pad := ""
			if i%100 == 0 {
				pad = strings.Repeat(" ", 200_000)
			}
			lines = append(lines, inboxLine(fmt.Sprint(i%10), i)+pad)
		}
		for part := range slices.Chunk(lines, 100) {
			b.push(part...)
		}
		b.open(1)
		b.arrived(n)
		b.exactlyOnceInOrder(n)
	})
}

// An idle list costs next to nothing, and its order is as it was.
func TestIngressIdle(t *testing.T) {
	for _, single := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m, client := redistest.Bubble(t)
			if single {
				client = redistest.Single(t, client)
			}
			b := newInbox(t, client, 4)
			s := b.open(1)
			synctest.Wait()
			before := m.CommandCount()
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := m.CommandCount() - before; n > 40 {
				t.Errorf("single %v: %d commands in an idle minute", single, n)
			}
			b.push(inboxLine("ann", 0))
			b.push(inboxLine("ann", 1))
			synctest.Wait()
			if got := len(b.logs()[partition.Of("ann", 4)]); got != 2 {
				t.Errorf("single %v: %d tasks at once, want 2", single, got)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A client that requires maintenance notifications is one like others: the one that is made like it, to wait for lines, does
// not take what hears its pushes for its own, which ends the process.
func TestIngressOfAClientThatRequiresMaintenanceNotifications(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", Protocol: 3,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeEnabled},
	})
	defer client.Close()
	s := &ingressStream{client: client, unit: Ingress{List: "l"}}
	opt, err := s.options(t.Context())
	if err != nil || opt == nil {
		t.Fatalf("there is no connection to wait on: %v", err)
	}
	redis.NewClient(opt).Close()
}

// A waiting is a connection that dies in silence, if it ever waited, when dead is set.
type waiting struct {
	net.Conn
	waits, dead *atomic.Bool
}

func (c waiting) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("blmove")) {
		c.waits.Store(true)
	}
	return c.Conn.Write(b)
}

func (c waiting) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.waits.Load() || !c.dead.Load() {
			return n, err
		}
	}
}

// The connection on which an owner waits for lines may die without a word. That is noticed
// before a dead owner would be.
func TestIngressWaitsOnADeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dead atomic.Bool
		client := bubbleOver(t, func(c net.Conn) net.Conn {
			if dead.Load() {
				return c // whoever connects anew is answered
			}
			return waiting{c, new(atomic.Bool), &dead}
		})
		b := newInbox(t, client, 4)
		b.open(1)
		synctest.Wait()
		dead.Store(true)
		b.push(inboxLine("ann", 0))
		time.Sleep(ingressWait + ingressLate + time.Second)
		synctest.Wait()
		if got := len(b.logs()[partition.Of("ann", 4)]); got != 1 {
			t.Errorf("%d tasks have come, want 1", got)
		}
	})
}

// A process that is stopped for longer than a wait lasts finds its connection closed, also where the answer
// had come or nothing was sent yet: the owner goes on.
func TestIngressWaitOutlastsAPause(t *testing.T) {
	for _, at := range []string{"before it is sent", "when it is answered"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads, sends := new(standstill), new(standstill)
				client := bubbleOver(t, func(c net.Conn) net.Conn { return stopped{c, reads} })
				client.Options().Limiter = sends
				b := newInbox(t, client, 4)
				s := b.open(1)
				synctest.Wait()
				stop := map[string]*standstill{"before it is sent": sends, "when it is answered": reads}[at]
				stop.on.Store(true)
				time.Sleep(2 * (ingressWait + ingressLate))
				stop.on.Store(false)
				time.Sleep(2 * (ingressWait + ingressLate))
				synctest.Wait()
				select {
				case <-s.ended:
					t.Fatalf("the ownership has ended: %v", s.end)
				default:
				}
				b.push(inboxLine("ann", 0))
				synctest.Wait()
				if got := len(b.logs()[partition.Of("ann", 4)]); got != 1 {
					t.Errorf("%d tasks have come, want 1", got)
				}
			})
		})
	}
}

// A standstill is where a process is stopped, for longer than a wait lasts.
type standstill struct{ on atomic.Bool }

func (s *standstill) Allow() error {
	if s.on.Load() {
		time.Sleep(ingressWait + ingressLate + time.Second)
	}
	return nil
}

func (s *standstill) ReportResult(error) {}

// A stopped connection hands over what has come after a standstill.
type stopped struct {
	net.Conn
	at *standstill
}

func (c stopped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	_ = c.at.Allow()
	return n, err
}

// A wait moves the oldest line onto its own place, also while others push.
func TestIngressWaitKeepsOrder(t *testing.T) {
	client, list := redistest.New(t), redistest.Name(t)
	for _, side := range []Side{Right, Left} {
		client.RPush(t.Context(), list, "a", "b", "c")
		client.BLMove(t.Context(), list, list, side.String(), side.String(), time.Second)
		if got := client.LRange(t.Context(), list, 0, -1).Val(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("%v: %q", side, got)
		}
		client.Del(t.Context(), list)
	}
}

// What an owner pushes wakes the partitions' owners.
func TestIngressRings(t *testing.T) {
	bothInboxes(t, 1, func(t *testing.T, b *inbox) {
		k := KeysOf(b.name, 0)
		sub := b.client.Subscribe(t.Context(), k.Bell)
		defer sub.Close()
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.client.HSet(t.Context(), k.Fence, "w", "1")
		b.open(1)
		b.push(inboxLine("ann", 0))
		if _, err := sub.ReceiveMessage(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestIngressOpenRefuses(t *testing.T) {
	bothInboxes(t, 1, func(t *testing.T, b *inbox) {
		s := b.open(5)
		for _, epoch := range []partition.Epoch{4, 5} {
			g := partition.Grant{ID: partition.FirstUnit, Epoch: epoch}
			tok := partition.Token{Epoch: epoch, Session: "another"}
			_, err := startIngress(t.Context(), b.client, b.name, b.layout, b.unit, g, tok, s.single)
			fenced, ok := errors.AsType[*sources.FencedError](err)
			if !ok || fenced.Stored != 5 || fenced.Grant != g {
				t.Errorf("epoch %d after 5: %v", epoch, err)
			}
		}
		// The same token again changes nothing.
		fence := b.fence()
		b.open(5)
		if again := b.fence(); fmt.Sprint(fence) != fmt.Sprint(again) {
			t.Errorf("%v became %v", fence, again)
		}
		// A later one ends it, at the latest when it would move a line. The later one
		// moves none meanwhile: it might take the line before the earlier reads it, and
		// then the earlier has nothing to be refused for.
		later := b.open(6)
		later.stop()
		<-later.ended
		b.push(inboxLine("ann", 0))
		if _, err := s.Fetch(t.Context(), 1); !errors.Is(err, sources.ErrFenced) {
			t.Errorf("the earlier owner: %v", err)
		}
		b.open(6)
		b.arrived(1)
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("closing it: %v", err)
		}
		if got := b.fence()["t"]; got != tokenOf(6).String() {
			t.Errorf("it took the token along: %q", got)
		}
	})
}

func TestIngressClose(t *testing.T) {
	bothInboxes(t, 1, func(t *testing.T, b *inbox) {
		s := b.open(5)
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("again: %v", err)
		}
		b.push(inboxLine("ann", 0))
		if f := b.fence(); f["t"] != "" || f["e"] != "5" {
			t.Errorf("fence %v", f)
		}
		if _, err := s.Fetch(t.Context(), 1); !errors.Is(err, sources.ErrClosed) {
			t.Errorf("Fetch: %v", err)
		}
		if n := b.client.LLen(t.Context(), b.unit.List).Val(); n != 1 {
			t.Error("a closed stream moved a line")
		}
		if _, err := b.start(b.client, 5); !errors.Is(err, sources.ErrFenced) {
			t.Errorf("an epoch that was worked: %v", err)
		}
	})
}

// Close without time leaves the fence, and no request that could still move a line.
func TestIngressCloseWithoutTime(t *testing.T) {
	bothInboxes(t, 1, func(t *testing.T, b *inbox) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for epoch := partition.Epoch(1); epoch <= 8; epoch++ { // chance would have a part in it
			s := b.open(epoch)
			if err := s.Close(ended); !errors.Is(err, context.Canceled) {
				t.Errorf("Close: %v", err)
			}
			select {
			case <-s.ended:
			default:
				t.Error("the stream still moves lines")
			}
			if f := b.fence(); f["t"] != tokenOf(epoch).String() {
				t.Errorf("fence %v", f)
			}
		}
	})
}

func TestIngressFetchEndsWithItsContext(t *testing.T) {
	b := newInbox(t, redistest.New(t), 1)
	s := b.open(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if tasks, err := s.Fetch(ctx, 1); tasks != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", tasks, err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Error(err)
	}
}

// A trouble a person must see to is told, and the work goes on when it is over.
func TestIngressTellsItsTroubles(t *testing.T) {
	bothInboxes(t, 1, func(t *testing.T, b *inbox) {
		b.client.Set(t.Context(), b.unit.List, "not a list", 0)
		s := b.open(1)
		if _, err := s.Fetch(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || errors.Is(err, sources.ErrFenced) {
			t.Errorf("Fetch: %v", err)
		}
		b.client.Del(t.Context(), b.unit.List)
		b.push(inboxLine("ann", 0))
		b.arrived(1)
	})
}

func TestIngressOfSource(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	src, err := New(client, name, Config{Partitions: 2, Ingress: []Ingress{
		{List: name + ":b", KeyField: "to"}, {List: name + ":a", Oldest: Left},
	}})
	if err != nil {
		t.Fatal(err)
	}
	layout, err := src.Layout(t.Context())
	if err != nil || fmt.Sprint(layout.Units) != fmt.Sprint([]string{name + ":a", name + ":b"}) {
		t.Fatalf("%+v, %v", layout, err)
	}
	for i, list := range layout.Units {
		g := partition.Grant{ID: partition.FirstUnit + partition.ID(i), Epoch: 1}
		s, err := src.Open(t.Context(), g, tokenOf(1))
		if err != nil {
			t.Fatal(err)
		}
		client.LPush(t.Context(), list, inboxLine("ann", i))
		eventually(t, func() bool { return client.LLen(t.Context(), list).Val() == 0 })
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	g := partition.Grant{ID: partition.FirstUnit + 2, Epoch: 1}
	if _, err := src.Open(t.Context(), g, tokenOf(1)); err == nil {
		t.Error("a unit that is not there was opened")
	}
}

// The line that ends a wait says what is to be moved: it is not read once more.
func TestIngressMovesWhatItWaitedFor(t *testing.T) {
	bothInboxes(t, 1, func(t *testing.T, b *inbox) {
		mine, line := redistest.Another(t, b.client), &spoken{}
		if _, single := b.client.(*redis.Client); single {
			mine = redistest.Single(t, mine)
		}
		mine.AddHook(line)
		if _, err := b.start(mine, 1); err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			eventually(t, func() bool { return line.ends("lrange") }) // the list is empty, it waits
			before := len(line.since(0))
			b.push(inboxLine("ann", n))
			b.arrived(n + 1)
			if asked := line.since(before); slices.Contains(asked, "hdel lrange") {
				t.Errorf("it asks %q", asked)
			}
		}
		b.exactlyOnceInOrder(3)
	})
}

// A spoken writes down what a client sends: the names of the commands of each request, but
// for those with which a connection begins.
type spoken struct {
	mu    sync.Mutex
	words []string
}

func (*spoken) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *spoken) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.note(cmd)
		return next(ctx, cmd)
	}
}

func (s *spoken) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.note(cmds...)
		return next(ctx, cmds)
	}
}

func (s *spoken) note(cmds ...redis.Cmder) {
	names := make([]string, len(cmds))
	for i, c := range cmds {
		names[i] = c.Name()
	}
	if names[0] == "hello" || names[0] == "client" { // a connection's own
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.words = append(s.words, strings.Join(names, " "))
}

// since returns the requests from the nth on.
func (s *spoken) since(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.words[n:])
}

// ends reports whether the last request ended with that command.
func (s *spoken) ends(with string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.words) > 0 && strings.HasSuffix(s.words[len(s.words)-1], with)
}
