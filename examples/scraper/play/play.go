package play

import (
	"context"
	_ "embed" // the sites are a file
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countoff/countoff/examples/internal/cast"
	"github.com/countoff/countoff/examples/scraper/website"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources/unitsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

// The stage.
const (
	every = 100 * time.Millisecond // a site is visited
	takes = 20 * time.Millisecond  // a visit
	fresh = time.Second            // a site that was visited since is watched
	act   = 40 * time.Second       // an act may take that long
)

//go:embed sites.txt
var ours string

// Config of a play.
type Config struct {
	File   string // with the sites; default: our own
	Redis  string // URL of a store; default: an embedded one
	Lease  time.Duration
	Out    io.Writer
	Screen *partitionmap.Screen // to draw the table on; nil: lines
}

// Validate says all that is wrong with c, as what the flags of the demo give.
func (c Config) Validate() error {
	var errs []error
	if c.File != "" {
		_, err := read(c.File)
		errs = append(errs, err)
	}
	if c.Redis != "" {
		client, err := redisurl.Open(c.Redis)
		if err == nil {
			err = client.Close()
		}
		errs = append(errs, err)
	}
	if c.Lease <= 0 {
		errs = append(errs, fmt.Errorf("--lease %v: want more than 0", c.Lease))
	} else {
		errs = append(errs, transition.Timing{Lease: c.Lease}.Validate())
	}
	return errors.Join(errs...)
}

type play struct {
	cfg    Config
	dir    string
	store  *cast.Store
	list   *unitsource.Source
	web    *website.Server
	began  time.Time
	cast   []*cast.Peer
	killed map[string]bool // peers that went without goodbye, or stood still

	mu    sync.Mutex
	sites []string
	story []string
}

// Run plays and returns what was seen. The error says what kept the play from going on.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	p := &play{cfg: cfg, began: time.Now(), killed: map[string]bool{}}
	if p.dir, err = os.MkdirTemp("", "scraper-demo-"); err != nil {
		return report, err
	}
	defer os.RemoveAll(p.dir)
	if p.web, err = website.Start(takes); err != nil {
		return report, err
	}
	defer p.web.Close()
	names, err := p.names()
	if err != nil {
		return report, err
	}
	if p.store, err = cast.Open(ctx, cfg.Redis, "", "scraper", partition.Config{}); err != nil {
		return report, err
	}
	defer p.raze()
	if p.list, err = unitsource.New(p.store.Client, p.store.Name, unitsource.Config{}); err != nil {
		return report, err
	}
	for _, n := range names {
		p.sites = append(p.sites, p.web.URL(n))
	}
	if err := p.list.Add(ctx, p.sites...); err != nil {
		return report, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { p.show(ctx) })
	defer watching.Wait()
	defer cancel()
	defer func() {
		for _, c := range p.cast {
			c.Dismiss()
		}
	}()
	if err := p.plot(ctx); err != nil {
		return report, err
	}
	return newReport(p.web.Book(), len(names)+2, p.killed, cfg.Lease, time.Since(p.began)), nil
}

// names are the pages of the website.
func (p *play) names() ([]string, error) {
	file := p.cfg.File
	if file == "" {
		file = filepath.Join(p.dir, "sites.txt")
		if err := os.WriteFile(file, []byte(ours), 0o600); err != nil {
			return nil, err
		}
	}
	names, err := read(file)
	return names, exit.With(exit.Usage, err)
}

func read(file string) ([]string, error) {
	names, err := website.Read(file)
	if err == nil && len(names) < 4 {
		err = fmt.Errorf("%s: %d sites: want at least 4, since some are removed", file, len(names))
	}
	return names, err
}

// plot is what happens.
func (p *play) plot(ctx context.Context) error {
	p.say("%d sites, a lease of %v; look at the table with: redis-cli -u %s HGETALL '%s'",
		len(p.sites), p.cfg.Lease, redisurl.Redacted(p.store.URL), redisledger.TableKey(p.store.Name))
	var anns []*cast.Peer
	for _, id := range []string{"ann", "bob"} {
		c, err := p.enter(id)
		if err != nil {
			return err
		}
		anns = append(anns, c)
	}
	p.say("ann and bob count off and share the sites")
	if _, err := p.watched(ctx, "ann", "bob"); err != nil {
		return err
	}
	ann, bob := anns[0], anns[1]

	p.say("eve joins: some sites are handed over to her, the others stay")
	eve, err := p.enter("eve")
	if err != nil {
		return err
	}
	with, err := p.watched(ctx, "ann", "bob", "eve")
	if err != nil {
		return err
	}

	if err := p.relist(ctx); err != nil {
		return err
	}
	if err := p.unmoved(ctx, with, "when the list changed", func(string) bool { return true }); err != nil {
		return err
	}
	if with, err = p.watched(ctx, "ann", "bob", "eve"); err != nil {
		return err
	}
	asBefore := func(owners map[string]string) bool {
		return p.fits(owners, "ann", "bob", "eve") && maps.Equal(owners, with)
	}

	p.say("ann is killed without goodbye: her sites wait for her lease to end")
	p.killed["ann"] = true
	ann.Kill()
	if _, err := p.watched(ctx, "bob", "eve"); err != nil {
		return err
	}
	if err := p.unmoved(ctx, with, "when ann was killed", func(owner string) bool { return owner != "ann" }); err != nil {
		return err
	}
	p.say("they have owners again; bob's and eve's have not moved")

	p.say("ann comes back, and gets what was hers")
	if _, err := p.enter("ann"); err != nil {
		return err
	}
	if err := p.until(ctx, "ann to have her sites again", asBefore); err != nil {
		return err
	}

	p.say("bob stands still (SIGSTOP) for longer than his lease")
	p.killed["bob"] = true
	if err := bob.Pause(); err != nil {
		return err
	}
	if _, err := p.watched(ctx, "ann", "eve"); err != nil {
		return err
	}
	p.say("bob goes on, and finds that his sites are others'; then they are handed back")
	if err := bob.Resume(); err != nil {
		return err
	}
	if err := p.until(ctx, "bob to have his sites again", asBefore); err != nil {
		return err
	}

	p.say("eve is told to leave, and hands over")
	if err := eve.Leave(); err != nil {
		return err
	}
	if _, err := p.watched(ctx, "ann", "bob"); err != nil {
		return err
	}
	p.say("all leave")
	for _, c := range p.cast {
		if !c.Told() {
			if err := c.Leave(); err != nil {
				return err
			}
		}
	}
	return nil
}

