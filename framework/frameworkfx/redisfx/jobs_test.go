package redisfx_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/redisfx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/jobs"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/memledger"
	"github.com/countoff/countoff/transition/redisledger"
)

// An option may be given to several applications: none finds the jobs of another.
func TestOneOptionForTwoApplications(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 4}); err != nil {
		t.Fatal(err)
	}
	option := fx.Options(
		redisfx.Source(name, redisfx.Config{}),
		frameworkfx.Configure(name, quick),
		redisfx.Job(name, jobs.Entry{Name: "yearly", Spec: "0 0 1 1 *", Zone: "UTC", Missed: jobs.Skip}, func(context.Context, *framework.Task) error { return nil }),
	)
	for range 2 {
		app := fxtest.New(t, frameworkfx.Module, fx.Provide(func() redis.UniversalClient { return client }), option)
		app.RequireStart()
		app.RequireStop()
	}
}

// A job's handler runs for its ticks, and events tell of them.
func TestAJobRuns(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 4}); err != nil {
		t.Fatal(err)
	}
	ran, told := make(chan *framework.Task, 100), make(chan framework.JobTicked, 100)
	app := fxtest.New(t,
		frameworkfx.Module,
		fx.Provide(func() redis.UniversalClient { return client }),
		redisfx.Source(name, redisfx.Config{}),
		frameworkfx.Configure(name, quick),
		redisfx.Job(name, jobs.Entry{Name: "sweep", Spec: "* * * * * *", Zone: "UTC", Missed: jobs.Skip, Payload: []byte("p")},
			func(_ context.Context, task *framework.Task) error {
				ran <- task
				return nil
			}),
		frameworkfx.Observe(func() framework.Observer {
			return framework.ObserverFunc(func(e framework.Event) {
				if e, ok := e.(framework.JobTicked); ok {
					told <- e
				}
			})
		}),
	)
	app.RequireStart()
	defer app.RequireStop()
	var before time.Time
	for range 2 {
		select {
		case task := <-ran:
			entry, at, ok := jobs.Tick(task)
			if entry != "sweep" || !ok || !at.After(before) || string(task.Payload) != "p" || task.ID != "sweep@"+at.Format(time.RFC3339) {
				t.Errorf("ran %+v", task)
			}
			before = at
		case <-time.After(patience):
			t.Fatal("the job did not run")
		}
	}
	if e := <-told; e.Job != "sweep" || e.Fired < 1 || e.Tick.IsZero() || e.Consumer != name {
		t.Errorf("told %+v", e)
	}
}

// The jobs of the source's configuration, of Jobs and of Job all fire, the last to the handler of its type.
func TestJobsAreOfAllWhoGiveSome(t *testing.T) {
	t.Parallel()
	client, name := redistest.New(t), redistest.Name(t)
	if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 4}); err != nil {
		t.Fatal(err)
	}
	entry := func(job, typ string) jobs.Entry {
		return jobs.Entry{Name: job, Type: typ, Spec: "* * * * * *", Zone: "UTC", Missed: jobs.Skip}
	}
	ran := make(chan string, 100)
	handler := func(of string) func(context.Context, *framework.Task) error {
		return func(_ context.Context, task *framework.Task) error {
			job, _, _ := jobs.Tick(task)
			ran <- job + " by " + of
			return nil
		}
	}
	app := fxtest.New(t,
		frameworkfx.Module,
		fx.Provide(func() redis.UniversalClient { return client }),
		redisfx.Source(name, redisfx.Config{Source: redissource.Config{Jobs: []jobs.Entry{entry("sweep", "")}}}),
		frameworkfx.Configure(name, quick),
		redisfx.Jobs(name, entry("count", "")),
		redisfx.Job(name, entry("mail", "post"), handler("post")),
		frameworkfx.Otherwise(name, handler("others")),
	)
	app.RequireStart()
	defer app.RequireStop()
	missing := map[string]bool{"sweep by others": true, "count by others": true, "mail by post": true}
	for late := time.After(patience); len(missing) > 0; {
		select {
		case got := <-ran:
			if delete(missing, got); strings.HasPrefix(got, "mail") && got != "mail by post" {
				t.Fatalf("%s, want it by the handler of its type", got)
			}
		case <-late:
			t.Fatalf("missing: %v", missing)
		}
	}
}

