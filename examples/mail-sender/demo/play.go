package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/countoff/countoff/examples/internal/cast"
	"github.com/countoff/countoff/examples/mail-sender/mailbox"
	"github.com/countoff/countoff/examples/mail-sender/service"
	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
)

// The stage. Times are such that a person can follow and that it fits in 40 s.
const (
	partitions  = 32
	concurrency = 8
	lease       = 3 * time.Second
	from        = "demo@mail-sender.example"
	latency     = 50 * time.Millisecond // of the SMTP server, so that there is something in flight
	recipients  = 120
	ending      = 15 * time.Second // for the last mails to arrive
)

// Pace is that of a demo for people.
const Pace = 22 * time.Second

// Config of a demo.
type Config struct {
	Peers int    // at the beginning; at least 2
	Mails int    // at least 1
	Seed  uint64 // decides the order of the recipients
	// Pace is the time over which the mails are enqueued; whoever comes or goes does so at a
	// share of it. Default: the constant of this name.
	Pace time.Duration
	// Redis is the URL of a store to use. Default: an embedded one.
	Redis string
	// Listen is where the embedded Redis listens. Default: a free port of loopback.
	Listen string
	// Dashboard is where the play is shown in a browser; empty: nowhere.
	Dashboard string
	// Show is where the play is shown.
	Show Show
}

// Validate says all that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	if c.Peers < 2 || c.Peers > 16 {
		errs = append(errs, fmt.Errorf("demo: %d peers: want 2 to 16, since one leaves and one is killed", c.Peers))
	}
	if c.Mails < 1 {
		errs = append(errs, fmt.Errorf("demo: %d mails: want at least 1", c.Mails))
	}
	if c.Pace < 0 {
		errs = append(errs, fmt.Errorf("demo: pace %v: want a time over which to enqueue the mails", c.Pace))
	}
	if c.Redis != "" && c.Listen != "" {
		errs = append(errs, errors.New("demo: only the embedded Redis listens where it is told to"))
	}
	errs = append(errs, service.CheckAddress("demo: listen", c.Listen), service.CheckAddress("demo: dashboard", c.Dashboard))
	return errors.Join(errs...)
}

// A play is a demo that runs.
type play struct {
	cfg      Config
	dir      string // for the peers' logs
	store    *cast.Store
	smtp     *mailbox.Server
	observer *observer
	began    time.Time
	stage    stage

	mu    sync.Mutex
	mails []sent
	cast  []*cast.Peer

	inFlight int
	takeover time.Duration
}

// Run plays and returns what was counted. The error says what kept the play from
// going on; whether the numbers hold is the report's verdict.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	if err := cfg.Validate(); err != nil {
		return report, err
	}
	if cfg.Pace == 0 {
		cfg.Pace = Pace
	}
	p := &play{cfg: cfg, began: time.Now()}
	if p.dir, err = os.MkdirTemp("", "mail-sender-demo-"); err != nil {
		return report, err
	}
	defer os.RemoveAll(p.dir)
	if p.smtp, err = mailbox.Start(mailbox.Config{Latency: latency}); err != nil {
		return report, err
	}
	defer p.smtp.Close()
	if p.store, err = cast.Open(ctx, cfg.Redis, cfg.Listen, "mail-sender", partition.Config{Total: partitions}); err != nil {
		return report, err
	}
	defer p.raze()
	p.observer = newObserver(p.store.Client, p.store.Name)
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	defer p.dismiss()
	watching.Go(func() { p.observer.run(ctx) })
	watching.Go(func() { p.show(ctx) })
	if cfg.Dashboard != "" {
		page, err := p.page(ctx, &watching)
		if err != nil {
			return report, err
		}
		p.say("open %s in a browser", page)
	}

	if err := p.perform(ctx, cancel); err != nil {
		return report, err
	}
	t := tally{
		mails: p.mails, deliveries: p.smtp.Deliveries(0), moves: p.observer.history(),
		inFlight: p.inFlight, takeover: p.takeover,
	}
	report = t.report()
	report.TakeoverBoundMS = transition.Timing{Lease: lease}.WithDefaults().Takeover().Milliseconds()
	report.DurationMS = time.Since(p.began).Milliseconds()
	return report, nil
}

// perform is the plot.
func (p *play) perform(ctx context.Context, cancel context.CancelCauseFunc) error {
	p.say("%d mails, %d partitions, a lease of %v", p.cfg.Mails, partitions, lease)
	p.say("look at it with: countoff watch %s --redis %s", p.store.Name, redisurl.Redacted(p.store.URL))
	for i := range p.cfg.Peers {
		if err := p.enter(fmt.Sprintf("peer-%d", i+1)); err != nil {
			return err
		}
	}
	p.say("%d peers count off and share the partitions", p.cfg.Peers)
	if err := p.within(ctx, 10*time.Second, "the first peers to own every partition", p.covered); err != nil {
		return err
	}

	feeding := make(chan error, 1)
	go func() {
		err := p.feed(ctx)
		if err != nil {
			cancel(err)
		}
		feeding <- err
	}()
	err := p.plot(ctx)
	if err != nil {
		cancel(err)
	}
	if err := cmp.Or(err, <-feeding); err != nil {
		return err
	}
	p.say("all %d mails are enqueued", p.cfg.Mails)
	return p.finale(ctx)
}

