package framework_test

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Go code in the README and the docs is code: whole programs compile, excerpts parse.
func TestSnippets(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{} // source by the place in the README or docs
	for _, file := range append(files, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line, code := range snippets(string(text)) {
			place := fmt.Sprintf("%s:%d", filepath.Base(file), line)
			if strings.HasPrefix(code, "package ") {
				programs[place] = code
			} else if err := parses(code); err != nil {
				t.Errorf("%s: %v", place, err)
			}
		}
	}
	if len(programs) < 2 {
		t.Errorf("%d whole programs, the README has at least two", len(programs))
	}
	check(t, root, programs)
}

// snippets returns the blocks marked as Go by the line on which they begin.
func snippets(text string) map[int]string {
	found := map[int]string{}
	begin := 0
	var code []string
	for i, line := range strings.Split(text, "\n") {
		switch {
		case begin == 0 && line == "```go":
			begin, code = i+2, nil
		case begin > 0 && line == "```":
			found[begin] = strings.Join(code, "\n") + "\n"
			begin = 0
		case begin > 0:
			code = append(code, line)
		}
	}
	return found
}

// parses tries an excerpt as declarations, as statements, and as statements with an end
// that is not shown.
func parses(code string) error {
	var first error
	for _, form := range []string{"package p\n%s", "package p\nfunc _() {\n%s\n}", "package p\n%s\n}", "package p\nfunc _() {\n%s\n}\n}", "package p\nfunc _() any {\n%s\n}\n}"} {
		_, err := parser.ParseFile(token.NewFileSet(), "", fmt.Sprintf(form, code), parser.SkipObjectResolution)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// check compiles programs as packages of this module, without writing into it.
func check(t *testing.T, root string, programs map[string]string) {
	t.Helper()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	dir := t.TempDir()
	var packages []string
	places := map[string]string{}
	for place, code := range programs {
		name := fmt.Sprintf("snippet%d", len(packages))
		code = strings.Replace(code, "package main", "package "+name, 1) // compiled, not linked
		file := filepath.Join(dir, name+".go")
		if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(root, "examples", name, "main.go")] = file
		packages = append(packages, "./examples/"+name)
		places[name] = place
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-overlay", file}, packages...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", places, err, out)
	}
}
