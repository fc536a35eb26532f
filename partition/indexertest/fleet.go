package indexertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
)

// A fleet is the peers of a clause and what they were told.
type fleet struct {
	t     *testing.T
	group Group
	peers map[string]*peer // alive, and not crashed or stopped
	stuck bool             // one did not end: the others are waited for no more

	mu   sync.Mutex
	told map[uint64]map[string]partition.View // what was said of a version, and to whom
}

func newFleet(t *testing.T, g Group) *fleet {
	f := &fleet{t: t, group: g, peers: map[string]*peer{}, told: map[uint64]map[string]partition.View{}}
	t.Cleanup(func() {
		for _, p := range f.peers {
			p.stop()
		}
		f.pass(g.Settle / 20) // for what is emitted after the end
	})
	return f
}

// A peer is one call of Index.
type peer struct {
	fleet  *fleet
	id     string
	cut    func()
	cancel context.CancelFunc
	done   chan error

	mu      sync.Mutex
	emits   bool // in emit now
	ended   bool // Index has returned
	last    partition.View
	nothing bool // nothing was emitted yet
	changes int  // views with another index or count than the one before
}

func (f *fleet) start(id string) *peer { return f.run(id, nil) }

// startHeld starts a peer that hangs in its first emit until release is called.
func (f *fleet) startHeld(id string) (release func()) {
	held := make(chan struct{})
	release = sync.OnceFunc(func() { close(held) })
	f.t.Cleanup(release)
	f.run(id, held)
	return release
}

func (f *fleet) run(id string, held <-chan struct{}) *peer {
	x, cut := f.group.Peer(id)
	ctx, cancel := context.WithCancel(context.Background())
	p := &peer{fleet: f, id: id, cut: cut, cancel: cancel, done: make(chan error, 1), nothing: true}
	f.peers[id] = p
	go func() {
		err := x.Index(ctx, func(v partition.View) { p.emit(v, held) })
		p.mu.Lock()
		if p.emits {
			f.t.Errorf("%s: Index has returned while emit runs", id)
		}
		p.ended = true
		p.mu.Unlock()
		p.done <- err
	}()
	return p
}

// emit takes a view in and holds it to what every view must be.
func (p *peer) emit(v partition.View, held <-chan struct{}) {
	t := p.fleet.t
	p.mu.Lock()
	if p.emits {
		t.Errorf("%s: emit was called while it ran", p.id)
	}
	if p.ended {
		t.Errorf("%s: emit was called after Index had returned", p.id)
	}
	p.emits = true
	if !p.nothing && v.Version <= p.last.Version {
		t.Errorf("%s: version %d after %d", p.id, v.Version, p.last.Version)
	}
	if v.Index < -1 || v.Index >= v.Replicas && v.Index != -1 {
		t.Errorf("%s: index %d of %d replicas", p.id, v.Index, v.Replicas)
	}
	if v.Index == -1 && len(v.Wish) > 0 {
		t.Errorf("%s: is no member and wishes for %v", p.id, v.Wish)
	}
	for i := 1; i < len(v.Wish); i++ {
		if v.Wish[i-1] >= v.Wish[i] {
			t.Errorf("%s: wishes for %v, want them ascending", p.id, v.Wish)
			break
		}
	}
	if v.Index != p.last.Index || v.Replicas != p.last.Replicas {
		p.changes++
	}
	p.last, p.nothing = v, false
	p.mu.Unlock()
	p.fleet.compare(p.id, v)

	if held != nil {
		<-held
	}

	p.mu.Lock()
	p.emits = false
	p.mu.Unlock()
}

// emitting returns nil while emit runs.
func (p *peer) emitting() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.emits {
		return fmt.Errorf("%s has no view", p.id)
	}
	return nil
}

// compare holds what is said of one version to be of one moment: the same replicas,
// no index twice, nothing wished for twice.
func (f *fleet) compare(id string, v partition.View) {
	if v.Index == -1 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told[v.Version] == nil {
		f.told[v.Version] = map[string]partition.View{}
	}
	for other, w := range f.told[v.Version] {
		both := slices.ContainsFunc(v.Wish, func(id partition.ID) bool { return slices.Contains(w.Wish, id) })
		if w.Replicas != v.Replicas || w.Index == v.Index || both {
			f.t.Errorf("version %d: %s is %d of %d and wishes for %v, %s is %d of %d and wishes for %v",
				v.Version, id, v.Index, v.Replicas, v.Wish, other, w.Index, w.Replicas, w.Wish)
		}
	}
	f.told[v.Version][id] = v
}

