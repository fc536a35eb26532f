package etcdledger_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/etcdledger"
	"github.com/countoff/countoff/transition/etcdledger/etcdtest"
)

// A world knows who really works on what.
type world struct {
	mu     sync.Mutex
	works  map[partition.ID]worker
	epochs map[partition.ID]partition.Epoch // the largest that was worked on
	faults []string
	starts int
}

type worker struct {
	peer  string
	epoch partition.Epoch
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// begin and end are what a handler would do first and last.
func (w *world) begin(peer string, g partition.Grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if other, busy := w.works[g.ID]; busy {
		w.fault("%s begins %v while %s works under epoch %d", peer, g, other.peer, other.epoch)
	}
	if g.Epoch <= w.epochs[g.ID] {
		w.fault("%s begins %v after epoch %d", peer, g, w.epochs[g.ID])
	}
	w.works[g.ID], w.epochs[g.ID] = worker{peer, g.Epoch}, g.Epoch
	w.starts++
}

func (w *world) end(peer string, g partition.Grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.works[g.ID].peer == peer {
		delete(w.works, g.ID)
	}
}

func (w *world) started() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starts
}

// shares returns how many partitions each peer works on.
func (w *world) shares() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := make(map[string]int)
	for _, x := range w.works {
		n[x.peer]++
	}
	return n
}

// A tenant works on what it is given until it is taken away.
type tenant struct {
	*world
	peer string
}

func (t tenant) Serve(g partition.Grant)                          { t.begin(t.peer, g) }
func (t tenant) Drain(g partition.Grant, drained func())          { t.end(t.peer, g); drained() }
func (t tenant) Abort(g partition.Grant, _ error, drained func()) { t.end(t.peer, g); drained() }

const total = 24

// A fleet is peers on one etcd.
type fleet struct {
	*testing.T
	*world
	server *etcdtest.Process
	timing transition.Timing
	peers  map[string]*member
	n      int
}

type member struct {
	coordinator *transition.Coordinator
	client      *clientv3.Client
	kill        context.CancelFunc
	done        chan error
}

func (f *fleet) start() {
	f.Helper()
	f.n++
	name := fmt.Sprint("p", f.n)
	client, prefix, err := etcdledger.Open("etcd://" + strings.TrimPrefix(f.server.Endpoint(), "http://") + "/chaos")
	if err != nil {
		f.Fatal(err)
	}
	cfg := partition.Config{Total: total}
	ledger, err := etcdledger.New(client, prefix, "fleet", etcdledger.Config{Config: cfg, Timing: f.timing})
	if err != nil {
		f.Fatal(err)
	}
	co, err := transition.NewCoordinator(transition.Config{
		Ledger: ledger, Tenant: tenant{f.world, name}, Config: cfg, Timing: f.timing, Peer: name,
	})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{coordinator: co, client: client, kill: cancel, done: make(chan error, 1)}
	f.peers[name] = m
	go func() { m.done <- co.Run(ctx) }()
}

// crash ends a peer that can say nothing to etcd any more.
func (f *fleet) crash(name string) {
	m := f.peers[name]
	delete(f.peers, name)
	_ = m.client.Close()
	m.kill()
	<-m.done
}

func (f *fleet) leave(name string) {
	m := f.peers[name]
	delete(f.peers, name)
	m.coordinator.Stop()
	if err := <-m.done; err != nil {
		f.Errorf("%s left with %v", name, err)
	}
	m.kill()
	_ = m.client.Close()
}

// settle waits until every partition is worked on by its share of the peers.
func (f *fleet) settle(after string) {
	f.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		shares := f.shares()
		all, even := 0, len(shares) == len(f.peers)
		for _, n := range shares {
			all += n
			even = even && n >= total/len(f.peers) && n <= (total+len(f.peers)-1)/len(f.peers)
		}
		if all == total && even {
			return
		}
		if time.Now().After(deadline) {
			f.Fatalf("after %s the %d peers do not share the partitions: %v", after, len(f.peers), shares)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// pass lets d go by.
func pass(d time.Duration) { <-time.After(d) }

// TestFleet lets peers come, leave and crash while their etcd is killed, started again with
// what is on its disk, and stopped for longer than a lease. No partition is worked on by two,
// no epoch twice, and in the end all are worked on. That it was killed takes nothing from
// anybody.
func TestFleet(t *testing.T) {
	f := &fleet{
		T: t, server: etcdtest.StartProcess(t),
		world:  &world{works: make(map[partition.ID]worker), epochs: make(map[partition.ID]partition.Epoch)},
		timing: transition.Timing{Lease: 4 * time.Second, Settle: 50 * time.Millisecond},
		peers:  make(map[string]*member),
	}
	defer func() {
		for name := range f.peers {
			f.crash(name)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, fault := range f.faults {
			t.Error(fault)
		}
	}()
	client, err := etcdtest.Dial(strings.TrimPrefix(f.server.Endpoint(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcdledger.Init(t.Context(), client, "/chaos", "fleet", partition.Config{Total: total}); err != nil {
		t.Fatal(err)
	}
	_ = client.Close()

	for range 3 {
		f.start()
	}
	f.settle("the start")
	before := f.started()

	f.server.Kill()
	f.server.Start()
	f.settle("a restart")
	if n := f.started() - before; n != 0 {
		t.Logf("%d partitions were begun anew because of the restart: it took long", n)
	}

	f.start()
	f.server.Kill() // while the newcomer takes its share
	f.server.Start()
	f.settle("a restart during a join")

	f.crash(slices.Sorted(maps.Keys(f.peers))[0])
	f.server.Kill()
	pass(f.timing.Lease / 2)
	f.server.Start()
	f.settle("a crash and an outage")

	f.server.Pause()
	pass(f.timing.Lease + f.timing.Lease/2)
	if n := len(f.shares()); n != 0 {
		t.Errorf("%d peers work although etcd has said nothing for longer than a lease", n)
	}
	f.server.Resume()
	f.settle("a pause that outlasted the leases")

	f.leave(slices.Sorted(maps.Keys(f.peers))[0])
	f.settle("a leaver")
}
