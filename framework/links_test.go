package framework_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	links  = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	spans  = regexp.MustCompile("`[^`]*`")
	titled = regexp.MustCompile(`^#{1,6} +(.+?) *#*$`)
	pages  = regexp.MustCompile(`docs/[a-z0-9/-]+\.md(#[\w-]+)?`)
)

// What the README, the changelog and the docs link to exists, down to the heading, and so do the pages that the code
// names.
func TestLinks(t *testing.T) {
	anchors := map[string]map[string]bool{} // of a page, by its path
	resolves := func(page string) map[string]bool {
		if _, known := anchors[page]; !known {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			anchors[page] = headings(string(text))
		}
		return anchors[page]
	}
	look := func(from, link string, base string) {
		path, anchor, _ := strings.Cut(link, "#")
		page := from
		if path != "" {
			page = filepath.Join(base, path)
		}
		if _, err := os.Stat(page); err != nil {
			t.Errorf("%s: %s does not exist", from, link)
		} else if anchor != "" && !resolves(page)[anchor] {
			t.Errorf("%s: %s: the page has no such heading", from, link)
		}
	}
	found := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != "..":
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		extension := filepath.Ext(path)
		if extension != ".md" && extension != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if extension == ".go" {
			for _, page := range pages.FindAllString(string(text), -1) {
				found++
				look(path, page, "..")
			}
			return nil
		}
		for _, m := range links.FindAllStringSubmatch(spans.ReplaceAllString(prose(string(text)), ""), -1) {
			if !strings.Contains(m[1], ":") { // another site
				found++
				look(path, m[1], filepath.Dir(path))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 100 {
		t.Errorf("found %d links: are they still written as they were?", found)
	}
}

// prose is text without its blocks of code.
func prose(text string) string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			b.WriteString(line)
		}
	}
	return b.String()
}

// headings returns the anchors that GitHub makes of a page's headings: small letters, digits, hyphens and underscores, and
// a hyphen for a space.
func headings(text string) map[string]bool {
	anchors := map[string]bool{}
	for line := range strings.Lines(prose(text)) {
		m := titled.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		name := links.ReplaceAllString(m[1], "]")
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, name)
		anchors[anchor] = true
	}
	return anchors
}
