package jobs

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/countoff/countoff/sources/jobs/ticks"
)

var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Schedule returns the instants of spec in zone; see [Entry].
//
// Where the clocks of the zone change: an expression that names hours has each of its times
// of the day once, so that what is daily comes once a day. A time that the clocks skip comes
// as much later as they skip; one that they repeat comes the first time. An expression for
// every hour goes by real time.
func Schedule(spec, zone string) (ticks.Schedule, error) {
	location, zoneErr := parseZone(zone)
	s, specErr := parseSpec(spec, location)
	if err := errors.Join(zoneErr, specErr); err != nil {
		return nil, err
	}
	return s, nil
}

// parseZone returns UTC with an error, so that what is wrong with the spec can be said too.
func parseZone(zone string) (*time.Location, error) {
	if zone == "" || zone == "Local" {
		return time.UTC, fmt.Errorf("zone %q: say the time zone, as in UTC or Europe/Berlin", zone)
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return time.UTC, fmt.Errorf(`zone %q: %w (if the image has no time zones: import _ "time/tzdata")`, zone, err)
	}
	return location, nil
}

func parseSpec(spec string, location *time.Location) (ticks.Schedule, error) {
	spec = strings.TrimSpace(spec)
	if strings.Contains(spec, "TZ=") {
		return nil, fmt.Errorf("spec %q: the time zone stands in Zone", spec)
	}
	if d, ok := strings.CutPrefix(spec, "@every "); ok {
		return parseEvery(spec, strings.TrimSpace(d))
	}
	parsed, err := parser.Parse(spec)
	if err != nil {
		return nil, fmt.Errorf("spec %q: %w", spec, err)
	}
	fields, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("spec %q: not a set of instants", spec)
	}
	s := zoned{*fields, location}
	if s.Next(time.Unix(0, 0)).IsZero() {
		return nil, fmt.Errorf("spec %q: it never comes", spec)
	}
	return s, nil
}

// An every is the multiples of a duration since 1970. Counted from when a peer began, or
// from the last tick, each peer would have instants of its own.
type every time.Duration

func parseEvery(spec, text string) (ticks.Schedule, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, fmt.Errorf("spec %q: %w", spec, err)
	}
	if d < time.Second || d%time.Second != 0 {
		return nil, fmt.Errorf("spec %q: want whole seconds, at least one", spec)
	}
	return every(d), nil
}

func (e every) Next(t time.Time) time.Time {
	s := int64(time.Duration(e) / time.Second)
	n := t.Unix() / s
	if t.Unix()%s < 0 { // before 1970
		n--
	}
	return time.Unix((n+1)*s, 0)
}

// A zoned schedule is a cron expression in a time zone. The parser's own Next finds its way
// through a change of the clocks by steps of hours, and loses ticks where they change by half
// an hour. Here it is only asked about stretches of time in which the clocks do not change.
type zoned struct {
	fields   cron.SpecSchedule
	location *time.Location
}

// reach is how far Next looks: from the 29th of February to the next one may be 8 years.
const reach = 9 * 366 * 24 * time.Hour

func (z zoned) Next(t time.Time) time.Time {
	over := t.Add(reach)
	for u := t.Truncate(time.Second).Add(time.Second); u.Before(over); {
		start, end := u.In(z.location).ZoneBounds()
		if !end.IsZero() && !end.After(u) {
			// Where a rule goes on past the table of a zone (2038 as a rule) Go lets every year
			// end after 365 days: on the last of a leap year it says that the day was over.
			end = u.Truncate(24 * time.Hour).Add(24 * time.Hour)
		}
		if at := z.within(u, start); !at.IsZero() && (end.IsZero() || at.Before(end)) {
			return at
		}
		if later := u.Add(4 * 365 * 24 * time.Hour); end.IsZero() || end.After(later) {
			u = later // the parser's Next looks ahead for five years
		} else {
			u = end
		}
	}
	return time.Time{}
}

// within returns the first tick from u on by the clocks that stand as they are since start.
func (z zoned) within(u, start time.Time) time.Time {
	now := offset(u, z.location)
	if !z.namesHours() || start.IsZero() {
		return z.from(u, now)
	}
	before := offset(start.Add(-time.Second), z.location)
	change := start.Add(time.Duration(max(now-before, before-now)) * time.Second)
	if !u.Before(change) || now == before {
		return z.from(u, now)
	}
	if now < before { // what they repeat was had
		return z.from(change, now)
	}
	at := z.from(u, now)
	if skipped := z.from(u, before); skipped.Before(change) && !skipped.IsZero() && (at.IsZero() || skipped.Before(at)) {
		return skipped
	}
	return at
}

// from returns the first tick from u on by clocks that are offset seconds ahead of UTC for
// good.
func (z zoned) from(u time.Time, offset int) time.Time {
	z.fields.Location = time.FixedZone("", offset)
	return z.fields.Next(u.Add(-time.Second))
}

// namesHours reports whether there is an hour of the day without a tick.
func (z zoned) namesHours() bool {
	const day = 1<<24 - 1
	return z.fields.Hour&day != day
}

func offset(t time.Time, location *time.Location) int {
	_, seconds := t.In(location).Zone()
	return seconds
}
