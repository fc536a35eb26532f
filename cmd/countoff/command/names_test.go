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
