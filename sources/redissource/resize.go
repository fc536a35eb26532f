package redissource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
)

// A ResizeConfig says how to resize.
type ResizeConfig struct {
	// DryRun only counts, and returns an error where a resize would be refused though no peer lives. It
	// needs no right to write; a client that reads from replicas counts what these have.
	DryRun bool
	// Idle returns an error while anybody may work under the name, as
	// redisledger.Idle does. Needed.
	Idle func(ctx context.Context) error
	// Tell, unless it is nil, hears how far it is: with each page and with each step of a partition, also of a DryRun,
	// and about once a second while a replica that does not answer is waited for.
	Tell func(at Resized, waits bool)
}

// Resized is what a resize found, or what this call of it moved.
type Resized struct {
	From, To int
	// Tasks, Delayed and Dead are how many there are; Moving of all of them go to
	// another partition.
	Tasks, Delayed, Dead, Moving int
	// Resumed says that an earlier call had begun to move: what it had moved is not among these numbers.
	Resumed bool
}

// ErrPlanned means that a batch of an ingress list is under way: its lines are half in
// the partitions.
var ErrPlanned = errors.New("a batch of an ingress list is under way: start a peer as before until the list is empty, stop it, and try again")

// Resize moves the tasks of name to another number of partitions: waiting, delayed and dead ones,
// those of a key in their order, with what is known of their runs and with the locks of their
// ids. It is refused while anybody may work under the name. From its beginning to its end peers
// and producers refuse to start, and producers that run are refused. A retry that was waiting is
// due at once.
//
// It may be broken off at any moment, also by a crash: called again, it goes on where it was.
// Until it has ended nobody can work under the name, unless ctx ended before anything was moved.
// Of two calls at once the later one goes on; the other, even if it was paused and wakes up long
// after, does nothing more and ends with [sources.ErrFenced] or [redisconfig.ErrTaken].
func Resize(ctx context.Context, client redis.UniversalClient, name string, to int, cfg ResizeConfig) (Resized, error) {
	out, err := resize(ctx, client, name, to, cfg)
	if err != nil {
		return out, fmt.Errorf("redissource: resize %s: %w", name, redisconfig.Explain(err))
	}
	return out, nil
}

// resizing begins the session of a resize. That of a peer is a number.
const resizing = "resize-"

// Resizes reports whether tok is that of a resize, which no ledger has given.
func Resizes(tok partition.Token) bool { return strings.HasPrefix(string(tok.Session), resizing) }

func resize(ctx context.Context, client redis.UniversalClient, name string, to int, cfg ResizeConfig) (Resized, error) {
	if cfg.Idle == nil {
		return Resized{}, errors.New("no Idle: nothing says that nobody works under the name")
	}
	if cfg.Tell == nil {
		cfg.Tell = func(Resized, bool) {}
	}
	if err := redisconfig.Shown(ctx, client); err != nil { // WAIT is said to the server that has what was moved
		return Resized{}, err
	}
	if cfg.DryRun {
		return countMoving(ctx, client, name, to, cfg.Tell)
	}
	if err := cfg.Idle(ctx); err != nil {
		return Resized{}, err
	}
	begun, err := redisconfig.BeginResize(ctx, client, name, to, newID(time.Now()))
	if err != nil && begun.ID != "" {
		err = giveUp(ctx, client, name, begun, err) // it may have begun all the same
	}
	if err != nil || begun.ID == "" {
		return Resized{From: begun.Config.Total, To: begun.To}, err
	}
	m := &mover{
		client: client, name: name, from: begun.Config.Total, to: to, hash: begun.Config.Hash, id: begun.ID,
		session: resizing + newID(time.Now()), marks: make(map[string]bool), out: Resized{From: begun.Config.Total, To: to, Resumed: begun.Mover != ""},
		replicated: make(map[*redis.Client]bool), tell: cfg.Tell,
	}
	if begun.Mover == "" {
		if err := m.prepare(ctx, cfg.Idle, begun.Config.Units); err != nil {
			return m.out, giveUp(ctx, client, name, begun, err)
		}
	}
	err = m.move(ctx, begun)
	another := errors.Is(err, sources.ErrFenced) || errors.Is(err, redisconfig.ErrTaken)
	if err != nil && (!another || m.stands(ctx, begun)) { // a fail-over forgot a fence, or two calls stopped each other: nobody goes on
		err = fmt.Errorf("%w: the resize has begun, and nobody can work under the name until it has ended: call it again, and it goes on where it was", err)
	}
	return m.out, err
}

