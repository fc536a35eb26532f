package play

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func TestPlan(t *testing.T) {
	order := func(seed uint64, n int, kinds ...string) []bundle {
		return plan(rand.New(rand.NewPCG(seed, 0)), n, 6, kinds)
	}
	if !reflect.DeepEqual(order(1, 200, Kinds()...), order(1, 200, Kinds()...)) {
		t.Error("one seed gave two orders")
	}
	if reflect.DeepEqual(order(1, 200, Kinds()...), order(2, 200, Kinds()...)) {
		t.Error("two seeds gave one order")
	}
	seen := map[string]int{}
	total := 0
	for _, b := range order(3, 1000, Kinds()...) {
		for _, kind := range b {
			seen[kind]++
			total++
			if len(b) > 1 && !slices.ContainsFunc(ofPeers, func(w weighted) bool { return w.kind == kind }) {
				t.Errorf("%v: %s comes with others", b, kind)
			}
		}
	}
	if total != 1000 {
		t.Errorf("%d faults, want 1000", total)
	}
	for _, kind := range Kinds() {
		if seen[kind] == 0 {
			t.Errorf("no %s among 1000 faults", kind)
		}
	}
	for _, b := range order(1, 50, Kill, OOM) {
		for _, kind := range b {
			if kind != Kill && kind != OOM {
				t.Errorf("%s was not asked for", kind)
			}
		}
	}
	if CheckKinds(false, []string{Kill, "earthquake"}) == nil || CheckKinds(false, KindsOf(false)) != nil ||
		CheckKinds(true, KindsOf(true)) != nil || CheckKinds(false, KindsOf(true)) == nil {
		t.Error("CheckKinds")
	}
}
