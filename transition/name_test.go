package transition_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const total = 12

// name is the peers of one name around a ledger in memory, in virtual time.
type name struct {
	*testing.T
	ledger *memledger.Ledger

	mu    sync.Mutex
	works map[partition.ID]*peer // who works on what right now
	twice []string               // what two worked on at once
}

func newName(t *testing.T) *name {
	return &name{
		T:      t,
		ledger: memledger.New(partition.Config{Total: total}, transition.Timing{}, memledger.Options{}),
		works:  make(map[partition.ID]*peer),
	}
}

// peer is a coordinator with a tenant that needs drains for each drain, and
// obeys an abort at once unless it is stubborn.
type peer struct {
	name     *name
	id       string
	co       *transition.Coordinator
	drains   time.Duration
	stubborn bool
	crosses  bool // an Abort crosses the drained of the Drain before
	ended    chan struct{}
	err      error

	mu     sync.Mutex
	served map[partition.ID]partition.Grant
	ending map[partition.ID]func()
	causes []error
	events []transition.Event
}

func (n *name) peer(id string, change func(*peer, *transition.Config)) *peer {
	n.Helper()
	p := &peer{
		name:   n,
		id:     id,
		drains: 10 * time.Millisecond,
		ended:  make(chan struct{}),
		served: make(map[partition.ID]partition.Grant),
		ending: make(map[partition.ID]func()),
	}
	cfg := transition.Config{
		Ledger:   n.ledger,
		Tenant:   p,
		Config:   partition.Config{Total: total},
		Peer:     id,
		Observer: p.observe,
	}
	if change != nil {
		change(p, &cfg)
	}
	co, err := transition.NewCoordinator(cfg)
	if err != nil {
		n.Fatal(err)
	}
	p.co = co
	return p
}

func (p *peer) observe(e transition.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
}

// start runs the peer; ctx ends it hard.
func (p *peer) start(ctx context.Context) *peer {
	go func() {
		defer close(p.ended)
		p.err = p.co.Run(ctx)
	}()
	return p
}

// told returns what the observer was told so far.
func (p *peer) told() []transition.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events)
}

// ends waits for the end of the peer, who must not take long.
func (p *peer) ends() {
	p.name.Helper()
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		p.name.Fatalf("%s goes on", p.id)
	}
}

func (p *peer) Serve(g partition.Grant) {
	if !p.co.Filter().Has(g.ID) || !p.co.Valid(time.Now()) {
		p.name.Errorf("%s is to serve %v: filter %v, lease valid %v", p.id, g, p.co.Filter().Has(g.ID), p.co.Valid(time.Now()))
	}
	p.mu.Lock()
	p.served[g.ID] = g
	p.mu.Unlock()
	p.name.mu.Lock()
	defer p.name.mu.Unlock()
	if other := p.name.works[g.ID]; other != nil {
		p.name.twice = append(p.name.twice, fmt.Sprintf("%v: %s and %s", g, other.id, p.id))
	}
	p.name.works[g.ID] = p
}

func (p *peer) Drain(g partition.Grant, drained func()) { p.end(g, p.drains, drained) }

func (p *peer) Abort(g partition.Grant, cause error, drained func()) {
	p.mu.Lock()
	p.causes = append(p.causes, cause)
	earlier := p.ending[g.ID]
	p.mu.Unlock()
	if p.crosses && earlier != nil {
		earlier()
	}
	if !p.stubborn {
		p.end(g, 0, drained)
	}
}

func (p *peer) end(g partition.Grant, after time.Duration, drained func()) {
	if p.co.Filter().Has(g.ID) {
		p.name.Errorf("%s is to end %v, which its filter admits", p.id, g)
	}
	p.mu.Lock()
	p.ending[g.ID] = drained
	p.mu.Unlock()
	end := func() {
		p.mu.Lock()
		d := p.ending[g.ID]
		delete(p.ending, g.ID)
		if p.served[g.ID] == g {
			delete(p.served, g.ID)
		}
		p.mu.Unlock()
		if d == nil {
			return
		}
		p.name.mu.Lock()
		if p.name.works[g.ID] == p {
			delete(p.name.works, g.ID)
		}
		p.name.mu.Unlock()
		d()
	}
	if after == 0 {
		end() // from inside the call
		return
	}
	time.AfterFunc(after, end)
}

// holds returns what p serves.
func (p *peer) holds() map[partition.ID]partition.Grant {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.served)
}

func (p *peer) saw(match func(transition.Event) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.events, match)
}

func saw[E transition.Event](p *peer) bool {
	return p.saw(func(e transition.Event) bool { _, ok := e.(E); return ok })
}

// alone starts a peer with that ledger and waits until it serves everything.
func (n *name) alone(l transition.Ledger) *peer {
	n.Helper()
	p := n.peer("a", func(_ *peer, cfg *transition.Config) { cfg.Ledger = l }).start(n.Context())
	pass(3 * time.Second)
	n.shares(p)
	return p
}

// shares fails unless the peers serve everything, as evenly as can be, and nobody
// ever worked on the same at once.
func (n *name) shares(peers ...*peer) {
	n.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.twice) > 0 {
		n.Fatalf("worked on twice: %v", n.twice)
	}
	all := 0
	for _, p := range peers {
		got := len(p.holds())
		all += got
		if got < total/len(peers) || got > (total+len(peers)-1)/len(peers) {
			n.Errorf("%s serves %d of %d among %d", p.id, got, total, len(peers))
		}
	}
	if all != total {
		n.Fatalf("%d of %d partitions are served", all, total)
	}
}

// pass lets d of virtual time pass.
func pass(d time.Duration) {
	time.Sleep(d) // virtual: in a bubble
	synctest.Wait()
}
