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

// The docs say of each field of a configuration whether peers may differ in it.
func TestDocsSayWhatMayDiffer(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n### What may differ\n")
	section, _, _ = strings.Cut(section, "\n### ")
	said := map[string]bool{}
	for i, code := range strings.Split(section, "`") {
		if i%2 == 1 {
			said[code] = true
		}
	}
	inWords := map[string]bool{"Weight": true, "Tags": true, "Health": true, "Peer": true, "Observer": true, "Source": true, "Control": true, "List": true,
		"Units": true, "Grown": true}
	for file, name := range map[string]string{
		"config.go": "Config", "units.go": "UnitsConfig", "../transition/timing.go": "Timing",
		"frameworkfx/redisfx/redisfx.go": "Config", "../sources/redissource/source.go": "Config", "../sources/redissource/ingress.go": "Ingress",
		"frameworkfx/kafkafx/kafkafx.go": "Config", "../sources/kafkasource/config.go": "Config",
		"frameworkfx/asynqfx/asynqfx.go": "Config", "../sources/asynqsource/config.go": "Config",
		"frameworkfx/unitfx/unitfx.go": "Config", "../sources/unitsource/unitsource.go": "Source",
	} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		fields := 0
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != name {
				return true
			}
			of, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range of.Fields.List {
				if fn, ok := f.Type.(*ast.FuncType); ok && fn.Results == nil {
					continue // somebody is told
				}
				for _, id := range f.Names {
					fields++
					if id.IsExported() && !said[id.Name] && !inWords[id.Name] {
						t.Errorf("%s: nothing is said of %s.%s", file, name, id.Name)
					}
				}
			}
			return true
		})
		if fields == 0 {
			t.Errorf("%s: no fields of a struct %s", file, name)
		}
	}
}
