package asynqsource

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/countoff/countoff/partition/redistest"
)

// A mute is a connection that dies in silence once it waits.
type mute struct {
	net.Conn
	dead atomic.Bool
}

func (c *mute) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("blmove")) {
		c.dead.Store(true)
	}
	if c.dead.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// The connection on which a queue is waited for may die without a word. That is noticed before
// a dead owner would be, and another is waited on.
func TestAWaitOnADeadConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Bubble(t)
		var dials atomic.Int32
		client := redis.NewClient(&redis.Options{
			Addr: "bubble",
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				c, err := m.Dial()
				if err != nil {
					return nil, err
				}
				if c = redistest.Pump(c); dials.Add(1) == 1 {
					c = &mute{Conn: c}
				}
				return c, nil
			},
			PoolSize:                 1000, // nobody waits for a connection: see redistest.Bubble
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { client.Close() })
		w := newWaiter(&Source{client: client, cfg: Config{Connections: 1}}, &stream{keys: keysOf("q")})
		defer w.hangUp()
		for _, want := range []time.Duration{waitFor + waitLate + glanceEvery, waitFor} {
			began := time.Now()
			if !w.wait(t.Context()) {
				t.Fatal("it goes on no more")
			}
			if took := time.Since(began); took.Round(time.Millisecond) != want {
				t.Errorf("it waited %v, want %v", took, want)
			}
		}
		if n := dials.Load(); n != 3 {
			t.Errorf("%d connections were made, want the dead one, one to look, and one to wait on", n)
		}
	})
}

// What comes into an empty queue is fetched when it comes, and not when the queue would be looked at again.
func TestWhatComesIntoAnEmptyQueueRings(t *testing.T) {
	for name, connections := range map[string]int{"on a connection": 1, "by a glance": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			src, _, _ := s.peer(t, Config{Connections: connections})
			st := s.open(t, src, 0, 1)
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			fetched := make(chan error, 1)
			go func() {
				_, err := st.Fetch(ctx, 1)
				fetched <- err
			}()
			until(t, "the queue is waited for", func() bool {
				st.Mu.Lock()
				defer st.Mu.Unlock()
				st.look = time.Now().Add(time.Hour)
				return st.waiter.wants()
			})
			s.enqueue(t, 0, asynq.NewTask("t", nil))
			if err := <-fetched; err != nil {
				t.Error(err)
			}
		})
	}
}

// A connection that is made while its stream closes waits for nothing.
func TestAConnectionThatCloseHasNotSeen(t *testing.T) {
	_, client := redistest.Mini(t)
	w := newWaiter(&Source{client: client, cfg: Config{Connections: 1}}, &stream{keys: keysOf("q")})
	defer w.hangUp()
	w.close()
	if w.wait(t.Context()) {
		t.Error("it goes on")
	}
}

// A client that requires maintenance notifications is one like others: those made like it, to wait and to hear of
// cancelled tasks, do not take what hears its pushes for theirs, which ends the process.
func TestAClientThatRequiresMaintenanceNotifications(t *testing.T) {
	t.Parallel()
	const nowhere = "127.0.0.1:1"
	required := &maintnotifications.Config{Mode: maintnotifications.ModeEnabled}
	for what, client := range map[string]redis.UniversalClient{
		"a server":  redis.NewClient(&redis.Options{Addr: nowhere, Protocol: 3, MaintNotificationsConfig: required}),
		"a cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nowhere}, Protocol: 3, MaintNotificationsConfig: required}),
	} {
		src, err := New(client, redistest.Name(t), Config{})
		if err != nil {
			t.Fatal(err)
		}
		_, leave := src.newView(nil)
		leave()
		if o := src.options(t.Context(), "q"); o != nil {
			redis.NewClient(o).Close()
		} else if what == "a server" {
			t.Error("there is no connection to wait on")
		}
		client.Close()
	}
}
