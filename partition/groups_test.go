package partition_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/countoff/countoff/partition"
)

func TestRequirements(t *testing.T) {
	for text, want := range map[string]partition.Requirement{
		"7=gpu":            {First: 7, Last: 7, Tags: "gpu"},
		"0-15=gpu,eu":      {First: 0, Last: 15, Tags: "eu gpu"},
		"mail:inbox=eu":    {Unit: "mail:inbox", Tags: "eu"},
		"a=b=eu,eu":        {Unit: "a=b", Tags: "eu"},
		"sites-2=eu, gpu.": {Unit: "sites-2", Tags: "eu gpu."},
	} {
		got, err := partition.ParseRequirement(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if again, err := partition.ParseRequirement(got.String()); err != nil || again != got {
			t.Errorf("%s is printed as %s", text, got)
		}
	}
	for _, text := range []string{"", "7", "=gpu", "7=", "5-3=gpu", "0-65536=gpu", "7=g!u"} {
		if got, err := partition.ParseRequirement(text); err == nil {
			t.Errorf("%q is taken as %+v", text, got)
		}
	}
	c := partition.Config{Total: 10, Units: []string{"u"}, Requires: []partition.Requirement{
		{First: 2, Last: 5, Tags: "gpu"}, {First: 4, Last: 9, Tags: "eu"}, {Unit: "u", Tags: "eu"}, {Unit: "none", Tags: "x"},
	}}
	for id, want := range map[partition.ID]partition.Tags{
		0: "", 2: "gpu", 4: "eu gpu", 9: "eu", partition.FirstUnit: "eu", partition.FirstUnit + 1: "",
	} {
		if got := c.Asks(id); got != want {
			t.Errorf("%v asks for %q, want %q", id, got, want)
		}
	}
}

// drawGroups gives members tags and makes ids ask for some.
func drawGroups(t *rapid.T, members []partition.Member) partition.Config {
	words := []string{"a", "b", "c"}
	tags := func(label string) partition.Tags {
		some, _ := partition.ParseTags(strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 2).Draw(t, label), ","))
		return some
	}
	for i := range members {
		members[i].Tags = tags("tags")
	}
	c := partition.Config{Total: rapid.IntRange(1, 60).Draw(t, "total"), Units: []string{"u", "v"}}
	for range rapid.IntRange(0, 4).Draw(t, "requirements") {
		first := rapid.IntRange(0, c.Total-1).Draw(t, "first")
		c.Requires = append(c.Requires, partition.Requirement{
			First: partition.ID(first), Last: partition.ID(rapid.IntRange(first, c.Total-1).Draw(t, "last")), Tags: tags("asks"),
		})
	}
	if rapid.Bool().Draw(t, "unit") {
		c.Requires = append(c.Requires, partition.Requirement{Unit: "u", Tags: tags("asks")})
	}
	return c
}

func TestTagsHaveAllThatIsAsked(t *testing.T) {
	for _, c := range []struct {
		has, asked partition.Tags
		want       bool
	}{
		{"", "", true}, {"gpu", "", true}, {"eu gpu", "eu gpu", true}, {"eu gpu", "gpu", true},
		{"", "gpu", false}, {"eu", "eu gpu", false}, {"gpu", "eu gpu", false}, {"gpus", "gpu", false},
	} {
		if c.has.Has(c.asked) != c.want {
			t.Errorf("%q has all of %q: want %v", c.has, c.asked, c.want)
		}
	}
}

// Never an owner that has not what is asked for; an owner wherever somebody living has; the
// same in whatever order members come; and without requirements what the strategy says.
func TestGroups(t *testing.T) {
	for _, s := range everyStrategy {
		t.Run(s.Name(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				members := drawMembers(t, 8)
				c := drawGroups(t, members)
				previous := drawTable(t, c.IDs(), members)
				table := partition.Assign(s, c, members, previous)
				has := map[partition.Session]partition.Member{}
				for _, m := range members {
					has[m.Session] = m
				}
				for _, id := range c.IDs() {
					asks := c.Asks(id)
					m, owned := has[table[id]]
					someone := slices.ContainsFunc(members, func(m partition.Member) bool { return !m.Down && m.Tags.Has(asks) })
					if owned && (m.Down || !m.Tags.Has(asks)) {
						t.Fatalf("%v asks for %q and went to %+v", id, asks, m)
					}
					if owned != someone {
						t.Fatalf("%v asks for %q: owned %v, somebody has it %v", id, asks, owned, someone)
					}
				}
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				shuffled := slices.Clone(members)
				r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				if again := partition.Assign(s, c, shuffled, previous); !maps.Equal(again, table) {
					t.Fatalf("another order, another table: %v, %v", table, again)
				}
				c.Requires = nil
				if plain := partition.Assign(s, c, members, previous); !maps.Equal(plain, s.Assign(c.IDs(), members, previous)) {
					t.Fatalf("without requirements it is another table: %v", plain)
				}
			})
		})
	}
}

