package play

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/cmd/countoff-bench/contest"
	"github.com/countoff/countoff/cmd/countoff-bench/meter"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
	"github.com/countoff/countoff/partition/redistest/redisserver"
)

// The test's own binary plays the contestants.
func TestMain(m *testing.M) {
	if done, err := Part(os.Args, os.Stdin, os.Stdout); done {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/countoff/countoff/cmd/countoff-chaos/child.Start.func1.1")) // forks for good
}

func pick(t *testing.T, tags ...string) []contest.Contestant {
	t.Helper()
	var all []contest.Contestant
	for _, tag := range tags {
		c, ok := contest.Find(tag)
		if !ok {
			t.Fatalf("no contestant %q", tag)
		}
		all = append(all, c)
	}
	return all
}

func TestAFewTasksThroughContestants(t *testing.T) {
	tags := []string{"countoff-c10", "asynq-c10", "lpop100-c10", "lmove+lrem-c10", "watermill-c10", "redis-benchmark",
		"asynqsource-q16", "asynq-q16-hot1", "countoff-kafka-c10", "franz-go-group", "countoff-enqueue-batch", "countoff-enqueue-c50", "asynq-enqueue-c50"}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	samples, err := Run(t.Context(), Config{
		Self: self, Contestants: pick(t, tags...), Rounds: 1, Tasks: 2000, Profile: t.TempDir(), Log: &log,
	})
	if errors.Is(err, redisserver.ErrNone) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	for _, tag := range tags {
		if tag == "redis-benchmark" && strings.Contains(log.String(), contest.ErrAbsent.Error()) {
			continue
		}
		if v := samples.Of(tag, report.TasksPerSecond)[1]; v <= 0 {
			t.Errorf("%s: %v tasks/s", tag, v)
		}
	}
	// The nine others go on while one asks the store what it had done before, and find
	// nothing more before the last task is handled.
	if c := samples.Of("lmove+lrem-c10", report.CommandsPerTask)[1]; c < 1.5 || c > 2.01 {
		t.Errorf("LMOVE and LREM are %v commands a task", c)
	}
	if t.Failed() {
		t.Log(log.String())
	}
}

// A contestant that lost a task fails the whole run; so does one that dies.
func TestWhatGoesWrongIsTold(t *testing.T) {
	for said, want := range map[string]string{
		`{"err":"2 of 3 tasks were not handled"}`: "2 of 3",
		`{"absent":true}`:                         contest.ErrAbsent.Error(),
		`panic: oh`:                               "panic: oh",
		``:                                        "without its last word",
	} {
		_, err := heard(contest.Contestant{Tag: "x"}, []byte(said))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", said, err, want)
		}
	}
}

// So does one that the store holds something of when it has ended.
func TestWhatIsLeftInTheStoreIsTold(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := pick(t, "lpop-c10")
	all[0].Check = func(ctx context.Context, client *redis.Client, n int) error {
		if left, err := client.DBSize(ctx).Result(); err != nil || left != 0 {
			return fmt.Errorf("%d keys, %w", left, err)
		}
		return fmt.Errorf("%d are not settled", n)
	}
	_, err = Run(t.Context(), Config{Self: self, Contestants: all, Rounds: 1, Tasks: 7, Log: &bytes.Buffer{}})
	if errors.Is(err, redisserver.ErrNone) {
		t.Skip(err)
	}
	if err == nil || !strings.Contains(err.Error(), "lpop-c10: when it had ended: 7 are not settled") {
		t.Errorf("got %v", err)
	}
}

func TestFigures(t *testing.T) {
	span := &meter.Span{
		Tasks: 1000, Took: time.Second, CPU: 2 * time.Millisecond, Allocs: 3000, Bytes: 4000,
		Store: meter.Store{CPU: 500 * time.Microsecond, Calls: map[string]float64{"get": 2000, "set": 10}, Micros: map[string]float64{"get": 5000}},
	}
	got := sample(contest.Contestant{Tag: "x"}, span, report.Measures{report.P50: 7})
	for m, want := range map[string]float64{
		report.TasksPerSecond: 1000, report.ClientPerTask: 2, report.StorePerTask: 0.5, report.CommandsPerTask: 2.01,
		report.AllocsPerTask: 3, report.BytesPerTask: 4, report.P50: 7,
	} {
		if have := got.Measures[m]; have < want*0.999 || have > want*1.001 {
			t.Errorf("%s: got %v, want %v", m, have, want)
		}
	}
	if len(got.Commands) != 2 || got.Commands["get"] != 2 || got.Micros["get"] != 5 {
		t.Errorf("commands %v, %v", got.Commands, got.Micros)
	}
	idle := sample(contest.Contestant{Kind: contest.Idle}, span, nil)
	if _, ok := idle.Measures[report.TasksPerSecond]; ok || idle.Measures[report.CommandsPerSec] != 2010 {
		t.Errorf("idle: %v", idle.Measures)
	}
}

func TestEachRoundBeginsElsewhere(t *testing.T) {
	all := contest.All()
	s := &stage{cfg: Config{Contestants: all}}
	first := map[string]bool{}
	for round := 1; round <= 4; round++ {
		order := s.order(round)
		if len(order) != len(all) {
			t.Fatalf("round %d has %d of %d", round, len(order), len(all))
		}
		first[order[0].Tag] = true
	}
	if len(first) != 4 {
		t.Errorf("four rounds began with %v", first)
	}
	s.cfg.Quick = true
	s.absent = []string{"redis-benchmark"}
	if slices.ContainsFunc(s.order(2), func(c contest.Contestant) bool {
		return c.Kind == contest.Idle || c.Kind == contest.Latency || c.Tag == "redis-benchmark"
	}) {
		t.Error("the second round of a quick run has what is slow or absent")
	}
}

// Every tag names one contestant, and goals name tags that are there.
func TestGoalsNameContestants(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range contest.All() {
		if seen[c.Tag] || c.What == "" || c.Tasks < 1 || c.Quick < 1 || c.Run == nil {
			t.Errorf("%q stands twice or is not whole", c.Tag)
		}
		if c.Check == nil && c.Kind != contest.Idle && !strings.HasPrefix(c.Tag, "franz-go") {
			t.Errorf("%q is believed without a look at the store", c.Tag)
		}
		seen[c.Tag] = true
	}
	for _, g := range report.Goals() {
		if !seen[g.Tag] || g.Per != "" && !seen[g.Per] {
			t.Errorf("%s: no contestant %q or %q", g.ID, g.Tag, g.Per)
		}
	}
}

func TestAContestantThatIsNone(t *testing.T) {
	if err := Contestant([]string{"--tag", "nobody"}, nil); err == nil {
		t.Error("nobody ran")
	}
	if _, err := Run(context.Background(), Config{Self: "/does/not/exist", Rounds: 1, Contestants: pick(t, "lpop-c10"), Tasks: 1, Log: &bytes.Buffer{}}); err == nil {
		t.Error("a program that is not there ran")
	}
}
