package demo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/countoff/countoff/examples/mail-sender/mailbox"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
)

// A Report is what the demo found out. Its JSON is the last line of demo --json.
type Report struct {
	Enqueued   int `json:"enqueued"`
	Delivered  int `json:"delivered"`  // different mails that the SMTP server accepted
	Lost       int `json:"lost"`       // enqueued and never accepted
	Duplicated int `json:"duplicated"` // acceptances beyond a mail's first
	// InFlightAtCrash counts the mails whose DATA the killed peer had begun and that
	// were open in the store right after its end: what a crash may double.
	InFlightAtCrash int `json:"in_flight_at_crash"`
	// OutOfOrder counts mails whose first delivery came after that of a later mail
	// to the same recipient, and Overlapped those that began while another to the
	// same recipient was being delivered.
	OutOfOrder int `json:"out_of_order"`
	Overlapped int `json:"overlapped"`
	Handovers  int `json:"handovers"` // partitions that went from one living peer to another
	Takeovers  int `json:"takeovers"` // partitions that went from the killed peer to another
	// HandoverPause is how long work waited in a partition that was handed over,
	// from the last delivery by the old owner to the first by the new.
	HandoverPause Quantiles `json:"handover_pause_ms"`
	// TakeoverMS is the time from the kill until every partition of the killed peer
	// was served again; TakeoverBoundMS is what the lease promises.
	TakeoverMS      int64 `json:"takeover_ms"`
	TakeoverBoundMS int64 `json:"takeover_bound_ms"`
	// UnmovedPauseMS is the longest time in which a partition that did not move had
	// work waiting and started none.
	UnmovedPauseMS int64 `json:"unmoved_pause_ms"`
	DurationMS     int64 `json:"duration_ms"`
}

// Quantiles of a set of durations, in milliseconds.
type Quantiles struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
}

