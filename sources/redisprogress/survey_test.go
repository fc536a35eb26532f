package redisprogress_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/redisprogress"
)

func TestSurvey(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	token := partition.Token{Epoch: 7, Session: "aa"}
	place := func(id partition.ID) (fence, log string) {
		if id >= partition.FirstUnit {
			return "", ""
		}
		fence = redisprogress.Elsewhere(name, id).Fence
		if id == 3 {
			return fence, ""
		}
		return fence, fence + "-log"
	}
	for _, id := range []partition.ID{1, 3} {
		fence, _ := place(id)
		if err := client.HSet(t.Context(), fence, "t", token.String()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	_, log := place(2)
	if err := client.RPush(t.Context(), log, "x").Err(); err != nil {
		t.Fatal(err)
	}
	want := []redisprogress.Fenced{{ID: 0}, {ID: 1, Fence: token}, {ID: 2, Log: true}, {ID: 3, Fence: token}}
	ids := []partition.ID{0, 1, 2, 3, partition.FirstUnit}

	// What is no *redis.Client is taken for a cluster: the first each time, and one of the others, each in its turn.
	survey := redisprogress.NewSurvey(client, place)
	got := want[:1:1]
	for range want[1:] {
		two, err := survey.Look(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		if len(two) != 2 || two[0] != want[0] {
			t.Fatalf("one look at a cluster was at %+v", two)
		}
		got = append(got, two[1])
	}
	slices.SortFunc(got, func(a, b redisprogress.Fenced) int { return int(a.ID) - int(b.ID) })
	if !slices.Equal(got, want) {
		t.Errorf("in turn: %+v, want %+v", got, want)
	}

	survey = redisprogress.NewSurvey(redistest.Single(t, client), place)
	for _, look := range []struct {
		ids  []partition.ID
		want []redisprogress.Fenced
	}{{ids[:2], want[:2]}, {ids[2:4], want[2:]}, {ids, want}, {ids, want}, {ids[4:], nil}} {
		got, err := survey.Look(t.Context(), look.ids)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, look.want) {
			t.Errorf("%v at once: %+v, want %+v", look.ids, got, look.want)
		}
	}
}

// Who asks for some of the partitions each time, in turn, comes to all of them.
func TestSurveyOfSomeAtATime(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	survey := redisprogress.NewSurvey(client, func(id partition.ID) (fence, log string) {
		fence = redisprogress.Elsewhere(name, id).Fence
		return fence, fence + "-log"
	})
	seen := make(map[partition.ID]bool)
	for look := range 8 {
		first := partition.ID(4 * (look % 2))
		got, err := survey.Look(t.Context(), []partition.ID{first, first + 1, first + 2, first + 3})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range got {
			seen[f.ID] = true
		}
	}
	if len(seen) != 8 {
		t.Errorf("of 8 partitions, four of which were asked for at a time, 8 looks came to %d", len(seen))
	}
}

// A node that does not answer takes no look from the partitions of the others for long, also not where it has the first.
func TestSurveyBesideANodeThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		direct, cluster := redistest.Frozen(t)
		keys := map[partition.ID]string{0: "", 1: "", 2: ""} // where 0 is nobody answers
		for n := 0; keys[0] == "" || keys[1] == "" || keys[2] == ""; n++ {
			key := "{" + string(rune('a'+n)) + "}"
			switch away := redistest.Slot(key) >= 8192; {
			case away && keys[0] == "":
				keys[0] = key
			case !away && keys[1] == "":
				keys[1] = key
			case !away && keys[2] == "":
				keys[2] = key
			}
		}
		token := partition.Token{Epoch: 7, Session: "aa"}
		for _, id := range []partition.ID{1, 2} {
			if err := direct.HSet(t.Context(), keys[id], "t", token.String()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		survey := redisprogress.NewSurvey(cluster, func(id partition.ID) (fence, log string) { return keys[id], "" })
		seen := make(map[partition.ID]int)
		for range 12 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			looked, _ := survey.Look(ctx, []partition.ID{0, 1, 2})
			cancel()
			for _, f := range looked {
				if seen[f.ID]++; f.Fence != token {
					t.Errorf("of %v it sees %+v", f.ID, f)
				}
			}
		}
		if seen[0] != 0 || seen[1] < 2 || seen[2] < 2 {
			t.Errorf("12 looks were so often at each: %v", seen)
		}
	})
}
