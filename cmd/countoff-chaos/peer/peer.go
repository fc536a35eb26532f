package peer

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-chaos/journal"
	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/intervalindexer"
	"github.com/countoff/countoff/partition/intervalindexer/rediscounter"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

// A Task is the payload of a task, and the line of the inbox.
type Task struct {
	ID   string `json:"id"`
	Key  string `json:"key,omitempty"`
	Seq  int    `json:"seq"`
	MS   int    `json:"ms"`             // how long its handler takes
	Late int    `json:"late,omitempty"` // how long it takes to return once it is cancelled, in ms
	Fail int    `json:"fail,omitempty"` // its first runs fail, so many
	Dead bool   `json:"dead,omitempty"` // it asks to be a dead letter
}

// Config is what a peer is told.
type Config struct {
	Name, Peer, Journal string
	Control, Data       string // URLs of the store: for the ledger and for the tasks
	Inbox               string
	Partitions          int
	Concurrency         int
	Lease               time.Duration
	Interval            time.Duration // of the interval indexer; 0: the ledger's rolls
	Barrier             bool          // before every roll
}

// Args returns the flags that Run reads.
func (c Config) Args() []string {
	return []string{
		"-name", c.Name, "-peer", c.Peer, "-journal", c.Journal, "-control", c.Control, "-data", c.Data,
		"-inbox", c.Inbox, "-partitions", fmt.Sprint(c.Partitions), "-concurrency", fmt.Sprint(c.Concurrency),
		"-lease", c.Lease.String(), "-interval", c.Interval.String(), "-barrier=" + strconv.FormatBool(c.Barrier),
	}
}

func parse(args []string) (Config, error) {
	var c Config
	flags := flag.NewFlagSet("peer", flag.ContinueOnError)
	flags.StringVar(&c.Name, "name", "", "")
	flags.StringVar(&c.Peer, "peer", "", "")
	flags.StringVar(&c.Journal, "journal", "", "")
	flags.StringVar(&c.Control, "control", "", "")
	flags.StringVar(&c.Data, "data", "", "")
	flags.StringVar(&c.Inbox, "inbox", "", "")
	flags.IntVar(&c.Partitions, "partitions", 0, "")
	flags.IntVar(&c.Concurrency, "concurrency", 0, "")
	flags.DurationVar(&c.Lease, "lease", 0, "")
	flags.DurationVar(&c.Interval, "interval", 0, "")
	flags.BoolVar(&c.Barrier, "barrier", false, "")
	return c, flags.Parse(args)
}

// Timing are the times of a peer with that lease.
func Timing(lease time.Duration) transition.Timing { return transition.Timing{Lease: lease} }

// Run is the life of a peer: until a SIGTERM, and what follows it. open opens ledgers that
// do not stand in Redis; it may be nil.
func Run(args []string, open Open) error {
	cfg, err := parse(args)
	if err != nil {
		return err
	}
	// Before the journal: where that is, a SIGTERM is heard.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	out, err := journal.Create(cfg.Journal)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	watched := make(chan struct{})
	defer func() { <-watched }() // before the journal is closed
	over := make(chan struct{})
	defer close(over)
	go func() {
		defer close(watched)
		watchClock(out, Timing(cfg.Lease).WithDefaults().Margin(), over)
	}()

	elsewhere := !strings.HasPrefix(cfg.Control, "redis://")
	var control redis.UniversalClient
	if !elsewhere {
		if control, err = redisurl.Open(cfg.Control); err != nil {
			return err
		}
		defer func() { _ = control.Close() }()
	}
	var ledger OpenLedger // that is to be closed in the end
	defer func() {
		if ledger != nil {
			_ = ledger.Close()
		}
	}()
	data, err := redisurl.Open(cfg.Data)
	if err != nil {
		return err
	}
	defer func() { _ = data.Close() }()
	source, err := redissource.New(data, cfg.Name, redissource.Config{
		Partitions: cfg.Partitions,
		Ingress:    []redissource.Ingress{{List: cfg.Inbox, KeyField: "key", IDField: "id"}},
	})
	if err != nil {
		return err
	}
	work := &handler{out: out}
	options := []framework.Option{
		framework.WithPeer(cfg.Peer, 1),
		framework.WithConfig(framework.Config{
			Concurrency: cfg.Concurrency,
			Timing:      Timing(cfg.Lease),
			Retry:       framework.RetryPolicy{First: 50 * time.Millisecond, Max: time.Second, Tries: 5},
			PodGrace:    time.Minute,
		}),
		framework.WithControl(func(layout partition.Config) (transition.Ledger, partition.Indexer, error) {
			if elsewhere {
				var err error
				ledger, err = open(cfg.Control, cfg.Name, layout, Timing(cfg.Lease))
				return ledger, nil, err
			}
			l, err := redisledger.New(control, cfg.Name, redisledger.Config{Config: layout, Timing: Timing(cfg.Lease)})
			if err != nil || cfg.Interval == 0 {
				return l, nil, err
			}
			x, err := intervalindexer.New(rediscounter.New(control), cfg.Name,
				intervalindexer.Config{Interval: cfg.Interval, Partitions: layout})
			return l, x, err
		}),
		framework.WithObserver(framework.ObserverFunc(func(e framework.Event) {
			if c, ok := e.(framework.Coordinated); ok && cfg.Barrier {
				if seen, ok := c.Event.(transition.RollSeen); ok {
					work.roll.Store(seen.View.Version) // before anything is served under it
				}
			}
			observe(out, e)
		})),
	}
	if cfg.Barrier {
		options = append(options, framework.WithBarrier())
	}
	consumer, err := framework.New(cfg.Name, spy{source, out}, work, options...)
	if err != nil {
		return err
	}
	err = consumer.Run(ctx)
	if _, unheard := errors.AsType[*transition.UnheardError](err); err != nil && !unheard { // the store may be away just then
		return err
	}
	out.Write(journal.Record{Kind: journal.Left, Time: journal.Now()})
	return nil
}