func TestJobsThatNobodyFiresAreRefused(t *testing.T) {
	for _, c := range []struct {
		want string
		opts []fx.Option
	}{
		{"cannot start:\n  consumer \"bills\": framework: two default handlers\n  consumer \"bills\": it has jobs, and no source that fires them", []fx.Option{
			frameworkfx.Otherwise("bills", func(context.Context, *framework.Task) error { return nil }),
			frameworkfx.From("bills", nowhere{}, memledger.New(partition.Config{Total: 1}, quick.Timing, memledger.Options{})),
			redisfx.Jobs("bills", jobs.Entry{Name: "x", Spec: "@daily", Zone: "UTC", Missed: jobs.Skip}),
		}},
		{"consumer \"bills\": job \"x\": zone \"\": say the time zone, as in UTC or Europe/Berlin\n  consumer \"bills\": job \"x\": missed 0", []fx.Option{
			redisfx.Source("bills", redisfx.Config{URL: "redis://127.0.0.1:1"}),
			redisfx.Jobs("bills", jobs.Entry{Name: "x", Spec: "@daily"}),
		}},
		{`consumer "bills": job "x": missed 0`, []fx.Option{
			redisfx.Source("bills", redisfx.Config{URL: "redis://127.0.0.1:1"}),
			redisfx.Jobs("bills", jobs.Entry{Name: "x", Spec: "@daily", Zone: "UTC"}),
		}},
	} {
		app := fx.New(append(c.opts, fx.NopLogger, frameworkfx.Module, frameworkfx.Configure("bills", quick),
			frameworkfx.Otherwise("bills", func(context.Context, *framework.Task) error { return nil }))...)
		var wrong *frameworkfx.StartError
		if !errors.As(app.Err(), &wrong) || !strings.Contains(wrong.Error(), c.want) {
			t.Errorf("the application says %v, want %s", app.Err(), c.want)
		}
	}
}

type nowhere struct{}

func (nowhere) Layout(context.Context) (partition.Config, error) {
	return partition.Config{Total: 1}, nil
}

func (nowhere) Open(context.Context, partition.Grant, partition.Token) (sources.Stream, error) {
	return nil, errors.New("nothing is here")
}

// Five peers over a day of ticks: they join, leave, crash and are paused, also between a
// decision and its call, for longer than a lease. What stands in the logs at the end is each
// tick of each entry once.
func TestADayOfTicksEachOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { newDay(t, 1).run(dayLong) })
}

const dayParts = 6

var dayTiming = transition.Timing{Lease: 30 * time.Second, Settle: time.Second}

// dayEntries tick 1440 + 288 + 24 + 3 times a day. Nothing is later than the grace, so that
// even Skip passes over none.
var dayEntries = []jobs.Entry{
	{Name: "minutely", Spec: "* * * * *", Zone: "UTC", Missed: jobs.Skip, Grace: 10 * time.Minute},
	{Name: "seldom", Spec: "@every 5m", Zone: "UTC", Missed: jobs.Skip, Grace: 10 * time.Minute},
	{Name: "hourly", Spec: "30 7 * * * *", Zone: "Asia/Kathmandu", Missed: jobs.Once, Grace: 10 * time.Minute, Key: "k1"},
	{Name: "office", Spec: "0 9,12,17 * * *", Zone: "Europe/Berlin", Missed: jobs.All, Grace: 10 * time.Minute, Key: "k2"},
}

