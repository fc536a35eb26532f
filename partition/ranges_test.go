package partition_test

import (
	"slices"
	"testing"

	"github.com/countoff/countoff/partition"
)

func TestRanges(t *testing.T) {
	for want, ids := range map[string][]partition.ID{
		"":                  nil,
		"7":                 {7},
		"0-3 7 9-10":        {9, 3, 2, 10, 1, 0, 7},
		"0 1048576-1048578": {0, partition.FirstUnit, partition.FirstUnit + 1, partition.FirstUnit + 2},
	} {
		got := partition.Ranges(ids)
		slices.Sort(ids)
		if read, err := partition.ParseRanges(got); got != want || err != nil || !slices.Equal(read, ids) {
			t.Errorf("%v was printed %q and read as %v, %v; want %q", ids, got, read, err, want)
		}
	}
	for _, s := range []string{"x", "-1", "3-1", "1-", "-", "1-2-3", "99999999999", "0-2147483647"} {
		if ids, err := partition.ParseRanges(s); err == nil {
			t.Errorf("%q was read as %d ids", s, len(ids))
		}
	}
}
