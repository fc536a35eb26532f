package journal

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.journal")
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []Record{
		{Kind: Joined, Time: Now(), Session: "s1"},
		{Kind: Began, Time: Now(), Part: 3, Epoch: 12, Session: "s1", Run: 7, Task: "p000000001", Key: "k", Seq: 2, Attempt: 1, Crashes: 1},
		{Kind: Ended, Time: Now(), Part: 3, Epoch: 12, Session: "s1", Run: 7, Task: "p000000001", Key: "k", Seq: 2, Outcome: Done},
		{Kind: Settled, Time: Now(), Until: Now(), Part: 3, Epoch: 12, Outcome: OK, Tasks: []Verdict{{"p1", Done}, {"p2", Retry}}},
		{Kind: Lost, Time: Now(), Part: 1 << 20, Epoch: 1},
	}
	for _, r := range want {
		w.Write(r)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// A process died in the middle of a write.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("B 12 0"); err != nil {
		t.Fatal(err)
	}
	f.Close()

	var got []Record
	if err := Read(path, func(r Record) { got = append(got, r) }); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%v\nwant\n%v", got, want)
	}
	if _, err := Create(path); err == nil {
		t.Error("a second process took the journal of the first")
	}
	for _, line := range []string{"", "B 1 2", "B x 0 0 0 0 0 0 0 - - - -", "S 1 0 0 0 0 0 0 0 - - - - p1"} {
		if r, err := Parse(line); err == nil {
			t.Errorf("%q was read as %v", line, r)
		}
	}
}
