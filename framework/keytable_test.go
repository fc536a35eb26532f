package framework

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Whatever is put in and taken out: the table and a map say the same.
func TestKeyTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	table, model := newKeyTable(), map[string]*keyQueue{}
	if table.find("never", table.hash("never")) != nil {
		t.Fatal("an empty table has a key")
	}
	for i := range 20_000 {
		key := fmt.Sprint(random.IntN(1 + i%700))
		hash := table.hash(key)
		if i%3 == 0 {
			hash &= 7 // many keys in a bucket, also with one hash
		}
		k := model[key]
		if k != nil {
			hash = k.hash
		}
		if got := table.find(key, hash); got != k {
			t.Fatalf("%q: got %v, want %v", key, got, k)
		}
		if k == nil {
			model[key] = &keyQueue{key: key, hash: hash}
			table.add(model[key])
		} else {
			table.remove(k)
			delete(model, key)
		}
		if table.n != len(model) {
			t.Fatalf("%d keys, want %d", table.n, len(model))
		}
	}
	seen := 0
	for k := range table.all {
		if model[k.key] != k {
			t.Errorf("%q is there", k.key)
		}
		seen++
	}
	if seen != len(model) {
		t.Errorf("saw %d of %d", seen, len(model))
	}
	for range table.all {
		break // is allowed
	}
}
