package etcdledger

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/etcdledger/etcdtest"
)

// A cutOff is a member of etcd without a leader: it waits for one, unless it is told not to.
type cutOff struct {
	pb.UnimplementedKVServer
	asked atomic.Int64
}

func (c *cutOff) wait(ctx context.Context) error {
	c.asked.Add(1)
	if md, _ := metadata.FromIncomingContext(ctx); slices.Contains(md[rpctypes.MetadataRequireLeaderKey], rpctypes.MetadataHasLeader) {
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

func TestAMemberThatIsCutOff(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	alone, server := &cutOff{}, grpc.NewServer()
	pb.RegisterKVServer(server, alone)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	defer func() { server.Stop(); <-done }()

	host := strings.TrimPrefix(etcdtest.Start(t).Client().Endpoints()[0], "http://")
	client, prefix, err := Open("etcd://" + host + "," + listener.Addr().String())
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
