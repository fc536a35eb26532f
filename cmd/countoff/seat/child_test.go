//go:build unix

package seat

import (
	"io"
	"slices"
	"strings"
	"testing"
)

// A command that writes whatever it likes stops nobody from hearing what comes after it: the
// guard, too, would wait for room in the pipe, and nothing would be handed over any more.
func TestListenReadsOn(t *testing.T) {
	in := strings.NewReader("released 1:s a\n" + strings.Repeat("x", 3<<20) + "\n\nreleased 1:s b\r\nguard ended")
	var heard []string
	listen(in, func(line string) { heard = append(heard, line) })
	if want := []string{"released 1:s a", "", "released 1:s b\r", "guard ended"}; !slices.Equal(heard, want) {
		t.Errorf("heard %.200q", heard)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("%d bytes were not read: %v", len(rest), err)
	}
}
