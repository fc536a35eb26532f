package redissource

import (
	"context"
	_ "embed" // the script is a file
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
)

//go:embed resize_kept.lua
var resizeKeptSource string

var resizeKeptScript = newScript(resizeKeptSource)

// A kept is something of a resize that must not be forgotten once what comes after it is done.
type kept struct {
	key   string   // stands and does not expire: a fence, or another key
	token string   // "": it is no fence
	mark  string   // "": none; else it says that all up to last was pushed
	last  int64    // see mark
	gone  []string // what must not be there any more
}

const (
	// keptMoving is how long a slot that is on its way to another node is waited for. WAIT is said to
	// one node, so that what is said with it does not follow a slot as the client of a cluster does.
	keptMoving = 30 * time.Second
	keptAgain  = 50 * time.Millisecond
)

// kept returns when all is where it should be, and a replica of each server that has
// one knows; or sources.ErrForgot. A replica that is in step for its master and does not answer is waited for
// until the master gives it up. A server that does not tell its replicas has none.
func (m *mover) kept(ctx context.Context, all ...kept) error {
	m.tell(m.out, false)
	for began := time.Now(); ; {
		err := m.keptNow(ctx, all)
		cluster, ok := m.client.(*redis.ClusterClient)
		if !ok || !slotMoves(err) || time.Since(began) > keptMoving {
			return err
		}
		cluster.ReloadState(ctx)
		sleep(ctx, keptAgain)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// slotMoves reports whether a node has answered that another one has a slot, or some of its keys.
func slotMoves(err error) bool {
	_, moved := redis.IsMovedError(err)
	_, ask := redis.IsAskError(err)
	return moved || ask || redis.IsTryAgainError(err)
}

// keptNow asks those servers that have the keys as far as the client knows.
func (m *mover) keptNow(ctx context.Context, all []kept) error {
	nodes := make(map[*redis.Client][]kept) // nil: the client, which may be a struct that is no key of a map
	for _, k := range all {
		var master *redis.Client
		if cluster, ok := m.client.(*redis.ClusterClient); ok {
			var err error
			if master, err = cluster.MasterForKey(ctx, k.key); err != nil {
				return err
			}
		}
		nodes[master] = append(nodes[master], k)
	}
	for master, list := range nodes {
		for passed := false; !passed; {
			var err error
			if passed, err = m.keptBy(ctx, master, list); err != nil {
				return err
			}
		}
	}
	return nil
}

// keptBy asks one server, and reports whether a replica knows, or there is none.
func (m *mover) keptBy(ctx context.Context, master *redis.Client, all []kept) (bool, error) {
	node := m.client
	if master != nil {
		node = master
	}
	pipe := node.Pipeline()
	info := pipe.Info(ctx, "replication")
	cmds := make([]*redis.Cmd, len(all))
	for i, k := range all {
		keys, last := append([]string{k.key, k.key}, k.gone...), ""
		if k.mark != "" {
			keys[1], last = k.mark, strconv.FormatInt(k.last, 10)
		}
		cmds[i] = resizeKeptScript.queue(ctx, pipe, true, keys, []any{last, k.token})
	}
	waits := m.replicated[master]
	var wait *redis.Cmd
	if waits {
		wait = pipe.Do(ctx, waitFor(node, 1, waitReplicas)...)
	}
	redisconfig.Exec(ctx, pipe)
	for _, cmd := range cmds {
		if n, err := cmd.Int(); err == nil && n < 0 {
			return false, sources.ErrForgot
		}
		if err := taken(cmd); err != nil {
			return false, err
		}
	}
	m.replicated[master] = strings.Contains(info.Val(), "state=online")
	if !m.replicated[master] {
		return true, nil
	}
	if !waits {
		return false, nil
	}
	n, err := wait.Int()
	if err == nil && n == 0 {
		m.tell(m.out, true)
	}
	return n > 0, err
}