// prepare returns why nothing must be moved, while the name can still be opened as it was; and closes the ingress lists.
func (m *mover) prepare(ctx context.Context, idle func(context.Context) error, lists []string) error {
	// A peer that began before the name was closed lives now, and one that begins from here on is refused.
	if err := idle(ctx); err != nil {
		return err
	}
	// Once moving has begun nobody could forget a record that cannot be moved.
	if _, err := Jobs(ctx, m.client, m.name, partition.Config{Total: m.from}.IDs()); err != nil {
		return err
	}
	if err := m.checkKeys(ctx); err != nil {
		return err
	}
	if err := m.kept(ctx, kept{key: redisconfig.Key(m.name)}); err != nil { // who may not ask could not go on later
		return err
	}
	return closeUnits(ctx, m.client, lists)
}

// mostReopen is how long the store may take to open a name again, or to say whether it is closed.
const mostReopen = 10 * time.Second

// giveUp opens name as it was, of which nothing was moved yet, and returns why. Who was interrupted
// does so too: peers would be kept out until somebody has called again, and for nothing.
func giveUp(ctx context.Context, client redis.UniversalClient, name string, begun redisconfig.Resize, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mostReopen)
	defer cancel()
	if err := redisconfig.CancelResize(ctx, client, name, begun); err != nil {
		return errors.Join(why, fmt.Errorf("nobody can work under the name until a resize was called again and has ended: %w", err))
	}
	return why
}

// stands reports whether nobody is known to have taken the place of this call, which took up begun: it is the one
// that moves, or a fail-over has put begun back. To name the mover that stands changes nothing.
func (m *mover) stands(ctx context.Context, begun redisconfig.Resize) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mostReopen)
	defer cancel()
	for _, mover := range []string{m.session, begun.Mover} {
		begun.Mover = mover
		if _, err := redisconfig.MoveResize(ctx, m.client, m.name, begun, mover); !errors.Is(err, redisconfig.ErrTaken) {
			return true
		}
	}
	return false
}

// move carries a resize through that has begun.
func (m *mover) move(ctx context.Context, begun redisconfig.Resize) error {
	begun, err := m.takeOver(ctx, begun)
	if err != nil {
		return err
	}
	for id := range partition.ID(m.from) {
		m.tell(m.out, false)
		err := m.empty(ctx, id)
		if err == nil {
			err = m.moveJobs(ctx, id)
		}
		if err != nil {
			return fmt.Errorf("partition %v: %w", id, err)
		}
	}
	var emptied, installed []kept
	for id := range partition.ID(m.from) {
		k := KeysOf(m.name, id)
		emptied = append(emptied, kept{key: k.Fence, token: m.tokens[id], gone: []string{k.Pending, k.Lifted, k.Delayed, k.Dead}})
	}
	if err := m.kept(ctx, emptied...); err != nil {
		return err
	}
	for id := range partition.ID(m.to) {
		m.tell(m.out, false)
		if err := m.install(ctx, id); err != nil {
			return fmt.Errorf("partition %v: %w", id, err)
		}
		s := m.staged(id)
		installed = append(installed, kept{key: s.Fence, token: m.tokens[id], gone: []string{s.Pending, s.Delayed, s.Dead}})
	}
	if err := m.kept(ctx, installed...); err != nil {
		return err
	}
	for _, log := range m.logs {
		if err := log.Close(ctx); err != nil {
			return err
		}
	}
	if err := redisconfig.EndResize(ctx, m.client, m.name, begun); err != nil {
		return err
	}
	m.forget(ctx)
	return nil
}

// forget lets go of the marks of a resize that has ended: not at once, since a push may
// come late.
func (m *mover) forget(ctx context.Context) {
	for page := range slices.Chunk(slices.Collect(maps.Keys(m.marks)), movePage) {
		pipe := m.client.Pipeline()
		for _, mark := range page {
			pipe.Expire(ctx, mark, markLife)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return // they expire all the same, a month later
		}
	}
}

// closeUnits returns ErrPlanned if a batch of one of the lists is under way, and sees to it that none
// will be: an owner that slept past its lease, woke up now and stored a plan would leave one that
// names the former number of partitions. Nobody could follow it, and the list would stand still.
func closeUnits(ctx context.Context, client redis.UniversalClient, lists []string) error {
	for list, tag := range ingressTags(lists) {
		closed, err := resizeUnitScript.Run(ctx, client, []string{tag + ":fence", tag + ":plan"}).Int()
		if err != nil {
			return err
		}
		if closed == 0 {
			return fmt.Errorf("%s: %w", list, ErrPlanned)
		}
	}
	return nil
}

