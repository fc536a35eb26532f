package redissource

import (
	"regexp"
	"testing"
	"time"
)

// IDs sort by time, and go where people and programs put them: into a URL, a header, a shell's
// command line.
func TestNewID(t *testing.T) {
	sound := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{19}$`)
	former := ""
	for at := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2109; at = at.Add(9*24*time.Hour + time.Millisecond) {
		id := newID(at)
		if !sound.MatchString(id) {
			t.Fatalf("%v: %q", at, id)
		}
		if id <= former {
			t.Fatalf("%v: %q does not come after %q", at, id, former)
		}
		former = id
	}
}
