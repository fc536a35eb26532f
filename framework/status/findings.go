package status

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
	"github.com/countoff/countoff/transition/machine"
)

// Stranger: somebody else consumes a queue of asynq that the name has: its peers fetch nothing
// meanwhile, unless they are to sound the alarm only.
const Stranger coverage.Kind = "stranger"

// QueuePaused: asynq pauses a queue that the name has, and nothing is taken from it.
const QueuePaused coverage.Kind = "queue-paused"

// Unread: what partitions hold cannot be read, since a node of a cluster does not answer or
// another program has written their keys: nobody can work on them either.
const Unread coverage.Kind = "unread"

// Replicas: fewer replicas of the Redis of the ledger follow than its peers wait for. Who works goes on, and
// nobody gains or gives up a partition, also after a pause.
const Replicas coverage.Kind = "replicas"

// deaf is how long a replica may have said nothing and still follow: the default of min-replicas-max-lag.
const deaf = 10 * time.Second

// missing tells that the peers of census wait for more replicas than there are. Where the store does not list
// them nothing is known.
func missing(ctx context.Context, client redis.UniversalClient, name string, census transition.Census) []Finding {
	want := 0
	for _, s := range census.Sessions {
		if s.State != machine.Gone && s.Lease > 0 {
			want = max(want, s.Replicas)
		}
	}
	if want == 0 {
		return nil
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, redisconfig.Key(name))
		if err != nil {
			return nil
		}
		client = master
	}
	info, err := client.Info(ctx, "replication").Result()
	if err != nil || !strings.Contains(info, "role:master") {
		return nil
	}
	have := following(info)
	if have >= want {
		return nil
	}
	return []Finding{{Kind: Replicas, Partitions: []partition.ID{}, Text: fmt.Sprintf(
		"%d of the %d replicas that peers wait for follow the Redis of the ledger (WaitReplicas): peers that wait for so many work on with what they have, and gain or give up no partition; whose lease has run out, as in a fail-over, stands still until they follow", have, want)}}
}

// following counts the replicas that info tells of and that follow.
func following(info string) (n int) {
	for line := range strings.Lines(info) {
		name, says, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !strings.HasPrefix(name, "slave") { // slave0:ip=10.0.0.7,port=6379,state=online,offset=42,lag=1
			continue
		}
		is := make(map[string]string)
		for field := range strings.SplitSeq(says, ",") {
			what, value, _ := strings.Cut(field, "=")
			is[what] = value
		}
		lag, err := strconv.Atoi(is["lag"])
		if err == nil && is["state"] == "online" && time.Duration(lag)*time.Second <= deaf {
			n++
		}
	}
	return n
}

// unread tells of partitions that cannot be read, those of one reason together.
func unread(stats []redissource.Stat) (all []Finding) {
	place := make(map[string]int)
	for _, s := range stats {
		if s.Err == nil {
			continue
		}
		text := "what is there cannot be read, and as long as that lasts nobody can work on it: " + s.Err.Error()
		i, told := place[text]
		if !told {
			i, place[text] = len(all), len(all)
			all = append(all, Finding{Kind: Unread, Text: text})
		}
		all[i].Partitions = append(all[i].Partitions, s.ID)
	}
	return all
}

// ofAsynq finds what keeps the peers of name from its queues of asynq. Whoever else consumes them is looked for last:
// a node that does not answer may take all the time that is left.
func ofAsynq(ctx context.Context, client redis.UniversalClient, name string, cfg partition.Config, stats []redissource.Stat, inboxes []inbox) []Finding {
	q, _, err := queuestat.Read(ctx, client, name)
	if err != nil {
		return nil
	}
	queues := slices.Concat(q.Names(cfg.Total), cfg.Units)
	var answered []string // the nodes of the others would be waited for once more
	for _, s := range stats {
		if s.Err == nil {
			answered = append(answered, q.Of(s.ID))
		}
	}
	for i, queue := range cfg.Units {
		if !inboxes[i].unknown {
			answered = append(answered, queue)
		}
	}
	all := paused(ctx, client, answered)
	return append(all, strangers(ctx, client, name, queues)...)
}

