package play

import (
	"testing"
	"time"

	"github.com/countoff/countoff/examples/scraper/website"
)

// A broken promise is said, and a play that showed nothing does not count as kept.
func TestVerdict(t *testing.T) {
	book := website.Book{Visits: 9, Changes: []website.Change{
		{Site: "a", From: "ann", To: "bob", Gap: 2 * time.Second},
		{Site: "a", From: "bob", To: "ann", Gap: 50 * time.Millisecond},
	}}
	gone := map[string]bool{"ann": true}
	r := newReport(book, 1, gone, 3*time.Second, time.Minute)
	if err := r.Verdict(); err != nil || r.Takeovers != 1 || r.Handovers != 1 || r.TakeoverGapMS != 2000 || r.HandoverGapMS != 50 {
		t.Errorf("%v %+v", err, r)
	}
	book.Double = []string{"two"}
	if newReport(book, 1, gone, 3*time.Second, time.Minute).Verdict() == nil {
		t.Error("two owners at once were let pass")
	}
	if newReport(website.Book{}, 1, gone, 3*time.Second, time.Minute).Verdict() == nil {
		t.Error("nothing was seen, and that was let pass")
	}
}
