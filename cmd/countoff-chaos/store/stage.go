package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-chaos/journal"
	"github.com/countoff/countoff/partition/redistest/redisserver"
)

// durable makes a server that has on its disk what it has answered for.
var durable = []string{"--save", "", "--appendonly", "yes", "--appendfsync", "always"}

// A Stage is the store of a run, seen from those who break it.
type Stage struct {
	single    *redisserver.Server
	ahead     time.Duration // the clock
	farthest  time.Duration
	noClock   error
	nodes     []*redisserver.Server // the trio's master and replica, in whatever roles
	sentinels []*redisserver.Server
}

const masterName = "chaos"

const patience = 20 * time.Second

// Single starts one server with an append only file in dir, if asked to on a clock
// that can be stepped, where that is possible.
func Single(ctx context.Context, dir string, clock bool) (*Stage, error) {
	s, err := redisserver.New(filepath.Join(dir, "redis"), durable...)
	if err != nil {
		return nil, err
	}
	st := &Stage{single: s, noClock: redisserver.ErrNoFaketime}
	if clock {
		if st.noClock = s.StartSteppable(ctx); st.noClock == nil {
			return st, nil
		}
	}
	return st, s.Start(ctx)
}

// Trio starts a master, its replica and three Sentinels in dir.
func Trio(ctx context.Context, dir string) (st *Stage, err error) {
	st = &Stage{noClock: redisserver.ErrNoFaketime}
	defer func() {
		if err != nil {
			st.Close()
		}
	}()
	for i := range 2 {
		s, err := redisserver.New(filepath.Join(dir, fmt.Sprintf("node%d", i)), append([]string{"--repl-diskless-sync-delay", "0"}, durable...)...)
		if err != nil {
			return st, err
		}
		st.nodes = append(st.nodes, s)
	}
	if err := st.nodes[0].Start(ctx); err != nil {
		return st, err
	}
	if err := st.follow(ctx, st.nodes[1], st.nodes[0]); err != nil {
		return st, err
	}
	for i := range 3 {
		if err := st.sentinel(ctx, filepath.Join(dir, fmt.Sprintf("sentinel%d", i))); err != nil {
			return st, err
		}
	}
	_, err = st.watched(ctx)
	return st, err
}

// Close kills every server.
func (st *Stage) Close() {
	for _, s := range append(append([]*redisserver.Server{st.single}, st.nodes...), st.sentinels...) {
		if s != nil {
			s.Kill()
		}
	}
}

// HasReplica reports whether it is a trio.
func (st *Stage) HasReplica() bool { return st.single == nil }

// URL is where clients connect; addr stands for the server's own address if it is not
// empty.
func (st *Stage) URL(addr string) string {
	if st.single != nil {
		if addr == "" {
			addr = st.single.Addr()
		}
		return "redis://" + addr
	}
	var hosts []string
	for _, s := range st.sentinels {
		hosts = append(hosts, s.Addr())
	}
	return "redis://" + strings.Join(hosts, ",") + "?master_name=" + masterName
}

// Addr is the server's address; empty if there are several.
func (st *Stage) Addr() string {
	if st.single == nil {
		return ""
	}
	return st.single.Addr()
}

// Restart kills the server and starts it again after a while, with its file or empty. It
// returns when it was killed.
func (st *Stage) Restart(ctx context.Context, down time.Duration, keep bool) (journal.Time, error) {
	st.single.Kill()
	dead := journal.Now() // nothing was acknowledged later
	if !keep {
		if err := st.single.Wipe(); err != nil {
			return dead, err
		}
	}
	select {
	case <-time.After(down):
	case <-ctx.Done():
	}
	return dead, st.single.Start(ctx)
}

// Step steps the server's wall clock.
func (st *Stage) Step(by time.Duration) error {
	if st.noClock != nil {
		return st.noClock
	}
	st.ahead += by
	st.farthest = max(st.farthest, st.ahead)
	return st.single.Step(st.ahead)
}

// CatchUp steps the clock so far ahead that nothing waits for it any more.
func (st *Stage) CatchUp() error {
	if st.ahead < st.farthest {
		return st.Step(st.farthest - st.ahead)
	}
	return nil
}

// NoClock says why the clock cannot be stepped, if so.
func (st *Stage) NoClock() error { return st.noClock }

// Fill makes the store refuse what needs memory, or lets it take it again.
func (st *Stage) Fill(ctx context.Context, full bool) error {
	client := st.single.Client()
	defer func() { _ = client.Close() }()
	limit := "0"
	if full {
		limit = "1"
	}
	return client.ConfigSet(ctx, "maxmemory", limit).Err()
}

// sentinel starts one more Sentinel.
func (st *Stage) sentinel(ctx context.Context, dir string) error {
	s, err := redisserver.New(dir)
	if err != nil {
		return err
	}
	err = s.Configure(
		fmt.Sprintf("sentinel monitor %s %s 2", masterName, hostPort(st.nodes[0])),
		"sentinel down-after-milliseconds "+masterName+" 1500",
		"sentinel failover-timeout "+masterName+" 3000",
		"sentinel parallel-syncs "+masterName+" 1",
	)
	if err != nil {
		return err
	}
	st.sentinels = append(st.sentinels, s)
	return s.Start(ctx, "--sentinel")
}

