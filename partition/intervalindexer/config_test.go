package intervalindexer_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/intervalindexer"
)

func TestConfig(t *testing.T) {
	c := intervalindexer.Config{}.WithDefaults()
	if c.Interval != 5*time.Second || c.Strategy != (partition.Modulo{}) || c.Partitions.Total != partition.DefaultTotal {
		t.Errorf("defaults: %+v", c)
	}
	if c := (intervalindexer.Config{Strategy: partition.Jump{}}).WithDefaults(); c.Strategy != (partition.Jump{}) {
		t.Errorf("with a strategy: %+v", c)
	}
	_, err := intervalindexer.New(new(intervalindexer.Memory), "no spaces", intervalindexer.Config{
		Interval:   time.Millisecond,
		Partitions: partition.Config{Total: -1},
	})
	for _, word := range []string{"no spaces", "1ms", "-1 partitions"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("not all faults at once, %q is missing: %v", word, err)
		}
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	_, err := intervalindexer.New(nil, "mail-sender", intervalindexer.Config{}, nil)
	for _, word := range []string{"no counter", "an option is nil"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("not all faults at once, %q is missing: %v", word, err)
		}
	}
}

// A strategy is code of the application's own.
type strategy func(ids []partition.ID, members []partition.Member) partition.Table

func (strategy) Name() string { return "own" }

func (s strategy) Assign(ids []partition.ID, members []partition.Member, _ partition.Table) partition.Table {
	return s(ids, members)
}

// One that breaks its contract does not take the process with it, nor does what it leaves lie without a word.
func TestAStrategyThatBreaksItsContract(t *testing.T) {
	for want, s := range map[string]strategy{
		`strategy "own" panicked, asked about 1 peers: own fault`: func([]partition.ID, []partition.Member) partition.Table { panic("own fault") },
		`strategy "own" gives partition 2 to none of 1 peers`: func(ids []partition.ID, members []partition.Member) partition.Table {
			table := partition.Modulo{}.Assign(ids, members, nil)
			clear(ids)
			delete(table, 2)
			return table
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			x, err := intervalindexer.New(new(intervalindexer.Memory), "mail-sender", intervalindexer.Config{Strategy: s},
				intervalindexer.WithMissed(nil), intervalindexer.WithSkew(nil))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of the bubble
			defer cancel()
			err = x.Index(ctx, func(v partition.View) {
				if v.Index >= 0 {
					t.Errorf("a view of a table that breaks the contract: %+v", v)
				}
			})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("it ended with %v, want %q", err, want)
			}
		})
	}
}

// Only three counters of each kind live at a time, however long peers run.
func TestCountersExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counter := new(intervalindexer.Memory)
		ctx := t.Context()
		for i := range 100 {
			for range 2 {
				if _, err := counter.Incr(ctx, fmt.Sprint(i), 3*time.Second); err != nil {
					t.Fatal(err)
				}
			}
			<-time.After(time.Second)
		}
		var keys []string
		for i := range 101 {
			keys = append(keys, fmt.Sprint(i))
		}
		values, err := counter.Get(ctx, keys...)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			if want := int64(2); i < 97 || i == 100 {
				if v != 0 {
					t.Errorf("%d has expired and is %d", i, v)
				}
			} else if v != want {
				t.Errorf("%d is %d, want %d", i, v, want)
			}
		}
	})
}
