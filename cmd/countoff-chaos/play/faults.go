package play

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/countoff/countoff/cmd/countoff-chaos/checker"
	"github.com/countoff/countoff/cmd/countoff-chaos/child"
	"github.com/countoff/countoff/cmd/countoff-chaos/journal"
	"github.com/countoff/countoff/cmd/countoff-chaos/proxy"
	"github.com/countoff/countoff/partition/redisurl"
)

// fault chooses whom a fault strikes and how hard, and returns what does it and waits
// until it is over.
func (s *stage) fault(kind string) func(context.Context) {
	lease := s.cfg.Lease
	switch kind {
	case Restart, Wipe:
		down := s.upTo(lease / 2)
		return func(ctx context.Context) { s.restart(ctx, kind, down) }
	case LedgerRestart:
		down := s.upTo(lease)
		return func(ctx context.Context) { s.breakLedger(ctx, kind, down) }
	case LedgerPause, LedgerCut:
		d := lease/2 + s.upTo(lease) // sometimes longer than the leases
		return func(ctx context.Context) { s.breakLedger(ctx, kind, d) }
	case Failover:
		return s.failover
	case Clock:
		step := s.upTo(time.Hour)
		if s.random.IntN(2) == 0 {
			step = -s.upTo(3 * time.Second)
		}
		return func(ctx context.Context) { s.clock(ctx, step) }
	case OOM:
		d := lease/2 + s.upTo(lease)
		return func(ctx context.Context) { s.oom(ctx, d) }
	case Starve:
		d := lease/2 + s.upTo(lease)
		return func(ctx context.Context) { s.starve(ctx, d) }
	case Roll:
		return s.roll
	case Scale:
		return s.scale
	}
	p := s.choose()
	if p == nil {
		return func(context.Context) { s.say("nobody is left for %s", kind) }
	}
	short, long := 50*time.Millisecond+s.upTo(lease/10), lease+s.upTo(lease)
	if s.random.IntN(4) == 0 {
		long = s.upTo(lease) // now and then it ends when the lease may or may not be over
	}
	return func(ctx context.Context) {
		defer p.release(journal.Now())
		switch kind {
		case Kill:
			s.kill(p)
		case Freeze:
			s.strike(kind, p, long, func() { p.freeze(long, kind, true) })
		case Blink:
			s.strike(kind, p, short, func() { p.freeze(short, kind, false) })
		case Term:
			s.term(p)
		default:
			s.network(kind, p, long)
		}
	}
}

func (s *stage) upTo(d time.Duration) time.Duration { return time.Duration(s.random.Int64N(int64(d))) }

// choose takes a peer that nothing happens to, or none.
func (s *stage) choose() *process {
	cast := s.playing()
	s.random.Shuffle(len(cast), func(i, j int) { cast[i], cast[j] = cast[j], cast[i] })
	for _, p := range cast {
		p.mu.Lock()
		free := !p.busy && !p.told
		p.busy = p.busy || free
		p.mu.Unlock()
		if free {
			return p
		}
	}
	return nil
}

// release ends the fault that began at from.
func (p *process) release(from journal.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = false
	p.struck = append(p.struck, checker.Span{From: from, Until: journal.Now()})
}

// begin notes a fault. What it returns notes its end.
func (s *stage) begin(kind, format string, args ...any) (end func()) {
	s.say("%-14s %s", kind, fmt.Sprintf(format, args...))
	s.mu.Lock()
	defer s.mu.Unlock()
	i := len(s.faults)
	s.faults = append(s.faults, checker.Fault{Kind: kind, Span: checker.Span{From: journal.Now()}})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults[i].Until = journal.Now()
	}
}

// strike does something to one peer for a while.
func (s *stage) strike(kind string, p *process, d time.Duration, do func()) {
	end := s.begin(kind, "%s for %v", p.name, d.Round(time.Millisecond))
	do()
	end()
}