// Within each group Sticky is even to one by weight, and what can stay stays: who is given a
// table again gives the same, and of what its eligible owner had before within its share
// nothing moves.
func TestGroupsAreEvenAndStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := drawMembers(t, 8)
		c := drawGroups(t, members)
		previous := drawTable(t, c.IDs(), members)
		table := partition.Assign(partition.Sticky{}, c, members, previous)
		if again := partition.Assign(partition.Sticky{}, c, members, table); !maps.Equal(again, table) {
			t.Fatalf("it does not stay: %v, then %v", table, again)
		}
		groups := map[partition.Tags][]partition.ID{}
		for id := range table {
			if !id.IsUnit() {
				groups[c.Asks(id)] = append(groups[c.Asks(id)], id)
			}
		}
		for asks, ids := range groups {
			sum, got, had := 0, map[partition.Session]int{}, map[partition.Session]int{}
			for _, id := range ids {
				got[table[id]]++
				had[previous[id]]++
			}
			for _, m := range members {
				if !m.Down && m.Tags.Has(asks) {
					sum += max(m.Weight, 1)
				}
			}
			for _, m := range members {
				if m.Down || !m.Tags.Has(asks) {
					continue
				}
				exact := float64(len(ids)*max(m.Weight, 1)) / float64(sum)
				if n := float64(got[m.Session]); n <= exact-1 || n >= exact+1 {
					t.Fatalf("of %d that ask for %q %s has %v, its share is %v", len(ids), asks, m.Session, n, exact)
				}
				stays := 0
				for _, id := range ids {
					if previous[id] == m.Session && table[id] == m.Session {
						stays++
					}
				}
				if stays < min(had[m.Session], got[m.Session]) {
					t.Fatalf("%s had %d of %q, has %d, and %d of them stayed", m.Session, had[m.Session], asks, got[m.Session], stays)
				}
			}
		}
	})
}

func TestAskedTwiceIsAskedOnce(t *testing.T) {
	c := partition.Config{Total: 4, Requires: []partition.Requirement{{Last: 3, Tags: "gpu"}, {First: 1, Last: 1, Tags: "gpu"}}}
	if c.Asks(0) != c.Asks(1) {
		t.Errorf("%q and %q are two groups", c.Asks(0), c.Asks(1))
	}
}

// What would be read back as something else is not written down.
func TestRequirementsThatCannotBeWritten(t *testing.T) {
	for _, r := range []partition.Requirement{
		{First: 7, Tags: "gpu"}, {Unit: "3", Tags: "gpu"}, {Unit: "20240101", Tags: "gpu"}, {Last: 3, Tags: "gpu/a"}, {Last: 3},
		{Unit: "in-1\nin-2", Tags: "gpu"}, // a store has them one a line
	} {
		if err := partition.CheckRequirements([]partition.Requirement{{Unit: "in-1", Tags: "gpu"}, r}); err == nil {
			t.Errorf("%+v is let through", r)
		}
	}
	if err := partition.CheckRequirements([]partition.Requirement{{First: 1, Last: 7, Tags: "eu gpu"}, {Unit: "in-1", Tags: "gpu"}}); err != nil {
		t.Error(err)
	}
}

// A seat of which nobody knows who had it, as a roll of an earlier build leaves it, keeps the others in their places
// in each group.
func TestASeatOfNobodyIsOfEachGroup(t *testing.T) {
	c := partition.Config{Total: 64, Requires: []partition.Requirement{{Last: 63, Tags: "gpu"}}}
	seats := func(gone partition.Member) []partition.Member {
		gone.Index, gone.Seat, gone.Down = -1, 1, true
		return []partition.Member{{Session: "a", Index: 0, Seat: 0, Tags: "gpu"}, gone, {Session: "c", Index: 1, Seat: 2, Tags: "gpu"}}
	}
	kept := partition.Assign(partition.Jump{}, c, seats(partition.Member{Session: "b", Tags: "gpu"}), nil)
	if free := partition.Assign(partition.Jump{}, c, seats(partition.Member{}), nil); !maps.Equal(free, kept) {
		t.Errorf("with the seat kept %v, with the seat of nobody %v", kept, free)
	}
}
