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
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/examples/mail-sender/embedded"
	"github.com/countoff/countoff/examples/scraper/website"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources/unitsource"
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

type play struct {
	cfg      Config
	name     string
	redisURL string
	dir      string
	client   redis.UniversalClient
	list     *unitsource.Source
	web      *website.Server
	began    time.Time
	cast     []*peer
	killed   map[string]bool // peers that went without goodbye, or stood still

	mu    sync.Mutex
	sites []string
	story []string
}

// Run plays and returns what was seen. The error says what kept the play from going on.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	p := &play{cfg: cfg, name: "scraper", began: time.Now(), killed: map[string]bool{}}
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
	done, err := p.store(ctx)
	if err != nil {
		return report, err
	}
	defer done()
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
			_ = c.cmd.Process.Signal(syscall.SIGCONT)
			c.kill()
			_ = c.leash.Close()
			_ = c.log.Close()
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
	names, err := website.Read(file)
	if err == nil && len(names) < 4 {
		err = fmt.Errorf("%s: %d sites: want at least 4, since some are removed", file, len(names))
	}
	return names, err
}

// plot is what happens.
func (p *play) plot(ctx context.Context) error {
	p.say("%d sites, a lease of %v; look at the table with: redis-cli -u %s HGETALL '%s'",
		len(p.sites), p.cfg.Lease, redisurl.Redacted(p.redisURL), redisledger.TableKey(p.name))
	var anns []*peer
	for _, id := range []string{"ann", "bob"} {
		c, err := p.enter(id)
		if err != nil {
			return err
		}
		anns = append(anns, c)
	}
	p.say("ann and bob count off and share the sites")
	if err := p.watched(ctx, "ann", "bob"); err != nil {
		return err
	}
	ann, bob := anns[0], anns[1]

	p.say("eve joins: some sites are handed over to her, the others stay")
	eve, err := p.enter("eve")
	if err != nil {
		return err
	}
	if err := p.watched(ctx, "ann", "bob", "eve"); err != nil {
		return err
	}
	with := p.owners()

	if err := p.relist(ctx); err != nil {
		return err
	}
	if err := p.watched(ctx, "ann", "bob", "eve"); err != nil {
		return err
	}
	if err := p.unmoved(ctx, with, "when the list changed", func(string) bool { return true }); err != nil {
		return err
	}
	with = p.owners()
	asBefore := func(owners map[string]string) bool {
		return p.fits(owners, "ann", "bob", "eve") && maps.Equal(owners, with)
	}

	p.say("ann is killed without goodbye: her sites wait for her lease to end")
	p.killed["ann"] = true
	ann.kill()
	if err := p.watched(ctx, "bob", "eve"); err != nil {
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
	if err := bob.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := p.watched(ctx, "ann", "eve"); err != nil {
		return err
	}
	p.say("bob goes on, and finds that his sites are others'; then they are handed back")
	if err := bob.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if err := p.until(ctx, "bob to have his sites again", asBefore); err != nil {
		return err
	}

	p.say("eve is told to leave, and hands over")
	if err := eve.leave(); err != nil {
		return err
	}
	if err := p.watched(ctx, "ann", "bob"); err != nil {
		return err
	}
	p.say("all leave")
	for _, c := range p.cast {
		if !c.told {
			if err := c.leave(); err != nil {
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
	if err := p.client.SRem(ctx, p.list.Key(), gone[0], gone[1]).Err(); err != nil {
		return err
	}
	if err := p.client.SAdd(ctx, p.list.Key(), added[0], added[1]).Err(); err != nil {
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

// watched waits until the sites are peers'.
func (p *play) watched(ctx context.Context, peers ...string) error {
	return p.until(ctx, "the sites to be those of "+strings.Join(peers, ", "), func(owners map[string]string) bool { return p.fits(owners, peers...) })
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

// until waits for ok, and for the table to say the same as the visits do.
func (p *play) until(ctx context.Context, what string, ok func(owners map[string]string) bool) error {
	ctx, done := context.WithTimeoutCause(ctx, act, fmt.Errorf("waited %v for %s", act, what))
	defer done()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		owners := p.owners()
		if ok(owners) && p.tabled(ctx, owners) {
			return nil
		}
		for _, c := range p.cast {
			if !c.told && !c.alive() {
				return fmt.Errorf("%s ended by itself (%s): %s", c.id, c.cmd.ProcessState, c.said())
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (p *play) tabled(ctx context.Context, owners map[string]string) bool {
	table, err := redisledger.ReadTable(ctx, p.client, p.name)
	for site, owner := range owners {
		if err != nil || !slices.Contains(table[owner], site) {
			return false
		}
	}
	return true
}

// store opens the store: an embedded one that is known to be new, or the user's, under a
// name of its own that is removed again.
func (p *play) store(ctx context.Context) (func(), error) {
	p.redisURL = p.cfg.Redis
	stop := func() {}
	if p.redisURL == "" {
		r, err := embedded.Start("")
		if err != nil {
			return nil, err
		}
		stop, p.redisURL = r.Close, r.URL()
	} else {
		p.name = fmt.Sprintf("scraper-demo-%d-%d", p.began.Unix(), os.Getpid())
	}
	client, err := redisurl.Open(p.redisURL)
	if err != nil {
		stop()
		return nil, err
	}
	done := func() {
		_ = client.Close()
		stop()
	}
	err = redisurl.Reach(ctx, client, p.redisURL)
	if err == nil {
		_, err = redisledger.Init(ctx, client, p.name, partition.Config{})
	}
	if err == nil {
		p.list, err = unitsource.New(client, p.name, unitsource.Config{})
	}
	if err != nil {
		done()
		return nil, err
	}
	p.client = client
	return func() {
		if p.cfg.Redis != "" {
			p.raze()
		}
		done()
	}, nil
}

// raze removes what the play left on a store that is not its own.
func (p *play) raze() {
	ctx, cancel := context.WithTimeout(context.Background(), act)
	defer cancel()
	err := redisledger.Destroy(ctx, p.client, p.name)
	for errors.Is(err, redisledger.ErrInUse) && ctx.Err() == nil { // a lease of a killed peer ends
		time.Sleep(p.cfg.Lease / 4)
		err = redisledger.Destroy(ctx, p.client, p.name)
	}
	if err == nil {
		err = p.client.Del(ctx, p.list.Key(), redisledger.TableKey(p.name)).Err()
	}
	if err != nil {
		p.say("%s was left on the store (%v): countoff destroy %s --yes", p.name, err, p.name)
	}
}
