package play

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/countoff/countoff/transition/redisledger"
)

// say tells what happens.
func (p *play) say(format string, args ...any) {
	line := fmt.Sprintf("%5.1f s  "+format, append([]any{time.Since(p.began).Seconds()}, args...)...)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.story = append(p.story, line)
	if p.cfg.Screen == nil {
		fmt.Fprintln(p.cfg.Out, line)
	}
}

// show draws the table until ctx ends: five times a second, or a line each second.
func (p *play) show(ctx context.Context) {
	each := time.Second
	if p.cfg.Screen != nil {
		each = time.Second / 5
	}
	tick := time.NewTicker(each)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			if p.cfg.Screen != nil {
				p.cfg.Screen.Keep()
			}
			return
		}
		table, err := redisledger.ReadTable(ctx, p.store.Client, p.store.Name)
		if err != nil {
			continue
		}
		p.draw(table)
	}
}

func (p *play) draw(table map[string][]string) {
	seen, book := p.web.Look(), p.web.Book()
	counters := fmt.Sprintf("%d visits, %d changes of owner, %d refused, %d double", book.Visits, len(book.Changes), book.Refused, len(book.Double))
	var lines, short []string
	for _, owner := range slices.Sorted(maps.Keys(table)) {
		sites := make([]string, len(table[owner]))
		for i, site := range table[owner] {
			sites[i] = path.Base(site)
			if time.Since(seen[site].Last) > fresh {
				sites[i] = "(" + sites[i] + ")" // nobody watches it now
			}
		}
		if owner == redisledger.Nobody {
			owner = "nobody"
		}
		lines = append(lines, fmt.Sprintf("  %-8s %3d  %s", owner, len(sites), strings.Join(sites, " ")))
		short = append(short, fmt.Sprintf("%s %d", owner, len(sites)))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg.Screen == nil {
		fmt.Fprintf(p.cfg.Out, "%5.1f s  %s   %s\n", time.Since(p.began).Seconds(), counters, strings.Join(short, "  "))
		return
	}
	lines = append([]string{"  who watches what; in brackets: no visit for a second", ""}, lines...)
	lines = append(lines, "", "  "+counters, "")
	p.cfg.Screen.Draw(append(lines, p.story...))
}
