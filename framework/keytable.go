package framework

import "hash/maphash"

// A keyTable finds the keyQueue of a key. Each task of a key of its own puts one in and
// takes it out again; a map of the language takes twice as long for that as all the rest
// of its way through a book. The queues of a bucket are linked through themselves, so
// that nothing is allocated but the buckets, as many as there ever were keys at once.
type keyTable struct {
	seed    maphash.Seed
	buckets []*keyQueue // a power of two; nil before the first
	n       int
}

func newKeyTable() keyTable { return keyTable{seed: maphash.MakeSeed()} }

func (t *keyTable) hash(key string) uint64 { return maphash.String(t.seed, key) }

func (t *keyTable) bucket(hash uint64) **keyQueue {
	return &t.buckets[hash&uint64(len(t.buckets)-1)]
}

// find returns the queue of key, or nil.
func (t *keyTable) find(key string, hash uint64) *keyQueue {
	if t.n == 0 {
		return nil
	}
	for k := *t.bucket(hash); k != nil; k = k.next {
		if k.hash == hash && k.key == key {
			return k
		}
	}
	return nil
}

// add puts in a queue whose key is not there.
func (t *keyTable) add(k *keyQueue) {
	if t.n == len(t.buckets) {
		t.grow()
	}
	t.n++
	first := t.bucket(k.hash)
	k.next, *first = *first, k
}

// remove takes out a queue that is there.
func (t *keyTable) remove(k *keyQueue) {
	at := t.bucket(k.hash)
	for *at != k {
		at = &(*at).next
	}
	*at, k.next = k.next, nil
	t.n--
}

func (t *keyTable) grow() {
	const least = 16
	old := t.buckets
	t.buckets = make([]*keyQueue, max(least, 2*len(old)))
	for _, k := range old {
		for k != nil {
			next := k.next
			first := t.bucket(k.hash)
			k.next, *first = *first, k
			k = next
		}
	}
}

// all goes over all queues, in no order.
func (t *keyTable) all(yield func(*keyQueue) bool) {
	for _, k := range t.buckets {
		for ; k != nil; k = k.next {
			if !yield(k) {
				return
			}
		}
	}
}
