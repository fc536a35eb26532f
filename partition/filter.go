package partition

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// A Filter says which partitions are a peer's to work on right now. The
// coordinator publishes: what is wished and granted. Others ask, before every
// start: the runtime by [Filter.Has], loops without a source of their own by
// [Filter.Admit].
//
// The zero value owns nothing. All methods may be called concurrently; asking takes
// no lock and allocates nothing. An answer is the truth of the last Publish and may
// be old by the time it is used: a Filter saves work, the fence keeps it safe.
type Filter struct {
	now atomic.Pointer[owned]
}

// owned is what one Publish said. It never changes.
type owned struct {
	hash       Hash
	total      int
	partitions bitset
	units      bitset // by id - FirstUnit
}

// Publish replaces what f knows: ids are all that is owned, in any order.
func (f *Filter) Publish(c Config, ids []ID) {
	o := &owned{hash: c.Hash, total: c.Total}
	for _, id := range ids {
		if id.IsUnit() {
			o.units.add(id - FirstUnit)
		} else {
			o.partitions.add(id)
		}
	}
	f.now.Store(o)
}

// Has reports whether id is owned.
func (f *Filter) Has(id ID) bool {
	o := f.now.Load()
	if o == nil {
		return false
	}
	if id.IsUnit() {
		return o.units.has(id - FirstUnit)
	}
	return o.partitions.has(id)
}

// Admit reports whether the partition of key is owned. Where the hash is [ByID] a
// key that is no decimal number belongs to no partition and is not admitted.
func (f *Filter) Admit(key string) bool {
	o := f.now.Load()
	if o == nil || o.total <= 0 {
		return false
	}
	switch o.hash { // as Hash.Of, whose call and error cost as much again
	case ByID:
		n, ok := decimal(key)
		return ok && o.partitions.has(OfID(n, o.total))
	case Murmur2:
		return o.partitions.has(OfID(uint64(murmur2(key)), o.total))
	}
	return o.partitions.has(OfID(xxhash.Sum64String(key), o.total))
}

// A bitset is a set of small numbers.
type bitset []uint64

func (b *bitset) add(id ID) {
	if id < 0 {
		return
	}
	for int(id>>6) >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[id>>6] |= 1 << (id & 63)
}

func (b bitset) has(id ID) bool {
	return uint(id>>6) < uint(len(b)) && b[id>>6]&(1<<(id&63)) != 0
}
