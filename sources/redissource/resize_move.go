package redissource

import (
	"cmp"
	"context"
	_ "embed" // the scripts are files
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
	"github.com/countoff/countoff/sources/redisprogress"
)

var (
	//go:embed resize_do.lua
	resizeDoSource string
	//go:embed resize_install.lua
	resizeInstallSource string
	//go:embed resize_trim.lua
	resizeTrimSource string
	//go:embed resize_unit.lua
	resizeUnitSource string

	resizeDoScript      = newScript(resizeDoSource)
	resizeInstallScript = newScript(resizeInstallSource)
	resizeTrimScript    = newScript(resizeTrimSource)
	resizeUnitScript    = newScript(resizeUnitSource)
)

const (
	movePage = 256 // elements moved, or looked at, at once, at most
	// moveMarks is how long a broken off resize can be taken up without doubling a
	// page: as long as a partition remembers what was pushed to it.
	moveMarks = 30 * 24 * time.Hour
)

// A mover moves what partitions hold. Everything goes by way of staging keys at the
// targets, which become the logs once the last partition is empty: so what was moved
// and what is still to be moved never meet in one list.
//
// A page is pushed to its targets under a mark that knows its positions, and then
// taken off, compared with the position it begins at. Broken off between the two, the
// page is pushed again and skipped.
//
// A mover has the fences of all partitions, and does nothing to a partition but under its fence. The
// one exception are pushes to the staging keys: their marks and the keys themselves are of this resize.
type mover struct {
	client   redis.UniversalClient
	name     string
	from, to int
	hash     partition.Hash
	id       string // of this resize, in the names of the marks and staging keys
	session  string // of this mover
	logs     []*redisprogress.Log
	tokens   []string
	marks    map[string]bool
	// replicated are the servers that had replicas when they were asked last.
	replicated map[*redis.Client]bool
	out        Resized
	tell       func(at Resized, waits bool)
}

// staged returns the keys of a target that pushes go to.
func (m *mover) staged(id partition.ID) Keys {
	k := KeysOf(m.name, id)
	k.Pending = k.tag + ":staged-" + m.id + "-pending"
	k.Delayed = k.tag + ":staged-" + m.id + "-delayed"
	k.Dead = k.tag + ":staged-" + m.id + "-dead"
	return k
}

// takeOver takes the fences of all partitions, so that no owner and no other mover that wakes up
// late does anything, and closes them to producers that count as before: what they pushed until
// then is in the logs, and is moved.
//
// The epochs are read before the name is looked at again. A mover that slept until another one had
// ended the resize finds it ended, or those epochs taken: it could not take the fences of who works.
func (m *mover) takeOver(ctx context.Context, begun redisconfig.Resize) (redisconfig.Resize, error) {
	stored := make([]*redis.StringCmd, max(m.from, m.to))
	for id := range stored {
		m.tell(m.out, false)
		fence := KeysOf(m.name, partition.ID(id)).Fence
		err := readMaster(ctx, m.client, fence, func(pipe redis.Pipeliner) { stored[id] = pipe.HGet(ctx, fence, "e") })
		if err != nil {
			return begun, err
		}
	}
	begun, err := redisconfig.MoveResize(ctx, m.client, m.name, begun, m.session)
	if err != nil {
		return begun, err
	}
	if err := m.kept(ctx, kept{key: redisconfig.Key(m.name)}); err != nil {
		return begun, err
	}
	for i, cmd := range stored {
		m.tell(m.out, false)
		epoch, err := cmd.Uint64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return begun, err
		}
		k := KeysOf(m.name, partition.ID(i))
		g := partition.Grant{ID: partition.ID(i), Epoch: partition.Epoch(epoch + 1)}
		tok := partition.Token{Epoch: g.Epoch, Session: partition.Session(m.session)}
		m.logs, m.tokens = append(m.logs, redisprogress.New(m.client, k.Keys, g, tok)), append(m.tokens, tok.String())
		if _, err := m.logs[i].Open(ctx, 0); err != nil {
			return begun, err
		}
		if err := m.do(ctx, command{g.ID, k.Fence, []any{"HSET", "p", m.to}}); err != nil {
			return begun, err
		}
	}
	return begun, nil
}

// errTaken means that another mover has the fence of a partition, or that a fail-over has forgotten whose it is.
var errTaken = fmt.Errorf("somebody else moves or works it, or the store forgot that this call does: %w", sources.ErrFenced)

// A command is one on a key of a partition: its name, and its arguments after the key.
type command struct {
	id   partition.ID
	key  string
	args []any
}

