package sourcetest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/sources.md lists the clauses, all of them and no others.
func TestTheTutorialListsTheClauses(t *testing.T) {
	page, err := os.ReadFile("../../docs/sources.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tables, ok := strings.Cut(string(page), "## Clause by clause\n")
	if !ok {
		t.Fatal("docs/sources.md has no chapter about the clauses")
	}
	var listed []string
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \|`).FindAllStringSubmatch(tables, -1) {
		if row[1] != "clause" {
			listed = append(listed, row[1])
		}
	}
	var clausesNow []string
	for _, c := range clauses() {
		name, _, _ := strings.Cut(c.name, ", seed ")
		if !slices.Contains(clausesNow, name) {
			clausesNow = append(clausesNow, name)
		}
	}
	for _, c := range clausesNow {
		if !slices.Contains(listed, c) {
			t.Errorf("docs/sources.md does not list %q", c)
		}
	}
	for _, c := range listed {
		if !slices.Contains(clausesNow, c) {
			t.Errorf("docs/sources.md lists %q, which is no clause", c)
		}
	}
}
