package dashboard

import (
	"os/exec"
	"testing"
)

// What the script of a page does, by a clock of the test's.
func TestScript(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node is installed")
	}
	if out, err := exec.CommandContext(t.Context(), node, "testdata/live.test.js").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