// do runs commands in one round trip, each if this mover has the fence of its partition.
func (m *mover) do(ctx context.Context, all ...command) error {
	pipe := m.client.Pipeline()
	cmds := m.queue(ctx, pipe, all)
	redisconfig.Exec(ctx, pipe)
	return allTaken(cmds)
}

// queue appends commands to a pipeline.
func (m *mover) queue(ctx context.Context, pipe redis.Pipeliner, all []command) []*redis.Cmd {
	cmds := make([]*redis.Cmd, len(all))
	for i, c := range all {
		cmds[i] = resizeDoScript.queue(ctx, pipe, true, []string{KeysOf(m.name, c.id).Fence, c.key}, append([]any{m.tokens[c.id]}, c.args...))
	}
	return cmds
}

func allTaken(cmds []*redis.Cmd) error {
	for _, cmd := range cmds {
		if err := taken(cmd); err != nil {
			return err
		}
	}
	return nil
}

// taken returns errTaken if a script did nothing, or its error.
func taken(cmd *redis.Cmd) error {
	n, err := cmd.Int()
	if err == nil && n != 1 {
		err = errTaken
	}
	return err
}

// install makes what was moved to partition id its content.
func (m *mover) install(ctx context.Context, id partition.ID) error {
	k, s := KeysOf(m.name, id), m.staged(id)
	keys := []string{k.Pending, s.Pending, k.Dead, s.Dead, k.Delayed, s.Delayed, k.Fence}
	return taken(resizeInstallScript.Run(ctx, m.client, keys, m.tokens[id]))
}

// homeOf returns the new partition of an element that is in partition id. What nobody
// can read keeps its place as far as there is one.
func (m *mover) homeOf(element string, id partition.ID) (partition.ID, envelope, bool) {
	stay := id % partition.ID(m.to)
	e, err := parseEnvelope(element)
	if err != nil {
		return stay, e, false
	}
	switch {
	case e.key == "" && e.unique:
		return homeOfUnique(e.id, m.to), e, true
	case e.key == "":
		return stay, e, true
	}
	home, err := m.hash.Of(e.key, m.to)
	if err != nil {
		return stay, e, true
	}
	return home, e, true
}

func (m *mover) homeOfLetter(element string, id partition.ID) partition.ID {
	l, err := parseLetter(element)
	if err != nil || l.raw {
		return id % partition.ID(m.to)
	}
	home, _, _ := m.homeOf(l.body, id)
	return home
}

// A moved element is on its way to a target.
type movedElement struct {
	position int64
	to       partition.ID
	what     string // now, at, dead
	due      int64
	body     []byte
}

// empty moves all that partition id holds to the staging keys.
func (m *mover) empty(ctx context.Context, id partition.ID) error {
	if err := m.emptyLog(ctx, id); err != nil {
		return err
	}
	if err := m.emptyRest(ctx, id, "delayed"); err != nil {
		return err
	}
	return m.emptyRest(ctx, id, "dead")
}

// emptyLog moves the open tasks: the lifted ones first, then those of the list.
func (m *mover) emptyLog(ctx context.Context, id partition.ID) error {
	k, log := KeysOf(m.name, id), m.logs[id]
	o, err := log.Open(ctx, 0)
	if err != nil {
		return err
	}
	for rest := slices.Clone(o.Lifted); len(rest) > 0; {
		page := rest[:fits(min(len(rest), movePage), func(i int) int { return len(rest[i].Envelope) })]
		rest = rest[len(page):]
		elements := make([]movedElement, len(page))
		for i, l := range page {
			elements[i] = m.open(id, l.Position, l.Envelope, o.Tried[l.Position])
		}
		if err := m.take(ctx, id, log, &o, elements, o.Base); err != nil {
			return err
		}
	}
	for p := unweighed; ; {
		n := p.of(movePage)
		var base *redis.StringCmd
		var read *redis.StringSliceCmd
		err := m.read(ctx, id, func(pipe redis.Pipeliner) {
			base = pipe.HGet(ctx, k.Fence, "b")
			read = pipe.LRange(ctx, k.Pending, 0, int64(n)-1)
		})
		if p.late(n, err) {
			continue
		}
		if err != nil {
			return err
		}
		if base.Val() != strconv.FormatInt(o.Base, 10) {
			return sources.ErrForgot // what was taken off is there again, and would be taken for what comes after it
		}
		page := read.Val()
		p.weigh(page)
		if len(page) == 0 {
			return nil
		}
		var elements []movedElement
		for i, e := range page {
			x := o.Base + int64(i)
			if _, done := slices.BinarySearch(o.Done, x); !done {
				elements = append(elements, m.open(id, x, e, o.Tried[x]))
			}
		}
		if err := m.take(ctx, id, log, &o, elements, o.Base+int64(len(page))); err != nil {
			return err
		}
	}
}

