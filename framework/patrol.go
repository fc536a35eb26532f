package framework

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
)

// A Survey reads who may fetch and settle in the partitions and units ids at the data, and
// whether anything waits there. It may leave some out; they are asked for again. It should not
// leave out the first if it can be read: what waits to be opened comes before the rest. It is called by one
// goroutine of each run of a consumer.
type Survey func(ctx context.Context, ids []partition.ID) ([]coverage.Datum, error)

// WithSurvey lets one peer, the first by index that works, look once in a beat whether every partition
// has one owner, whether all peers belong together and whether somebody was refused,
// and tell it as [Uncovered] and [Covered]. Default: it looks at the ledger alone, and only if
// there is an observer; two owners at the data and partitions that nobody opens are not seen.
func WithSurvey(s Survey) Option { return func(c *Consumer) { c.survey = s } }

// dataless is the survey where the ledger says all that is known.
func dataless(context.Context, []partition.ID) ([]coverage.Datum, error) { return nil, nil }

// surveyed is how many partitions and units one look asks the data for; more take several looks,
// in turn.
const surveyed = 1024

// A patrol looks at a name from time to time. It belongs to one goroutine.
type patrol struct {
	name     string
	survey   Survey
	timing   transition.Timing
	layout   partition.Config // as it was seen last: a broker may add partitions
	view     func() partition.View
	lead     lead
	observe  func(Event)
	detector coverage.Detector
	began    time.Time      // later by what it stood still since
	next     int            // the place in the layout that the next look begins with
	again    []partition.ID // what that one asks for before
	wrong    map[coverage.Kind]time.Time
	data     map[partition.ID]coverage.Datum
}

// run looks until ctx ends.
func (p *patrol) run(ctx context.Context) {
	p.began, p.wrong = time.Now(), make(map[coverage.Kind]time.Time)
	p.data = make(map[partition.ID]coverage.Datum)
	defer p.relieved()
	last, wait := p.began, p.timing.Beat()
	for sleep(ctx, wait) {
		leads := p.leads(ctx)
		// Both it and a look take a beat at most: who needs longer stood still, as a process that is stopped, and
		// what was seen before has not been seen to last.
		if stood := time.Since(last) - wait - 2*p.timing.Beat(); stood > 0 {
			p.began = p.began.Add(stood)
		}
		last = time.Now()
		if !leads {
			// Another peer looks. What it saw is not known here, so that a peer which comes to
			// this again begins anew.
			p.relieved()
			p.detector, wait = coverage.Detector{}, p.timing.Beat()
			clear(p.data)
			continue
		}
		wait = p.look(ctx)
	}
}

func (p *patrol) leads(ctx context.Context) bool {
	inner, cancel := context.WithTimeout(ctx, p.timing.Beat())
	defer cancel()
	return p.lead.leads(inner, p.view())
}

// relieved tells that what was wrong is another's to tell from now on.
func (p *patrol) relieved() {
	if len(p.wrong) > 0 {
		clear(p.wrong)
		p.observe(Relieved{Consumer: p.name})
	}
}

// look looks once and returns how long to wait for the next time. A look that fails is
// left out: that a store does not answer is told by others.
func (p *patrol) look(ctx context.Context) time.Duration {
	beat, start := p.timing.Beat(), time.Now()
	inner, cancel := context.WithTimeout(ctx, beat)
	defer cancel()
	ids := p.turn()
	data, err := p.survey(inner, ids) // before the census: see coverage.Look
	if err != nil {
		return beat
	}
	// An older fence is still good to compare: it can only be too small. What waited then
	// need not wait now, but that what was asked for first, and could not be read, is over nobody knows.
	_, told := p.wrong[coverage.Overdue]
	for id, d := range p.data {
		d.Waiting = d.Waiting && told && len(p.again) > 0 && id == p.again[0]
		p.data[id] = d
	}
	for _, d := range data {
		p.data[d.ID] = d
	}
	census, err := p.lead.ledger.Census(inner)
	if err != nil || time.Since(start) > beat { // what it says is of before this peer stood still
		return beat
	}
	p.layout = census.Config
	p.again = unopened(census, p.data, p.again)
	look := coverage.Look{Census: census, Data: slices.Collect(maps.Values(p.data))}
	found, over := p.detector.Look(time.Since(p.began), look)
	for _, f := range found {
		if _, was := p.wrong[f.Kind]; !was {
			p.wrong[f.Kind] = time.Now()
		}
		p.observe(Uncovered{Consumer: p.name, Finding: f})
	}
	for _, kind := range over {
		p.observe(Covered{Consumer: p.name, Kind: kind, Took: time.Since(p.wrong[kind])})
		delete(p.wrong, kind)
	}
	if p.detector.Suspects() {
		return min(beat, p.timing.Settle)
	}
	return beat
}

// unopened returns partitions and units with tasks that who was granted them has not opened, those of before first.
// That is wrong only if it lasts: each look has to ask for them, or they would be let off whenever it is
// the turn of others, or another one waits for a moment. They are at most half of a look.
func unopened(c transition.Census, data map[partition.ID]coverage.Datum, before []partition.ID) (ids []partition.ID) {
	for _, g := range c.Grants {
		d := data[g.Grant.ID]
		if d.Waiting && d.Fence != (partition.Token{Epoch: g.Grant.Epoch, Session: g.Session}) {
			ids = append(ids, g.Grant.ID)
		}
	}
	place := make(map[partition.ID]int, len(before))
	for i, id := range before {
		place[id] = i - len(before)
	}
	slices.SortFunc(ids, func(a, b partition.ID) int { return cmp.Or(cmp.Compare(place[a], place[b]), cmp.Compare(a, b)) })
	return ids[:min(len(ids), surveyed/2)]
}

// turn returns the partitions and units to ask for now.
func (p *patrol) turn() []partition.ID {
	all := p.layout.IDs()
	ids := slices.Clone(p.again)
	for len(ids) < min(surveyed, len(all)) {
		id := all[p.next%len(all)] // there may be fewer than at the last look
		if !slices.Contains(p.again, id) {
			ids = append(ids, id)
		}
		p.next = (p.next + 1) % len(all)
	}
	return ids
}
