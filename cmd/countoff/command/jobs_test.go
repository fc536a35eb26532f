package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
)

func TestJobs(t *testing.T) {
	s := newShell(t)
	s.fails(exit.Failed, "jobs nobody")
	s.run("init billing --partitions 4")
	if got := s.run("jobs billing --json"); got != "" {
		t.Errorf("no job was fired:\n%s", got)
	}
	client := s.client()
	key := "{billing:" + partition.Of("close-day", 4).String() + "}:jobs"
	record := `1772334000000 {"spec":"0 3 * * *","zone":"UTC","key":"close-day","tick":"2026-03-01T03:00:00Z","fired":31}`
	if err := client.HSet(t.Context(), key, "close-day", record).Err(); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(s.run("jobs billing")), " ")
	if want := "close-day " + partition.Of("close-day", 4).String() + " 0 3 * * * (UTC) 2026-03-01T03:00:00Z 31 2026-03-02T03:00:00Z"; !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s\nwant at its end\n%s", got, want)
	}
	var j map[string]any
	if err := json.Unmarshal([]byte(s.run("jobs billing --json")), &j); err != nil || j["entry"] != "close-day" || j["schedule"] != "0 3 * * *" ||
		j["last_tick"] != "2026-03-01T03:00:00Z" || j["fired"] != 31.0 || j["next_tick"] != "2026-03-02T03:00:00Z" {
		t.Errorf("as JSON: %v, %v", j, err)
	}
	// What cannot be read is told beside the others.
	if err := client.HSet(t.Context(), key, "broken", "yesterday").Err(); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"", " --json"} {
		var out output
		err := s.start(t.Context(), &out, "jobs billing"+how)
		if codeOf(err) != exit.Failed || !strings.Contains(err.Error(), "--forget broken") || !strings.Contains(out.String(), "close-day") {
			t.Errorf("with a broken record: %v\n%s", err, out.String())
		}
	}
	s.run("jobs billing --forget broken")
	if err := client.HSet(t.Context(), key, "a\x1b[2J\nb", record).Err(); err != nil {
		t.Fatal(err)
	}
	if got := s.run("jobs billing"); strings.Contains(got, "\x1b") || !strings.Contains(got, "a\ufffd[2J b ") {
		t.Errorf("the entry of somebody is obeyed by the terminal: %q", got)
	}
	s.fails(exit.Usage, "jobs billing --forget close-year")
	s.fails(exit.Usage, "jobs billing --forget=") // a variable of a script that is empty
	s.run("jobs billing --forget close-day")
	if got := s.run("jobs billing"); strings.Contains(got, "close-day") {
		t.Errorf("it was forgotten:\n%s", got)
	}
}

// A tick in a year that JSON does not have is null, and the jobs behind it are printed.
func TestJobsOfAnOddTime(t *testing.T) {
	s := newShell(t)
	s.run("init billing --partitions 1")
	if err := s.client().HSet(t.Context(), "{billing:0}:jobs",
		"a", `300000000000000 {"spec":"@every 1h","zone":"UTC","key":"a","tick":"9999-12-31T23:00:00-02:00","fired":1}`,
		"b", `1772334000000 {"spec":"0 3 * * *","zone":"UTC","key":"b","tick":"2026-03-01T03:00:00Z","fired":31}`).Err(); err != nil {
		t.Fatal(err)
	}
	out := json.NewDecoder(strings.NewReader(s.run("jobs billing --json")))
	for _, want := range []map[string]any{{"entry": "a"}, {"entry": "b", "last_tick": "2026-03-01T03:00:00Z", "next_tick": "2026-03-02T03:00:00Z"}} {
		var j map[string]any
		if err := out.Decode(&j); err != nil || j["entry"] != want["entry"] || j["last_tick"] != want["last_tick"] || j["next_tick"] != want["next_tick"] {
			t.Errorf("%v, %v, want %v", j, err, want)
		}
	}
}
