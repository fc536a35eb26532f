package etcdledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// ErrNone means that nobody has made the name yet.
var ErrNone = errors.New("the name has no configuration yet: it is written by its first peer, or by Init")

// explain says what an error of etcd or the network means and what to do.
func (l *Ledger) explain(what string, err error) error {
	advice := advice(err)
	if errors.Is(err, context.DeadlineExceeded) && overTLS(l.client.Endpoints()) {
		// Who is refused by his certificate often sees no more than a connection that ends.
		advice += " Does each side trust the other's certificate (ca=, and cert= with key=), and has none ended?"
	}
	if advice != "" {
		advice = " (" + advice + ")"
	}
	return fmt.Errorf("etcdledger: %s: %s: %w%s", l.name, what, err, advice)
}

func overTLS(endpoints []string) bool {
	return slices.ContainsFunc(endpoints, func(e string) bool { return strings.HasPrefix(e, "https://") })
}

// advice returns what to do about err, or "" if the error says it all.
func advice(err error) string {
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return "etcd has reached its quota and refuses every write: compact, defragment and disarm the alarm " +
			"(etcdctl compact, defrag, alarm disarm), and let it compact by itself: --auto-compaction-retention. " +
			"No lease can be renewed until then, so all peers stop working"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return "the user of the URL needs a role with readwrite on the prefix"
	case errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserEmpty):
		return "give user and password in the URL: etcd://user:password@host:port/prefix"
	case errors.Is(err, rpctypes.ErrRequestTooLarge), strings.Contains(err.Error(), "message larger than max"): // what gRPC says
		return "the name has too many partitions for one value of etcd: raise --max-request-bytes, or take fewer"
	case errors.Is(err, rpctypes.ErrNoLeader):
		return "does a majority of its members live, and do they reach each other?"
	case errors.Is(err, context.DeadlineExceeded):
		return "do the hosts of the URL answer, and has etcd a leader?"
	}
	return ""
}