// paused tells of the queues that asynq pauses.
func paused(ctx context.Context, client redis.UniversalClient, queues []string) []Finding {
	const most = 8
	var all []string
	for _, p := range queuestat.Paused(ctx, client, queues) {
		text := p.Queue
		if !p.Since.IsZero() {
			text += fmt.Sprintf(" (since %s)", p.Since.UTC().Format(time.RFC3339))
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return nil
	}
	more := ""
	if len(all) > most {
		more = fmt.Sprintf(" and %d more", len(all)-most)
		all = all[:most]
	}
	return []Finding{{Kind: QueuePaused, Partitions: []partition.ID{}, Text: fmt.Sprintf(
		"asynq pauses %s%s: nothing is taken from there until that ends (asynqmon, asynq queue unpause, Inspector.UnpauseQueue)", strings.Join(all, ", "), more)}}
}

// strangers finds who consumes queues of name beside its peers. Where the store does not list
// them nothing is known, as of tasks in it.
func strangers(ctx context.Context, client redis.UniversalClient, name string, queues []string) (all []Finding) {
	servers, _ := queuestat.Servers(ctx, client) // the doctor says why
	found := queuestat.Strangers(servers, name, queues)
	what := func(s queuestat.Stranger) string {
		if s.Peer != "" {
			return fmt.Sprintf("a peer of the name %s consumes queue %q", s.Peer, s.Queue)
		}
		return fmt.Sprintf("a plain asynq.Server consumes queue %q", s.Queue)
	}
	alike := make(map[string]int) // a fleet of hundreds is one finding
	for _, s := range found {
		alike[what(s)]++
	}
	for _, s := range found {
		n, untold := alike[what(s)]
		if !untold {
			continue
		}
		delete(alike, what(s))
		more := ""
		if n > 1 {
			more = fmt.Sprintf(", and %d more", n-1)
		}
		all = append(all, Finding{Kind: Stranger, Partitions: []partition.ID{},
			Text: fmt.Sprintf("%s (host %s, pid %d%s): the peers fetch nothing while it is there, unless they only sound the alarm", what(s), s.Host, s.PID, more)})
	}
	return all
}

func (f Finding) String() string {
	text := coverage.Finding{Kind: f.Kind, Partitions: f.Partitions, Units: f.Units, Text: f.Text}.String()
	since := (time.Duration(f.ForMS) * time.Millisecond).Round(time.Second)
	switch {
	case since == 0: // it has just begun, or nobody knows
		return text
	case f.Kind == coverage.Refused:
		return fmt.Sprintf("%s, %v ago", text, since)
	}
	return fmt.Sprintf("%s, for %v now", text, since)
}

// lookOf puts together what coverage is judged by. The stats were read before census.
func lookOf(census transition.Census, stats []redissource.Stat) coverage.Look {
	l := coverage.Look{Census: census}
	for _, s := range stats {
		if s.Err != nil {
			continue
		}
		l.Data = append(l.Data, coverage.Datum{ID: s.ID, Fence: s.Fence, Waiting: s.Pending+s.InFlight > 0})
	}
	return l
}

// A past is the history of a name, which is read once and only if somebody asks for it. How long something lasts
// it says by the ledger's own clock: the wall clocks, of the store or of peers, may be set, or differ.
type past struct {
	ledger  transition.Historian // nil: there is no history
	now     time.Duration        // of the census, with the time in which nobody has called
	read    bool
	history machine.History
}

func (p *past) load(ctx context.Context) (err error) {
	if p.read || p.ledger == nil {
		return nil
	}
	if p.history, err = p.ledger.History(ctx, machine.HistoryKept); err != nil {
		return err
	}
	p.read = true
	return nil
}

// since says how long ago it was at; what the census does not know yet has just been.
func (p *past) since(at time.Duration) time.Duration { return max(p.now-at, 0) }

// sealed returns for how many ms the roll of that version has stood; -1: nobody knows.
func (p *past) sealed(ctx context.Context, version uint64) (int64, error) {
	if err := p.load(ctx); err != nil {
		return 0, err
	}
	for _, e := range p.history {
		if e.What == machine.RollMade && e.Version == version {
			return p.since(e.Clock).Milliseconds(), nil
		}
	}
	return -1, nil
}

// together returns for how long all of sessions have been there; negative: longer than the
// history reaches back.
func (p *past) together(sessions []partition.Session) time.Duration {
	for _, e := range slices.Backward(p.history) {
		if e.What == machine.Came && slices.Contains(sessions, e.Session) {
			return p.since(e.Clock)
		}
	}
	return -1
}

// findings judges l. Only if something lasts that may last for a while, the history is
// read to find out for how long.
func findings(ctx context.Context, then *past, l coverage.Look) ([]Finding, error) {
	for _, c := range coverage.Conditions(l) {
		if c.Bound == 0 {
			continue
		}
		if err := then.load(ctx); err != nil {
			return nil, err
		}
		break
	}
	since, over := begun(then.history), leasesOver(l.Census)
	out := []Finding{}
	for _, f := range coverage.Judge(l, func(c coverage.Condition) time.Duration {
		from := since.free
		switch {
		case c.Kind == coverage.Unwell:
			return -1 // of the name, and in no history
		case c.Kind == coverage.SameID:
			return then.together(c.Sessions)
		case c.Handover && l.Census.Config.Paused != partition.Pause{} && len(then.history) > 0:
			return then.since(since.paused)
		case c.Handover:
			from = since.asked
		case c.Kind == coverage.Overdue:
			from = since.granted
		}
		if at, ok := from[c.ID]; ok {
			return then.since(at)
		}
		if d, ok := over[c.ID]; ok && (c.Kind == coverage.Unowned || c.Kind == coverage.NoneEligible) {
			return d
		}
		return -1
	}) {
		ids := f.Partitions
		if ids == nil {
			ids = []partition.ID{} // scripts want lists, not null
		}
		out = append(out, Finding{Kind: f.Kind, Partitions: ids, Units: f.Units, Text: f.Text, ForMS: f.For.Milliseconds()})
	}
	return out, nil
}

// leasesOver says for how long partitions are free because the lease of their owner is over.
// Until somebody removes that one the history does not tell, and what has just begun would
// be taken for something of which nobody knows when it began.
func leasesOver(c machine.Census) map[partition.ID]time.Duration {
	over := make(map[partition.Session]time.Duration)
	for _, s := range c.Sessions {
		if s.Lease <= 0 {
			over[s.Session] = -s.Lease
		}
	}
	of := make(map[partition.ID]time.Duration)
	for _, g := range c.Grants {
		if d, ok := over[g.Session]; ok {
			of[g.Grant.ID] = d
		}
	}
	return of
}

// moments says of partitions since when something is so, as far as a history tells.
type moments struct {
	free, granted, asked map[partition.ID]time.Duration
	paused               time.Duration // the name; if the history does not reach back so far, where it begins
}

func begun(h machine.History) moments {
	m := moments{free: make(map[partition.ID]time.Duration), granted: make(map[partition.ID]time.Duration), asked: make(map[partition.ID]time.Duration)}
	if len(h) > 0 {
		m.paused = h[0].Clock
	}
	owner, waiter := make(map[partition.ID]partition.Session), make(map[partition.ID]partition.Session)
	rolls, under := 0, make(map[partition.ID]int) // how many were sealed, and when the waiter asked
	waits := func(id partition.ID, who partition.Session, at time.Duration) {
		// One that asks again did not want it meanwhile. After another, who lives, it is the same wait, unless
		// a roll was between those under which they asked: it may have left it with its owner.
		if former, ok := waiter[id]; !ok || former == who || rolls > under[id]+1 {
			m.asked[id] = at
		}
		waiter[id], under[id] = who, rolls
	}
	waitsNoMore := func(id partition.ID) {
		delete(m.asked, id)
		delete(waiter, id)
	}
	for _, e := range h {
		switch e.What {
		case machine.RollMade:
			rolls++
		case machine.Went, machine.Expired:
			for id, s := range waiter {
				if s == e.Session {
					waitsNoMore(id)
				}
			}
			for id, s := range owner {
				if s == e.Session {
					m.free[id] = e.Clock
				}
			}
		case machine.Forgot, machine.Made: // its clock began anew, and what of all that is so still is not known yet
			for id := range m.free {
				m.free[id] = e.Clock
			}
			clear(m.asked)
			clear(m.granted)
			clear(waiter)
			clear(owner)
			m.paused = e.Clock
		case machine.Rests:
			m.paused = e.Clock
		case machine.GoesOn: // nobody was to have it before
			for id := range m.free {
				m.free[id] = e.Clock
			}
		}
		for _, p := range e.Grants {
			id := p.Grant.ID
			switch e.What {
			case machine.Asked:
				waits(id, e.Session, e.Clock)
			case machine.GivenUp:
				delete(owner, id)
				waitsNoMore(id)
				m.free[id] = e.Clock
			default: // somebody got it
				delete(m.free, id)
				waitsNoMore(id)
				owner[id], m.granted[id] = e.Session, e.Clock
			}
		}
	}
	return m
}
