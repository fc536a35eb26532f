package etcdledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/memledger"
)

// Config says what a peer wants of its ledger.
type Config struct {
	// Config is what all peers of the name agree on. Zero fields get their defaults; who
	// differs from what stands in the store is refused.
	Config partition.Config
	// Timing holds the times of the peer. The zero value is ready.
	Timing transition.Timing
	// Deployment says what the peer belongs to, so that two deployments that were given one
	// name by mistake are noticed. Default "": it is not compared.
	Deployment string
}

// A Ledger is the record of one name in etcd. It implements transition.Ledger, and may be
// used concurrently and by several sessions. Who made the client closes it.
type Ledger struct {
	client *clientv3.Client
	name   string
	prefix string // of all keys of the name
	cfg    Config
	memory memory
}

var (
	_ transition.Ledger    = (*Ledger)(nil)
	_ transition.Historian = (*Ledger)(nil)
	_ transition.Timed     = (*Ledger)(nil)
	_ transition.Laid      = (*Ledger)(nil)
	_ transition.Pauser    = (*Ledger)(nil)
	_ transition.Drainer   = (*Ledger)(nil)
	_ partition.Named      = (*Ledger)(nil)
)

// New returns the ledger of name, whose keys are prefix/name/… ("" is a prefix too). It
// does not talk to etcd. A client that was not made by [Open] waits for a member that is cut off
// from the others, until the time of a call is over.
func New(client *clientv3.Client, prefix, name string, cfg Config) (*Ledger, error) {
	cfg.Config = cfg.Config.WithDefaults()
	cfg.Timing = cfg.Timing.WithDefaults()
	if err := errors.Join(partition.CheckName(name), cfg.Config.Validate(), cfg.Timing.Validate()); err != nil {
		return nil, err
	}
	began := time.Now()
	return &Ledger{
		client: client,
		name:   name,
		prefix: strings.TrimSuffix(prefix, "/") + "/" + name + "/",
		cfg:    cfg,
		// A clock that stands still while the machine is suspended counts too little, never
		// too much.
		memory: memory{now: func() time.Duration { return time.Since(began) }, replaced: make(chan struct{})},
	}, nil
}

// Name implements partition.Named.
func (l *Ledger) Name() string { return l.name }

// Times implements transition.Timed.
func (l *Ledger) Times() transition.Timing { return l.cfg.Timing }

// Layout implements transition.Laid.
func (l *Ledger) Layout() partition.Config { return l.cfg.Config }

// Make returns what redisfx.Config.Ledger wants: the ledger of a consumer whose tasks stand
// elsewhere.
func Make(client *clientv3.Client, prefix, name string) func(partition.Config, transition.Timing, string) (transition.Ledger, error) {
	return func(layout partition.Config, timing transition.Timing, deployment string) (transition.Ledger, error) {
		return New(client, prefix, name, Config{Config: layout, Timing: timing, Deployment: deployment})
	}
}

// Init makes name in a cluster that is known to be new, or never to have had the name, so
// that its first peers begin at once: where nothing stands, a ledger otherwise assumes that
// etcd lost it and lets nobody gain a partition for a lease.
//
// Where the name, or a part of it, is already known, Init does nothing and reports false. It returns an error
// that wraps partition.ErrConfig if another configuration stands.
func Init(ctx context.Context, client *clientv3.Client, prefix, name string, cfg partition.Config) (made bool, err error) {
	// Peers with whatever times lower the clock step to theirs; nobody has a lease yet.
	l, err := New(client, prefix, name, Config{Config: cfg, Timing: transition.Timing{Lease: 96 * time.Hour}})
	if err != nil {
		return false, err
	}
	err = l.change(ctx, "init", func(s *memledger.Store, c memledger.Call) error {
		_, known := s.State()
		if !known && c.Suspect {
			return errRemains
		}
		if made = !known; made {
			*s = *memledger.NewStore(c)
		}
		return nil
	})
	if errors.Is(err, errRemains) {
		return false, nil // the next Sync opens a grace: an owner may be at work
	}
	return made && err == nil, err
}

// errRemains is what Init finds where a name has lost its memory and its configuration stands.
var errRemains = errors.New("the name has lost its memory")