// watchClock writes down when the process did not run, until over.
func watchClock(out *journal.Writer, margin time.Duration, over <-chan struct{}) {
	const tick = 10 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := journal.Now()
	for {
		select {
		case <-ticker.C:
		case <-over:
			return
		}
		now := journal.Now()
		if time.Duration(now-last) > tick+margin/2 {
			out.Write(journal.Record{Kind: journal.Stalled, Time: last, Until: now})
		}
		last = now
	}
}

// observe writes down what a handler cannot see, and tells the log what went wrong.
func observe(out *journal.Writer, e framework.Event) {
	switch e := e.(type) {
	case framework.Started:
		out.Write(journal.Record{Kind: journal.Joined, Time: journal.Now(), Session: string(e.Session)})
	case framework.Lost:
		out.Write(journal.Record{
			Kind: journal.Lost, Time: journal.Now(), Part: int(e.Grant.ID), Epoch: uint64(e.Grant.Epoch), Outcome: e.Cause.Error(),
		})
	case framework.Draining:
		out.Write(journal.Record{
			Kind: journal.Draining, Time: journal.Now(), Part: int(e.Grant.ID), Epoch: uint64(e.Grant.Epoch),
		})
	case framework.OpenFailed:
		logf("open %v: %v", e.Grant, e.Err)
	case framework.FetchFailed:
		logf("fetch %v: %v", e.Grant, e.Err)
	case framework.SettleFailed:
		logf("settle %v: %v", e.Grant, e.Err)
	case framework.CloseFailed:
		logf("close %v: %v", e.Grant, e.Err)
	case framework.DrainOverdue, framework.HandlerStuck, framework.Warned, framework.StartFailed, framework.Stopped:
		logf("%T %+v", e, e)
	case framework.Coordinated:
		switch t := e.Event.(type) {
		case transition.SyncFailed, transition.Lapsed, transition.GraceOpened, transition.SealFailed, transition.ConfigRefused,
			transition.Joined, transition.Sealed, transition.DrainOverdue, transition.Left, transition.Served, transition.Aborted:
			logf("%T %+v", t, t)
		}
	}
}

// logf tells people.
func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%.4f "+format+"\n", append([]any{journal.Now().Seconds()}, args...)...)
}

// A handler takes as long as its task says, and writes down that it ran.
type handler struct {
	out *journal.Writer
	run atomic.Uint64
	// roll is the one that the peer works under, with a barrier. While a handler may begin
	// it does not change.
	roll atomic.Uint64
}

func (h *handler) Handle(ctx context.Context, t *framework.Task) error {
	var task Task
	if err := json.Unmarshal(t.Payload, &task); err != nil {
		return framework.Dead(err)
	}
	r := journal.Record{
		Kind: journal.Began, Time: journal.Now(), Part: int(t.Grant.ID), Epoch: uint64(t.Grant.Epoch), Session: string(t.Token.Session),
		Run: h.run.Add(1), Task: t.ID, Key: t.Key, Seq: task.Seq, Attempt: t.Attempt, Crashes: t.Crashes, Roll: h.roll.Load(),
	}
	h.out.Write(r)
	err := h.work(ctx, t, &task)
	r.Kind, r.Time, r.Outcome = journal.Ended, journal.Now(), outcome(err)
	h.out.Write(r)
	return err
}

var errAgain = errors.New("this run was to fail")

func (h *handler) work(ctx context.Context, t *framework.Task, task *Task) error {
	busy := time.NewTimer(time.Duration(task.MS) * time.Millisecond)
	defer busy.Stop()
	select {
	case <-busy.C:
	case <-ctx.Done():
		time.Sleep(time.Duration(task.Late) * time.Millisecond) // a handler that has to tidy up
		return context.Cause(ctx)
	}
	switch {
	case t.Attempt <= task.Fail:
		return errAgain
	case task.Dead:
		return framework.Dead(errors.New("this one cannot be handled"))
	}
	return nil
}

func outcome(err error) string {
	switch {
	case err == nil:
		return journal.Done
	case errors.Is(err, errAgain):
		return journal.Retry
	}
	if asked, _ := sources.Asked(err); asked == sources.Dead {
		return journal.Dead
	}
	return journal.Cancelled
}
