package framework_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// check compiles programs as far as their types: to make code of one takes seconds, since each makes its own of what
// it imports.
func check(t *testing.T, root string, programs map[string]string) {
	t.Helper()
	files := token.NewFileSet()
	parsed := map[string]*ast.File{} // by the place
	list := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "--"}
	for place, code := range programs {
		f, err := parser.ParseFile(files, place, code, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		parsed[place] = f
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, path)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", list...)
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	exports := map[string]string{} // the file with what a package exports, by its path
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	config := types.Config{
		Importer: importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }),
		Error:    func(err error) { t.Error(err) },
	}
	for place, f := range parsed {
		_, _ = config.Check(place, files, []*ast.File{f}, nil) // its errors are told one by one
	}
}
