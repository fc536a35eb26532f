package sourcetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// A scene is a clause at work: a harness, and peers that come and go.
type scene struct {
	testing.TB
	h      Harness
	layout partition.Config
	epoch  partition.Epoch // the newest that was granted
	named  int             // sessions that got a name

	mu     sync.Mutex
	handed map[*sources.Delivery]sources.Delivery // as they were when they were handed out
	lent   []lent
}

// A lent slice is what a fetch returned, and what was in it then.
type lent struct{ tasks, was []sources.Task }

// The partitions that clauses use.
const (
	here  partition.ID = 0
	there partition.ID = 1
)

func newScene(t testing.TB, h Harness) *scene {
	t.Helper()
	if h.Patience == 0 {
		h.Patience = 30 * time.Second
	}
	if h.Moment == 0 {
		h.Moment = 50 * time.Millisecond
	}
	if h.Payload == 0 {
		h.Payload = 2 << 20
	}
	for _, a := range h.Lacks {
		if !slices.Contains(abilities, a) {
			t.Fatalf("the harness says that the source lacks %q, which is none of the abilities %q", a, abilities)
		}
	}
	s := &scene{TB: t, h: h, handed: make(map[*sources.Delivery]sources.Delivery)}
	ctx, cancel := s.soon()
	defer cancel()
	cfg, err := s.peer().Source.Layout(ctx)
	if err != nil {
		t.Fatalf("layout: %v", err)
	}
	if cfg.Total < 2 {
		t.Fatalf("the harness has %d partitions, want 2 or more", cfg.Total)
	}
	s.layout = cfg
	return s
}

// soon bounds a call that should not take long.
func (s *scene) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.Context(), s.h.Patience)
}

// needs skips the clause if the source lacks a.
func (s *scene) needs(a Ability) {
	s.Helper()
	if slices.Contains(s.h.Lacks, a) {
		s.Skipf("the source does not %s", a)
	}
}

func (s *scene) can(a Ability) bool { return !slices.Contains(s.h.Lacks, a) }

func (s *scene) peer() Peer {
	p := s.h.Peer()
	if p.Source == nil {
		s.Fatalf("the harness gave a peer without a source")
	}
	p.Source = watched{p.Source, s}
	return p
}

// grant makes the next grant of a partition, to a new session.
func (s *scene) grant(id partition.ID) (partition.Grant, partition.Token) {
	s.epoch++
	return partition.Grant{ID: id, Epoch: s.epoch}, partition.Token{Epoch: s.epoch, Session: s.session()}
}

func (s *scene) session() partition.Session {
	s.named++
	return partition.Session(fmt.Sprintf("%032x", s.named))
}

// key returns the n-th key that belongs to a partition.
func (s *scene) key(id partition.ID, n int) string { return s.keyOf("key-", id, n) }

// long is a text that fits into no column of 255 bytes.
var long = strings.Repeat("long, ", 100)

// longKey returns a long key that belongs to a partition, if its keys may be long.
func (s *scene) longKey(id partition.ID) string { return s.keyOf(long, id, 0) }

func (s *scene) keyOf(prefix string, id partition.ID, n int) string {
	for i := 0; ; i++ {
		key := fmt.Sprint(prefix, i)
		if s.layout.Hash == partition.ByID {
			key = fmt.Sprint(i)
		}
		got, err := s.layout.Hash.Of(key, s.layout.Total)
		if err != nil {
			s.Fatalf("%v", err)
		}
		if got != id {
			continue
		}
		if n == 0 {
			return key
		}
		n--
	}
}

// tasks makes n tasks of a partition, each with a key of its own, named prefix0,
// prefix1 and so on; their payload is their name.
func (s *scene) tasks(id partition.ID, prefix string, n int) []sources.Task {
	tasks := make([]sources.Task, n)
	for i := range tasks {
		name := fmt.Sprint(prefix, i)
		tasks[i] = sources.Task{ID: name, Key: s.key(id, i), Payload: []byte(name), Born: 1_700_000_000_000_000}
	}
	return tasks
}

// largest returns a payload as long as the harness says that one may be. No two pieces of it
// are alike.
func (s *scene) largest() []byte {
	var p []byte
	for n := uint64(0); len(p) < s.h.Payload; n++ {
		p = binary.BigEndian.AppendUint64(p, n)
	}
	return p[:s.h.Payload]
}