// Verdict returns what does not hold, or nil.
func (r Report) Verdict() error {
	var faults []string
	if r.Lost > 0 {
		faults = append(faults, fmt.Sprintf("%d mails were lost", r.Lost))
	}
	if r.OutOfOrder > 0 {
		faults = append(faults, fmt.Sprintf("%d mails left out of their recipient's order", r.OutOfOrder))
	}
	if r.Overlapped > 0 {
		faults = append(faults, fmt.Sprintf("%d mails left while another to the same recipient was being sent", r.Overlapped))
	}
	if r.Duplicated > r.InFlightAtCrash {
		faults = append(faults, fmt.Sprintf("%d mails were doubled, more than the %d in flight at the crash "+
			"(a peer that gets no time for half of its lease counts as dead: is the machine busy?)", r.Duplicated, r.InFlightAtCrash))
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("the demo's numbers do not hold: %s", strings.Join(faults, "; "))
}

// JSON returns the report as one line.
func (r Report) JSON() (string, error) {
	b, err := json.Marshal(r)
	return string(b), err
}

// Lines returns the report for people.
func (r Report) Lines() []string {
	return []string{
		fmt.Sprintf("enqueued %d, delivered %d, lost %d", r.Enqueued, r.Delivered, r.Lost),
		fmt.Sprintf("delivered twice %d, of %d in flight when a peer was killed", r.Duplicated, r.InFlightAtCrash),
		fmt.Sprintf("out of order %d, two at once to one recipient %d", r.OutOfOrder, r.Overlapped),
		fmt.Sprintf("%s handed over: work waited %d ms (p50), %d ms (p99)", partitionmap.Plural(r.Handovers, "partition"), r.HandoverPause.P50, r.HandoverPause.P99),
		fmt.Sprintf("%s taken over from the killed peer within %d ms (bound %d ms)", partitionmap.Plural(r.Takeovers, "partition"), r.TakeoverMS, r.TakeoverBoundMS),
		fmt.Sprintf("longest pause of a partition that did not move: %d ms", r.UnmovedPauseMS),
	}
}

// A sent is a mail that was put into the queue.
type sent struct {
	id, key string
	at      partition.ID
	when    time.Time
}

// A tally is everything that was observed.
type tally struct {
	mails      []sent // in the order of their enqueuing
	deliveries []mailbox.Delivery
	moves      []move
	inFlight   int // at the crash
	takeover   time.Duration
}

// A move is a change of a partition's owner, as the observer saw it.
type move struct {
	id       partition.ID
	from, to string // peer ids
	when     time.Time
	crash    bool // from was killed
}

// taskOf returns the task id in a Message-ID of the sender.
func taskOf(messageID string) string {
	id, _, _ := strings.Cut(messageID, "@")
	return id
}

// report counts.
func (t tally) report() Report {
	r := Report{Enqueued: len(t.mails), InFlightAtCrash: t.inFlight, TakeoverMS: t.takeover.Milliseconds()}
	first := map[string]mailbox.Delivery{} // by task
	for _, d := range t.accepted() {
		id := taskOf(d.MessageID)
		if _, again := first[id]; again {
			r.Duplicated++
			continue
		}
		first[id] = d
	}
	for _, m := range t.mails {
		if _, ok := first[m.id]; ok {
			r.Delivered++
		} else {
			r.Lost++
		}
	}
	r.OutOfOrder, r.Overlapped = t.order(first)
	var pauses []time.Duration
	for _, m := range t.moves {
		if m.crash {
			r.Takeovers++
			continue
		}
		r.Handovers++
		if p, ok := t.pause(m); ok {
			pauses = append(pauses, p)
		}
	}
	r.HandoverPause = Quantiles{P50: quantile(pauses, 0.50), P99: quantile(pauses, 0.99)}
	r.UnmovedPauseMS = t.unmoved().Milliseconds()
	return r
}

// accepted returns the deliveries that the server accepted, by the time they began.
func (t tally) accepted() []mailbox.Delivery {
	var out []mailbox.Delivery
	for _, d := range t.deliveries {
		if d.Accepted {
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(a, b mailbox.Delivery) int { return a.Began.Compare(b.Began) })
	return out
}

// order counts first deliveries that came late in their recipient's order, and
// deliveries that overlapped another to the same recipient.
func (t tally) order(first map[string]mailbox.Delivery) (late, overlapped int) {
	type place struct {
		seq int
		d   mailbox.Delivery
	}
	recipients := map[string][]place{}
	for seq, m := range t.mails {
		if d, ok := first[m.id]; ok {
			recipients[m.key] = append(recipients[m.key], place{seq, d})
		}
	}
	for _, list := range recipients {
		slices.SortStableFunc(list, func(a, b place) int {
			return cmp.Or(a.d.Began.Compare(b.d.Began), cmp.Compare(a.d.Seq, b.d.Seq))
		})
		newest := -1
		var until time.Time
		for _, p := range list {
			if p.seq < newest {
				late++
			}
			newest = max(newest, p.seq)
			if p.d.Began.Before(until) {
				overlapped++
			}
			if p.d.Ended.After(until) {
				until = p.d.Ended
			}
		}
	}
	return late, overlapped
}

// A start is a delivery in its partition.
type start struct {
	began, ended time.Time
	queued       time.Time
	peer         string
}

// starts returns the deliveries of a partition, by the time they began.
func (t tally) starts(id partition.ID) []start {
	queued := map[string]time.Time{}
	for _, m := range t.mails {
		if m.at == id {
			queued[m.id] = m.when
		}
	}
	var out []start
	for _, d := range t.accepted() {
		if at, ok := queued[taskOf(d.MessageID)]; ok {
			out = append(out, start{began: d.Began, ended: d.Ended, queued: at, peer: d.Client})
		}
	}
	return out
}

// waited is how long work waited before starts[i] began, but not before since.
func waited(starts []start, i int, since time.Time) time.Duration {
	earliest := starts[i].queued
	for _, s := range starts[i:] {
		if s.queued.Before(earliest) {
			earliest = s.queued
		}
	}
	if earliest.Before(since) {
		earliest = since
	}
	return max(0, starts[i].began.Sub(earliest))
}

// pause is how long work waited because of m: from the last delivery of the old
// owner, or from when there was work, to the first delivery of the new one.
func (t tally) pause(m move) (time.Duration, bool) {
	starts := t.starts(m.id)
	for i, s := range starts {
		if s.peer != m.to || i == 0 || starts[i-1].peer != m.from || distance(s.began, m.when) > 10*time.Second {
			continue
		}
		return waited(starts, i, starts[i-1].ended), true
	}
	return 0, false // no work came after it
}

// unmoved is the longest time in which a partition that did not move had work
// waiting and started none.
func (t tally) unmoved() time.Duration {
	ids := map[partition.ID]bool{}
	for _, m := range t.mails {
		ids[m.at] = true
	}
	var longest time.Duration
	for id := range ids {
		starts := t.starts(id)
		for i := 1; i < len(starts); i++ {
			if starts[i].peer == starts[i-1].peer && !t.movedBetween(id, starts[i-1].began, starts[i].began) {
				longest = max(longest, waited(starts, i, starts[i-1].began))
			}
		}
	}
	return longest
}

func (t tally) movedBetween(id partition.ID, a, b time.Time) bool {
	return slices.ContainsFunc(t.moves, func(m move) bool {
		return m.id == id && m.when.After(a) && m.when.Before(b)
	})
}

func distance(a, b time.Time) time.Duration { return a.Sub(b).Abs() }

// quantile returns the q-th quantile in milliseconds, the nearest rank.
func quantile(d []time.Duration, q float64) int64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[max(0, int(math.Ceil(q*float64(len(d))))-1)].Milliseconds()
}