// Require says which tags the partitions and units of name ask of their owners, in place of
// all that was said before, and makes a roll due that goes by it; none ask for nothing. It
// may be called while peers work, and leaves their clock alone. It is lost where all keys of
// the name are. It returns an error that wraps ErrNone if the name is not known.
func Require(ctx context.Context, client *clientv3.Client, prefix, name string, requires []partition.Requirement) error {
	if err := partition.CheckRequirements(requires); err != nil {
		return err
	}
	cfg, known, err := ReadConfig(ctx, client, prefix, name)
	if err == nil && !known {
		err = fmt.Errorf("etcdledger: %s: %w", name, ErrNone)
	}
	if err != nil {
		return err
	}
	l, err := New(client, prefix, name, Config{Config: cfg})
	if err != nil {
		return err
	}
	return l.change(ctx, "require", func(s *memledger.Store, _ memledger.Call) error {
		if _, known := s.State(); !known { // its memory is lost
			return ErrNone
		}
		s.Require(requires)
		return nil
	})
}

// Pause implements transition.Pauser. It leaves the clock of the peers alone. It is lost where all
// keys of the name are. It returns an error that wraps ErrNone if the name is not known.
func (l *Ledger) Pause(ctx context.Context, p partition.Pause) error {
	if err := p.Check(); err != nil {
		return err
	}
	what := "pause"
	if p == (partition.Pause{}) {
		what = "resume"
	}
	return l.change(ctx, what, func(s *memledger.Store, _ memledger.Call) error {
		if _, known := s.State(); !known {
			return ErrNone
		}
		s.Pause(p)
		return nil
	})
}

// Drain implements transition.Drainer. Like [Ledger.Pause] it leaves the clock alone, is lost where all keys of
// the name are, and returns an error that wraps ErrNone if the name is not known.
func (l *Ledger) Drain(ctx context.Context, d partition.Drain) error {
	if err := d.Check(); err != nil {
		return err
	}
	return l.change(ctx, "drain", func(s *memledger.Store, _ memledger.Call) error {
		if _, known := s.State(); !known {
			return ErrNone
		}
		_, err := s.Drain(d)
		return err
	})
}

// Recall implements transition.Drainer.
func (l *Ledger) Recall(ctx context.Context, peer string) error {
	return l.change(ctx, "recall", func(s *memledger.Store, _ memledger.Call) error {
		if _, known := s.State(); !known {
			return ErrNone
		}
		s.Recall(peer)
		return nil
	})
}

// ReadConfig returns what all peers of name agree on, and whether the name is known at all.
func ReadConfig(ctx context.Context, client *clientv3.Client, prefix, name string) (cfg partition.Config, known bool, err error) {
	l, err := New(client, prefix, name, Config{})
	if err != nil {
		return cfg, false, err
	}
	resp, err := client.Get(ctx, l.prefix+configKey)
	if err != nil {
		return cfg, false, l.explain("read the configuration", err)
	}
	if len(resp.Kvs) == 0 {
		return cfg, false, nil
	}
	if cfg, err = decodeConfig(string(resp.Kvs[0].Value)); err != nil {
		return cfg, true, fmt.Errorf("etcdledger: %s: %w", name, err)
	}
	return cfg, true, nil
}

// Sync implements transition.Ledger. A session is named by letters and digits.
func (l *Ledger) Sync(ctx context.Context, r transition.Request) (a transition.Answer, err error) {
	if err := checkSession(r.Session); err != nil {
		return transition.Answer{}, err
	}
	err = l.change(ctx, "sync", func(s *memledger.Store, c memledger.Call) (err error) {
		a, _, err = s.Sync(c, r)
		return err
	})
	if err != nil {
		return transition.Answer{}, err
	}
	l.memory.called()
	return a, nil
}

// Seal implements transition.Ledger.
func (l *Ledger) Seal(ctx context.Context, next transition.Roll) error {
	for _, m := range next.Members {
		if err := checkSession(m.Session); err != nil {
			return err
		}
	}
	return l.change(ctx, "seal", func(s *memledger.Store, c memledger.Call) error {
		_, err := s.Seal(c, next)
		return err
	})
}

// Census implements transition.Ledger. Where nobody seems to call the ledger, a Ledger that is of no peer and has not
// seen its clock go on yet waits for that, for a quarter of the peers' longest lease at most.
func (l *Ledger) Census(ctx context.Context) (transition.Census, error) {
	snap, err := l.read(ctx)
	if err != nil {
		return transition.Census{}, l.explain("census", err)
	}
	store, call, err := l.load(snap)
	if err != nil {
		return transition.Census{}, err
	}
	c, err := store.Census(call)
	if state, _ := store.State(); err == nil && len(c.Sessions) > 0 && l.memory.newcomer() {
		var told time.Duration
		told, err = l.silence(ctx, snap, time.Duration(state.Longest)*time.Millisecond)
		c.Silence = max(c.Silence, told) // by its own clock it may have looked on for longer
	}
	if err != nil {
		return transition.Census{}, l.explain("census", err)
	}
	return c, nil
}

