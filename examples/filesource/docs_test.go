package filesource_test

import (
	"os"
	"strings"
	"testing"
)

// The tutorial shows this source: what it quotes must be what runs.
func TestTheTutorialQuotesTheSource(t *testing.T) {
	page, err := os.ReadFile("../../docs/sources.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range []string{"store.go", "source.go", "source_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	quotes := strings.Split(string(page), "```go\n")[1:]
	if len(quotes) == 0 {
		t.Fatal("the tutorial quotes nothing")
	}
	for _, q := range quotes {
		q, _, _ = strings.Cut(q, "```")
		if !strings.Contains(code.String(), q) {
			t.Errorf("docs/sources.md quotes what is not in the source:\n%s", q)
		}
	}
}
