package jobs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones, wherever the tests run

	"pgregory.net/rapid"

	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/jobs"
	"github.com/countoff/countoff/sources/jobs/ticks"
)

func TestWhatIsWrongWithAnEntryIsSaidAtOnce(t *testing.T) {
	_, err := jobs.Compile(
		jobs.Entry{Name: "a b", Spec: "* * * *", Zone: "UTC"},
		jobs.Entry{Name: "x", Spec: "@daily", Zone: "", Missed: jobs.Once},
		jobs.Entry{Name: "x", Spec: "@daily", Zone: "Local", Missed: jobs.Once, Grace: time.Hour},
		jobs.Entry{Name: "y", Spec: "CRON_TZ=UTC", Zone: "UTC", Missed: 1001},
		jobs.Entry{Name: "never", Spec: "0 0 31 2 *", Zone: "UTC", Missed: jobs.Skip},
		jobs.Entry{Name: "often", Spec: "@every 10ms", Zone: "UTC", Missed: jobs.All},
		jobs.Entry{Name: "moon", Spec: "@daily", Zone: "Moon/Crater", Missed: jobs.All, Headers: map[string]string{jobs.HeaderTick: "now"}},
		jobs.Entry{Name: "both", Spec: "0 3 * * 9", Zone: "Moon/Sea", Missed: jobs.All},
	)
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	for _, want := range []string{
		`job "a b"`, "expected 5 to 6 fields", "missed 0: say what becomes of missed ticks",
		`zone "": say the time zone`, `zone "Local"`, "another job has the name", "grace 1h0m0s", "stands in Zone", "missed 1001",
		"it never comes", "want whole seconds", `zone "Moon/Crater"`, "time/tzdata", `job "both": zone "Moon/Sea"`, `job "both": spec "0 3 * * 9"`, `header "countoff-tick"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not said in:\n%v", want, err)
		}
	}
}

func TestTheTaskOfATick(t *testing.T) {
	all, err := jobs.Compile(jobs.Entry{Name: "report", Spec: "0 3 * * *", Zone: "Europe/Berlin", Missed: jobs.Once, Headers: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	j := all[0]
	at := j.Next(time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC))
	task := j.Task(at)
	if task.ID != "report@2026-07-01T01:00:00Z" || j.Type != "report" || j.Key != "report" || task.Headers["a"] != "b" || !task.Born.Equal(at) {
		t.Errorf("%+v of %+v", task, j.Entry)
	}
	name, tick, ok := jobs.Tick(&sources.Task{Delivery: &sources.Delivery{Headers: task.Headers}})
	if name != "report" || !tick.Equal(at) || !ok {
		t.Errorf("read %q %v %t", name, tick, ok)
	}
	if _, _, ok := jobs.Tick(&sources.Task{}); ok {
		t.Error("a task of nobody is a tick")
	}
	if len(j.Headers) != 1 {
		t.Errorf("the entry's headers are now %v", j.Headers)
	}
}

// What an entry says and may say just about is kept, the rest has defaults; just beyond it is refused.
func TestWhatAnEntryMaySay(t *testing.T) {
	compile := func(change func(*jobs.Entry)) (*jobs.Job, error) {
		e := jobs.Entry{Name: "report", Spec: "@every 1s", Zone: "UTC", Missed: jobs.Once}
		change(&e)
		all, err := jobs.Compile(e)
		if err != nil {
			return nil, err
		}
		return all[0], nil
	}
	for what, c := range map[string]struct {
		change func(*jobs.Entry)
		want   string // "": it may
	}{
		"as many missed as there may be": {func(e *jobs.Entry) { e.Missed = jobs.All }, ""},
		"one more":                       {func(e *jobs.Entry) { e.Missed = jobs.All + 1 }, "missed 1001"},
		"less than none":                 {func(e *jobs.Entry) { e.Missed = jobs.Skip - 1 }, "missed -2"},
		"the longest grace":              {func(e *jobs.Entry) { e.Grace = 15 * time.Minute }, ""},
		"a longer one":                   {func(e *jobs.Entry) { e.Grace = 15*time.Minute + 1 }, "grace 15m0.000000001s"},
		"less than no grace":             {func(e *jobs.Entry) { e.Grace = -1 }, "grace -1ns"},
		"a name that is none":            {func(e *jobs.Entry) { e.Name = "a b" }, `name "a b"`},
		"a header of the tick":           {func(e *jobs.Entry) { e.Headers = map[string]string{jobs.HeaderJob: "x"} }, `header "countoff-job"`},
		"a part of a second":             {func(e *jobs.Entry) { e.Spec = "@every 1500ms" }, "want whole seconds"},
		"no second":                      {func(e *jobs.Entry) { e.Spec = "@every 0s" }, "want whole seconds"},
		"no duration":                    {func(e *jobs.Entry) { e.Spec = "@every day" }, "invalid duration"},
		"spaces":                         {func(e *jobs.Entry) { e.Spec = " @every  1s " }, ""},
	} {
		_, err := compile(c.change)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	plain, err := compile(func(*jobs.Entry) {})
	if err != nil {
		t.Fatal(err)
	}
	if plain.Grace != time.Minute {
		t.Errorf("the grace is %v, want a minute", plain.Grace)
	}
	own, err := compile(func(e *jobs.Entry) { e.Type, e.Key, e.Grace, e.Missed = "typ", "key", time.Second, jobs.Skip })
	if err != nil {
		t.Fatal(err)
	}
	if own.Type != "typ" || own.Key != "key" || own.Grace != time.Second {
		t.Errorf("of what it said is left %+v", own.Entry)
	}
	now := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		job  *jobs.Job
		late time.Duration
		want int
	}{
		{plain, 0, 61}, {own, 0, 2}, {own, 500 * time.Millisecond, 1},
	} {
		if plan := c.job.Due(now.Add(-time.Hour), now.Add(c.late)); len(plan.Fire) != c.want {
			t.Errorf("with a grace of %v fires %d, want %d", c.job.Grace, len(plan.Fire), c.want)
		}
	}
	task := plain.Task(now.In(time.FixedZone("", 3600)))
	if task.ID != "report@2026-03-01T03:00:00Z" || len(task.Headers) != 2 {
		t.Errorf("the task is %+v", task)
	}
	for what, headers := range map[string]map[string]string{
		"no tick": {jobs.HeaderJob: "report"}, "no job": {jobs.HeaderTick: "2026-03-01T03:00:00Z"}, "no time": {jobs.HeaderJob: "report", jobs.HeaderTick: "now"},
	} {
		if _, _, ok := jobs.Tick(&sources.Task{Delivery: &sources.Delivery{Headers: headers}}); ok {
			t.Errorf("%s: it is a tick", what)
		}
	}
}

// The multiples of a duration are the same from wherever one begins, also before 1970.
func TestEveryIsCountedFrom1970(t *testing.T) {
	s, err := jobs.Schedule("@every 7s", "UTC")
	if err != nil {
		t.Fatal(err)
	}
	for from, want := range map[int64]int64{-15: -14, -14: -7, -8: -7, -7: 0, -1: 0, 0: 7, 6: 7, 7: 14} {
		if at := s.Next(time.Unix(from, 0)).Unix(); at != want {
			t.Errorf("after %d comes %d, want %d", from, at, want)
		}
	}
}

// What docs/jobs.md says of the two nights.
func TestSummerTime(t *testing.T) {
	count := func(spec, zone, from string, hours int) (n int) {
		t.Helper()
		s, err := jobs.Schedule(spec, zone)
		if err != nil {
			t.Fatal(err)
		}
		begin, err := time.Parse(time.RFC3339, from)
		if err != nil {
			t.Fatal(err)
		}
		for at := s.Next(begin); !at.After(begin.Add(time.Duration(hours) * time.Hour)); at = s.Next(at) {
			n++
		}
		return n
	}
	for _, c := range []struct {
		spec, zone, from string
		hours, want      int
	}{
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", 23, 1}, // 02:30 does not exist
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T22:00:00Z", 25, 1}, // 02:30 comes twice
		{"0 4 * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", 23, 1},
		{"0 4 * * *", "Europe/Berlin", "2026-10-24T22:00:00Z", 25, 1},
		{"*/10 * * * *", "Europe/Berlin", "2026-10-24T22:00:00Z", 25, 150},
		{"30 2 * * *", "UTC", "2026-03-29T00:00:00Z", 24, 1},
		{"@every 90m", "Europe/Berlin", "2026-03-29T00:00:00Z", 24, 16},
	} {
		if got := count(c.spec, c.zone, c.from, c.hours); got != c.want {
			t.Errorf("%s in %s from %s on: %d ticks, want %d", c.spec, c.zone, c.from, got, c.want)
		}
	}
}

// What is daily comes once a day, whatever the clocks do.
func TestDailyIsOnceADay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom([]string{
			"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "America/St_Johns", "Africa/Casablanca",
		}).Draw(t, "zone")
		h, m := rapid.IntRange(0, 23).Draw(t, "hour"), rapid.IntRange(0, 59).Draw(t, "minute")
		s, err := jobs.Schedule(fmt.Sprintf("%d %d * * *", m, h), zone)
		if err != nil {
			t.Fatal(err)
		}
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		first := time.Date(rapid.IntRange(2001, 2030).Draw(t, "year"), 1, 15, 12, 0, 0, 0, location)
		n := 0
		for at := s.Next(first); !at.After(first.AddDate(1, 0, 0)); at = s.Next(at) {
			n++
			local := at.In(location)
			if local.Hour() != h || local.Minute() != m {
				// It was skipped: an hour, or half an hour, earlier it was not yet.
				if early := at.Add(-3 * time.Hour).In(location); offsetOf(local) <= offsetOf(early) {
					t.Fatalf("%02d:%02d in %s comes at %v", h, m, zone, local)
				}
			}
		}
		if days := int(first.AddDate(1, 0, 0).Sub(first)/time.Hour+12) / 24; n != days {
			t.Fatalf("%02d:%02d in %s comes %d times in %d days", h, m, zone, n, days)
		}
	})
}

// Go's own bounds of a zone end too early in a leap year whose changes are a rule's.
func TestTheLastDayOfALeapYear(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"} {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []time.Time{
			time.Date(2040, 12, 31, 0, 0, 0, 0, location), time.Date(2040, 12, 31, 12, 30, 0, 0, location),
			time.Date(2040, 12, 31, 23, 59, 0, 0, location), time.Date(2041, 1, 1, 0, 0, 0, 0, location),
		} {
			s, err := jobs.Schedule(fmt.Sprintf("%d %d %d %d *", at.Minute(), at.Hour(), at.Day(), at.Month()), zone)
			if err != nil {
				t.Fatal(err)
			}
			for _, before := range []time.Duration{time.Second, 13 * time.Hour, 48 * time.Hour, 200 * 24 * time.Hour} {
				if got := s.Next(at.Add(-before)); !got.Equal(at) {
					t.Errorf("%v before %v comes %v", before, at, got)
				}
			}
		}
	}
}

func offsetOf(t time.Time) int {
	_, seconds := t.Zone()
	return seconds
}

// A schedule is a set of instants: from wherever one begins, it is the same. The bisection of
// package ticks rests on it.
func TestAScheduleIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := rapid.SampledFrom([]string{
			"* * * * *", "*/7 * * * *", "30 1 * * *", "30 2 * * *", "0 */3 * * *", "15 0 * * 0", "59 23 31 12 *",
			"@daily", "@hourly", "@every 90s", "@every 7h", "5,10 1-3 * 3,10,11 *", "0 0 12 13 * 5", "0 30 1 * * *",
		}).Draw(t, "spec")
		zone := rapid.SampledFrom([]string{
			"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu", "Pacific/Apia",
		}).Draw(t, "zone")
		s, err := jobs.Schedule(spec, zone)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Unix(rapid.Int64Range(1_000_000_000, 2_000_000_000).Draw(t, "begin"), 0)
		var walked []time.Time
		for at := begin; len(walked) < 8; {
			at = s.Next(at)
			if !at.After(begin) || len(walked) > 0 && !at.After(walked[len(walked)-1]) {
				t.Fatalf("%v after %v", at, walked)
			}
			walked = append(walked, at)
		}
		for range 4 {
			i := rapid.IntRange(0, len(walked)-2).Draw(t, "at")
			gap := walked[i+1].Sub(walked[i])
			from := walked[i].Add(time.Duration(rapid.Int64Range(0, int64(gap)-1).Draw(t, "into")))
			if got := s.Next(from); !got.Equal(walked[i+1]) {
				t.Fatalf("%s in %s: after %v comes %v, from before it was %v", spec, zone, from, got, walked[i+1])
			}
		}
	})
}

// No text of a user makes a peer panic.
func FuzzSchedule(f *testing.F) {
	for _, s := range []string{"", "* * * * *", "@every 1h", "@every", "TZ=UTC", "CRON_TZ= ", ", , , , ,", "*/0 * * * *", "1-/2 * * * *", "@every 9999999h"} {
		f.Add(s, "UTC")
	}
	f.Fuzz(func(t *testing.T, spec, zone string) {
		s, err := jobs.Schedule(spec, zone)
		if err != nil {
			return
		}
		begin := time.Unix(1_700_000_000, 0)
		if at := s.Next(begin); !at.IsZero() && !at.After(begin) {
			t.Errorf("%q: %v is not after %v", spec, at, begin)
		}
	})
}

var _ ticks.Schedule = (*jobs.Job)(nil)