// silence returns for how long nobody has called the ledger, if that is more than a lease, as who has just come to look
// can tell: by the wall clock of the last who did. Wall clocks may disagree, and an older build writes none: it is believed
// only if nobody calls now either, for longer than a beat of the peers, whose lease may be another than that of who looks.
func (l *Ledger) silence(ctx context.Context, snap *snapshot, lease time.Duration) (time.Duration, error) {
	seen, err := l.client.Get(ctx, l.prefix+seenKey)
	if err != nil || len(seen.Kvs) == 0 {
		return 0, err
	}
	at, err := strconv.ParseInt(string(seen.Kvs[0].Value), 10, 64)
	silence := time.Since(time.UnixMilli(at))
	if err != nil || silence <= lease {
		return 0, err
	}
	patience := max(l.cfg.Timing.ClockStep(), transition.Timing{Lease: lease}.ClockStep())
	if end, ok := ctx.Deadline(); ok { // the caller has more to look at
		patience = min(patience, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), patience) // a member that is cut off says so
	defer cancel()
	for resp := range l.client.Watch(ctx, l.prefix+clockKey, clientv3.WithRev(snap.revision+1)) {
		if len(resp.Events) > 0 || resp.Err() != nil { // who may not look on has seen nothing
			return 0, nil
		}
	}
	return silence, nil
}

// change reads the name, lets op decide and writes what op changed, if nothing of what it
// was decided on has changed meanwhile; otherwise once more.
func (l *Ledger) change(ctx context.Context, what string, op func(*memledger.Store, memledger.Call) error) error {
	snap, err := l.read(ctx)
	for try := 0; err == nil; try++ {
		if snap.half() {
			// What is left is of no use without what is lost, and would be in the way.
			if snap, err = l.clear(ctx, snap); err != nil {
				break
			}
		}
		store, call, errLoad := l.load(snap)
		if errLoad != nil {
			return errLoad
		}
		errOp := op(store, call)
		// The clock goes on with these, or a grace would not end in which nobody calls but those who wait for it.
		if errOp != nil && !errors.Is(errOp, transition.ErrStale) && !errors.Is(errOp, transition.ErrUnsure) {
			return fmt.Errorf("etcdledger: %s: %w", l.name, errOp)
		}
		var after map[string]string
		if after, err = l.after(snap, store); err != nil {
			break
		}
		var done bool
		if snap, done, err = l.write(ctx, snap, after, store.History()); done {
			return errOp
		}
		if try > 0 && err == nil {
			err = pause(ctx, try, 64*time.Millisecond)
		}
	}
	return l.explain(what, err)
}

// load returns the store of snap and the call that finds it so.
func (l *Ledger) load(snap *snapshot) (*memledger.Store, memledger.Call, error) {
	state, known, broken, err := decode(snap.values)
	if err != nil {
		return nil, memledger.Call{}, fmt.Errorf("etcdledger: %s: what stands is not understood: %w", l.name, err)
	}
	call := memledger.Call{
		Run:     strconv.FormatUint(snap.cluster, 16),
		Suspect: snap.setBack || broken,
		Config:  l.cfg.Config, Timing: l.cfg.Timing, Deployment: l.cfg.Deployment,
	}
	have, want := state.Config, l.cfg.Config
	remains := have.Total > 0
	if !remains { // it is lost, or there was none yet
		have = want
	}
	if have.Total != want.Total || have.Hash != want.Hash || !slices.Equal(have.Units, want.Units) {
		return nil, call, fmt.Errorf("etcdledger: %s has %d partitions, hash %s and units %q, this peer wants %d, %s and %q: %w",
			l.name, have.Total, have.Hash, have.Units, want.Total, want.Hash, want.Units, partition.ErrConfig)
	}
	if !known {
		call.Config.Requires, call.Config.Paused, call.Config.Drained = have.Requires, have.Paused, have.Drained
		call.Suspect = remains
		call.Now = 1 // where the clock of a new name begins
		return &memledger.Store{}, call, nil
	}
	call.Now = state.Clock + l.memory.elapsed(snap).Milliseconds()
	return memledger.Restore(state), call, nil
}

