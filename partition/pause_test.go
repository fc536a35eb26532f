package partition_test

import (
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
)

func TestPause(t *testing.T) {
	t.Parallel()
	since := time.UnixMilli(1_764_153_600_123).UTC()
	for _, p := range []partition.Pause{{}, {Since: since}, {Since: since, Why: "the database moves, ask ann"}} {
		if got := partition.ParsePause(p.String()); got != p {
			t.Errorf("%+v is written as %q and read as %+v", p, p, got)
		}
		if err := p.Check(); err != nil {
			t.Error(err)
		}
	}
	for _, why := range []string{"two\nlines", " around", "around ", "\xff", strings.Repeat("x", partition.MaxWhy+1)} {
		if err := (partition.Pause{Since: since, Why: why}).Check(); err == nil {
			t.Errorf("%q is let through", why)
		}
	}
	if err := (partition.Pause{Why: "since when?"}).Check(); err == nil {
		t.Error("a pause without a beginning is let through")
	}
	// Of a later build, or written by hand.
	for _, text := range []string{"yes", "-3 x", " ", "99999999999999999999 much later"} {
		if partition.ParsePause(text) == (partition.Pause{}) {
			t.Errorf("%q is read as no pause", text)
		}
	}
}