func (s *stage) kill(p *process) {
	end := s.begin(Kill, "%s", p.name)
	p.kill(Kill)
	s.again(p)
	end()
}

func (s *stage) term(p *process) {
	end := s.begin(Term, "%s", p.name)
	defer end()
	s.leave(p)
	s.again(p)
}

func (s *stage) leave(p *process) {
	if err := p.leave(); err != nil {
		s.trouble("%v", err)
	}
}

// again starts another process of the same peer.
func (s *stage) again(p *process) {
	if err := s.enter(p.id); err != nil {
		s.trouble("%v", err)
	}
}

// network breaks the connections of one peer for a while.
func (s *stage) network(kind string, p *process, d time.Duration) {
	if p.control == nil {
		s.skip(kind, "with Sentinels peers talk to the servers directly")
		return
	}
	var mode proxy.Mode
	switch kind {
	case Cut, CutControl, CutData:
		mode.Cut = true
	case Silent, SilentControl, SilentData:
		mode.Silent = true
	default:
		mode.Delay = d / 120 // a round trip takes up to a third of a call's timeout
	}
	end := s.begin(kind, "%s for %v, %+v", p.name, d.Round(time.Millisecond), mode)
	defer end()
	control := kind == Cut || kind == CutControl || kind == Silent || kind == SilentControl || kind == Delay || kind == DelayControl
	data := kind == Cut || kind == CutData || kind == Silent || kind == SilentData || kind == Delay || kind == DelayData
	if control {
		if mode.Delay == 0 {
			p.leaves(kind)
		}
		p.control.Set(mode)
	}
	if data {
		p.data.Set(mode)
	}
	pause(d, p.ended)
	p.control.Set(proxy.Mode{})
	p.data.Set(proxy.Mode{})
	if control {
		p.returns()
	}
}

// restart kills the store and starts it again.
func (s *stage) restart(ctx context.Context, kind string, down time.Duration) {
	end := s.begin(kind, "the store is away for %v", down.Round(time.Millisecond))
	defer end()
	var loss checker.Loss
	if kind == Wipe {
		loss = s.look(ctx)
	}
	from := journal.Now()
	dead, err := s.store.Restart(ctx, down, kind == Restart)
	s.away(from)
	if err != nil {
		s.trouble("%v", err)
	}
	if kind == Wipe {
		loss.Why, loss.Until = kind, dead
		if loss.Held == nil {
			loss.At = dead
		}
		s.forgot(loss)
	}
}

// look says what stands in the store that is about to be emptied: what was acknowledged
// before and is neither there nor done was lost already.
func (s *stage) look(ctx context.Context) checker.Loss {
	at := journal.Now()
	client, err := redisurl.Open(s.store.URL(""))
	if err == nil {
		defer func() { _ = client.Close() }()
		var held checker.Store
		if held, err = s.holds(ctx, client); err == nil {
			return checker.Loss{At: at, Held: &held}
		}
	}
	s.say("%-14s nobody could look at it before: %v", Wipe, err)
	return checker.Loss{}
}

func (s *stage) failover(ctx context.Context) {
	end := s.begin(Failover, "the master is killed")
	defer end()
	began := journal.Now()
	from, dead, err := s.store.FailOver(ctx)
	s.away(began)
	if err != nil {
		s.trouble("%v", err)
		return
	}
	s.forgot(checker.Loss{Span: checker.Span{From: from, Until: dead}, At: dead, Why: Failover})
	s.say("%-14s a replica has taken over, the old master follows it", Failover)
}

// unplanned accounts for fail-overs that the Sentinels made although nothing was done
// to the master, because the machine stood still. Until the old master has learnt of it
// there are two, and what the old one acknowledges is gone.
func (s *stage) unplanned() error {
	const around = 4 * time.Second
	all, err := s.store.Failovers()
	if err != nil {
		return err
	}
	for _, at := range all {
		s.mu.Lock()
		planned := slices.ContainsFunc(s.faults, func(f checker.Fault) bool { return f.Kind == Failover && f.From <= at && at <= f.Until })
		s.mu.Unlock()
		if !planned {
			s.flips++
			span := checker.Span{From: at - journal.Time(around), Until: at + journal.Time(around)}
			s.forgot(checker.Loss{Span: span, At: span.From, Why: "a fail-over that nobody asked for"})
		}
	}
	return nil
}

