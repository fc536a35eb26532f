package redisledger

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// Config says what a peer wants of its ledger.
type Config struct {
	// Config is what all peers and producers of the name agree on. Zero fields get
	// their defaults; who differs from what stands in the store is refused.
	Config partition.Config
	// Timing holds the times of the peer. The zero value is ready.
	Timing transition.Timing
	// Grows says that partitions may be added while the name is in use, because a
	// broker does: the store's number is raised to the caller's, and a caller that
	// knows of fewer is behind, not in error. Default: another number is refused.
	Grows bool
	// Deployment says what the peer belongs to, so that two deployments that were
	// given one name by mistake are noticed: it stays the same over the versions of
	// one. Default "": it is not compared.
	Deployment string
	// WaitReplicas is how many replicas must have taken over what a Sync or Seal has
	// changed before it counts as answered; with fewer it is unknown, as if it had
	// timed out, and nothing is worked on because of it. It keeps a fail-over to one of the
	// replicas that were counted, which are all if it is their number, from forgetting grants, while a master that is cut off from its replicas hands out
	// nothing; with too few replicas nobody gains or gives up anything, and who works
	// goes on: a Sync renews the lease all the same, and returns an error that wraps
	// transition.ErrRenewed. One that does nothing else does not wait. The data under
	// the partitions is not covered. The client has to tell its server, as a *redis.Client and a
	// *redis.ClusterClient do, and what embeds the former. Default 0.
	//
	// Init, Require, Grow, Pause and Drain do not wait. A replica has taken over all that came before what it
	// has, so no grant or roll that counts was made by what they said and a fail-over forgets.
	// If it forgets them before that, a name is as if not made, and a requirement, a pause or a drain has
	// to be said again; that the broker has more partitions is said again by those who see it.
	WaitReplicas int
}

// A Ledger is the record of one name in Redis. It implements transition.Ledger, and
// may be used concurrently and by several sessions. It holds no connection of its own
// except during [Ledger.Hints]; who made the client closes it.
type Ledger struct {
	client redis.UniversalClient
	name   string
	cfg    Config
	keys   []string
	doubts *doubts
	quiet  quiet

	greeting atomic.Bool
	said     atomic.Pointer[[]any] // by sources, of the name: a store that has lost its data hears of it again
}

// New returns the ledger of name. It does not talk to the server.
func New(client redis.UniversalClient, name string, cfg Config) (*Ledger, error) {
	cfg.Config = cfg.Config.WithDefaults()
	cfg.Timing = cfg.Timing.WithDefaults()
	if err := errors.Join(fits(client, cfg.WaitReplicas), partition.CheckName(name), cfg.Config.Validate(), cfg.Timing.Validate()); err != nil {
		return nil, err
	}
	k := keys(name)
	return &Ledger{
		client: client,
		name:   name,
		cfg:    cfg,
		keys:   k,
		doubts: newDoubts(client, k[0]),
	}, nil
}

// fits refuses a client that cannot be worked with, or not be had wait for so many replicas.
func fits(client redis.UniversalClient, replicas int) error {
	if err := redisconfig.Fits(client); err != nil {
		return fmt.Errorf("redisledger: %w", err)
	}
	if replicas < 0 {
		return fmt.Errorf("redisledger: wait for %d replicas: must not be negative", replicas)
	}
	if replicas > 0 {
		if err := redisconfig.Tells(client); err != nil {
			return fmt.Errorf("redisledger: wait for %d replicas: %w", replicas, err)
		}
	}
	return nil
}