// checkKeys says which keys of the partitions hold something else than what is moved: with one of
// them the resize could not end, and nobody could work until somebody has found it. The fence of a log
// elsewhere has no list beside it, and would pass for that of an empty one.
func (m *mover) checkKeys(ctx context.Context) error {
	var errs []error
	for id := range partition.ID(max(m.from, m.to)) {
		m.tell(m.out, false)
		k := KeysOf(m.name, id)
		keys := []string{k.Fence, k.Lifted, k.Tries, k.jobsKey(), k.Pending, k.Dead, k.Done, k.Delayed}
		kinds := []string{"hash", "hash", "hash", "hash", "list", "list", "zset", "zset"}
		pipe := m.client.Pipeline()
		for _, key := range keys {
			pipe.Type(ctx, key)
		}
		cmds, err := pipe.Exec(ctx)
		if err != nil {
			return err
		}
		for i, cmd := range cmds {
			if is := cmd.(*redis.StatusCmd).Val(); is != kinds[i] && is != "none" {
				errs = append(errs, fmt.Errorf("%s is a %s and no %s: another program writes it: rename or delete it", keys[i], is, kinds[i]))
			}
		}
		if cmds[0].(*redis.StatusCmd).Val() != "hash" {
			continue
		}
		of, err := m.client.HMGet(ctx, k.Fence, "i", "x").Result()
		if err != nil {
			return err
		}
		if of[0] != nil || of[1] != nil {
			return fmt.Errorf("%s is of a log that lies elsewhere than in Redis, and a resize would leave the tasks in it where they are: finish them, and begin anew under another name", k.Fence)
		}
	}
	return errors.Join(errs...)
}

// countMoving counts what a resize would find, in pages.
func countMoving(ctx context.Context, client redis.UniversalClient, name string, to int, tell func(Resized, bool)) (Resized, error) {
	c, err := redisconfig.Read(ctx, client, name)
	if err != nil {
		return Resized{}, err
	}
	if err := (partition.Config{Total: to, Hash: c.Hash}).Validate(); err != nil {
		return Resized{}, err
	}
	m := &mover{client: client, name: name, from: c.Total, to: to, hash: c.Hash, out: Resized{From: c.Total, To: to}, tell: tell}
	for id := range partition.ID(m.from) {
		if err := m.count(ctx, id); err != nil {
			return m.out, fmt.Errorf("partition %v: %w", id, err)
		}
	}
	if to == m.from {
		return m.out, nil
	}
	if err := m.hinders(ctx, c.Units); err != nil {
		return m.out, fmt.Errorf("it would be refused: %w", err)
	}
	return m.out, nil
}

// hinders is why a resize would be refused, whoever lives. It changes nothing.
func (m *mover) hinders(ctx context.Context, lists []string) error {
	_, unread := Jobs(ctx, m.client, m.name, partition.Config{Total: m.from}.IDs())
	errs := []error{unread, m.checkKeys(ctx)}
	for list, tag := range ingressTags(lists) {
		planned, err := m.client.Exists(ctx, tag+":plan").Result()
		if err != nil {
			return err
		}
		if planned > 0 {
			errs = append(errs, fmt.Errorf("%s: %w", list, ErrPlanned))
		}
	}
	return errors.Join(errs...)
}

// count counts what partition id holds.
func (m *mover) count(ctx context.Context, id partition.ID) error {
	k := KeysOf(m.name, id)
	lifted, err := m.client.HKeys(ctx, k.Lifted).Result()
	if err != nil {
		return err
	}
	err = eachLifted(ctx, m.client, k, lifted, func(texts []any) (bool, error) {
		for _, v := range texts {
			if text, there := v.(string); there {
				m.add(&m.out.Tasks, id, []string{text}, false)
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	base, err := m.client.HGet(ctx, k.Fence, "b").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	done, err := m.client.ZRange(ctx, k.Done, 0, -1).Result()
	if err != nil {
		return err
	}
	finished := make(map[string]bool, len(done))
	for _, x := range done {
		finished[x] = true
	}
	err = pages(movePage, func(from, to int64) ([]string, error) {
		page, err := m.client.LRange(ctx, k.Pending, from, to).Result()
		if err != nil {
			return nil, err
		}
		var open []string
		for i, e := range page {
			if !finished[strconv.FormatInt(base+from+int64(i), 10)] {
				open = append(open, e)
			}
		}
		m.add(&m.out.Tasks, id, open, false)
		return page, nil
	})
	if err != nil {
		return err
	}
	rest := func(count *int, dead bool, read func(from, to int64) *redis.StringSliceCmd) error {
		return pages(movePage, func(from, to int64) ([]string, error) {
			page, err := read(from, to).Result()
			if err != nil {
				return nil, err
			}
			m.add(count, id, page, dead)
			return page, nil
		})
	}
	err = rest(&m.out.Dead, true, func(from, to int64) *redis.StringSliceCmd { return m.client.LRange(ctx, k.Dead, from, to) })
	if err != nil {
		return err
	}
	return rest(&m.out.Delayed, false, func(from, to int64) *redis.StringSliceCmd { return m.client.ZRange(ctx, k.Delayed, from, to) })
}

// add counts the elements of a page.
func (m *mover) add(count *int, id partition.ID, elements []string, dead bool) {
	*count += len(elements)
	for _, e := range elements {
		var to partition.ID
		if dead {
			to = m.homeOfLetter(e, id)
		} else {
			to, _, _ = m.homeOf(e, id)
		}
		if to != id {
			m.out.Moving++
		}
	}
	m.tell(m.out, false)
}