type day struct {
	t      *testing.T
	random *rand.Rand
	server *miniredis.Miniredis
	client redis.UniversalClient
	ledger *memledger.Ledger
	peers  []*dayPeer
	all    sync.WaitGroup
	paused sync.WaitGroup // pauses
}

func newDay(t *testing.T, seed uint64) *day {
	server, client := redistest.Bubble(t)
	return &day{
		t: t, random: rand.New(rand.NewPCG(seed, 3)), server: server, client: client,
		ledger: memledger.New(partition.Config{Total: dayParts}, dayTiming, memledger.Options{}),
	}
}

func (d *day) run(long time.Duration) {
	begin := time.Now()
	for range 5 {
		d.join()
	}
	time.Sleep(5 * time.Minute) // every partition was opened: the entries have begun
	first := time.Now()
	for time.Since(begin) < long {
		time.Sleep(time.Duration(1+d.random.IntN(15)) * time.Minute)
		p := d.peers[d.random.IntN(len(d.peers))]
		switch d.random.IntN(4) {
		case 0:
			p.leave()
			d.join()
		case 1:
			p.crash()
			d.join()
		default:
			long := time.Duration(5+d.random.IntN(175)) * time.Second
			d.paused.Go(func() { p.pause(long) })
		}
	}
	d.paused.Wait()
	time.Sleep(5 * time.Minute)
	last := time.Now()
	for _, p := range slices.Clone(d.peers) {
		p.leave()
	}
	d.all.Wait()
	d.check(first, last)
}

// check compares what stands in the logs with the ticks that there were.
func (d *day) check(first, last time.Time) {
	found := make(map[string]int)
	for id := range partition.ID(dayParts) {
		queued, err := redissource.Peek(d.t.Context(), d.client, "day", id, 1<<20)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, q := range queued {
			found[q.ID]++
		}
	}
	want := 0
	for _, e := range dayEntries {
		s, err := jobs.Schedule(e.Spec, e.Zone)
		if err != nil {
			d.t.Fatal(err)
		}
		for at := s.Next(first); at.Before(last); at = s.Next(at) {
			want++
			if id := e.Name + "@" + at.UTC().Format(time.RFC3339); found[id] != 1 {
				d.t.Errorf("%s was fired %d times", id, found[id])
			}
		}
	}
	for id, n := range found {
		if n != 1 {
			d.t.Errorf("%s was fired %d times", id, n)
		}
	}
	if least := int(last.Sub(first) / time.Minute); want < least {
		d.t.Errorf("only %d ticks were expected, want %d", want, least)
	}
}

// A dayPeer is one peer: a coordinator, and streams of a source that nobody fetches from. All
// its calls, and what the coordinator tells it, go through a gate, which is shut while it is
// paused and for ever once it has crashed.
type dayPeer struct {
	day    *day
	source *redissource.Source
	co     *transition.Coordinator
	client *redis.Client
	cut    context.CancelFunc
	dead   chan struct{}

	mu   sync.Mutex
	gate chan struct{} // closed: open
	open map[partition.Grant]*dayStream
}

type dayStream struct {
	opened chan struct{} // closed when stream is set, or never will be
	stream sources.Stream
	stop   context.CancelFunc
}

