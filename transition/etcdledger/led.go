package etcdledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// leaderless is the longest pause between two tries of a call. The first ones are short, since the next member may have a
// leader; where none has, all calls of a fleet wait for the election.
const leaderless = 512 * time.Millisecond

// led has calls of keys and leases, and logins, refused by a member that is cut off from the others, and carried to the
// next one: it would wait for a leader until the call's time is over, and is asked as often as the others. What is
// refused so was not done.
func led(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	of := func(service string) bool { return strings.HasPrefix(method, "/etcdserverpb."+service+"/") }
	if !of("KV") && !of("Lease") && !of("Auth") {
		return reasoned(ctx, call(ctx, method, req, reply, conn, opts...))
	}
	ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	for try := 0; ; try++ {
		err := call(ctx, method, req, reply, conn, opts...)
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader) || pause(ctx, try, leaderless) != nil {
			return reasoned(ctx, err)
		}
	}
}

// reasoned returns err with the reason that gRPC gives in it if there was no connection until the call's time was over: of
// that etcd's client says only that it is over.
func reasoned(ctx context.Context, err error) error {
	why, unconnected := strings.CutPrefix(status.Convert(err).Message(), "latest balancer error: ")
	if over := ctx.Err(); over != nil && unconnected {
		return fmt.Errorf("%w: %s", over, why)
	}
	return err
}
