package redisledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// Census implements transition.Ledger. It changes nothing in the store, not even its
// clock, and so may show a session whose lease has run out and that nobody has
// removed yet: its Lease is negative.
func (l *Ledger) Census(ctx context.Context) (transition.Census, error) {
	c := transition.Census{Config: l.cfg.Config}
	reply, err := censusScript.Run(ctx, l.client, allKeys(l.name)).Slice()
	if err != nil {
		return c, l.explain(ctx, "census", err)
	}
	// Read last, the configuration may be newer than the membership but not older: a roll
	// made of the two stays due if it has changed meanwhile.
	if c.Config, err = l.ReadConfig(ctx); err != nil {
		return c, err
	}
	if err = readCensus(&c, reply); err != nil {
		return c, err
	}
	for i := range c.Sessions {
		_, c.Sessions[i].Drained = c.Config.Drains(c.Sessions[i].Peer)
	}
	return c, nil
}

// ReadConfig implements transition.ConfigReader. It is one HGETALL, whatever the numbers of
// peers and partitions, and an HGET where nothing stands.
func (l *Ledger) ReadConfig(ctx context.Context) (partition.Config, error) {
	stands, err := redisconfig.Read(ctx, l.client, l.name)
	switch {
	case errors.Is(err, redisconfig.ErrNone):
		c := l.cfg.Config
		return c, l.kept(ctx, &c)
	case err != nil:
		return l.cfg.Config, fmt.Errorf("redisledger: %s: %w", l.name, err) // it says what to do
	}
	return stands, l.differs(stands)
}

// kept reads into c what partitions ask for, whether the name is paused and who is drained, as it is kept
// beside the configuration, in case that is lost: see recall and remind of ledger.lua.
func (l *Ledger) kept(ctx context.Context, c *partition.Config) error {
	kept, err := l.client.HMGet(ctx, l.keys[1], "requires", "paused", "raw", "drained").Result()
	if err != nil {
		return l.explain(ctx, "config", err)
	}
	var words [4]string
	for i, w := range kept {
		words[i], _ = w.(string) // nil: it is not there
	}
	_, asked, _ := strings.Cut(words[0], " ") // behind the protocol
	if c.Requires, err = redisconfig.ParseRequires(asked); err != nil {
		return fmt.Errorf("redisledger: %s: %w", l.name, err)
	}
	if words[1] != "" && words[1] != "0" {
		c.Paused = partition.ParsePause(words[2]) // since when is lost: what remind will write, at the latest
	}
	c.Drained = partition.ParseDrains(words[3])
	return nil
}

// readCensus reads the reply of census.lua into c.
func readCensus(c *machine.Census, reply []any) error {
	var p parser
	if len(reply) != 9 {
		p.note(fmt.Errorf("%d parts, want 9", len(reply)))
		return p.wrong("census")
	}
	for _, w := range reply[:2] {
		p.words = append(p.words, fmt.Sprint(w))
	}
	now := p.number()*1000 + p.number()/1000
	var maps [6]map[string]string // meta, sessions, leases, roll, transition, peers
	for i, part := range reply[2:8] {
		maps[i] = pairs(part)
	}
	clock := p.meta(c, maps[0], now)
	p.sessions(c, maps[1], maps[2], maps[5], clock)
	p.roll(c, maps[3])
	p.grants(c, maps[4])
	for _, r := range redisconfig.ParseRefused(texts(reply[8]), now) {
		c.Refused = append(c.Refused, machine.Refusal(r))
	}
	return p.wrong("census")
}

// texts reads a list.
func texts(list any) []string {
	words, _ := list.([]any)
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = word(w)
	}
	return out
}

// word reads a word of a reply; almost all are texts.
func word(w any) string {
	if s, ok := w.(string); ok {
		return s
	}
	return fmt.Sprint(w)
}

// pairs reads a flat list of fields and values.
func pairs(list any) map[string]string {
	words, _ := list.([]any)
	m := make(map[string]string, len(words)/2)
	for i := 0; i+1 < len(words); i += 2 {
		m[word(words[i])] = word(words[i+1])
	}
	return m
}