func (d *day) join() {
	p := &dayPeer{day: d, dead: make(chan struct{}), gate: make(chan struct{}), open: map[partition.Grant]*dayStream{}}
	close(p.gate)
	p.client = redis.NewClient(&redis.Options{
		Addr: "bubble", PoolSize: 1000, MaxRetries: -1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			c, err := d.server.Dial()
			if err != nil {
				return nil, err
			}
			return redistest.Pump(c), nil
		},
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	p.client.AddHook(gated{p})
	source, err := redissource.New(p.client, "day", redissource.Config{Partitions: dayParts, Jobs: dayEntries})
	if err != nil {
		d.t.Fatal(err)
	}
	p.source = source
	p.co, err = transition.NewCoordinator(transition.Config{
		Ledger: gatedLedger{d.ledger, p}, Tenant: p, Config: partition.Config{Total: dayParts}, Timing: dayTiming,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cut := context.WithCancel(context.Background())
	p.cut = cut
	d.peers = append(d.peers, p)
	d.all.Go(func() {
		defer cut()
		_ = p.co.Run(ctx) // a peer that crashed leaves a mess
		p.mu.Lock()
		left := p.open
		p.open = nil
		p.mu.Unlock()
		for _, s := range left { // those of a peer that crashed: nothing is sent
			s.end(context.Background(), nil)
		}
		_ = p.client.Close()
	})
}

func (p *dayPeer) gone() {
	p.day.peers = slices.DeleteFunc(p.day.peers, func(o *dayPeer) bool { return o == p })
}

func (p *dayPeer) leave() {
	p.gone()
	p.co.Stop()
}

func (p *dayPeer) crash() {
	p.gone()
	close(p.dead)
	p.cut()
}

func (p *dayPeer) pause(d time.Duration) {
	p.mu.Lock()
	select {
	case <-p.gate:
	default:
		p.mu.Unlock()
		return // it is paused
	}
	gate := make(chan struct{})
	p.gate = gate
	p.mu.Unlock()
	time.Sleep(d)
	close(gate)
}

var errCrashed = errors.New("the peer has crashed")

// pass waits until the peer runs; the error says that it never will.
func (p *dayPeer) pass() error {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	select {
	case <-p.dead:
		return errCrashed
	default:
	}
	select {
	case <-gate:
		return nil
	case <-p.dead:
		return errCrashed
	}
}

func (p *dayPeer) Serve(g partition.Grant) {
	if p.pass() != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &dayStream{opened: make(chan struct{}), stop: stop}
	p.mu.Lock()
	p.open[g] = s
	p.mu.Unlock()
	p.day.all.Go(func() {
		defer close(s.opened)
		for ctx.Err() == nil {
			stream, err := p.source.Open(ctx, g, partition.Token{Epoch: g.Epoch, Session: p.co.Session()})
			if err == nil {
				s.stream = stream
				return
			}
			select {
			case <-time.After(time.Second):
			case <-p.dead:
				return
			case <-ctx.Done():
			}
		}
	})
}

func (p *dayPeer) Drain(g partition.Grant, drained func()) {
	p.end(context.Background(), g, drained)
}

func (p *dayPeer) Abort(g partition.Grant, _ error, drained func()) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	p.end(ended, g, drained)
}

func (p *dayPeer) end(ctx context.Context, g partition.Grant, drained func()) {
	if p.pass() != nil {
		return
	}
	p.mu.Lock()
	s := p.open[g]
	delete(p.open, g)
	p.mu.Unlock()
	if s == nil {
		drained()
		return
	}
	p.day.all.Go(func() { s.end(ctx, drained) })
}

func (s *dayStream) end(ctx context.Context, drained func()) {
	s.stop()
	<-s.opened
	if s.stream != nil {
		_ = s.stream.Close(ctx) // one that is fenced needs no close
	}
	if drained != nil {
		drained()
	}
}

// gated is the gate of the peer's calls of Redis.
type gated struct{ peer *dayPeer }

func (g gated) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g gated) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := g.peer.pass(); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (g gated) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := g.peer.pass(); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// gatedLedger is the gate of the peer's calls of the ledger.
type gatedLedger struct {
	transition.Ledger
	peer *dayPeer
}

func (l gatedLedger) Sync(ctx context.Context, r transition.Request) (transition.Answer, error) {
	if err := l.peer.pass(); err != nil {
		return transition.Answer{}, err
	}
	return l.Ledger.Sync(ctx, r)
}

func (l gatedLedger) Seal(ctx context.Context, next transition.Roll) error {
	if err := l.peer.pass(); err != nil {
		return err
	}
	return l.Ledger.Seal(ctx, next)
}
