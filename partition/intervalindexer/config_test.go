package intervalindexer_test

import (
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
