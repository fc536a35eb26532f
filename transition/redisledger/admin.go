package redisledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// ErrInUse means that sessions live under the name, or may.
var ErrInUse = errors.New("the name is in use")

// anyStep is the clock step of who is no peer: peers with whatever times lower it to theirs.
const anyStep = 24 * time.Hour

// Init makes name in a store that is known to be new, so that its first peers begin at
// once: where nothing stands, a ledger otherwise assumes that the store forgot it and
// lets nobody gain a partition for a lease. It is for `countoff init` and for processes
// that started the server themselves.
//
// Where the name, or a part of it, is already known, Init does nothing and reports false. It returns an
// error that wraps partition.ErrConfig if another configuration stands.
func Init(ctx context.Context, client redis.UniversalClient, name string, cfg partition.Config) (made bool, err error) {
	l, err := New(client, name, Config{Config: cfg})
	if err != nil {
		return false, err
	}
	common := l.common()
	common[1] = anyStep.Milliseconds()
	reply, err := l.run(ctx, initScript, common, l.agreement()...)
	switch {
	case err != nil:
		return false, l.explain(ctx, "init", err)
	case reply[0] == "config":
		return false, l.refusal(ctx) // who waits for the answer has it: nobody at work is told
	case reply[0] == "stands":
		return false, nil
	}
	load(ctx, client) // or the first call of a peer would find a server that seems to have forgotten its scripts
	return true, nil
}

// Known reports whether the store has a ledger of name: not where nobody has worked under it yet,
// or its ledger stands elsewhere.
func Known(ctx context.Context, client redis.UniversalClient, name string) (bool, error) {
	n, err := client.Exists(ctx, keys(name)[1]).Result()
	if err != nil {
		return false, explain(ctx, name, "look for the ledger", err)
	}
	return n == 1, nil
}

// Idle returns an error that wraps ErrInUse and lists the peers if anybody may work
// under name. Each call lets the store's clock go on by what passed since the last, so
// that after all peers crashed it can be asked again until their leases are over.
func Idle(ctx context.Context, client redis.UniversalClient, name string) error {
	return idle(ctx, client, name, "look")
}

// Destroy removes every key of the ledger of name, with its configuration. It is
// refused like [Idle] while anybody may work under it.
func Destroy(ctx context.Context, client redis.UniversalClient, name string) error {
	return idle(ctx, client, name, "remove")
}

// SetUnits gives name other ingress lists, to in the place of from. It is refused like [Idle] while
// anybody may work under it: grants go by the number of a list among all of them. Peers that want
// others are refused from then on. The error wraps partition.ErrConfig if the lists that stand
// are not from, or the number of partitions is being changed.
func SetUnits(ctx context.Context, client redis.UniversalClient, name string, from, to []string) error {
	now, then := partition.Config{Units: from}.WithDefaults(), partition.Config{Units: to}.WithDefaults()
	if err := then.Validate(); err != nil {
		return err
	}
	return idle(ctx, client, name, "units", now.UnitsHash(), then.UnitsHash(), strings.Join(then.Units, "\n"))
}

func idle(ctx context.Context, client redis.UniversalClient, name string, do ...any) error {
	if err := partition.CheckName(name); err != nil {
		return err
	}
	reply, err := strs(idleScript.Run(ctx, client, allKeys(name), do...))
	if err != nil {
		return explain(ctx, name, "look for sessions", err)
	}
	switch reply[0] {
	case "idle":
		return nil
	case "changed":
		return fmt.Errorf("redisledger: %s: its ingress lists were changed meanwhile, or its number of partitions is being changed: %w", name, partition.ErrConfig)
	}
	var peers []string
	var longest time.Duration
	for i := 1; i+1 < len(reply); i += 2 {
		_, seat, err := parseRow(reply[i])
		if err != nil {
			seat.Peer = "unknown"
		}
		left, _ := strconv.ParseInt(reply[i+1], 10, 64)
		if partition.CheckPeer(seat.Peer) != nil { // of an older build, or another program
			seat.Peer = fmt.Sprintf("%.40q", seat.Peer)
		}
		peers = append(peers, seat.Peer)
		longest = max(longest, time.Duration(left)*time.Millisecond)
	}
	live := "1 peer"
	if n := len(peers); n != 1 {
		live = fmt.Sprintf("%d peers", n)
	}
	return fmt.Errorf("redisledger: %s: %s (%s); the last lease ends in %v, unless it is renewed: %w: stop its peers first",
		name, live, strings.Join(peers, ", "), longest, ErrInUse)
}

var (
	_ transition.Ledger    = (*Ledger)(nil)
	_ transition.Historian = (*Ledger)(nil)

	_ transition.ConfigReader = (*Ledger)(nil)
	_ transition.Timed        = (*Ledger)(nil)
	_ transition.Laid         = (*Ledger)(nil)
	_ partition.Named         = (*Ledger)(nil)
)
