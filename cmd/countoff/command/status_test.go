package command

import (
	"strings"
	"testing"
)

// A key that holds something else fails what asks for that list, not what tells of the name.
func TestAnIngressThatIsNoList(t *testing.T) {
	s := newShell(t)
	s.run("init lists --partitions 4 --unit orders --unit mails")
	client := s.client()
	if err := client.SAdd(t.Context(), "mails", "a").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.RPush(t.Context(), "orders", "x", "y").Err(); err != nil {
		t.Fatal(err)
	}
	got := s.run("status lists")
	for _, want := range []string{"ingress mails: unowned, nobody, WRONG: mails is no list", "ingress orders: unowned, nobody, 2 lines wait"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got := s.run("status lists --json"); strings.Count(got, `"trouble"`) != 1 {
		t.Error(got)
	}
}
