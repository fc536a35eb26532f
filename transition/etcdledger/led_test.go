package etcdledger

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/etcdledger/etcdtest"
)

// A cutOff is a member of etcd without a leader: it waits for one, unless it is told not to.
type cutOff struct {
	pb.UnimplementedKVServer
	pb.UnimplementedAuthServer
	asked, logins atomic.Int64
	still         bool // it says nothing at all
}

// startCutOff returns one that lives as long as t, and its address.
func startCutOff(t *testing.T) (*cutOff, string) {
	t.Helper()
	return startMember(t, &cutOff{})
}

func startMember(t *testing.T, c *cutOff) (*cutOff, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, c)
	pb.RegisterAuthServer(server, c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	return c, listener.Addr().String()
}

func (c *cutOff) wait(ctx context.Context) error {
	c.asked.Add(1)
	if md, _ := metadata.FromIncomingContext(ctx); !c.still && slices.Contains(md[rpctypes.MetadataRequireLeaderKey], rpctypes.MetadataHasLeader) {
		return rpctypes.ErrGRPCNoLeader
	}
	<-ctx.Done()
	return ctx.Err()
}

func (c *cutOff) Range(ctx context.Context, _ *pb.RangeRequest) (*pb.RangeResponse, error) {
	return nil, c.wait(ctx)
}

func (c *cutOff) Txn(ctx context.Context, _ *pb.TxnRequest) (*pb.TxnResponse, error) {
	return nil, c.wait(ctx)
}

func (c *cutOff) Authenticate(ctx context.Context, _ *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	c.logins.Add(1)
	return nil, c.wait(ctx)
}

func TestAMemberThatIsCutOff(t *testing.T) {
	alone, at := startCutOff(t)
	host := strings.TrimPrefix(etcdtest.Start(t).Client().Endpoints()[0], "http://")
	client, prefix, err := Open("etcd://" + host + "," + at)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := Init(ctx, client, prefix, "name", partition.Config{}); err != nil {
		t.Fatal(err)
	}
	l, err := New(client, prefix, "name", Config{})
	if err != nil {
		t.Fatal(err)
	}
	for alone.asked.Load() < 8 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := l.Sync(ctx, transition.Request{Session: "a", Peer: "a", Weight: 1}); err != nil {
			t.Errorf("%d calls of the member that is cut off: %v", alone.asked.Load(), err)
		}
		if _, _, err := ReadConfig(ctx, client, prefix, "name"); err != nil {
			t.Errorf("%d calls of the member that is cut off: %v", alone.asked.Load(), err)
		}
		cancel()
	}
}

// A member that stands still costs no call: another one is asked while there is time for its answer.
func TestAMemberThatStandsStill(t *testing.T) {
	still, at := startMember(t, &cutOff{still: true})
	host := strings.TrimPrefix(etcdtest.Start(t).Client().Endpoints()[0], "http://")
	client, prefix, err := Open("etcd://" + host + "," + at)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l, err := New(client, prefix, "name", Config{})
	if err != nil {
		t.Fatal(err)
	}
	for still.asked.Load() < 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if _, err := l.Sync(ctx, transition.Request{Session: "a", Peer: "a", Weight: 1}); err != nil {
			t.Errorf("%d calls of the member that stands still: %v", still.asked.Load(), err)
		}
		cancel()
	}
}

// That another member was asked too costs no call that the first would have answered.
func TestAFaultOfTheOtherMember(t *testing.T) {
	client, _, err := Open("etcd://127.0.0.1:1,127.0.0.1:2")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var calls atomic.Int64
		got, err := ask(ctx, client, func(ctx context.Context) (string, error) {
			if calls.Add(1) > 1 {
				return "", rpctypes.ErrStopped
			}
			select {
			case <-time.After(600 * time.Millisecond):
				return "done", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		})
		if got != "done" || err != nil {
			t.Errorf("after %d calls: %q, %v", calls.Load(), got, err)
		}
		began := time.Now()
		_, err = ask(ctx, client, func(context.Context) (string, error) { return "", rpctypes.ErrStopped })
		if !errors.Is(err, rpctypes.ErrStopped) || time.Since(began) > 0 {
			t.Errorf("who is refused hears %v, after %v", err, time.Since(began))
		}
	})
}

// A user logs in at another member.
func TestAUserOfAMemberThatIsCutOff(t *testing.T) {
	alone, at := startCutOff(t)
	server := etcdtest.Start(t)
	admin := server.Client()
	for _, do := range []func() error{
		func() error { _, err := admin.UserAdd(t.Context(), "root", "r"); return err },
		func() error { _, err := admin.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := admin.AuthEnable(t.Context()); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	for alone.logins.Load() < 2 {
		client, prefix, err := Open("etcd://root:r@" + strings.TrimPrefix(admin.Endpoints()[0], "http://") + "," + at)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, _, err := ReadConfig(ctx, client, prefix, "name"); err != nil {
			t.Errorf("%d logins at the member that is cut off: %v", alone.logins.Load(), err)
		}
		cancel()
		_ = client.Close()
	}
}

func TestNobodyHasALeader(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := led(ctx, "/etcdserverpb.KV/Txn", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		return rpctypes.ErrGRPCNoLeader
	})
	if got := (&Ledger{name: "n"}).explain("sync", rpctypes.Error(err)).Error(); !strings.Contains(got, "no leader") || !strings.Contains(got, "majority") {
		t.Error(got)
	}
}

// A cluster without a leader is not asked by every waiting call as fast as the next member of one that has a leader.
func TestWithoutALeaderCallsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		asked, early := 0, 0
		began := time.Now()
		_ = led(ctx, "/etcdserverpb.KV/Txn", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			if asked++; time.Since(began) < 100*time.Millisecond {
				early++
			}
			return rpctypes.ErrGRPCNoLeader
		})
		if early < 5 {
			t.Errorf("asked %d times in the first tenth of a second: another member may have a leader", early)
		}
		if asked > 80 {
			t.Errorf("asked %d times in %v", asked, time.Since(began))
		}
	})
}

// A noted watcher knows through which streams it was asked to watch.
type noted struct {
	clientv3.Watcher
	streams map[string]bool
}

func (n *noted) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	of, _ := metadata.FromOutgoingContext(ctx)
	n.streams[fmt.Sprint(of)] = true
	return n.Watcher.Watch(ctx, key, opts...)
}

// A stream whose watches all end while etcd is away stays, here and in etcd once that is back, until another watch joins it:
// peers that come and go meanwhile have the same one.
func TestHintsWhileEtcdIsAway(t *testing.T) {
	client, prefix, err := Open("etcd://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	n := &noted{client.Watcher, make(map[string]bool)}
	client.Watcher = n
	l, err := New(client, prefix, "name", Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := l.Hints(ctx, "a", func() {}); err != nil {
			t.Error(err)
		}
		cancel()
	}
	if len(n.streams) != 1 {
		t.Errorf("it watches through %d streams: %v", len(n.streams), n.streams)
	}
}
