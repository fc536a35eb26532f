package play

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countoff/countoff/examples/scraper/website"
	"github.com/countoff/countoff/transition"
)

// A Report is what was seen of a play.
type Report struct {
	Sites     int `json:"sites"`
	Visits    int `json:"visits"`
	Handovers int `json:"handovers"` // changes of owner while both lived
	Takeovers int `json:"takeovers"` // from one that was killed or stood still
	// HandoverGapMS and TakeoverGapMS are the longest times without a visit at a change.
	HandoverGapMS int64 `json:"handover_gap_ms"`
	TakeoverGapMS int64 `json:"takeover_gap_ms"`
	BoundMS       int64 `json:"takeover_bound_ms"`
	Refused       int   `json:"refused"` // visits of an owner of before, which the site did not let in
	Double        int   `json:"double"`  // visits of two owners at once
	DurationMS    int64 `json:"duration_ms"`

	first string // of what is wrong
}

// newReport reads the book. gone are the peers that others had to take over from.
func newReport(book website.Book, sites int, gone map[string]bool, lease, took time.Duration) Report {
	r := Report{
		Sites: sites, Visits: book.Visits, Refused: book.Refused, Double: len(book.Double),
		BoundMS:    transition.Timing{Lease: lease}.WithDefaults().Takeover().Milliseconds(),
		DurationMS: took.Milliseconds(),
	}
	if len(book.Double) > 0 {
		r.first = book.Double[0]
	}
	for _, c := range book.Changes {
		gap := c.Gap.Milliseconds()
		// Who came back handed over as the others do.
		if gone[c.From] && c.Gap > lease/2 {
			r.Takeovers++
			r.TakeoverGapMS = max(r.TakeoverGapMS, gap)
		} else {
			r.Handovers++
			r.HandoverGapMS = max(r.HandoverGapMS, gap)
		}
	}
	return r
}

// Verdict says what of the promise does not hold.
func (r Report) Verdict() error {
	var errs []error
	if r.Double > 0 {
		errs = append(errs, fmt.Errorf("%d visits of two owners at once: %s", r.Double, r.first))
	}
	if r.Visits == 0 || r.Takeovers == 0 || r.Handovers == 0 {
		errs = append(errs, fmt.Errorf("%d visits, %d hand-overs, %d take-overs: there was nothing to see", r.Visits, r.Handovers, r.Takeovers))
	}
	return errors.Join(errs...)
}

// Lines is the report for people.
func (r Report) Lines() []string {
	lines := []string{
		"",
		fmt.Sprintf("  %d visits of %d sites in %.1f s", r.Visits, r.Sites, float64(r.DurationMS)/1000),
		fmt.Sprintf("  %d hand-overs, at most %d ms between the visits of the two", r.Handovers, r.HandoverGapMS),
		fmt.Sprintf("  %d take-overs from a peer that was killed or stood still, at most %d ms without a visit; promised: a new owner within %d ms",
			r.Takeovers, r.TakeoverGapMS, r.BoundMS),
		fmt.Sprintf("  %d visits were refused because of an older token", r.Refused),
		fmt.Sprintf("  %d visits of two owners at once", r.Double),
	}
	if r.Verdict() == nil {
		lines = append(lines, "", "  each site was visited by one owner at a time, and the table said by whom")
	}
	return lines
}

// JSON is the report as one object.
func (r Report) JSON() string {
	b, _ := json.Marshal(r) // numbers alone
	return string(b)
}
