package command

import (
	"strings"
	"testing"

	"github.com/countoff/countoff/framework/program/exit"
)

// The name of a list is taken as it is: what stood behind a line feed was cut off without a word, and a
// quotation mark was a fault.
func TestInitTakesTheNameOfAListAsItIs(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.fails(exit.Usage, "init n", "--unit", "a\nb")
	s.fails(exit.Usage, "init n", "--unit", "")
	if err := s.fails(exit.Usage, "init n --unit {n}:config"); !strings.Contains(err, "the name n has that key itself") {
		t.Errorf("said %s", err)
	}
	// What no peer would take for a list is said before all of them refuse the name.
	for lists, want := range map[string]string{"--unit a --unit {a}": "the key {a}:fence is one of ingress", "--unit a --unit a": "listed twice", "--unit {a": "a brace that is no hash tag",
		"--unit {n:1}:log": "so the keys of a partition of n are called"} {
		if err := s.fails(exit.Usage, "init n "+lists); !strings.Contains(err, want) {
			t.Errorf("%s: said %s", lists, err)
		}
	}
	s.run("init n", "--unit", `say "hi", bob's`, "--unit", "a,b")
	if out := s.run("ingress n"); out != "a,b\nsay \"hi\", bob's\n" {
		t.Errorf("it has %q", out)
	}
	if err := s.fails(exit.Config, "init n"); !strings.HasSuffix(err, ` say --unit a,b --unit 'say "hi", bob'\''s'`) {
		t.Errorf("said %s", err)
	}
}

// Who is there already is the same only if nothing of it was changed.
func TestInitSaysWhatItChanges(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 4")
	for _, step := range []struct{ line, want string }{
		{"init n --partitions 4 --require 0-1=gpu --require 2=eu", "asked for nothing until now, and for 0-1=gpu 2=eu from now on"},
		{"init n --partitions 4 --require 2=eu --require 0-1=gpu", "is there already, with the same configuration"},
		{"init n --partitions 4 --require 0-1=cpu", "0-1=gpu 2=eu until now, and for 0-1=cpu from now on"},
		{"init n --partitions 4", "is there already, with the same configuration"},
		{"require n", "0-1=cpu"},
	} {
		if out := s.run(step.line); !strings.Contains(out, step.want) {
			t.Errorf("countoff %s does not say %q:\n%s", step.line, step.want, out)
		}
	}
	if err := s.fails(exit.Config, "init n --partitions 8"); !strings.Contains(err, "countoff resize n --partitions 8)") || strings.Contains(err, "without") {
		t.Errorf("said %s", err)
	}
	if err := s.fails(exit.Config, "init n"); !strings.HasSuffix(err, "\nwithout --partitions a name has 256; to leave those that stand, say --partitions 4") {
		t.Errorf("said %s", err)
	}
}

// Who tries another configuration is told so. It is no program that was turned away, which those at work
// report for ten minutes.
func TestInitThatIsRefusedTroublesNobody(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 4")
	s.fails(exit.Config, "init n --partitions 8")
	if out := s.run("status n"); strings.Contains(out, "WRONG") {
		t.Errorf("it says\n%s", out)
	}
}
