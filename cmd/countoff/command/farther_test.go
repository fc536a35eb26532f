package command

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/sources/redissource"
)

// A resize that takes long is heard of now and then, also while it waits for a replica.
func TestResizeSaysHowFarItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		f := newFarther(&out)
		for range 11 {
			f.tell(redissource.Resized{Tasks: 7}, false)
			time.Sleep(time.Second)
		}
		f.tell(redissource.Resized{Tasks: 8, Dead: 1}, true)
		time.Sleep(silent)
		f.tell(redissource.Resized{Tasks: 8, Dead: 1}, true)
		want := []string{"7 tasks, 0 delayed, 0 dead so far", "7 tasks, 0 delayed, 0 dead so far", "8 tasks, 0 delayed, 1 dead so far; a replica does not answer"}
		for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			if i >= len(want) || !strings.HasPrefix(line, want[i]) {
				t.Errorf("it says\n%s", out.String())
			}
		}
		if n := strings.Count(out.String(), "\n"); n != len(want) {
			t.Errorf("%d lines", n)
		}
	})
}

// Where the store stands still a command that takes long says so, and no more once it gets farther.
func TestWhatStandsStillIsHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		f := newFarther(&out)
		done := f.watch()
		time.Sleep(2*silent + time.Second)
		for range 11 {
			f.tell(redissource.Resized{Tasks: 7}, false)
			time.Sleep(time.Second)
		}
		done()
		time.Sleep(time.Minute)
		want := "no farther for 5s now: it goes on when the store answers\nno farther for 10s now: it goes on when the store answers\n" +
			strings.Repeat("7 tasks, 0 delayed, 0 dead so far\n", 2)
		if got := out.String(); got != want {
			t.Errorf("it says\n%s", got)
		}
	})
}

// A walk through a large store is heard of now and then, and no more once it has ended.
func TestLongWalkSaysThatItGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		done := meanwhile(&out, "looking")
		time.Sleep(2*silent + time.Second)
		done()
		time.Sleep(time.Minute)
		if got, want := out.String(), "looking, for 5s so far\nlooking, for 10s so far\n"; got != want {
			t.Errorf("it says\n%s", got)
		}
	})
}
