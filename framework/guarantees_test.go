package framework_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each test that docs/guarantees.md names exists: a promise whose test was renamed
// or deleted is a wish.
func TestGuarantees(t *testing.T) {
	root := ".."
	text, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`([a-z][a-z0-9/-]*): ([^`]+)`").FindAllStringSubmatch(string(text), -1)
	if len(names) < 30 {
		t.Fatalf("found %d tests in docs/guarantees.md: is it still written as it was?", len(names))
	}
	for _, m := range names {
		dir, name := m[1], m[2]
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: there is no such package", dir)
			continue
		}
		// A clause of a suite is a string of the suite, a test is a function.
		want := `"` + name + `"`
		if strings.HasPrefix(name, "Test") {
			want = "func " + name + "("
		}
		found := false
		for _, f := range files {
			code, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(code), want)
		}
		if !found {
			t.Errorf("%s: %s: there is no such test", dir, name)
		}
	}
}
