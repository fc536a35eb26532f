package command

import (
	"context"
	"strings"
	"testing"

	"github.com/countoff/countoff/framework/program/exit"
)

func TestNames(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	if out := s.run("names"); !strings.HasPrefix(out, "no names") {
		t.Errorf("an empty store: %q", out)
	}
	if out := s.run("names --json"); out != "" {
		t.Errorf("an empty store: %q", out)
	}
	s.run("init mails --partitions 4 --unit inbox")
	s.run("init bills --partitions 8")
	client := s.client()
	client.HSet(t.Context(), "{other}:config", "total", "3", "colour", "red")       // another program's
	client.HSet(t.Context(), "{worse}:config", "total", "3", "protocol", "977\x1b") // of a build to come
	client.Set(t.Context(), "{text}:config", "total", 0)

	ctx, leave := context.WithCancel(t.Context())
	var stood output
	ended := make(chan error, 1)
	go func() { ended <- s.start(ctx, &stood, "index bills --follow --lease 2500ms") }()
	wait(t, func() bool { return strings.Contains(s.run("names"), "bills  8           1") })
	leave()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	out := s.run("names")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 || strings.Join(strings.Fields(lines[1]), " ") != "bills 8 0" || strings.Join(strings.Fields(lines[2]), " ") != "mails 4 0 inbox" ||
		!strings.Contains(lines[3], "protocol") || strings.Contains(out, "\x1b") {
		t.Errorf("said\n%s", out)
	}
	out = s.run("names --json")
	if !strings.Contains(out, `{"name":"mails","partitions":4,"peers":0,"ingress":["inbox"]}`+"\n") || strings.Contains(out, `"other"`) || strings.Contains(out, `"text"`) {
		t.Errorf("said %s", out)
	}
	s.fails(exit.Usage, "names mails")
	if err := s.fails(exit.Failed, "status nobody"); !strings.Contains(err, "countoff names") {
		t.Errorf("said %q", err)
	}
}

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
	go func() { ended <- s.start(ctx, &stood, "index n --follow --lease 2500ms") }()
	wait(t, func() bool { return strings.Contains(stood.String(), "0 1") })
	s.fails(exit.InUse, "ingress n other")
	leave()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := s.fails(exit.Config, "init n --partitions 4 --unit other"); !strings.Contains(err, "countoff ingress n other") {
		t.Errorf("said %q", err)
	}
	if err := s.fails(exit.Config, "init n --partitions 4"); !strings.Contains(err, "countoff ingress n --none") {
		t.Errorf("said %q", err)
	}
	if out := s.run("ingress n --none"); !strings.Contains(out, "bulk is no ingress list of n any more") || !strings.HasSuffix(out, "n: no ingress lists\n") {
		t.Error(out)
	}
	for _, line := range []string{"ingress", "ingress n x --none", "ingress n x --ledger etcd://h:1/p"} {
		s.fails(exit.Usage, line)
	}
}