// after returns what is to stand after snap was changed to store. The clock is written in
// steps only: whoever writes it makes everybody begin anew to count the time that it stands.
func (l *Ledger) after(snap *snapshot, store *memledger.Store) (map[string]string, error) {
	state, _ := store.State()
	after, err := encode(state)
	if err != nil {
		return nil, err
	}
	mendPart(snap, after)
	if stood, err := strconv.ParseInt(snap.values[clockKey], 10, 64); err == nil && state.Clock >= stood && state.Clock-stood < state.Step/4 {
		after[clockKey] = snap.values[clockKey]
	} else {
		after[seenKey] = strconv.FormatInt(time.Now().UnixMilli(), 10)
	}
	return after, keep(snap, after)
}

// mendPart leaves to the next calls what more leases lack, or stand without a session, than
// one transaction of etcd may mend: it allows 128 operations. The grace goes on until then.
func mendPart(snap *snapshot, after map[string]string) {
	const most = 64
	n := 0
	for key, value := range after {
		if id, lease := strings.CutPrefix(key, leasesKeys); lease && snap.mods[key] == 0 && snap.mods[sessionsKeys+id] != 0 && value == snap.values[clockKey] {
			if n++; n > most {
				delete(after, key)
			}
		}
	}
	for key, value := range snap.values {
		if id, lease := strings.CutPrefix(key, leasesKeys); lease && snap.mods[sessionsKeys+id] == 0 && after[key] == "" {
			if n++; n > most {
				after[key] = value
			}
		}
	}
}

// keep leaves what means the same as it stands, letter by letter: another build may write it in
// another way, and two that put it right in turn would change the lock word with each Sync. Where
// that changes anyhow only the sessions stay, which may be more than one transaction writes.
func keep(snap *snapshot, after map[string]string) error {
	var other []string // than it stands
	for key, value := range after {
		if was, stands := snap.values[key]; stands && was != value && !free(key) {
			other = append(other, key)
		}
	}
	if slices.Contains(other, transitionKey) {
		other = slices.DeleteFunc(other, func(key string) bool { return !strings.HasPrefix(key, sessionsKeys) })
	}
	if len(other) == 0 {
		return nil
	}
	state, _, _, err := decode(snap.values)
	if err != nil {
		return err
	}
	state, _ = memledger.Restore(state).State()
	same, err := encode(state)
	for _, key := range other {
		if after[key] == same[key] {
			after[key] = snap.values[key]
		}
	}
	return err
}

// read returns what stands now: all of it, or, while the lock word is the one that is known and
// no key is lost, the clock and the leases alone.
func (l *Ledger) read(ctx context.Context) (*snapshot, error) {
	floor := l.memory.newest()
	if floor == nil || floor.mods[metaKey] == 0 {
		resp, err := ask(ctx, l.client, func(ctx context.Context) (clientv3.OpResponse, error) {
			return l.client.Do(ctx, clientv3.OpTxn(nil, l.all(getRange), nil))
		})
		if err != nil {
			return nil, err
		}
		snap := newSnapshot(resp.Txn().Header)
		for _, r := range resp.Txn().Responses {
			snap.add(l.prefix, r.GetResponseRange().Kvs)
		}
		l.memory.read(snap, floor)
		return snap, nil
	}
	same := []clientv3.Cmp{
		clientv3.Compare(clientv3.Value(l.prefix+metaKey), "=", floor.values[metaKey]), // not the same revision by chance
	}
	for _, key := range covered {
		same = append(same, l.unchanged(floor, key))
	}
	unlocked := []clientv3.Op{clientv3.OpGet(l.prefix + clockKey), clientv3.OpGet(l.prefix+leasesKeys, clientv3.WithPrefix())}
	resp, err := l.txn(ctx, same, unlocked, l.all(getRange))
	if err != nil {
		return nil, err
	}
	snap := newSnapshot(resp.Header)
	if resp.Succeeded {
		snap = floor.locked(resp.Header)
	}
	for _, r := range resp.Responses {
		snap.add(l.prefix, r.GetResponseRange().Kvs)
	}
	l.memory.read(snap, floor)
	return snap, nil
}

// all is what do does to all that calls are decided on: the two ranges of keys around the
// history.
func (l *Ledger) all(do func(from, to string) clientv3.Op) []clientv3.Op {
	history := l.prefix + historyKeys
	return []clientv3.Op{do(l.prefix, history), do(clientv3.GetPrefixRangeEnd(history), clientv3.GetPrefixRangeEnd(l.prefix))}
}

