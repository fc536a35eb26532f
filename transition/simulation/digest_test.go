package simulation

import (
	"hash/maphash"
	"testing"
)

// TestDigestSeesAllOfAValue: values have one digest when they are the same, also behind
// pointers and in whatever order a map tells its entries, and otherwise not.
func TestDigestSeesAllOfAValue(t *testing.T) {
	type inner struct{ s string }
	type value struct {
		b  bool
		i  int
		u  uint64
		s  string
		l  []inner
		m  map[int]inner
		to *inner
	}
	seed := maphash.MakeSeed()
	sum := func(values ...any) uint64 {
		d := digest{seed: seed}
		d.add(values...)
		return d.sum()
	}
	full := func() value {
		return value{true, -1, 2, "s", []inner{{"a"}, {"b"}}, map[int]inner{1: {"x"}, 2: {"y"}}, &inner{"p"}}
	}
	for what, change := range map[string]func(*value){
		"a bool":                   func(v *value) { v.b = false },
		"an int":                   func(v *value) { v.i = 1 },
		"a uint":                   func(v *value) { v.u = 3 },
		"a string":                 func(v *value) { v.s = "t" },
		"an element":               func(v *value) { v.l[1].s = "c" },
		"the order of elements":    func(v *value) { v.l[0], v.l[1] = v.l[1], v.l[0] },
		"the number of elements":   func(v *value) { v.l = v.l[:1] },
		"a value in a map":         func(v *value) { v.m[2] = inner{"z"} },
		"which key has which":      func(v *value) { v.m[1], v.m[2] = v.m[2], v.m[1] },
		"the number of entries":    func(v *value) { delete(v.m, 1) },
		"what a pointer points to": func(v *value) { v.to.s = "q" },
		"a nil pointer":            func(v *value) { v.to = nil },
	} {
		if v := full(); sum(v) != sum(full()) {
			t.Fatal("one value has two digests")
		} else if change(&v); sum(v) == sum(full()) {
			t.Errorf("the digest does not see %s", what)
		}
	}
	if sum("ab", "c") == sum("a", "bc") {
		t.Error("the digest does not see where a string ends")
	}
}
