package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/countoff/countoff/framework/status/dashboard"
	"github.com/countoff/countoff/framework/status/partitionmap"
)

// A Show is where a play is shown: live on a terminal, or as lines.
type Show struct {
	Out io.Writer
	// Screen is the terminal to draw on; nil: lines only.
	Screen *partitionmap.Screen
}

// stage keeps what is to be drawn.
type stage struct {
	mu    sync.Mutex
	story []string // of the live map
}

// say tells what happens.
func (p *play) say(format string, args ...any) {
	line := fmt.Sprintf("%5.1f s  "+format, append([]any{time.Since(p.began).Seconds()}, args...)...)
	p.stage.mu.Lock()
	defer p.stage.mu.Unlock()
	p.stage.story = append(p.stage.story, line)
	if p.cfg.Show.Screen == nil {
		fmt.Fprintln(p.cfg.Show.Out, line)
	}
}

// page serves the play to browsers until ctx ends, and returns where.
func (p *play) page(ctx context.Context, running *sync.WaitGroup) (string, error) {
	board, err := dashboard.New(dashboard.Of(p.store.Client, p.store.Name))
	if err != nil {
		return "", err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.cfg.Dashboard)
	if err != nil {
		return "", fmt.Errorf("demo: the dashboard: %w", err)
	}
	running.Go(func() {
		if err := board.Serve(ctx, l, board); err != nil {
			p.say("the dashboard has ended: %v", err)
		}
	})
	return fmt.Sprintf("http://%s/", l.Addr()), nil
}

// show draws until ctx ends: the map five times a second, or a line each second.
func (p *play) show(ctx context.Context) {
	every := time.Second
	m := partitionmap.Map{}
	if s := p.cfg.Show.Screen; s != nil {
		every, m.Colour = 200*time.Millisecond, s.Colour()
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			p.draw(&m)
		case <-ctx.Done():
			if p.cfg.Show.Screen != nil {
				p.draw(&m)
				p.cfg.Show.Screen.Keep()
			}
			return
		}
	}
}

// beside is how many lines of a terminal the map leaves: to the counters and the empty line below them, the newest
// of the story, and the cursor.
const beside = 4

func (p *play) draw(m *partitionmap.Map) {
	s, err := p.observer.status()
	p.mu.Lock()
	enqueued := len(p.mails)
	p.mu.Unlock()
	delivered := 0
	for _, d := range p.smtp.Deliveries(0) {
		if d.Accepted {
			delivered++
		}
	}
	counters := fmt.Sprintf("enqueued %d of %d   deliveries %d", enqueued, p.cfg.Mails, delivered)
	if err != nil && s.Name == "" {
		counters += fmt.Sprintf("   (the store cannot be read: %v)", err)
	}
	p.stage.mu.Lock()
	defer p.stage.mu.Unlock()
	if p.cfg.Show.Screen == nil {
		t := s.Totals()
		fmt.Fprintf(p.cfg.Show.Out, "%5.1f s  %s   pending %d   in flight %d   peers %d   unowned %d\n",
			time.Since(p.began).Seconds(), counters, t.Pending, t.InFlight, len(s.Peers), len(s.Coverage.Unowned))
		return
	}
	p.cfg.Show.Screen.Fit()
	m.Width = p.cfg.Show.Screen.Width
	m.Height = max(1, p.cfg.Show.Screen.Height-beside)
	p.cfg.Show.Screen.Draw(append(m.Lines(s), "  "+counters, ""), p.stage.story...)
}
