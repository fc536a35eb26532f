package progresstest

import (
	"slices"
	"strings"
	"testing"
)

// Each guard of the store is taken out once: a world that does not see it is blind.
func TestSeesWhatIsBroken(t *testing.T) {
	for _, c := range []struct {
		broken string
		mix    Mix // where it shows soonest
	}{
		{"no fence", Poison},
		{"relative trim", Calm},
		{"requeue not tied", Rough},
		{"attempts overwrite", Rough},
		{"lift unchecked", Calm},
		{"settle ignores lifted", Calm},
		{"base before effects", Calm},
		{"done not read", Calm},
		{"done replaced", Calm},
		{"no witness", Failover},
		{"blame all", Poison},
		{"open again counts", Poison},
		{"alone comes late", Poison},
	} {
		t.Run(c.broken, func(t *testing.T) {
			for n := uint64(1); n <= 30000; n++ {
				m := NewMemory(true)
				m.broken = c.broken
				if _, violated := Run(c.mix, n, m, true); violated != "" {
					t.Logf("seen at seed %d: %s", n, violated)
					return
				}
			}
			t.Error("not seen")
		})
	}
}

// The small worlds that are looked at whole see it as well, each guard in one of them.
func TestExploreSeesWhatIsBroken(t *testing.T) {
	for broken, name := range map[string]string{
		"no fence":              "crash",
		"relative trim":         "lost",
		"requeue not tied":      "pass",
		"attempts overwrite":    "late-retry2",
		"lift unchecked":        "lift",
		"settle ignores lifted": "lost",
		"base before effects":   "pass",
		"done not read":         "poison",
		"done replaced":         "poison",
		"no witness":            "failover",
		"blame all":             "poison",
		"open again counts":     "poison",
		"alone comes late":      "poison",
		"announcement believed": "announce-failover",
	} {
		t.Run(broken, func(t *testing.T) {
			i := slices.IndexFunc(Explorations(), func(x Exploration) bool { return x.Name == name })
			m := NewMemory(true)
			m.broken = broken
			sum, violated, way := Explorations()[i].explore(m, 0)
			if violated == "" {
				t.Fatal("not seen")
			}
			m = NewMemory(true)
			m.broken = broken
			if again := Explorations()[i].replay(m, way, nil); again == "" {
				t.Errorf("%s is violated, but not on the way there again", violated)
			}
			if broken == "announcement believed" && !strings.HasPrefix(violated, "I3") {
				t.Errorf("it sees something else: %s", violated) // a loss is what the reading is for
			}
			t.Logf("%s sees it after %d states, %d moves: %s", name, sum.States, len(way), violated)
		})
	}
}
