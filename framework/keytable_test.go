package framework

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Whatever is put in, handed on and taken out: the table and a map say the same.
func TestKeyTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	type known struct {
		hash  uint32
		first slot
	}
	table, model := newKeyTable(), map[string]known{}
	var of entries
	if table.find("never", table.hash("never"), &of) != 0 {
		t.Fatal("an empty table has a key")
	}
	for i := range 20_000 {
		key := fmt.Sprint(random.IntN(1 + i%700))
		hash := table.hash(key)
		if i%3 == 0 {
			hash &= 7 // many keys at home in one cell, also with one hash
		}
		k, there := model[key]
		if there {
			hash = k.hash
		}
		if got := table.find(key, hash, &of); got != k.first {
			t.Fatalf("%q: got %v, want %v", key, got, k.first)
		}
		switch {
		case !there:
			model[key] = known{hash, of.take(&Task{Key: key})}
			table.add(hash, model[key].first)
		case i%5 == 0:
			next := of.take(&Task{Key: key})
			table.succeed(hash, k.first, next)
			of.free(k.first)
			model[key] = known{hash, next}
		default:
			table.remove(hash, k.first)
			of.free(k.first)
			delete(model, key)
		}
		if table.n != len(model) {
			t.Fatalf("%d keys, want %d", table.n, len(model))
		}
		if i%500 == 0 {
			for key, k := range model {
				if table.find(key, k.hash, &of) != k.first {
					t.Fatalf("%q is lost", key)
				}
			}
		}
	}
	seen := 0
	for first := range table.all {
		if key := of.at(first).task.Key; model[key].first != first {
			t.Errorf("%q is there", key)
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
