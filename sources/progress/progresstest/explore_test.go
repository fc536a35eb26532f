package progresstest

import (
	"flag"
	"strconv"
	"strings"
	"testing"
)

var (
	oneWay = flag.String("way", "", "go this way of an exploration, as a violation tells it: the first test that -run names")
	large  = flag.Bool("large", false, "explore the large worlds too")
	most   = flag.Int("states", 0, "look at so many states of each exploration; default all, under the race detector 500")
)

// TestExplore looks at every state of small worlds.
func TestExplore(t *testing.T) {
	for _, x := range Explorations() {
		if x.Large && !*large && *oneWay == "" {
			continue
		}
		t.Run(x.Name, func(t *testing.T) {
			if *oneWay != "" {
				if violated := x.Replay(readWay(t, *oneWay), func(line string) { t.Log(line) }); violated != "" {
					t.Error(violated)
				}
				return
			}
			t.Parallel()
			limit := *most
			if limit == 0 && raceDetector {
				limit = 500
			}
			sum, violated, way := x.Explore(limit)
			if violated == "" {
				how := "all of them"
				if sum.States == limit {
					how = "cut there"
				}
				t.Logf("%d states, %s; %d moves, %d ends", sum.States, how, sum.Moves, sum.Ends)
				return
			}
			var lines []string
			x.Replay(way, func(line string) { lines = append(lines, line) })
			const shown = 80
			t.Errorf("%s, after %d states\nfor all of it: go test ./sources/progress/progresstest -run TestExplore/%s$ -v -way %s\n%s",
				violated, sum.States, x.Name, writeWay(way), strings.Join(lines[max(0, len(lines)-shown):], "\n"))
		})
	}
}

func writeWay(way Way) string {
	var parts []string
	for _, i := range way {
		parts = append(parts, strconv.Itoa(i))
	}
	return strings.Join(parts, ".")
}

func readWay(t *testing.T, s string) (way Way) {
	t.Helper()
	for part := range strings.SplitSeq(s, ".") {
		i, err := strconv.Atoi(part)
		if err != nil {
			t.Fatal(err)
		}
		way = append(way, i)
	}
	return way
}
