package partition_test

import (
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/countoff/countoff/partition"
)

func TestFilterZeroOwnsNothing(t *testing.T) {
	var f partition.Filter
	if f.Has(0) || f.Has(partition.FirstUnit) || f.Admit("ann") {
		t.Error("the zero Filter owns something")
	}
}

// The filter says what was published last, of partitions and units, and a key is
// admitted if its partition is owned.
func TestFilterSaysWhatWasPublished(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := partition.Config{
			Total: rapid.IntRange(1, 300).Draw(t, "total"),
			Hash:  rapid.SampledFrom([]partition.Hash{partition.XXHash64, partition.ByID}).Draw(t, "hash"),
			Units: []string{"a", "b", "c"},
		}
		var f partition.Filter
		for range 2 {
			owned := map[partition.ID]bool{}
			for _, id := range rapid.SliceOf(rapid.SampledFrom(c.IDs())).Draw(t, "ids") {
				owned[id] = true
			}
			var ids []partition.ID
			for id := range owned {
				ids = append(ids, id)
			}
			f.Publish(c, ids)
			for _, id := range append(c.IDs(), -1, partition.ID(c.Total), partition.FirstUnit-1, partition.FirstUnit+3) {
				if f.Has(id) != owned[id] {
					t.Fatalf("Has(%v) = %v", id, f.Has(id))
				}
			}
			for range 10 {
				key := strconv.FormatUint(rapid.Uint64().Draw(t, "key"), 10)
				id, err := c.Hash.Of(key, c.Total)
				if err != nil || f.Admit(key) != owned[id] {
					t.Fatalf("Admit(%s) = %v, its partition is %v (%v)", key, f.Admit(key), id, err)
				}
			}
		}
	})
}

// A key without a partition is nobody's, even where all is owned.
func TestFilterAdmitsNoUnreadableKey(t *testing.T) {
	var f partition.Filter
	c := partition.Config{Total: 8, Hash: partition.ByID}
	f.Publish(c, c.IDs())
	for _, key := range []string{"", "ann", "-1", "+1", "1.0", " 1", "1_0", "18446744073709551616", "99999999999999999999"} {
		if f.Admit(key) {
			t.Errorf("admits %q", key)
		}
	}
	if !f.Admit("18446744073709551615") {
		t.Error("refuses the greatest id")
	}
	f.Publish(c, []partition.ID{-1})
	if f.Has(-1) || f.Has(0) {
		t.Error("owns what is no partition")
	}
	f.Publish(partition.Config{}, nil)
	if f.Admit("1") {
		t.Error("admits a key where nothing is owned")
	}
}

// One Publish is seen whole: no reader sees a partition of one with one of another.
func TestFilterIsReadWhileItChanges(t *testing.T) {
	var f partition.Filter
	c := partition.Config{Total: 128}.WithDefaults()
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f.Has(5)
					f.Admit("ann")
				}
			}
		})
	}
	for i := range 1000 {
		f.Publish(c, []partition.ID{partition.ID(i % 128)})
	}
	close(stop)
	readers.Wait()
}

func TestFilterAllocatesNothing(t *testing.T) {
	var f partition.Filter
	byHash := partition.Config{Total: 256, Hash: partition.XXHash64}
	byID := partition.Config{Total: 256, Hash: partition.ByID}
	for _, c := range []partition.Config{byHash, byID} {
		f.Publish(c, c.IDs())
		if n := testing.AllocsPerRun(100, func() {
			f.Has(17)
			f.Has(partition.FirstUnit)
			f.Admit("ann@example.com")
			f.Admit("12345678")
		}); n != 0 {
			t.Errorf("%s: %v allocations", c.Hash, n)
		}
	}
}

var sink bool

// Goal: at most 10 ns and no allocation a decision.
func BenchmarkFilter(b *testing.B) {
	var f partition.Filter
	c := partition.Config{Total: 256}.WithDefaults()
	f.Publish(c, c.IDs()[:128])
	b.Run("Has", func(b *testing.B) {
		b.ReportAllocs()
		i := partition.ID(0)
		for b.Loop() {
			sink = f.Has(i & 255)
			i++
		}
		verdict(b)
	})
	b.Run("Admit16", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sink = f.Admit("ann@example.com.")
		}
		verdict(b)
	})
}

// verdict prints what was measured beside the goal; nothing fails by a time.
func verdict(b *testing.B) {
	b.ReportMetric(10, "goal-ns/op")
}
