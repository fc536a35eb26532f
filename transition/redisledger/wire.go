package redisledger

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

// top returns the highest number that the sender of r saw, unless it is greater than Lua,
// which has doubles only, can count. That is no number of any ledger: it must come
// from a fence that somebody wrote by hand, and must not stop the count of everybody.
func top(r machine.Request) string {
	const most = 1<<53 - 2
	if r.Top > most {
		return "0"
	}
	return number(r.Top)
}

// terms prints what a peer says of itself once, the lease first: ledger.lua reads that.
func terms(t machine.Terms) string {
	var l list
	for _, d := range []time.Duration{t.Lease, t.CancelGrace, t.Settle, t.Drain, t.Shutdown} {
		l.add(strconv.FormatInt(d.Milliseconds(), 10))
	}
	l.add(t.Deployment)
	return l.String()
}

// parseTerms reads what terms printed. Of what it does not understand it returns
// nothing: what a later version says is no error.
func parseTerms(s string) (t machine.Terms) {
	words := strings.SplitN(s, " ", 6)
	if len(words) < 6 {
		return t
	}
	for i, d := range []*time.Duration{&t.Lease, &t.CancelGrace, &t.Settle, &t.Drain, &t.Shutdown} {
		ms, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			return machine.Terms{}
		}
		*d = time.Duration(ms) * time.Millisecond
	}
	t.Deployment = words[5]
	return t
}

// says prints what a peer says of itself now.
func says(r machine.Request) string {
	return strings.TrimSpace(strconv.Itoa(r.Weight) + " " + wellWord(r.Unwell) + " " + string(r.Tags))
}

// way prints how a peer goes from roll to roll.
func way(r machine.Request) string {
	if !r.Barrier {
		return "-"
	}
	return number(r.Arrived)
}

func wellWord(unwell bool) string {
	if unwell {
		return "unwell"
	}
	return "well"
}

// parseSays reads what says printed into seat. A peer that does not know of it has said
// all there is in its row.
func parseSays(s string, seat *machine.Seat) {
	words := strings.Fields(s)
	if len(words) < 2 {
		return
	}
	if n, err := strconv.Atoi(words[0]); err == nil {
		seat.Weight, seat.Unwell, seat.Tags = n, words[1] == wellWord(true), partition.Tags(strings.Join(words[2:], " "))
	}
}

// request returns the arguments of sync.lua that are the request's. What the caller
// held in its last answer is named too, so that the store need not search for it.
func request(r machine.Request, before said) []any {
	var hold, release, claim, more list
	named := make(map[partition.ID]bool, len(r.Hold)+len(r.Release)+len(r.Claim))
	for _, g := range r.Hold {
		named[g.ID] = true
		hold.add(g.String())
	}
	for _, g := range r.Release {
		named[g.ID] = true
		release.add(g.String())
	}
	for _, id := range r.Claim {
		named[id] = true
		claim.add(id.String())
	}
	for _, h := range before.answer.Mine {
		if !named[h.Grant.ID] {
			more.add(h.Grant.ID.String())
		}
	}
	weight := r.Weight
	if r.Unwell {
		weight = 0
	}
	return []any{
		string(r.Session), r.State.String(), weight, r.Peer, number(r.View), top(r),
		hold.String(), release.String(), claim.String(), more.String(),
	}
}

// list joins words with spaces.
type list struct{ strings.Builder }

func (l *list) add(word string) {
	if l.Len() > 0 {
		l.WriteByte(' ')
	}
	l.WriteString(word)
}

// answer reads the reply of sync.lua. ofSources is what sources have said of the name, if the call did not say it.
func answer(reply []string) (stamp string, a machine.Answer, ofSources []any, err error) {
	p := parser{words: reply[1:]}
	stamp = p.next()
	p.times(&a)
	a.Behind = int(p.number())
	a.Paused = p.number() > 0
	a.Drained = p.number() > 0
	for w := range strings.FieldsSeq(p.next()) {
		g, wanted := strings.CutSuffix(w, "*")
		grant, err := partition.ParseGrant(g)
		p.note(err)
		a.Mine = append(a.Mine, machine.Held{Grant: grant, Wanted: wanted})
	}
	for n := p.number(); n > 0 && p.err == nil; n-- {
		ofSources = append(ofSources, p.next())
	}
	if len(p.words) > 0 {
		a.Line = &machine.Line{
			Version:    p.number(),
			Membership: p.number(),
			Replicas:   int(p.number()),
			Index:      -1,
		}
		if own := p.next(); own != "" {
			a.Line.Index, a.Line.Partitions, err = parseLine(own)
			p.note(err)
		}
	}
	return stamp, a, ofSources, p.wrong("answer")
}

