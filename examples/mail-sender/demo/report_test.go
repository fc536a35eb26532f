package demo

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/examples/mail-sender/mailbox"
	"github.com/countoff/countoff/partition"
)

var zero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }

// queued is a mail to key in a partition, enqueued at ms.
func queued(id, key string, p partition.ID, ms int) sent {
	return sent{id: id, key: key, at: p, when: at(ms)}
}

// delivered is an accepted delivery of 10 ms by peer that began at ms.
func delivered(id, peer string, ms int) mailbox.Delivery {
	return mailbox.Delivery{MessageID: id + "@example.com", Client: peer, Began: at(ms), Ended: at(ms + 10), Accepted: true}
}

// tallyOf is three mails to ann and one to bob, delivered as they should be.
func tallyOf() tally {
	t := tally{
		mails: []sent{queued("a1", "ann", 0, 0), queued("b1", "bob", 1, 0), queued("a2", "ann", 0, 10), queued("a3", "ann", 0, 20)},
		deliveries: []mailbox.Delivery{
			delivered("a1", "p1", 100), delivered("b1", "p1", 105), delivered("a2", "p1", 120), delivered("a3", "p2", 200),
		},
		moves: []move{{id: 0, from: "p1", to: "p2", when: at(180)}},
	}
	for i := range t.deliveries {
		t.deliveries[i].Seq = i
	}
	return t
}

func TestReport(t *testing.T) {
	r := tallyOf().report()
	if r.Verdict() != nil {
		t.Error(r.Verdict())
	}
	want := Report{
		Enqueued: 4, Delivered: 4, Handovers: 1,
		HandoverPause:  Quantiles{P50: 70, P99: 70}, // a2 ended at 130, a3 began at 200
		UnmovedPauseMS: 20,                          // a2 waited from the begin of a1 on
	}
	if r != want {
		t.Errorf("%+v\nwant %+v", r, want)
	}
}

func TestReportOfOneSaysOne(t *testing.T) {
	got := strings.Join(Report{Handovers: 1, Takeovers: 1}.Lines(), "\n")
	if !strings.Contains(got, "1 partition handed over") || !strings.Contains(got, "1 partition taken over") {
		t.Error(got)
	}
}

// Each fault is seen, and fails the demo.
func TestReportSeesFaults(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*tally)
		want  string // empty: the demo passes
		field func(Report) int
		value int
	}{
		"lost": {
			func(t *tally) { t.deliveries[3].Accepted = false }, "1 mails were lost",
			func(r Report) int { return r.Lost }, 1,
		},
		"doubled without a crash": {
			func(t *tally) { t.deliveries = append(t.deliveries, delivered("a1", "p2", 300)) }, "1 mails were doubled, more than the 0",
			func(r Report) int { return r.Duplicated }, 1,
		},
		"doubled by a crash": {
			func(t *tally) { t.deliveries, t.inFlight = append(t.deliveries, delivered("a1", "p2", 300)), 1 }, "",
			func(r Report) int { return r.Duplicated }, 1,
		},
		"out of order": {
			func(t *tally) {
				t.deliveries[2].MessageID, t.deliveries[3].MessageID = t.deliveries[3].MessageID, t.deliveries[2].MessageID
			}, "1 mails left out of their recipient's order",
			func(r Report) int { return r.OutOfOrder }, 1,
		},
		"a second delivery is not out of order": {
			func(t *tally) { t.deliveries, t.inFlight = append(t.deliveries, delivered("a1", "p2", 300)), 1 }, "",
			func(r Report) int { return r.OutOfOrder }, 0,
		},
		"two at once": {
			func(t *tally) { t.deliveries[2].Began = at(105) }, "another to the same recipient",
			func(r Report) int { return r.Overlapped }, 1,
		},
		"taken over": {
			func(t *tally) { t.moves[0].crash = true }, "",
			func(r Report) int { return r.Takeovers }, 1,
		},
		"an unmoved partition stands still": {
			func(t *tally) { t.deliveries[2].Began, t.deliveries[2].Ended = at(170), at(175) }, "",
			func(r Report) int { return int(r.UnmovedPauseMS) }, 70,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tally := tallyOf()
			c.spoil(&tally)
			r := tally.report()
			if got := c.field(r); got != c.value {
				t.Errorf("counted %d, want %d: %+v", got, c.value, r)
			}
			err := r.Verdict()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("verdict %v, want %q", err, c.want)
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	var d []time.Duration
	for i := 100; i >= 1; i-- {
		d = append(d, time.Duration(i)*time.Millisecond)
	}
	for q, want := range map[float64]int64{0.5: 50, 0.99: 99, 1: 100} {
		if got := quantile(d, q); got != want {
			t.Errorf("%s: %d, want %d", strconv.FormatFloat(q, 'g', -1, 64), got, want)
		}
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("of nothing")
	}
}

func TestJSONHasTheFieldsPeopleRead(t *testing.T) {
	line, err := Report{}.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range strings.Fields(`enqueued delivered lost duplicated in_flight_at_crash out_of_order handovers handover_pause_ms p50 p99 takeover_ms unmoved_pause_ms`) {
		if !strings.Contains(line, `"`+field+`":`) {
			t.Errorf("%s has no %q", line, field)
		}
	}
}