// stop ends the peer's context and waits for Index.
func (p *peer) stop() {
	t := p.fleet.t
	t.Helper()
	delete(p.fleet.peers, p.id)
	p.cancel()
	if p.fleet.stuck {
		return
	}
	timeout := time.NewTimer(10*p.fleet.group.Settle + time.Minute)
	defer timeout.Stop()
	select {
	case err := <-p.done:
		if err != nil {
			t.Errorf("%s: Index returned %v after its context ended, want nil", p.id, err)
		}
	case <-timeout.C:
		t.Errorf("%s: Index does not return after its context ended", p.id)
		p.fleet.stuck = true
	}
}

// crash cuts the peer off and then ends it: it says no goodbye.
func (p *peer) crash() {
	p.fleet.t.Helper()
	p.cut()
	p.stop()
}

// latest returns the last view of each peer that has one.
func (f *fleet) latest() map[string]partition.View {
	views := map[string]partition.View{}
	for id, p := range f.peers {
		p.mu.Lock()
		if !p.nothing {
			views[id] = p.last
		}
		p.mu.Unlock()
	}
	return views
}

// changes returns how often each peer was told another place.
func (f *fleet) changes() map[string]int {
	n := map[string]int{}
	for id, p := range f.peers {
		p.mu.Lock()
		n[id] = p.changes
		p.mu.Unlock()
	}
	return n
}

// holder returns the peer that has index.
func (f *fleet) holder(index int) *peer {
	f.t.Helper()
	for id, v := range f.latest() {
		if v.Index == index {
			return f.peers[id]
		}
	}
	f.t.Fatalf("nobody has index %d", index)
	return nil
}

// agree waits until the views of all peers agree.
func (f *fleet) agree() {
	f.t.Helper()
	f.until(f.disagreement)
}

// disagreement says what keeps the latest views of all peers from agreeing.
func (f *fleet) disagreement() error {
	views := f.latest()
	var errs []error
	taken := map[int]string{}
	wished := map[partition.ID]int{}
	for id := range f.peers {
		v, ok := views[id]
		if !ok {
			errs = append(errs, fmt.Errorf("%s has no view", id))
			continue
		}
		if v.Replicas != len(f.peers) {
			errs = append(errs, fmt.Errorf("%s counts %d replicas of %d", id, v.Replicas, len(f.peers)))
		}
		if other, ok := taken[v.Index]; ok || v.Index < 0 || v.Index >= len(f.peers) {
			errs = append(errs, fmt.Errorf("%s has index %d (like %q) of %d", id, v.Index, other, len(f.peers)))
		}
		taken[v.Index] = id
		for _, w := range v.Wish {
			wished[w]++
		}
	}
	for _, id := range f.group.IDs {
		if wished[id] != 1 {
			errs = append(errs, fmt.Errorf("%d peers wish for %v", wished[id], id))
		}
		delete(wished, id)
	}
	for id := range wished {
		errs = append(errs, fmt.Errorf("%v is wished for and is not there", id))
	}
	if len(errs) > 5 {
		errs = append(errs[:5], fmt.Errorf("and %d more", len(errs)-5))
	}
	return errors.Join(errs...)
}

// counted says what keeps the peers ids from counting n replicas.
func (f *fleet) counted(n int, ids ...string) error {
	for id, v := range f.latest() {
		if slices.Contains(ids, id) {
			if v.Replicas != n {
				return fmt.Errorf("%s counts %d replicas of %d", id, v.Replicas, n)
			}
			ids = slices.DeleteFunc(ids, func(s string) bool { return s == id })
		}
	}
	if len(ids) > 0 {
		return fmt.Errorf("%v have no view", ids)
	}
	return nil
}

// until waits for ok within the time the harness says views take to settle.
func (f *fleet) until(ok func() error) {
	f.t.Helper()
	tick := time.NewTicker(max(f.group.Settle/200, time.Millisecond))
	defer tick.Stop()
	deadline := time.Now().Add(f.group.Settle)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("after %v: %v", f.group.Settle, err)
		}
		<-tick.C
	}
}

// pass lets d go by.
func (f *fleet) pass(d time.Duration) {
	<-time.After(d)
}
