package cast

import (
	"os/exec"
	"testing"
)

// A peer that has begun this moment does not listen for signals yet: one that it is sent ends it,
// and it had nothing to hand over.
func TestLeaveBeforeItListens(t *testing.T) {
	p := &Peer{ID: "ann", cmd: exec.CommandContext(t.Context(), "sleep", "60"), ended: make(chan struct{})}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	if err := p.Leave(); err != nil {
		t.Error(err)
	}
}
