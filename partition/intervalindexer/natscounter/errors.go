package natscounter

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countoff/countoff/partition/urltls"
)

// errNotConnected means that nothing was sent.
var errNotConnected = errors.New("not connected")

// errNoTTL means that the keys of the bucket cannot vanish by themselves.
var errNoTTL = errors.New("keys of the bucket have no time to live of their own")

// explain says what an error of NATS means and what to do.
func (c *Counter) explain(what string, err error) error {
	// What must not be published is not answered: the server says so beside the call.
	if last := c.conn.LastError(); errors.Is(err, context.DeadlineExceeded) && errors.Is(last, nats.ErrPermissionViolation) {
		err = fmt.Errorf("%w: %w", err, last)
	}
	if a := advice(err); a != "" {
		return fmt.Errorf("natscounter: %s: %w (%s)", what, err, a)
	}
	return fmt.Errorf("natscounter: %s: %w", what, err)
}

// advice returns what to do about err, or "" if the error says it all.
func advice(err error) string {
	if hint := urltls.Hint(err, "nats://"); hint != "" {
		return hint
	}
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return "the user of the URL lacks a permission: the documentation of package natscounter lists those it needs"
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return "give user and password, a token or a credentials file in the URL: nats://user:password@host:port, nats://token@host:port, nats://host:port?creds=FILE"
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return "the account of the user has no JetStream: enable it in the server's configuration, accounts { NAME { jetstream: enabled } }"
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), absent(err):
		return "does the server have JetStream? start it with nats-server -js, or with jetstream {} in its configuration; on a cluster a majority must live"
	case errors.Is(err, jetstream.ErrLimitMarkerTTLNotSupported):
		return "the server is too old: want 2.11 or later"
	case errors.Is(err, errNoTTL):
		return "the bucket was made without: nats kv edit BUCKET --marker-ttl 1s, or give another bucket"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errNotConnected):
		return "do the hosts of the URL answer, and on a cluster, has the bucket a leader?"
	}
	return ""
}