// relist changes the list as any program may.
func (p *play) relist(ctx context.Context) error {
	p.say("somebody else changes the list: two sites go, two come")
	gone := slices.Clone(p.sites[:2])
	added := []string{p.web.URL("added-1"), p.web.URL("added-2")}
	if err := p.store.Client.SRem(ctx, p.list.Key(), gone[0], gone[1]).Err(); err != nil {
		return err
	}
	if err := p.store.Client.SAdd(ctx, p.list.Key(), added[0], added[1]).Err(); err != nil {
		return err
	}
	p.mu.Lock()
	p.sites = append(slices.Clone(p.sites[2:]), added...)
	p.mu.Unlock()
	return p.until(ctx, "nobody to visit the sites that went", func(map[string]string) bool {
		for _, site := range gone {
			if time.Since(p.web.Look()[site].Last) < fresh {
				return false
			}
		}
		return true
	})
}

// owners are those of the sites that are watched.
func (p *play) owners() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen, owners := p.web.Look(), map[string]string{}
	for _, site := range p.sites {
		if s, ok := seen[site]; ok && time.Since(s.Last) < fresh {
			owners[site] = s.Owner
		}
	}
	return owners
}

// fits reports whether each site is watched, each of peers watches some, and nobody else does.
func (p *play) fits(owners map[string]string, peers ...string) bool {
	busy := map[string]bool{}
	for _, owner := range owners {
		busy[owner] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(owners) == len(p.sites) && len(busy) == len(peers) &&
		!slices.ContainsFunc(peers, func(id string) bool { return !busy[id] })
}

// watched waits until the sites are peers', and returns whose each is.
func (p *play) watched(ctx context.Context, peers ...string) (with map[string]string, err error) {
	err = p.until(ctx, "the sites to be those of "+strings.Join(peers, ", "), func(owners map[string]string) bool {
		with = owners
		return p.fits(owners, peers...)
	})
	return with, err
}

// unmoved waits until the sites have the owners they had before, of those that kept likes. At
// once they have, unless this machine is so busy that a peer lost its lease.
func (p *play) unmoved(ctx context.Context, before map[string]string, what string, kept func(owner string) bool) error {
	return p.until(ctx, "the sites to be whose they were "+what, func(now map[string]string) bool {
		for site, owner := range before {
			if is, ok := now[site]; ok && kept(owner) && is != owner {
				return false
			}
		}
		return true
	})
}

// until waits for ok, and for the table to say the same as the visits do, with nothing left to be handed over: who has
// come has some sites before she has all that are to be hers.
func (p *play) until(ctx context.Context, what string, ok func(owners map[string]string) bool) error {
	ctx, done := context.WithTimeoutCause(ctx, act, fmt.Errorf("waited %v for %s", act, what))
	defer done()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		owners := p.owners()
		if ok(owners) && p.stands(ctx) && p.tabled(ctx, owners) {
			return nil
		}
		for _, c := range p.cast {
			if err := c.Fallen(); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stands reports whether nothing is on its way from one peer to another.
func (p *play) stands(ctx context.Context) bool {
	s, err := status.Read(ctx, p.store.Client, p.store.Name)
	return err == nil && !slices.ContainsFunc(s.Partitions, func(h status.Partition) bool { return h.State == status.Moving })
}

func (p *play) tabled(ctx context.Context, owners map[string]string) bool {
	table, err := redisledger.ReadTable(ctx, p.store.Client, p.store.Name)
	for site, owner := range owners {
		if err != nil || !slices.Contains(table[owner], site) {
			return false
		}
	}
	return true
}

// enter brings a peer onto the stage.
func (p *play) enter(id string) (*cast.Peer, error) {
	c, err := cast.Enter(p.dir, id, nil, "--redis", p.store.URL, "--name", p.store.Name,
		"--lease", p.cfg.Lease.String(), "--every", every.String())
	if err == nil {
		p.cast = append(p.cast, c)
	}
	return c, err
}

// raze closes the store, and leaves nothing on one that is the user's.
func (p *play) raze() {
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.Lease+act) // of peers that were killed
	defer cancel()
	err := p.store.Close(ctx, func(ctx context.Context) error {
		return p.store.Client.Del(ctx, p.list.Key(), redisledger.TableKey(p.store.Name)).Err()
	})
	if err != nil {
		p.say("%v", err)
	}
}