func (s *scene) push(id partition.ID, tasks ...sources.Task) {
	s.Helper()
	ctx, cancel := s.soon()
	defer cancel()
	tasks = slices.Clone(tasks)
	for i := range tasks {
		if tasks[i].Delivery == nil {
			tasks[i].Delivery = &sources.Delivery{}
		}
	}
	if err := s.h.Push(ctx, id, tasks...); err != nil {
		s.Fatalf("push: %v", err)
	}
}

// insist says a call again until it succeeds, as a caller does whose call failed
// for a moment. It returns what no repetition helps against.
func (s *scene) insist(what string, call func(ctx context.Context) error) error {
	s.Helper()
	var err error
	for range 20 {
		ctx, cancel := s.soon()
		err = call(ctx)
		late := ctx.Err()
		cancel()
		if err != nil && late != nil {
			s.Fatalf("%s has no answer after %v: %v", what, s.h.Patience, err)
		}
		if err == nil || errors.Is(err, sources.ErrFenced) || errors.Is(err, sources.ErrForgot) || errors.Is(err, sources.ErrClosed) {
			return err
		}
	}
	s.Fatalf("%s still fails after many calls: %v", what, err)
	return err
}

// dead returns the dead letters.
func (s *scene) dead(id partition.ID) []DeadLetter {
	s.Helper()
	if s.h.Dead == nil {
		s.Skipf("the harness cannot read dead letters")
	}
	ctx, cancel := s.soon()
	defer cancel()
	letters, err := s.h.Dead(ctx, id)
	if err != nil {
		s.Fatalf("dead letters: %v", err)
	}
	for i := range letters {
		if letters[i].Task.Delivery == nil {
			letters[i].Task.Delivery = &sources.Delivery{}
		}
	}
	return letters
}

// name is what the suite called a task: its payload, which every broker keeps.
func name(t sources.Task) string { return string(t.Payload) }

