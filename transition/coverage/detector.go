package coverage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
)

// A Finding is something that is wrong for longer than it may be.
type Finding struct {
	Kind Kind
	// Partitions that it is about, ascending; none if it is about the name.
	Partitions []partition.ID
	Units      []string // the names of those that are ingress lists: the last of Partitions
	Text       string   // of the first of them
	// For is how long the one that has been seen so longest has been; of Refused, how long ago the latest was.
	For time.Duration
}

func (f Finding) String() string {
	if where := f.Where(); where != "" {
		return string(f.Kind) + ": " + where + ": " + f.Text
	}
	return string(f.Kind) + ": " + f.Text
}

// Where says what it is about, for people: partitions by their numbers, ingress lists by
// their names; "" if it is about the name.
func (f Finding) Where() string {
	var parts []string
	switch ids := f.Partitions[:len(f.Partitions)-len(f.Units)]; len(ids) {
	case 0:
	case 1:
		parts = append(parts, "partition "+ids[0].String())
	default:
		parts = append(parts, "partitions "+partition.Ranges(ids))
	}
	if len(f.Units) > 0 {
		parts = append(parts, "ingress "+strings.Join(f.Units, " "))
	}
	return strings.Join(parts, ", ")
}

// A Detector remembers since when conditions last. The zero value is ready. It must not
// be used concurrently.
type Detector struct {
	since map[string]time.Duration
	told  map[string]Kind
	// The roll that was seen last, and since when: who is named by a new one has to ask
	// first.
	roll      uint64
	rollSince time.Duration
}

// Look tells what was seen at the instant now of any clock that only goes forward. It
// returns what is wrong that was not returned before, and the kinds of which nothing is
// wrong any more.
func (d *Detector) Look(now time.Duration, l Look) (found []Finding, over []Kind) {
	if l.Census.Roll.Version != d.roll {
		d.roll, d.rollSince = l.Census.Roll.Version, now
	}
	b := bounds(l.Census)
	since, told := make(map[string]time.Duration), make(map[string]Kind)
	fresh := make(map[Kind][]aged)
	for _, c := range Conditions(l) {
		key := c.key()
		clock := fmt.Sprint(key, c.Handover) // whoever is handed a partition has its own time to open it
		at, seen := d.since[clock]
		if !seen {
			at = now
		}
		since[clock] = at
		if c.Kind == Unowned && now-d.rollSince < b.beat+b.settle {
			c.Bound = max(c.Bound, b.takeover)
		}
		_, before := d.told[key]
		if !before && now-at < c.Bound {
			continue
		}
		told[key] = c.Kind
		if !before {
			fresh[c.Kind] = append(fresh[c.Kind], aged{c, max(now-at, c.Ago)})
		}
	}
	for _, kind := range Kinds() {
		if holds(d.told, kind) && !holds(told, kind) {
			over = append(over, kind)
		}
		found = append(found, findings(kind, fresh[kind])...)
	}
	d.since, d.told = since, told
	return found, over
}

func holds(told map[string]Kind, kind Kind) bool {
	return slices.Contains(slices.Collect(maps.Values(told)), kind)
}

// Suspects reports whether something was seen that may become a finding: another look
// should come soon.
func (d *Detector) Suspects() bool { return len(d.since) > len(d.told) }

// aged is a condition and how long it lasts.
type aged struct {
	Condition
	age time.Duration
}

// findings puts conditions of one kind together: those with the same text are one finding. Of
// who was refused, the latest is named: a fleet, or a program that is started again and again, is one too.
func findings(kind Kind, all []aged) []Finding {
	var out []Finding
	at, alike := make(map[string]int), make(map[string]int)
	for _, c := range all {
		alike[c.Text]++
	}
	for _, c := range all {
		i, ok := at[c.Text]
		if !ok {
			i = len(out)
			at[c.Text] = i
			f := Finding{Kind: kind, Text: c.Text, For: max(c.age, 0)} // a store's clock may jump back, and nobody may know
			if c.Who != "" {
				f.Text = c.Who + ": " + c.Text
				if n := alike[c.Text] - 1; n > 0 {
					f.Text = fmt.Sprintf("%s, and %d more: %s", c.Who, n, c.Text)
				}
			}
			out = append(out, f)
		}
		if kind != Refused {
			out[i].For = max(out[i].For, c.age)
		}
		if kind.partitions() {
			out[i].Partitions = append(out[i].Partitions, c.ID)
			if c.Unit != "" {
				out[i].Units = append(out[i].Units, c.Unit)
			}
		}
	}
	return out
}

// Judge returns what is wrong in one look, for somebody who has not looked before; age
// says how long a condition has lasted as far as it can be known, or negative: then
// what nothing under way explains is taken as wrong, and so is what does not pass by itself.
func Judge(l Look, age func(Condition) time.Duration) []Finding {
	wrong := make(map[Kind][]aged)
	for _, c := range Conditions(l) {
		lasts := c.Ago
		if c.Bound > 0 {
			lasts = age(c)
			passes := (c.Explained || c.Kind == Overdue) && c.Kind != Unwell && c.Kind != NoneEligible
			if lasts >= 0 && lasts < c.Bound || lasts < 0 && passes {
				continue
			}
		}
		wrong[c.Kind] = append(wrong[c.Kind], aged{c, lasts})
	}
	var out []Finding
	for _, kind := range Kinds() {
		out = append(out, findings(kind, wrong[kind])...)
	}
	return out
}
