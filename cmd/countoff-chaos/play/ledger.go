package play

import (
	"context"
	"time"

	"github.com/countoff/countoff/cmd/countoff-chaos/journal"
	"github.com/countoff/countoff/cmd/countoff-chaos/peer"
	"github.com/countoff/countoff/cmd/countoff-chaos/proxy"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// A LedgerServer is a store of the ledger alone, as a process that can be broken. Its
// methods are not called concurrently.
type LedgerServer interface {
	// Addr is its host:port.
	Addr() string
	// URL is where clients connect, with addr in the place of its own.
	URL(addr string) string
	// Open opens the ledger at a URL.
	Open(url, name string, layout partition.Config, timing transition.Timing) (peer.OpenLedger, error)
	// Init makes a name in it.
	Init(ctx context.Context, name string, layout partition.Config) error
	// Kill ends it without a word. A dead one is left alone.
	Kill()
	// Start starts it again with what is on its disk, and returns when it answers.
	Start(ctx context.Context) error
	// Pause stops it and lets its connections stand, until Resume.
	Pause() error
	Resume() error
}

// breakLedger does one of the faults of the ledger's own store. All of them are an outage.
func (s *stage) breakLedger(ctx context.Context, kind string, d time.Duration) {
	if s.cfg.Ledger == nil {
		s.skip(kind, "the ledger stands beside the tasks")
		return
	}
	end := s.begin(kind, "for %v", d.Round(time.Millisecond))
	defer end()
	from := journal.Now()
	defer s.away(from)
	trouble := func(err error) {
		if err != nil {
			s.trouble("%s: %v", kind, err)
		}
	}
	switch kind {
	case LedgerRestart:
		s.cfg.Ledger.Kill()
		pause(d, ctx.Done())
		trouble(s.cfg.Ledger.Start(context.WithoutCancel(ctx)))
	case LedgerPause:
		trouble(s.cfg.Ledger.Pause())
		pause(d, ctx.Done())
		trouble(s.cfg.Ledger.Resume())
	case LedgerCut:
		cut := s.playing()
		for _, p := range cut {
			p.control.Set(proxy.Mode{Cut: true})
		}
		pause(d, ctx.Done())
		for _, p := range cut {
			p.control.Set(proxy.Mode{})
		}
	}
}
