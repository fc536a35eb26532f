package framework

import "hash/maphash"

// A keyTable finds the earliest task of a key. Each task of a key of its own is put in and
// taken out again; a map of the language takes twice as long for that as all the rest of
// its way through a book. What a cell knows is eight bytes, so that those of a lane stay
// in the processor's cache; the key itself is looked at only where the hashes agree.
//
// Collisions go to the next free cell, and a cell that is left is filled from behind
// (Knuth, The Art of Computer Programming 3, 6.4, algorithms L and R): there is nothing
// to sweep up later.
type keyTable struct {
	seed  maphash.Seed
	cells []cell // a power of two, at most half of them used; nil before the first
	n     int
}

type cell struct {
	hash  uint32
	first slot // the earliest task of the key; 0: an empty cell
}

func newKeyTable() keyTable { return keyTable{seed: maphash.MakeSeed()} }

func (t *keyTable) hash(key string) uint32 { return uint32(maphash.String(t.seed, key)) }

// find returns the earliest task of key, or 0.
func (t *keyTable) find(key string, hash uint32, of *entries) slot {
	if t.n == 0 {
		return 0
	}
	for i := t.home(hash); ; i = t.after(i) {
		switch c := t.cells[i]; {
		case c.first == 0:
			return 0
		case c.hash == hash && of.at(c.first).task.Key == key:
			return c.first
		}
	}
}

// add puts in first, whose key is not there.
func (t *keyTable) add(hash uint32, first slot) {
	if 2*t.n >= len(t.cells) {
		t.grow()
	}
	t.n++
	t.put(cell{hash, first})
}

// succeed puts next where first, the earliest so far, was.
func (t *keyTable) succeed(hash uint32, first, next slot) {
	t.cells[t.of(hash, first)].first = next
}

// remove takes out first, which is there.
func (t *keyTable) remove(hash uint32, first slot) {
	t.n--
	hole := t.of(hash, first)
	for i := t.after(hole); t.cells[i].first != 0; i = t.after(i) {
		// It may fill the hole unless its way from home does not lead over it.
		if mask := len(t.cells) - 1; (i-t.home(t.cells[i].hash))&mask >= (i-hole)&mask {
			t.cells[hole] = t.cells[i]
			hole = i
		}
	}
	t.cells[hole] = cell{}
}

func (t *keyTable) home(hash uint32) int { return int(hash) & (len(t.cells) - 1) }
func (t *keyTable) after(i int) int      { return (i + 1) & (len(t.cells) - 1) }

// of returns the cell of first, which is there.
func (t *keyTable) of(hash uint32, first slot) int {
	i := t.home(hash)
	for t.cells[i].first != first {
		i = t.after(i)
	}
	return i
}

func (t *keyTable) put(c cell) {
	i := t.home(c.hash)
	for t.cells[i].first != 0 {
		i = t.after(i)
	}
	t.cells[i] = c
}

func (t *keyTable) grow() {
	const least = 16
	old := t.cells
	t.cells = make([]cell, max(least, 2*len(old)))
	for _, c := range old {
		if c.first != 0 {
			t.put(c)
		}
	}
}

// all goes over the earliest task of each key, in no order.
func (t *keyTable) all(yield func(slot) bool) {
	for _, c := range t.cells {
		if c.first != 0 && !yield(c.first) {
			return
		}
	}
}