// meta returns what the store's clock would be, had a script advanced it now.
func (p *parser) meta(c *machine.Census, meta map[string]string, now uint64) (clock int64) {
	if meta["raw"] == "" {
		return 0
	}
	field := func(name string) int64 {
		n, err := strconv.ParseInt(meta[name], 10, 64)
		p.note(err)
		return n
	}
	c.Count, c.Membership = uint64(field("count")), uint64(field("membership"))
	passed := max(int64(now)-field("raw"), 0)
	reckoned := min(passed, field("step"))
	clock = field("clock") + reckoned
	c.Silence = time.Duration(passed-reckoned) * time.Millisecond
	c.Clock = time.Duration(clock) * time.Millisecond
	c.Grace = max(time.Duration(field("grace")-clock)*time.Millisecond, 0)
	return clock
}

func (p *parser) sessions(c *machine.Census, rows, leases, terms map[string]string, clock int64) {
	for _, s := range slices.Sorted(maps.Keys(rows)) {
		state, seat, err := parseRow(rows[s])
		p.note(err)
		if state == "expired" {
			continue // nobody: its row only says how many grants it left behind
		}
		seat.Session, seat.Terms = partition.Session(s), parseTerms(terms[s])
		parseSays(terms[s+".says"], &seat)
		seat.Strategy = terms[s+".strategy"]
		// Of who says nothing of it there are none.
		seat.Replicas, _ = strconv.Atoi(terms[s+".replicas"])
		if lease, stands := leases[s]; stands { // lost, it is over: who lives has another with the next Sync
			deadline, err := strconv.ParseInt(lease, 10, 64)
			p.note(err)
			seat.Lease = time.Duration(deadline-clock) * time.Millisecond
		}
		c.Sessions = append(c.Sessions, seat)
	}
}

// parseRow reads what ledger.lua keeps of a session.
func parseRow(row string) (state string, seat machine.Seat, err error) {
	w := strings.SplitN(row, " ", 5) // state weight stamp held peer
	if len(w) < 5 {
		return "", seat, fmt.Errorf("session %q: want state weight stamp held peer", row)
	}
	for s := machine.Live; s <= machine.Gone; s++ {
		if s.String() == w[0] {
			seat.State = s
		}
	}
	seat.Peer = w[4]
	seat.Weight, err = strconv.Atoi(w[1])
	return w[0], seat, err
}

func (p *parser) roll(c *machine.Census, roll map[string]string) {
	if roll["_"] == "" {
		return
	}
	p.words = strings.Fields(roll["_"])
	c.Roll.Version, c.Roll.Membership = p.number(), p.number()
	c.Roll.Chairs = p.chairs(roll["_.peer"])
	for field, value := range roll {
		if field == "_" || strings.HasSuffix(field, ".peer") {
			continue
		}
		m := machine.RollMember{Member: partition.Member{Session: partition.Session(field)}}
		p.note(parseAbout(roll[field+".peer"], &m.Member))
		var err error
		m.Index, m.Partitions, err = parseLine(value)
		p.note(err)
		c.Roll.Members = append(c.Roll.Members, m)
	}
	slices.SortFunc(c.Roll.Members, func(a, b machine.RollMember) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Session, b.Session))
	})
}

// arrival notes at which roll session has arrived.
func (p *parser) arrival(c *machine.Census, session partition.Session, version string) {
	n, err := strconv.ParseUint(version, 10, 64)
	p.note(err)
	for i := range c.Sessions {
		if c.Sessions[i].Session == session {
			c.Sessions[i].Arrived = n
		}
	}
}

func (p *parser) grants(c *machine.Census, grants map[string]string) {
	for id, value := range grants {
		if s, ok := strings.CutPrefix(id, "arrived:"); ok {
			p.arrival(c, partition.Session(s), value)
			continue
		}
		w := strings.Fields(value) // session epoch [waiter]
		if len(w) < 2 {
			p.note(fmt.Errorf("partition %s: %q: want session epoch waiter", id, value))
			continue
		}
		grant, err := partition.ParseGrant(id + "@" + w[1])
		p.note(err)
		o := machine.Ownership{Grant: grant, Session: partition.Session(w[0])}
		if len(w) > 2 {
			o.Waiter = partition.Session(w[2])
		}
		c.Grants = append(c.Grants, o)
	}
	slices.SortFunc(c.Grants, func(a, b machine.Ownership) int { return cmp.Compare(a.Grant.ID, b.Grant.ID) })
}
