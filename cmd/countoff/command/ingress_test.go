package command

import (
	"context"
	"strings"
	"testing"

	"github.com/countoff/countoff/framework/program/exit"
)

// The ingress lists of a name are changed while nobody works under it, and only then.
func TestIngress(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.fails(exit.Failed, "ingress n")
	s.fails(exit.Failed, "ingress n inbox")
	s.run("init n --partitions 4 --unit inbox")
	if out := s.run("ingress n"); out != "inbox\n" {
		t.Error(out)
	}
	if out := s.run("ingress n bulk inbox"); out != "bulk is new\nbulk\ninbox\n" {
		t.Error(out)
	}
	ctx, leave := context.WithCancel(t.Context())
	var stood output
	ended := make(chan error, 1)
	go func() { ended <- s.start(ctx, &stood, "index n --follow --lease 60s") }()
	wait(t, func() bool { return strings.Contains(stood.String(), "0 1") })
	s.fails(exit.InUse, "ingress n other")
	leave()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := s.fails(exit.Config, "init n --partitions 4 --unit other"); !strings.Contains(err, "countoff ingress n other") {
		t.Errorf("said %q", err)
	}
	if err := s.fails(exit.Config, "init n --partitions 4"); !strings.Contains(err, "countoff ingress n --none") || !strings.HasSuffix(err, " say --unit bulk --unit inbox") {
		t.Errorf("said %q", err)
	}
	if out := s.run("ingress n --none"); !strings.Contains(out, "bulk is no ingress list of n any more") || !strings.HasSuffix(out, "n: no ingress lists\n") {
		t.Error(out)
	}
	for _, line := range []string{"ingress", "ingress n x --none", "ingress n x x", "ingress n a}b", "ingress n x --ledger etcd://h:1/p"} {
		s.fails(exit.Usage, line)
	}
}
