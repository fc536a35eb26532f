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
	for _, want := range []string{"ingress mails: unowned, nobody, WRONG: mails is no list", "ingress orders: unowned, nobody, 2 lines waiting"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got := s.run("status lists --json"); strings.Count(got, `"trouble"`) != 1 {
		t.Error(got)
	}
	// Nobody can open a list whose fence is another program's.
	if err := client.Set(t.Context(), "{orders}:fence", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	got = s.run("status lists")
	for _, want := range []string{"ingress mails: unowned, nobody, WRONG: mails is no list", "ingress orders: unowned, nobody, WRONG: {orders}:fence is no hash: another program writes it"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got := s.run("status lists --json"); strings.Count(got, `"trouble"`) != 2 || !strings.Contains(got, `"name":"orders","pending":2,`) {
		t.Error(got)
	}
	// Nor one whose plan is.
	if err := client.Rename(t.Context(), "{orders}:fence", "{orders}:plan").Err(); err != nil {
		t.Fatal(err)
	}
	got = s.run("status lists")
	if want := "ingress orders: unowned, nobody, WRONG: {orders}:plan is no hash: another program writes it"; !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}