// Sync implements transition.Ledger. A session is named by letters and digits, and tags are
// such as partition.ParseTags reads: with others nobody could read the roll that has them.
func (l *Ledger) Sync(ctx context.Context, r transition.Request) (transition.Answer, error) {
	r.State, r.Weight = max(r.State, machine.Live), max(r.Weight, 0)
	if err := checkSession(r.Session); err != nil {
		return transition.Answer{}, err
	}
	before := l.quiet.of(r.Session)
	common := l.common()
	common[2] = max(l.cfg.Timing.Grace(), r.Longest).Milliseconds()
	if before.same(r) {
		reply, err := l.run(ctx, sameScript, common, string(r.Session), before.stamp, top(r), number(r.View))
		if err != nil {
			return transition.Answer{}, l.explain(ctx, "sync", err)
		}
		if reply[0] == "same" {
			return before.again(reply)
		}
	}
	if _, err := partition.ParseTags(string(r.Tags)); err != nil {
		return transition.Answer{}, fmt.Errorf("redisledger: %w", err)
	}
	args := append(append(l.agreement(), request(r, before)...), terms(l.terms()), says(r), way(r), r.Strategy, l.cfg.WaitReplicas)
	if said := l.said.Load(); said != nil {
		args = append(args, *said...)
	}
	reply, err := l.run(ctx, syncScript, common, args...)
	short := few(err) && reply[0] == "full" && r.State != machine.Gone
	switch {
	case err != nil && !short:
		return transition.Answer{}, l.explain(ctx, "sync", err)
	case reply[0] == "config":
		return transition.Answer{}, l.refused(ctx)
	case reply[0] == "barrier":
		err := fmt.Errorf("redisledger: %s has peers that go from roll to roll with barrier %v, this peer wants %v (to change it, stop all peers first): %w",
			l.name, !r.Barrier, r.Barrier, partition.ErrConfig)
		redisconfig.NoteRefused(ctx, l.client, l.name, err)
		return transition.Answer{}, err
	case reply[0] == "unsure":
		return transition.Answer{}, fmt.Errorf("redisledger: %s had peers that go from roll to roll with barrier %v, this peer wants %v: %w",
			l.name, !r.Barrier, r.Barrier, transition.ErrUnsure)
	}
	stamp, a, ofSources, wrong := answer(reply)
	if wrong != nil {
		return transition.Answer{}, wrong
	}
	if len(ofSources) > 0 {
		l.said.Store(&ofSources)
	}
	if short {
		return renewed(r, a), fmt.Errorf("%w: %w", l.explain(ctx, "sync", err), transition.ErrRenewed)
	}
	l.quiet.keep(r, stamp, a)
	return a, nil
}

// Seal implements transition.Ledger.
func (l *Ledger) Seal(ctx context.Context, next transition.Roll) error {
	args := append(l.agreement(), number(next.Version), number(next.Membership), len(next.Members), printChairs(next.Chairs))
	for _, m := range next.Members {
		if err := checkSession(m.Session); err != nil {
			return err
		}
		args = append(args, string(m.Session), line(m), about(m.Member))
	}
	reply, err := l.run(ctx, sealScript, l.common(), args...)
	switch {
	case err != nil:
		return l.explain(ctx, "seal", err)
	case reply[0] == "config":
		return l.refused(ctx)
	case reply[0] == "stale":
		return transition.ErrStale
	}
	return nil
}

// Name implements partition.Named.
func (l *Ledger) Name() string { return l.name }

// Times implements transition.Timed.
func (l *Ledger) Times() transition.Timing { return l.cfg.Timing }

// Layout implements transition.Laid.
func (l *Ledger) Layout() partition.Config { return l.cfg.Config }

// terms is what the peer says of itself once.
func (l *Ledger) terms() machine.Terms { return l.cfg.Timing.Terms(l.cfg.Deployment) }

// common returns the first arguments of every script that changes the ledger, without
// the one that says what the caller is in doubt about.
func (l *Ledger) common() []any {
	t := l.cfg.Timing
	return []any{
		t.Lease.Milliseconds(), t.ClockStep().Milliseconds(), t.Grace().Milliseconds(), t.Settle.Milliseconds(),
	}
}

// agreement returns the arguments that the store compares with its configuration.
func (l *Ledger) agreement() []any {
	c, grows := l.cfg.Config, 0
	if l.cfg.Grows {
		grows = 1
	}
	return []any{fmt.Sprintf("%d %d", partition.Protocol, partition.TagsProtocol), c.Total, string(c.Hash), c.UnitsHash(), strings.Join(c.Units, "\n"), grows}
}