func getRange(from, to string) clientv3.Op { return clientv3.OpGet(from, clientv3.WithRange(to)) }

func deleteRange(from, to string) clientv3.Op { return clientv3.OpDelete(from, clientv3.WithRange(to)) }

// write turns snap into after, and keeps what was told of it. It returns false and what stands
// instead if that is no longer snap.
func (l *Ledger) write(ctx context.Context, snap *snapshot, after map[string]string, told machine.History) (*snapshot, bool, error) {
	var ops []clientv3.Op
	guards := []clientv3.Cmp{l.unchanged(snap, metaKey), l.unchanged(snap, clockKey)}
	next := &snapshot{cluster: snap.cluster, values: after, mods: make(map[string]int64, len(after)), setBack: snap.setBack}
	var written []string
	locked := false // whether what meta covers changes
	touch := func(key string, op clientv3.Op) {
		ops = append(ops, op)
		if strings.HasPrefix(key, leasesKeys) {
			guards = append(guards, l.unchanged(snap, key))
		}
		locked = locked || !free(key)
	}
	for key, value := range after {
		if snap.mods[key] != 0 && snap.values[key] == value {
			next.mods[key] = snap.mods[key]
			continue
		}
		touch(key, clientv3.OpPut(l.prefix+key, value))
		written = append(written, key)
	}
	for key := range snap.values {
		if _, stays := after[key]; !stays && (strings.HasPrefix(key, leasesKeys) || strings.HasPrefix(key, sessionsKeys)) {
			touch(key, clientv3.OpDelete(l.prefix+key))
		}
	}
	if len(ops) == 0 {
		return snap, true, nil
	}
	if locked && !slices.Contains(written, metaKey) {
		ops = append(ops, clientv3.OpPut(l.prefix+metaKey, after[metaKey]))
		written = append(written, metaKey)
	}
	if locked && len(told) > 0 {
		op, err := l.tell(snap, told)
		if err != nil {
			return nil, false, err
		}
		ops = append(ops, op)
	}
	floor := l.memory.newest()
	resp, err := l.txn(ctx, guards, ops, l.all(getRange))
	if err != nil {
		return nil, false, err
	}
	if !resp.Succeeded {
		stands := newSnapshot(resp.Header)
		for _, r := range resp.Responses {
			stands.add(l.prefix, r.GetResponseRange().Kvs)
		}
		l.memory.read(stands, floor)
		return stands, false, nil
	}
	next.revision = resp.Header.Revision
	for _, key := range written {
		next.mods[key] = resp.Header.Revision
	}
	l.memory.wrote(next)
	if locked && len(told) > 0 && next.revision%trimmedEach == 0 {
		l.trim(ctx)
	}
	return next, true, nil
}

// clear removes what is left of a name that has lost a part of its memory, unless somebody
// else did, and returns what stands then. The configuration stays: if it is what was lost, what
// partitions ask for stands in meta.
func (l *Ledger) clear(ctx context.Context, snap *snapshot) (*snapshot, error) {
	config := l.prefix + configKey
	ops := []clientv3.Op{
		deleteRange(l.prefix, config), deleteRange(config+"\x00", l.prefix+historyKeys), l.all(deleteRange)[1],
	}
	if snap.mods[configKey] == 0 {
		value, known := snap.values[configKey]
		if !known {
			var err error
			if value, err = restoreConfig(snap.values[metaKey], l.cfg.Config); err != nil {
				return nil, err
			}
		}
		ops = append(ops, clientv3.OpPut(config, value))
	}
	_, err := l.txn(ctx, []clientv3.Cmp{l.unchanged(snap, metaKey), l.unchanged(snap, clockKey)}, ops, nil)
	if err != nil {
		return nil, err
	}
	return l.read(ctx)
}

// unchanged is true while key is as it was in snap.
func (l *Ledger) unchanged(snap *snapshot, key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(l.prefix+key), "=", snap.mods[key])
}

// pause waits a random time that grows with the tries, up to longest, so that peers which collide do not
// collide again.
func pause(ctx context.Context, try int, longest time.Duration) error {
	const first = 2 * time.Millisecond
	t := time.NewTimer(rand.N(min(first<<min(try, 10), longest)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkSession keeps out what would be misread in the keys.
func checkSession(s partition.Session) error {
	ok := s != ""
	for _, c := range s {
		ok = ok && (c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z')
	}
	if !ok {
		return fmt.Errorf("etcdledger: session %q: want letters and digits", string(s))
	}
	return nil
}
