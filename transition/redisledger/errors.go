package redisledger

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// explain says what an error of the server or the network means and what to do.
func (l *Ledger) explain(ctx context.Context, op string, err error) error {
	return explain(ctx, l.name, op, err)
}

func explain(ctx context.Context, name, op string, err error) error {
	advice := advice(err)
	if cause := context.Cause(ctx); cause != nil && advice == "" {
		err = cause // what go-redis makes of it differs from place to place
	}
	if advice != "" {
		advice = " (" + advice + ")"
	}
	return fmt.Errorf("redisledger: %s: %s: %w%s", name, op, err, advice)
}

// advice returns what to do about err, or "" if the error says it all.
func advice(err error) string {
	var dial *net.OpError
	switch {
	case redis.IsAuthError(err):
		return "give user and password in the URL: redis://user:password@host:port"
	case redis.IsPermissionError(err):
		return "the user of the URL needs, for the keys ~{name}:* and the channels &{name}:events*, " +
			"the commands of the ledger's scripts: +@read +@write +@scripting +@transaction +@pubsub +time +info"
	case redis.IsReadOnlyError(err):
		return "this is a replica: connect to the master, or through Sentinel or Cluster, which find it"
	case redis.IsLoadingError(err):
		return "the server is reading its data after a start: it will answer when it has"
	case redis.IsOOMError(err):
		return "the server is full: raise maxmemory, or take tasks out; what runs goes on and frees memory"
	case redis.HasErrorPrefix(err, "MISCONF"):
		return "the server refuses every write because it could not save to disk: free its disk or mend " +
			"its permissions. No lease can be renewed until then, so all peers stop working"
	case strings.Contains(err.Error(), "WRONGTYPE"): // some servers put their own words before it
		return "another program writes keys of this name"
	case redis.IsClusterDownError(err):
		return "part of the cluster is down: it will answer when every slot is served again"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "is the server running, and are host and port of the URL right?"
	}
	return ""
}