// FailOver kills the master and waits until the replica has taken its place and the
// old one has come back as its replica. What was acknowledged between from and dead
// may be forgotten.
func (st *Stage) FailOver(ctx context.Context) (from, dead journal.Time, err error) {
	if from, dead, err = st.replace(ctx); err == nil {
		_, err = st.watched(ctx) // so that it can be done again
	}
	return from, dead, err
}

func (st *Stage) replace(ctx context.Context) (from, dead journal.Time, err error) {
	old, err := st.watched(ctx)
	if err != nil {
		return 0, 0, err
	}
	master := old.Client()
	defer func() { _ = master.Close() }()
	// Replication is a prefix of what the master did: when it has the mark, it has
	// all that was acknowledged before.
	from = journal.Now()
	if err := master.Set(ctx, "{chaos}:mark", int64(from), 0).Err(); err != nil {
		return 0, 0, err
	}
	if n, err := master.Wait(ctx, 1, 5*time.Second).Result(); err != nil || n < 1 {
		return 0, 0, fmt.Errorf("the replica is behind: %d replicas have it: %w", n, err)
	}
	old.Kill()
	dead = journal.Now()
	end := time.Now().Add(patience)
	for {
		now, err := st.master(ctx)
		if err == nil && now != old && writable(ctx, now) {
			return from, dead, st.follow(ctx, old, now)
		}
		if time.Now().After(end) {
			return from, dead, fmt.Errorf("the Sentinels have not failed over within %v: %w", patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func writable(ctx context.Context, s *redisserver.Server) bool {
	c := s.Client()
	defer func() { _ = c.Close() }()
	return c.Set(ctx, "{chaos}:writable", 1, 0).Err() == nil
}

// Failovers returns when the first Sentinel saw another master.
func (st *Stage) Failovers() ([]journal.Time, error) {
	if !st.HasReplica() {
		return nil, nil
	}
	log, err := os.ReadFile(st.sentinels[0].Log())
	if err != nil {
		return nil, err
	}
	ahead := time.Now().UnixNano() - int64(journal.Now())
	var all []journal.Time
	for line := range strings.Lines(string(log)) {
		// 32195:X 20 Nov 2026 16:01:26.470 # +switch-master ...
		w := strings.SplitN(line, " ", 7)
		if len(w) < 7 || !strings.HasPrefix(w[6], "+switch-master") {
			continue
		}
		at, err := time.ParseInLocation("2 Jan 2006 15:04:05.000", strings.Join(w[1:5], " "), time.Local)
		if err != nil {
			return nil, err
		}
		all = append(all, journal.Time(at.UnixNano()-ahead))
	}
	return all, nil
}

// hostPort is where s listens, as the options of redis-server have it.
func hostPort(s *redisserver.Server) string { return strings.Replace(s.Addr(), ":", " ", 1) }

// follow starts s as a replica of master and waits until it has everything.
func (st *Stage) follow(ctx context.Context, s, master *redisserver.Server) error {
	if err := s.Wipe(); err != nil {
		return err
	}
	if err := s.Start(ctx, "--replicaof", hostPort(master)); err != nil {
		return err
	}
	client := s.Client()
	defer func() { _ = client.Close() }()
	return until(ctx, func() error {
		info, err := client.InfoMap(ctx, "replication").Result()
		if err == nil && info["Replication"]["master_link_status"] != "up" {
			err = errors.New("the replica is not in step")
		}
		return err
	})
}

// master returns the node that the first Sentinel holds for the master.
func (st *Stage) master(ctx context.Context) (*redisserver.Server, error) {
	c := redis.NewSentinelClient(&redis.Options{Addr: st.sentinels[0].Addr()})
	defer func() { _ = c.Close() }()
	addr, err := c.GetMasterAddrByName(ctx, masterName).Result()
	if err != nil {
		return nil, err
	}
	for _, s := range st.nodes {
		if strings.HasSuffix(s.Addr(), ":"+addr[1]) {
			return s, nil
		}
	}
	return nil, fmt.Errorf("the Sentinel names a stranger, %v", addr)
}

// watched waits until all Sentinels agree on the master, its replica and each other,
// and returns the master.
func (st *Stage) watched(ctx context.Context) (master *redisserver.Server, err error) {
	err = until(ctx, func() error {
		if master, err = st.master(ctx); err != nil {
			return err
		}
		for _, s := range st.sentinels {
			c := redis.NewSentinelClient(&redis.Options{Addr: s.Addr()})
			m, err := c.Master(ctx, masterName).Result()
			if err == nil {
				var replicas []map[string]string
				replicas, err = c.Replicas(ctx, masterName).Result()
				switch {
				case err != nil:
				case !strings.HasSuffix(master.Addr(), ":"+m["port"]) || m["flags"] != "master":
					err = fmt.Errorf("a Sentinel sees %s with flags %s", m["port"], m["flags"])
				case m["num-other-sentinels"] != "2":
					err = fmt.Errorf("a Sentinel sees %s others", m["num-other-sentinels"])
				case len(replicas) != 1 || replicas[0]["flags"] != "slave" || replicas[0]["master-link-status"] != "ok":
					err = fmt.Errorf("a Sentinel sees the replicas %v", replicas)
				}
			}
			_ = c.Close()
			if err != nil {
				return err
			}
		}
		return nil
	})
	return master, err
}

// until repeats try until it succeeds, for as long as one may wait.
func until(ctx context.Context, try func() error) error {
	for end := time.Now().Add(2 * patience); ; {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("waited %v: %w", 2*patience, errors.Join(err, ctx.Err()))
		}
		time.Sleep(50 * time.Millisecond)
	}
}