// read reads what partition id holds. It counts if this mover has the fence after it: else it may be
// what came since another one has ended the resize, at positions that no mark knows.
func (m *mover) read(ctx context.Context, id partition.ID, queue func(redis.Pipeliner)) error {
	var token *redis.StringCmd
	fence := KeysOf(m.name, id).Fence
	err := readMaster(ctx, m.client, fence, func(pipe redis.Pipeliner) {
		queue(pipe)
		token = pipe.HGet(ctx, fence, "t")
	})
	if err != nil {
		return err
	}
	if token.Val() != m.tokens[id] {
		return errTaken
	}
	return nil
}

// open makes the element of an open task: its envelope takes along what is known of its
// runs.
func (m *mover) open(id partition.ID, position int64, element string, t redisprogress.Tried) movedElement {
	to, e, ok := m.homeOf(element, id)
	body := []byte(element)
	if ok && (t.Attempts() > 0 || t.Crashes > 0) {
		e.tries = max(e.tries, t.Attempts())
		e.crashes += t.Crashes
		e.firstError = cmp.Or(e.firstError, t.FirstError)
		body = appendEnvelope(nil, &e)
	}
	m.out.Tasks++
	if to != id {
		m.out.Moving++
	}
	return movedElement{position: position, to: to, what: "now", body: body}
}

// take pushes elements of a log to their targets, and then ends their positions and
// those below base.
func (m *mover) take(ctx context.Context, id partition.ID, log *redisprogress.Log, o *redisprogress.Opened, elements []movedElement, base int64) error {
	if err := m.push(ctx, id, "log", elements); err != nil {
		return err
	}
	r := progress.Request{Seen: o.Writes, Read: o.Base, Base: base, Gate: base, Alone: progress.None}
	for _, e := range elements {
		if _, tried := o.Tried[e.position]; e.position < o.Base || tried {
			r.Done = append(r.Done, e.position)
		}
	}
	pipe := m.client.Pipeline()
	cmd := log.Settle(ctx, pipe, &r, nil, nil, true)
	redisconfig.Exec(ctx, pipe)
	reply, err := log.Answer(cmd)
	switch {
	case err != nil:
		return err
	case reply.Status != progress.Admitted:
		return errTaken
	}
	o.Writes, o.Base = reply.Writes, reply.Base
	return nil
}

// emptyRest moves the dead letters, or the delayed tasks: what has no positions of its
// own, so that they are counted from the begin of the resize.
func (m *mover) emptyRest(ctx context.Context, id partition.ID, what string) error {
	k := KeysOf(m.name, id)
	key, count := k.Dead, &m.out.Dead
	if what == "delayed" {
		key, count = k.Delayed, &m.out.Delayed
	}
	counter := k.tag + ":resize-" + m.id + "-" + what
	var moved *redis.StringCmd
	if err := m.read(ctx, id, func(pipe redis.Pipeliner) { moved = pipe.Get(ctx, counter) }); err != nil {
		return err
	}
	begin, err := moved.Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	for p := unweighed; ; {
		n := p.of(movePage)
		elements, err := m.readRest(ctx, id, what, counter, begin, int64(n)-1)
		if p.late(n, err) {
			continue
		}
		if err != nil || len(elements) == 0 {
			return err // the counter stays for a while: a trim that comes late must find it
		}
		if err := m.push(ctx, id, what, elements); err != nil {
			return err
		}
		if err := taken(resizeTrimScript.Run(ctx, m.client, []string{key, counter, k.Fence},
			begin, len(elements), int64(moveMarks/time.Second), what, m.tokens[id])); err != nil {
			return err
		}
		begin += int64(len(elements))
		*count += len(elements)
		bytes := 0
		for _, e := range elements {
			bytes += len(e.body)
		}
		p.weighed(len(elements), bytes)
	}
}

