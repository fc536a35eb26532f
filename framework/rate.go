package framework

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
)

// A Rate bounds how many handlers start under a name, over all its peers together: Tasks in Per.
// The zero value is no bound.
//
// No peer asks another for it. A partition has one owner, so each peer may start as much as the
// part of the partitions that it serves: all parts together are never more than the rate, also
// while partitions change hands. A peer saves up what it has not used for a tenth of a second,
// and always for one task; it begins with nothing. So in no span of time d more than
// rate × (d + 0.1 s) handlers start, and one more for each peer. What a peer does not use is
// not another's: where all work is in one partition, no more starts than its owner's part.
//
// Peers that are told different rates, as in a deploy that changes it, each keep their part of
// their own. Of a topic that grows while peers run a peer knows as many partitions as it had at its
// start, or was given since: until the peers are started again their parts may sum up to more than the
// rate, though not by more than the topic has grown. Another try of a task counts as another start.
type Rate struct {
	Tasks int           // 0: no bound
	Per   time.Duration // default 1 s; at most a year
}

// rateUnits are what a rate may be per, by name.
var rateUnits = []struct {
	name string
	d    time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

// ParseRate reads a rate as in 50/s, 20/m, 500/h, 10000/d or 100/15m. A number alone is per second, 0
// and nothing are no bound.
func ParseRate(s string) (Rate, error) {
	wrong := fmt.Errorf("framework: rate %q: want tasks per time, as in 50/s, 500/h or 100/15m; 0: no bound", s)
	tasks, per, timed := strings.Cut(s, "/")
	r := Rate{Per: time.Second}
	if s == "" {
		return Rate{}, nil
	}
	var err error
	if r.Tasks, err = strconv.Atoi(tasks); err != nil {
		return Rate{}, wrong
	}
	if timed {
		r.Per = 0
		for _, u := range rateUnits {
			if per == u.name {
				r.Per = u.d
			}
		}
		if r.Per == 0 {
			if r.Per, err = time.ParseDuration(per); err != nil {
				return Rate{}, wrong
			}
		}
	}
	if r.Tasks < 0 || r.Per <= 0 || r.Per > longestWait {
		return Rate{}, wrong
	}
	if r.Tasks == 0 {
		return Rate{}, nil
	}
	return r, nil
}

// String returns r as ParseRate reads it.
func (r Rate) String() string {
	if r.Tasks == 0 {
		return "0"
	}
	r = r.WithDefaults()
	for _, u := range rateUnits {
		if r.Per == u.d {
			return fmt.Sprintf("%d/%s", r.Tasks, u.name)
		}
	}
	return fmt.Sprintf("%d/%v", r.Tasks, r.Per)
}

// MarshalText writes r as String does.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads r as ParseRate does.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

// WithDefaults returns r with zero fields filled in.
func (r Rate) WithDefaults() Rate {
	if r.Per == 0 {
		r.Per = time.Second
	}
	return r
}

// Validate says what is wrong with r.
func (r Rate) Validate() error {
	if r.Tasks < 0 || r.Per < 0 || r.Per > longestWait {
		return fmt.Errorf("framework: rate of %d tasks in %v: neither must be negative, and the time at most a year", r.Tasks, r.Per)
	}
	return nil
}

const (
	// saved is how long a valve saves up for: enough for handlers that start many at a time.
	saved = 100 * time.Millisecond
	// limitedAfter is how long tasks wait for the rate before that is told, and how long none does
	// before that is.
	limitedAfter = time.Second
)

// A valve lets pass what a peer may start of its consumer's rate: a token bucket, filled by the
// partitions that the peer serves. The pool's lock guards it.
type valve struct {
	each  float64   // starts a second for each lane; 0: no bound
	total int       // partitions of the name, as far as is known
	lanes int       // that may start tasks
	level float64   // that many may start
	at    time.Time // the level is of then
	shut  bool      // nobody needs to look before the alarm's rate
	since time.Time // tasks have waited for it since then, and never none for limitedAfter; zero: none waits
	clear time.Time // none has since then; zero: one does, or since is
	told  bool      // that they do
}

func newValve(r Rate, total int) valve {
	if r.Tasks == 0 {
		return valve{}
	}
	return valve{each: float64(r.Tasks) / r.WithDefaults().Per.Seconds() / float64(total), total: total}
}

// share is how many tasks a second may start.
func (v *valve) share() float64 { return v.each * float64(v.lanes) }

// fill takes in what has come since it was asked last. What the share could not have saved up is gone,
// also if it was larger: others may be saving it.
func (v *valve) fill(now time.Time) {
	if since := now.Sub(v.at); since > 0 { // some come with a time from before they had the lock
		v.level += v.share() * since.Seconds()
		v.at = now
	}
	v.level = min(v.level, max(v.share()*saved.Seconds(), 1))
}

// serve notes that tasks of so many more lanes, or fewer, may start from now on.
func (v *valve) serve(lanes int, now time.Time) {
	v.fill(now)
	v.lanes += lanes
}

// found takes in that there is a partition id: a topic may have grown.
func (v *valve) found(id partition.ID, now time.Time) {
	if total := int(id) + 1; total > v.total {
		v.fill(now)
		v.each *= float64(v.total) / float64(total)
		v.total = total
	}
}

// most returns how many of so many may start.
func (v *valve) most(tasks int, now time.Time) int {
	if v.each == 0 {
		return tasks
	}
	v.fill(now)
	return int(min(v.level+1e-6, float64(tasks))) // what a task lacks by rounding would cost a timer of nothing
}

// start notes that so many start, or if it is negative have not started after all.
func (v *valve) start(tasks int) {
	if v.each > 0 {
		v.level -= float64(tasks)
	}
}

// due is when the next task may start, if no lane comes or goes.
func (v *valve) due() time.Time {
	wait := min((1-v.level)/v.share(), longestWait.Seconds()) // a Duration holds 292 years
	return v.at.Add(time.Duration(wait * float64(time.Second)))
}

// tell is when it is to be told that tasks wait, or that none does; zero: no time is known.
func (v *valve) tell() time.Time {
	switch {
	case !v.clear.IsZero():
		return v.clear.Add(limitedAfter)
	case v.told || v.since.IsZero():
		return time.Time{}
	}
	return v.since.Add(limitedAfter)
}

// waits notes whether ready tasks wait for the rate, and sees to it that a worker looks again when
// the next one may start. The caller is a worker that has nothing to do, and holds mu.
func (p *pool) waits(now time.Time) {
	v := &p.valve
	if p.line.first == nil {
		p.flows(now)
		return
	}
	v.clear = time.Time{}
	if v.since.IsZero() {
		v.since = now
	}
	if !v.told {
		p.wakeBy(v.tell())
	}
	v.shut = true
	p.alarm.rate = v.due()
	p.wakeBy(p.alarm.rate)
}

// flows notes that no task waits for the rate now: none is ready, or what is waits for a worker. The
// caller holds mu.
func (p *pool) flows(now time.Time) {
	if v := &p.valve; !v.since.IsZero() && v.clear.IsZero() {
		v.clear = now
		p.wakeBy(v.tell())
	}
}

// reopen has a worker look again what may start. The caller holds mu.
func (p *pool) reopen() {
	p.alarm.rate = time.Time{}
	p.valve.shut = false
	p.rouse()
}

// starts notes that tasks of so many more lanes may start from now on, or of fewer, so that the next one
// may do so earlier, or later, or that none waits. The caller holds mu.
func (p *pool) starts(lanes int, now time.Time) {
	p.valve.serve(lanes, now)
	if p.valve.shut {
		p.reopen()
	}
}

// unstarted notes that a task has not started after all, so that another may. The caller holds mu.
func (p *pool) unstarted() {
	p.valve.start(-1)
	if p.valve.shut {
		p.reopen()
	}
}

// startsNone notes that no task of l starts from now on, unless that was so before. The caller
// holds mu.
func (p *pool) startsNone(l *lane, now time.Time) {
	if !l.over() && !l.where.Grant.ID.IsUnit() {
		p.starts(-1, now)
	}
}

// limited adds to all that tasks wait for the rate, or do no more.
func (p *pool) limited(now time.Time, all []news) []news {
	v := &p.valve
	switch {
	case !come(v.tell(), now):
	case v.clear.IsZero():
		v.told = true
		all = append(all, news{event: Limited{Consumer: p.name, Rate: p.cfg.Rate, Share: v.share()}})
	default:
		v.since, v.clear = time.Time{}, time.Time{}
		if v.told {
			v.told = false
			all = append(all, news{event: Unlimited{Consumer: p.name}})
		}
	}
	return all
}