// A parser reads the words of a reply in order and remembers what first was wrong.
type parser struct {
	words []string
	err   error
}

func (p *parser) note(err error) {
	if err != nil && p.err == nil {
		p.err = err
	}
}

// wrong returns that, as the error of what was read.
func (p *parser) wrong(what string) error {
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("redisledger: the %s of the store is not understood: %w", what, p.err)
}

func (p *parser) next() string {
	if len(p.words) == 0 {
		p.note(errors.New("it is too short"))
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

func (p *parser) number() uint64 {
	n, err := strconv.ParseUint(p.next(), 10, 64)
	p.note(err)
	return n
}

func (p *parser) millis() time.Duration {
	n, err := strconv.ParseInt(p.next(), 10, 64)
	p.note(err)
	return time.Duration(n) * time.Millisecond
}

// times reads what ledger.lua's times returns.
func (p *parser) times(a *machine.Answer) {
	a.Count = p.number()
	a.Sealing, a.Due = false, 0
	if len(p.words) > 0 && p.words[0] == "" {
		p.next()
	} else {
		a.Sealing, a.Due = true, p.millis()
	}
	a.Expiry = p.millis()
	a.Grace = p.millis()
	a.Longest = p.millis()
}

// line prints a member as the roll shows it: "0: 0-3 7 9".
func line(m machine.RollMember) string {
	return strings.TrimSpace(strconv.Itoa(m.Index) + ": " + partition.Ranges(m.Partitions))
}

// parseLine reads what line printed.
func parseLine(s string) (index int, ids []partition.ID, err error) {
	head, ranges, ok := strings.Cut(s, ":")
	if index, err = strconv.Atoi(head); err != nil || !ok {
		return 0, nil, fmt.Errorf("line %q: want index: partitions", s)
	}
	if ids, err = partition.ParseRanges(ranges); err != nil {
		return 0, nil, fmt.Errorf("line %.80q: %w", s, err)
	}
	return index, ids, nil
}

// about prints what the next sealer wants to know of a member beside its line.
func about(m partition.Member) string {
	way := "up"
	if m.Down {
		way = "down"
	}
	return strconv.Itoa(m.Weight) + " " + way + " " + m.Peer
}

// printChairs prints seats one a line: "seat since session tags peer", where no tags are "=".
// The name of the field they stand in makes builds that know no seats overlook it.
func printChairs(all []machine.Chair) string {
	lines := make([]string, len(all))
	for i, c := range all {
		tags := cmp.Or(c.Tags.String(), "=")
		lines[i] = fmt.Sprintf("%d %d %s %s %s", c.Seat, c.Since.Milliseconds(), c.Session, tags, strings.ReplaceAll(c.Peer, "\n", " "))
	}
	return strings.Join(lines, "\n")
}

// chairs reads what printChairs printed.
func (p *parser) chairs(text string) (all []machine.Chair) {
	const words = 5
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" {
			continue
		}
		w := strings.SplitN(line, " ", words)
		if len(w) < words {
			p.note(fmt.Errorf("seat %q: want seat since session tags peer", line))
			return all
		}
		seat, err1 := strconv.Atoi(w[0])
		since, err2 := strconv.ParseInt(w[1], 10, 64)
		// Tags of a build that let through what cannot be read are none: a census that fails
		// would keep every later roll from being sealed, and so this seat for ever.
		tags, _ := partition.ParseTags(strings.TrimPrefix(w[3], "="))
		p.note(errors.Join(err1, err2))
		all = append(all, machine.Chair{
			Seat: seat, Since: time.Duration(since) * time.Millisecond, Session: partition.Session(w[2]), Tags: tags, Peer: w[4],
		})
	}
	return all
}

// parseAbout reads what about printed into m.
func parseAbout(s string, m *partition.Member) error {
	weight, rest, _ := strings.Cut(s, " ")
	way, peer, ok := strings.Cut(rest, " ")
	n, err := strconv.Atoi(weight)
	if err != nil || !ok {
		return fmt.Errorf("member %q: want weight up|down peer", s)
	}
	m.Weight, m.Down, m.Peer = n, way == "down", peer
	return nil
}
