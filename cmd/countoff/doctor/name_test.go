package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/coverage"
	"github.com/countoff/countoff/transition/machine"
)

// A peer that is alone claims all partitions in one call: where that may take longer than a call,
// nobody would ever work, and all that is said is that calls take too long.
func TestMorePartitionsThanACallClaims(t *testing.T) {
	for _, c := range []struct {
		total  int
		leases []time.Duration
		do     string // empty: nothing
	}{
		{1 << 16, []time.Duration{3 * time.Second}, "a lease of 14s or more"},
		{1 << 16, []time.Duration{10 * time.Second}, "a lease of 14s or more"},
		{1 << 16, []time.Duration{14 * time.Second}, ""},
		{1 << 14, []time.Duration{10 * time.Second, 3 * time.Second}, "a lease of 4s or more"},
		{1 << 14, []time.Duration{4 * time.Second}, ""},
		{2048, []time.Duration{3 * time.Second}, ""},
		{1 << 16, nil, ""},
	} {
		t.Run(fmt.Sprint(c.total, c.leases), func(t *testing.T) {
			var census transition.Census
			for i, lease := range c.leases {
				census.Sessions = append(census.Sessions, machine.Seat{
					Session: partition.Session(fmt.Sprint("s", i)), Peer: fmt.Sprint("p", i), State: machine.Live, Lease: lease,
					Terms: transition.Timing{Lease: lease}.WithDefaults().Terms(""),
				})
			}
			var found []Finding
			for _, f := range times(census, c.total) {
				if strings.Contains(f.What, "partitions and a lease of") {
					found = append(found, f)
				}
			}
			if c.do == "" && len(found) > 0 || c.do != "" && (len(found) != 1 || found[0].Severity != Warning || !strings.Contains(found[0].Do, c.do)) {
				t.Errorf("it finds %v, want what is to be done %q", found, c.do)
			}
		})
	}
}

// Of a name that nobody has ever worked on nobody knows for how long it has been so, and coverage
// says nothing: that its tasks wait is told all the same.
func TestNobodyHasEverTakenPart(t *testing.T) {
	peer := status.Peer{State: status.Live}
	gone := status.Peer{State: machine.Gone.String()}
	pending := []status.Partition{{Pending: 2, Delayed: 1}}
	for _, c := range []struct {
		s    status.Status
		want string
	}{
		{status.Status{}, "note: nobody takes part"},
		{status.Status{Partitions: pending}, "warning: nobody takes part, and 3 tasks wait"},
		{status.Status{Units: []status.Unit{{Pending: 1}}, Peers: []status.Peer{gone}}, "warning: nobody takes part, and 1 task waits"},
		{status.Status{Partitions: pending, Peers: []status.Peer{gone, peer}}, ""},
		{status.Status{Partitions: pending, LedgerElsewhere: true}, "warning: " + partitionmap.Nobody(status.Status{LedgerElsewhere: true})},
		{status.Status{Partitions: pending, Findings: []status.Finding{{Kind: coverage.Unowned}}}, ""},
		{status.Status{Partitions: pending, Findings: []status.Finding{{Kind: coverage.Refused}}}, "warning: nobody takes part, and 3 tasks wait"},
	} {
		got := ""
		for _, f := range deserted(c.s) {
			got += string(f.Severity) + ": " + f.What
		}
		if got != c.want {
			t.Errorf("%+v: it says %q, want %q", c.s, got, c.want)
		}
	}
}

// Orders that stand are told, and are a warning where they hold something up.
func TestToCancel(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		stands   *status.ToCancel
		severity Severity
		word     string
	}{
		{&status.ToCancel{Waits: 2, Since: now.Add(-time.Hour)}, Note, "2 tasks are to be cancelled that nobody has met, 0 with a handler that was told, the oldest since 2027-01-15T07:00:00Z"},
		{&status.ToCancel{Runs: 1, Since: now.Add(-time.Minute)}, Note, "1 with a handler that was told"},
		{&status.ToCancel{Runs: 1, Since: now.Add(-time.Minute - time.Second)}, Warning, "a handler that ignores its context"},
		{&status.ToCancel{Waits: 128, Since: now}, Note, "128 tasks"},
		{&status.ToCancel{Waits: 128, Runs: 1, Since: now}, Warning, "once 256 stand no other task can be cancelled"},
		{&status.ToCancel{Trouble: "{n}:cancel is no hash"}, Warning, "{n}:cancel is no hash"},
	} {
		got := toCancel("n", c.stands, now)
		if len(got) != 1 || got[0].Severity != c.severity || !strings.Contains(got[0].String(), c.word) || (c.severity == Warning) != (got[0].Risk != "" && got[0].Do != "") {
			t.Errorf("%+v: %v", *c.stands, got)
		}
	}
	if got := toCancel("n", nil, now); got != nil {
		t.Errorf("of none: %v", got)
	}
}