// brief is a text for an error: of a long one its beginning and its length.
func brief(text string) string {
	if len(text) <= 100 {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%.40q… (%d bytes)", text, len(text))
}

// own gives t a Delivery that no other task has, and returns it.
func own(t *sources.Task) *sources.Delivery {
	*t = *t.Copy()
	return t.Delivery
}

func names(tasks []sources.Task) []string {
	list := make([]string, len(tasks))
	for i, t := range tasks {
		list[i] = name(t)
	}
	return list
}

// expect compares tasks with names, in order.
func (s *scene) expect(what string, got []sources.Task, want ...string) {
	s.Helper()
	if !slices.Equal(names(got), want) {
		s.Fatalf("%s: got %v, want %v", what, names(got), want)
	}
}

// An owner is a peer with a stream.
type owner struct {
	s      *scene
	peer   Peer
	stream sources.Stream
	g      partition.Grant
	tok    partition.Token
	killed bool
}

// owner grants a partition to a new peer, which opens it.
func (s *scene) owner(id partition.ID) *owner {
	s.Helper()
	return s.ownerOn(s.peer(), id)
}

func (s *scene) ownerOn(p Peer, id partition.ID) *owner {
	s.Helper()
	g, tok := s.grant(id)
	o := &owner{s: s, peer: p, g: g, tok: tok}
	o.open()
	return o
}

// open opens the owner's stream, until an answer came.
func (o *owner) open() {
	o.s.Helper()
	if err := o.s.insist("open", o.tryOpen); err != nil {
		o.s.Fatalf("open %v: %v", o.g, err)
	}
}

func (o *owner) tryOpen(ctx context.Context) error {
	st, err := o.peer.Source.Open(ctx, o.g, o.tok)
	if err != nil {
		return err
	}
	if st == nil {
		o.s.Fatalf("open %v returned no stream and no error", o.g)
	}
	o.stream = st
	// Whatever the clause did with it: its goroutines must end before the store does. One whose peer
	// was killed would try for as long as it may.
	o.s.Cleanup(func() {
		patience := o.s.h.Patience
		if o.killed {
			patience = o.s.h.Moment
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(o.s.Context()), patience)
		defer cancel()
		_ = st.Close(ctx) // may well be fenced, killed or closed
	})
	return nil
}

// fetch fetches once and checks what holds for every fetch.
func (o *owner) fetch(ctx context.Context, limit int) ([]sources.Task, error) {
	tasks, err := o.stream.Fetch(ctx, limit)
	switch {
	case err != nil && len(tasks) > 0:
		o.s.Errorf("fetch returned the tasks %v and the error %v", names(tasks), err)
	case err == nil && len(tasks) == 0:
		o.s.Errorf("fetch returned neither tasks nor an error")
		return nil, errors.New("no tasks and no error")
	case len(tasks) > limit:
		o.s.Errorf("fetch returned %d tasks, the limit was %d", len(tasks), limit)
	}
	for _, t := range tasks {
		if t.Delivery == nil {
			o.s.Errorf("fetch returned %s without a Delivery", name(t))
			return nil, errors.New("a task without a Delivery")
		}
	}
	o.s.keep(tasks)
	return tasks, err
}

// keep remembers tasks and their Deliveries, and checks that those handed out before are what
// they were: tasks may share a Delivery, and the caller reads both while it pleases.
func (s *scene) keep(tasks []sources.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, l := range s.lent {
		for i, was := range l.was {
			if now := l.tasks[i]; now.Receipt != was.Receipt || !bytes.Equal(now.Payload, was.Payload) {
				s.Errorf("a slice that fetch returned has %s in the place of %s now: it, and the payloads, are the caller's", name(now), name(was))
				s.lent[n] = lent{} // said once
				break
			}
		}
	}
	l := lent{tasks, slices.Clone(tasks)}
	for i := range l.was {
		l.was[i].Payload = bytes.Clone(tasks[i].Payload)
	}
	s.lent = append(s.lent, l)
	for d, was := range s.handed {
		if !reflect.DeepEqual(*d, was) {
			s.Errorf("a Delivery that was handed out as %+v was changed to %+v", was, *d)
			s.handed[d] = *d // said once
		}
	}
	for _, t := range tasks {
		if _, shared := s.handed[t.Delivery]; !shared {
			s.handed[t.Delivery] = *t.Delivery
		}
	}
}

// take fetches until it has n tasks, and settles none of them.
func (o *owner) take(n int) []sources.Task {
	o.s.Helper()
	var got []sources.Task
	for len(got) < n {
		began := time.Now()
		ctx, cancel := o.s.soon() // of each: some brokers hand out one at a time
		tasks, err := o.fetch(ctx, n-len(got))
		cancel()
		if err != nil {
			o.s.Fatalf("%v came of %d tasks that may start; the next fetch ended after %v: %v", names(got), n, time.Since(began).Round(time.Millisecond), err)
		}
		got = append(got, tasks...)
	}
	return got
}

// rest takes tasks one after the other and ends each, until it has n.
func (o *owner) rest(n int) []sources.Task {
	o.s.Helper()
	var got []sources.Task
	for len(got) < n {
		got = append(got, o.take(1)...)
		o.settle(sources.Settlement{Task: &got[len(got)-1], Outcome: sources.Done, Attempt: got[len(got)-1].Attempt})
	}
	return got
}

// nothing checks that there is nothing to fetch for the moment.
func (o *owner) nothing(why string) {
	o.s.Helper()
	ctx, cancel := context.WithTimeout(o.s.Context(), o.s.h.Moment)
	defer cancel()
	if tasks, err := o.fetch(ctx, 100); !errors.Is(err, context.DeadlineExceeded) {
		o.s.Fatalf("fetch returned %v, %v, want nothing: %s", names(tasks), err, why)
	}
}

// settle settles, until an answer came.
func (o *owner) settle(done ...sources.Settlement) {
	o.s.Helper()
	err := o.s.insist("settle", func(ctx context.Context) error { return o.stream.Settle(ctx, done...) })
	if err != nil {
		o.s.Fatalf("settle: %v", err)
	}
}

// end settles tasks with one outcome and no delay.
func (o *owner) end(outcome sources.Outcome, tasks ...sources.Task) {
	o.s.Helper()
	o.settle(settlements(outcome, tasks...)...)
}

func settlements(outcome sources.Outcome, tasks ...sources.Task) []sources.Settlement {
	done := make([]sources.Settlement, len(tasks))
	for i, t := range tasks {
		done[i] = sources.Settlement{Task: &t, Outcome: outcome, Attempt: t.Attempt}
		if outcome != sources.Done {
			done[i].Reason = "no luck with " + name(t)
		}
	}
	return done
}

// close closes the stream, until an answer came.
func (o *owner) close() {
	o.s.Helper()
	if err := o.s.insist("close", o.stream.Close); err != nil {
		o.s.Fatalf("close: %v", err)
	}
}

// crash ends the peer without a word.
func (o *owner) crash() {
	if o.peer.Kill != nil {
		o.killed = true
		o.peer.Kill()
	}
}

// mustFail checks that a call was refused for the reason want.
func (s *scene) mustFail(what string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("%s: got error %v, want %q", what, err, want)
	}
}