// readRest reads the next page of dead letters or delayed tasks, up to the index last, if counter says that
// those up to begin are taken off.
func (m *mover) readRest(ctx context.Context, id partition.ID, what, counter string, begin, last int64) ([]movedElement, error) {
	k := KeysOf(m.name, id)
	var moved *redis.StringCmd
	var delayed *redis.ZSliceCmd
	var dead *redis.StringSliceCmd
	err := m.read(ctx, id, func(pipe redis.Pipeliner) {
		moved = pipe.Get(ctx, counter)
		if what == "delayed" {
			delayed = pipe.ZRangeWithScores(ctx, k.Delayed, 0, last)
		} else {
			dead = pipe.LRange(ctx, k.Dead, 0, last)
		}
	})
	if err != nil {
		return nil, err // a part may be there
	}
	if n, _ := strconv.ParseInt(moved.Val(), 10, 64); n != begin {
		return nil, sources.ErrForgot
	}
	var out []movedElement
	add := func(to partition.ID, e movedElement) {
		e.to, e.position = to, begin+int64(len(out))
		if to != id {
			m.out.Moving++
		}
		out = append(out, e)
	}
	if what == "delayed" {
		for _, z := range delayed.Val() {
			text, _ := z.Member.(string)
			to, _, _ := m.homeOf(text, id)
			add(to, movedElement{what: "at", due: int64(z.Score), body: []byte(text)})
		}
		return out, nil
	}
	for _, text := range dead.Val() {
		add(m.homeOfLetter(text, id), movedElement{what: "dead", body: []byte(text)})
	}
	return out, nil
}

// push pushes elements to the staging keys of their targets and returns when all have
// answered. kind tells the rows of positions of a partition apart.
func (m *mover) push(ctx context.Context, id partition.ID, kind string, elements []movedElement) error {
	lock, unlock, err := m.locks(ctx, id, elements)
	if err != nil {
		return err
	}
	byTarget := make(map[partition.ID][]movedElement)
	for _, e := range elements {
		byTarget[e.to] = append(byTarget[e.to], e)
	}
	pipe := m.client.Pipeline()
	locked := m.queue(ctx, pipe, lock) // on the connection of the push: no fail-over comes between them
	cmds, all := make([]*redis.Cmd, 0, len(byTarget)), make([]kept, 0, len(byTarget))
	for to, list := range byTarget {
		k := m.staged(to)
		positions := make([]string, len(list))
		for i, e := range list {
			positions[i] = strconv.FormatInt(e.position, 10)
		}
		head := pushHead{
			first: list[0].position, last: list[len(list)-1].position, positions: strings.Join(positions, " "),
			life: moveMarks, total: m.to, force: true, each: true,
		}
		mark := k.Mark("resize-" + m.id + "-" + id.String() + "-" + kind)
		m.marks[mark] = true
		all = append(all, kept{key: k.Fence, token: m.tokens[to], mark: mark, last: head.last})
		keys, args := head.arguments(mark, []pushTarget{{&k, len(list)}}, len(list))
		for _, e := range list {
			args = append(args, e.what, e.due, "", "", e.body)
		}
		cmds = append(cmds, pushScript.queue(ctx, pipe, true, keys, args))
	}
	if len(cmds) == 0 {
		return nil
	}
	redisconfig.Exec(ctx, pipe)
	if err := allTaken(locked); err != nil {
		return err
	}
	for _, cmd := range cmds {
		a, err := parsePush(cmd)
		if err == nil && (a.status != "OK" || a.detail != "") {
			err = fmt.Errorf("push: answer %q %q", a.status, a.detail)
		}
		if err != nil {
			return err
		}
	}
	if err := m.kept(ctx, all...); err != nil {
		return err
	}
	return m.do(ctx, unlock...)
}

// locks returns what takes the locks of unique tasks to their new partitions, with what is left of
// their time, and what removes them where they were. Nobody can push meanwhile.
func (m *mover) locks(ctx context.Context, id partition.ID, elements []movedElement) (lock, unlock []command, err error) {
	type held struct {
		from, to string
		home     partition.ID
		value    *redis.StringCmd
		ttl      *redis.DurationCmd
	}
	var locks []held
	old := KeysOf(m.name, id)
	for _, el := range elements {
		if e, err := parseEnvelope(string(el.body)); err == nil && e.unique && el.to != id {
			k := KeysOf(m.name, el.to)
			locks = append(locks, held{from: old.Unique(e.id), to: k.Unique(e.id), home: el.to})
		}
	}
	if len(locks) == 0 {
		return nil, nil, nil
	}
	err = readMaster(ctx, m.client, old.Fence, func(pipe redis.Pipeliner) {
		for i, l := range locks {
			locks[i].value, locks[i].ttl = pipe.Get(ctx, l.from), pipe.PTTL(ctx, l.from)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	for _, l := range locks {
		if l.value.Err() == nil && l.ttl.Val() > 0 {
			lock = append(lock, command{l.home, l.to, []any{"SET", l.value.Val(), "NX", "PX", l.ttl.Val().Milliseconds()}})
			unlock = append(unlock, command{id, l.from, []any{"DEL"}})
		}
	}
	return lock, unlock, nil
}