// plot is what happens while mails flow.
func (p *play) plot(ctx context.Context) error {
	joins, leaves, dies := fmt.Sprintf("peer-%d", p.cfg.Peers+1), p.cast[1], p.cast[0]
	start := time.Now()
	for _, scene := range []struct {
		at float64 // of the pace
		do func() error
	}{
		{0.12, func() error {
			p.say("%s joins", joins)
			return p.enter(joins)
		}},
		{0.32, func() error {
			p.say("%s is told to leave, and hands over", leaves.ID)
			return leaves.Leave()
		}},
		{0.50, func() error { return p.crash(ctx, dies) }},
		{0.85, func() error {
			late := fmt.Sprintf("peer-%d", p.cfg.Peers+2)
			p.say("%s joins", late)
			return p.enter(late)
		}},
	} {
		if err := sleep(ctx, time.Until(start.Add(time.Duration(scene.at*float64(p.cfg.Pace))))); err != nil {
			return err
		}
		if err := scene.do(); err != nil {
			return err
		}
	}
	return nil
}

// crash kills a peer in the middle of its work and counts what it had in flight.
func (p *play) crash(ctx context.Context, dies *cast.Peer) error {
	if err := p.busy(ctx, dies); err != nil {
		return err
	}
	owned := p.observer.ownedBy(dies.ID)
	p.observer.buried(dies.ID, time.Now())
	dies.Kill()
	killed := time.Now()
	p.say("%s is killed without goodbye; its %d partitions wait for its lease to end", dies.ID, len(owned))

	// What it had sent is still on its way into the servers: count when they have
	// noticed that its connections are gone, long before anybody may take over.
	gone, done := context.WithTimeoutCause(ctx, lease/2, errors.New("the SMTP server still holds connections of the killed peer"))
	defer done()
	for p.smtp.Connected(dies.ID) > 0 {
		if err := sleep(gone, 5*time.Millisecond); err != nil {
			return err
		}
	}
	open, err := p.observer.open(ctx, owned)
	if err != nil {
		return err
	}
	for _, d := range p.smtp.Deliveries(0) {
		if id := taskOf(d.MessageID); d.Client == dies.ID && open[id] {
			p.inFlight++
			delete(open, id)
		}
	}
	err = p.within(ctx, 3*lease, "the partitions of the killed peer to be taken over", func(s status.Status) bool {
		for _, id := range owned {
			if h := s.Partitions[id]; h.State != status.Owned && h.State != status.Moving || h.Owner == dies.ID {
				return false
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	p.takeover = time.Since(killed)
	p.say("its partitions are served again after %.1f s", p.takeover.Seconds())
	return nil
}

// busy waits until a peer is sending, if it soon is: a kill between two mails would
// show nothing.
func (p *play) busy(ctx context.Context, c *cast.Peer) error {
	for range 200 {
		for _, d := range p.smtp.Deliveries(0) {
			if d.Client == c.ID && d.Ended.IsZero() {
				return nil
			}
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// finale waits for the last mail and sends the peers home.
func (p *play) finale(ctx context.Context) error {
	last, done := context.WithTimeout(ctx, ending)
	defer done()
	_ = p.smtp.WaitAccepted(last, len(p.mails)) // what did not arrive is for the report
	err := p.within(ctx, ending, "the queue to be empty", func(s status.Status) bool {
		t := s.Totals()
		return t.Pending+t.InFlight == 0
	})
	if err != nil {
		p.say("%v", err) // also for the report: those mails are lost
	}
	p.say("the queue is empty; the peers leave")
	var wg sync.WaitGroup
	errs := make([]error, len(p.cast))
	for i, c := range p.cast {
		if !c.Told() {
			wg.Go(func() { errs[i] = c.Leave() })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// enter brings a peer onto the stage.
func (p *play) enter(id string) error {
	c, err := cast.Enter(p.dir, id, []string{"COUNTOFF_GRACE=60s"}, "--log-level", "warn", "--http", "",
		"--redis", p.store.URL, "--name", p.store.Name,
		"--smtp", p.smtp.URL()+"?helo="+id, "--from", from,
		"--partitions", fmt.Sprint(partitions), "--concurrency", fmt.Sprint(concurrency),
		"--lease", lease.String(), "--inbox", "")
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cast = append(p.cast, c)
	return nil
}

// dismiss ends whoever is still on the stage.
func (p *play) dismiss() {
	for _, c := range p.cast {
		c.Dismiss()
	}
}

// raze closes the store, and leaves nothing on one that is the user's.
func (p *play) raze() {
	ctx, cancel := context.WithTimeout(context.Background(), ending)
	defer cancel()
	err := p.store.Close(ctx, func(ctx context.Context) error {
		_, err := redissource.Destroy(ctx, p.store.Client, p.store.Name)
		return err
	})
	if err != nil {
		p.say("%v", err)
	}
}

// covered reports whether every partition is served.
func (p *play) covered(s status.Status) bool {
	for _, h := range s.Partitions {
		if h.State != status.Owned {
			return false
		}
	}
	return len(s.Partitions) > 0 && s.Roll.Replicas == p.cfg.Peers
}

// within waits at most d for what the observer is to see. A peer that ended by
// itself ends the wait.
func (p *play) within(ctx context.Context, d time.Duration, what string, ok func(status.Status) bool) error {
	ctx, done := context.WithTimeoutCause(ctx, d, fmt.Errorf("demo: waited %v for %s", d, what))
	defer done()
	err := p.observer.until(ctx, func(s status.Status) bool { return ok(s) || p.fallen() != nil })
	return errors.Join(p.fallen(), err)
}

// fallen returns why a peer that was not told to end has ended.
func (p *play) fallen() error {
	for _, c := range p.cast {
		if err := c.Fallen(); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
