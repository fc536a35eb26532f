package partition_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
)

func TestDrains(t *testing.T) {
	t.Parallel()
	since := time.UnixMilli(1_764_153_600_123).UTC()
	all := []partition.Drain{{Peer: "pod-3", Since: since, Why: "its disk is slow, ask ann"}, {Peer: "a peer: of 2 words", Since: since}}
	for n := range len(all) + 1 {
		if got := partition.ParseDrains(partition.PrintDrains(all[:n])); !slices.Equal(got, all[:n]) {
			t.Errorf("%+v is read as %+v", all[:n], got)
		}
	}
	for _, d := range all {
		if err := d.Check(); err != nil {
			t.Error(err)
		}
	}
	for _, d := range []partition.Drain{
		{Since: since}, {Peer: "a"}, {Peer: "two\nlines", Since: since}, {Peer: "a\tb", Since: since}, {Peer: "a", Since: since, Why: "b\tc"},
		{Peer: "a", Since: since, Why: strings.Repeat("x", partition.MaxWhy+1)},
	} {
		if err := d.Check(); err == nil {
			t.Errorf("%+v is let through", d)
		}
	}
	// Of a later build, or written by hand: who is named is drained, and nothing else is wrong.
	got := partition.ParseDrains("\nnonsense\n\t\nsoon\tpod-1\n-3\tpod-2\twhy\tmore\n")
	if len(got) != 2 || got[0].Peer != "pod-1" || got[0].Since.UnixMilli() <= 0 || got[1].Peer != "pod-2" || got[1].Why != "why\tmore" {
		t.Errorf("read as %+v", got)
	}
}

func TestDrainsAreAFew(t *testing.T) {
	t.Parallel()
	c := partition.Config{}
	for i := range partition.MaxDrains {
		var err error
		if c.Drained, err = partition.WithDrain(c.Drained, partition.Drain{Peer: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := partition.WithDrain(c.Drained, partition.Drain{Peer: "more"}); !errors.Is(err, partition.ErrDrains) {
		t.Errorf("one more: %v", err)
	}
	if again, err := partition.WithDrain(c.Drained, partition.Drain{Peer: "3", Why: "again"}); err != nil || !slices.Equal(again, c.Drained) {
		t.Errorf("one that is there: %v", err)
	}
	c.Drained = partition.WithoutDrain(c.Drained, "3")
	if _, stands := c.Drains("3"); stands || len(c.Drained) != partition.MaxDrains-1 {
		t.Errorf("recalled, it stands: %v, of %d", stands, len(c.Drained))
	}
}