// run runs a script that changes the ledger, by its hash if the server has it. It returns
// a reply also if too few replicas have what it did; see few.
func (l *Ledger) run(ctx context.Context, s *redis.Script, common []any, own ...any) ([]string, error) {
	call := l.doubts.call(ctx)
	args := make([]any, 0, len(common)+2+len(own))
	args = append(append(append(args, common...), call, events(l.name)), own...)
	keys := l.keys
	if s == sameScript {
		keys = keys[:quietKeys]
	}
	reply, err := l.eval(ctx, s, false, keys, args)
	if isNoScript(err) {
		// A server that lacks a script may have been restarted just now, and this may
		// be the first call it gets. Only this EVAL, which says so, makes the script
		// known again: no other peer's call can come before the grace it opens.
		call.forgot = true
		reply, err = l.eval(ctx, s, true, keys, args)
		if err == nil || few(err) {
			// The other scripts are gone too. Load them now, or the first call of each
			// would raise the same doubt again. Failing to costs that grace, no more.
			load(ctx, l.client)
		}
	}
	if err != nil && !few(err) {
		call.failed()
		var late net.Error // the deadline is the connection's too, and either may be noticed first
		if errors.As(err, &late) && late.Timeout() && !l.crowded() {
			l.greet()
		}
		return nil, err
	}
	call.answered()
	return reply, err
}

// greet leaves a connection for the calls to come, after one of them came late. A new one is greeted before
// it is used, and given up with the call that opened it: where answers are late that takes longer than a
// call of the ledger may, each time anew.
func (l *Ledger) greet() {
	if !l.greeting.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer l.greeting.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), l.cfg.Timing.Lease)
		defer cancel()
		_ = l.client.Exists(ctx, l.keys[0]).Err() // a call tells
	}()
}

// load makes the scripts known to the server.
func load(ctx context.Context, client redis.UniversalClient) {
	for _, s := range wary {
		if s.Load(ctx, client).Err() != nil {
			return
		}
	}
}

func isNoScript(err error) bool {
	return errors.Is(err, redis.ErrNoScript) || redis.HasErrorPrefix(err, "NOSCRIPT")
}

// strs returns the reply of a script that answers with texts, at least one.
func strs(cmd *redis.Cmd) ([]string, error) {
	reply, err := cmd.StringSlice()
	if err == nil && len(reply) == 0 {
		err = errors.New("redisledger: the script answered nothing")
	}
	return reply, err
}

// refused says what of the configuration differs, and leaves a trace of it for those at work.
func (l *Ledger) refused(ctx context.Context) error {
	err := l.refusal(ctx)
	redisconfig.NoteRefused(ctx, l.client, l.name, err)
	return err
}

// refusal says what of the configuration differs.
func (l *Ledger) refusal(ctx context.Context) error {
	stands, err := redisconfig.Read(ctx, l.client, l.name)
	if err != nil {
		return fmt.Errorf("redisledger: %s: %w; what stands cannot be told: %w", l.name, partition.ErrConfig, err)
	}
	if err := l.differs(stands); err != nil {
		return err
	}
	return fmt.Errorf("redisledger: %s: the configuration was another when asked, and changed since: %w",
		l.name, partition.ErrConfig)
}

// differs says all that stands other than this peer wants.
func (l *Ledger) differs(stands partition.Config) error {
	want := l.cfg.Config
	var errs []error
	differ := func(what string, stands, want any) {
		errs = append(errs, fmt.Errorf("redisledger: %s has %s %v, this peer wants %v: %w",
			l.name, what, stands, want, partition.ErrConfig))
	}
	if stands.Total != want.Total && !l.cfg.Grows {
		differ("partitions", stands.Total, fmt.Sprintf("%d (to change it, stop all peers: countoff resize %s --partitions %[1]d)", want.Total, l.name))
	}
	if stands.Hash != want.Hash {
		differ("hash", stands.Hash, fmt.Sprintf("%s (if nobody has worked under the name yet: countoff destroy %s --yes)", want.Hash, l.name))
	}
	if stands.UnitsHash() != want.UnitsHash() {
		differ("ingress lists", fmt.Sprintf("%q", stands.Units), fmt.Sprintf("%q (%s)", want.Units, redisconfig.ToChangeIngress(l.name, want.Units)))
	}
	return errors.Join(errs...)
}

// checkSession keeps out what would be misread in the keys.
func checkSession(s partition.Session) error {
	ok := s != "" && s != "_"
	for _, c := range s {
		ok = ok && (c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z')
	}
	if !ok {
		return fmt.Errorf("redisledger: session %q: want letters and digits", string(s))
	}
	return nil
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