// away notes that the store did not answer from then to now.
func (s *stage) away(from journal.Time) {
	s.watch.outage(checker.Span{From: from, Until: journal.Now()})
}

func (s *stage) forgot(l checker.Loss) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losses = append(s.losses, l)
}

// clock steps the store's clock, at most once in two leases: the promise is for one
// forward step a lease.
func (s *stage) clock(ctx context.Context, by time.Duration) {
	if err := s.store.NoClock(); err != nil {
		s.skip(Clock, err.Error())
		return
	}
	end := s.begin(Clock, "the store's clock steps by %v", by.Round(time.Millisecond))
	defer end()
	if err := s.store.Step(by); err != nil {
		s.trouble("%v", err)
	}
	pause(2*s.cfg.Lease, ctx.Done())
}

func (s *stage) oom(ctx context.Context, d time.Duration) {
	end := s.begin(OOM, "the store is full for %v", d.Round(time.Millisecond))
	defer end()
	if err := s.store.Fill(ctx, true); err != nil {
		s.trouble("%v", err)
	}
	pause(d, ctx.Done())
	if err := s.store.Fill(context.WithoutCancel(ctx), false); err != nil {
		s.trouble("%v", err)
	}
}

// starve lets busy processes take the processors.
func (s *stage) starve(ctx context.Context, d time.Duration) {
	const processes = 6
	end := s.begin(Starve, "%d busy processes for %v", processes, d.Round(time.Millisecond))
	defer end()
	from := journal.Now()
	var busy []*exec.Cmd
	for range processes {
		cmd := exec.Command(s.cfg.Self, s.cfg.BusyCommand)
		if err := child.Start(cmd); err != nil {
			s.trouble("%v", err)
			break
		}
		busy = append(busy, cmd)
	}
	pause(d, ctx.Done())
	for _, cmd := range busy {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
	s.away(from) // nobody can be expected to be quick
}

// roll restarts every peer, one after the other.
func (s *stage) roll(context.Context) {
	cast := s.playing()
	end := s.begin(Roll, "%d peers, one after the other", len(cast))
	defer end()
	for _, p := range cast {
		s.leave(p)
		s.again(p)
	}
}

// scale goes down to one peer, up to eight, down to two, and back.
func (s *stage) scale(ctx context.Context) {
	end := s.begin(Scale, "1 -> 8 -> 2 peers")
	defer end()
	for _, n := range []int{1, 8, 2, s.cfg.Peers} {
		s.resize(n)
		s.healthy(ctx, 2*s.watch.bound())
		pause(s.watch.timing.Settle, ctx.Done())
	}
}

// resize starts peers, or lets some leave, until there are n.
func (s *stage) resize(n int) {
	cast := s.playing()
	var wg sync.WaitGroup
	for _, p := range cast[min(n, len(cast)):] {
		wg.Go(func() { s.leave(p) })
	}
	wg.Wait()
	taken := map[string]bool{}
	for _, p := range s.playing() {
		taken[p.id] = true
	}
	for i := 1; len(taken) < n; i++ {
		if id := fmt.Sprintf("peer-%d", i); !taken[id] {
			taken[id] = true
			if err := s.enter(id); err != nil {
				s.trouble("%v", err)
				return
			}
		}
	}
}

// skip notes that a kind of fault cannot be done here.
func (s *stage) skip(kind, why string) {
	s.mu.Lock()
	_, said := s.skipped[kind]
	s.skipped[kind] = why
	s.mu.Unlock()
	if !said {
		s.say("%-14s skipped: %s", kind, why)
	}
}
