package redisconfig

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Advice returns what to do about an error of the store, or "" if the error says it all.
func Advice(err error) string {
	var dial *net.OpError
	switch {
	case redis.IsAuthError(err):
		return "give user and password in the URL: redis://user:password@host:port"
	case redis.IsPermissionError(err):
		return "the user of the URL lacks a right: docs/operations.md lists them"
	case redis.IsReadOnlyError(err):
		return "this is a replica: connect to the master, or through Sentinel or Cluster, which find it"
	case redis.IsLoadingError(err):
		return "the server is reading its data after a start: it will answer when it has"
	case redis.IsOOMError(err):
		return "the server is full: raise maxmemory, or take tasks out; what runs goes on and frees memory"
	case redis.HasErrorPrefix(err, "MISCONF"):
		return "the server refuses every write because it could not save to disk: free its disk or mend its permissions"
	case strings.Contains(err.Error(), "WRONGTYPE"): // some servers put their own words before it
		return "another program writes keys of this name"
	case redis.IsClusterDownError(err):
		return "part of the cluster is down: it will answer when every slot is served again"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "is the server running, and are host and port of the URL right?"
	}
	return ""
}

// failed is an error of the store, with what to do about it.
func failed(op, name string, err error) error {
	advice := Advice(err)
	if advice != "" {
		advice = " (" + advice + ")"
	}
	return fmt.Errorf("redisconfig: %s %s: %w%s", op, Key(name), err, advice)
}
