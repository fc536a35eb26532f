package command

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition/redistest"
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
	client.HSet(t.Context(), "{away}:config", "total", "3", "protocol", "1", "hash", "xxhash64") // its ledger stands elsewhere
	s.run("init broken --partitions 2")
	client.HSet(t.Context(), "{broken}:sessions", "s", "garbage")

	ctx, leave := context.WithCancel(t.Context())
	var stood output
	ended := make(chan error, 1)
	go func() { ended <- s.start(ctx, &stood, "index bills --follow --lease 60s") }()
	wait(t, func() bool { return strings.Contains(strings.Join(strings.Fields(s.run("names")), " "), "bills 8 1") })
	leave()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	out := s.run("names")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, want := range []string{"NAME PARTITIONS PEERS INGRESS", "away 3 ?", "bills 8 0", "broken 2 ? redisledger: ", "mails 4 0 inbox", "worse ? ? redisconfig: "} {
		if len(lines) != 6 || !strings.HasPrefix(strings.Join(strings.Fields(lines[i]), " "), want) || strings.Contains(out, "\x1b") {
			t.Fatalf("want %q, said\n%s", want, out)
		}
	}
	// It says all of what is the matter.
	if !strings.Contains(out, "the name is in use with another configuration\n") {
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

// A ledger that init has made, or that peers used before they had another, says nothing of those who work elsewhere.
func TestNamesOfPeersElsewhere(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	letters(t, s, []string{"a"}, nil)
	s.run("init n --partitions 1")
	if lines := strings.Split(s.run("names"), "\n"); len(lines) < 2 || strings.Join(strings.Fields(lines[1]), " ") != "n 1 ?" {
		t.Errorf("it says %q", lines)
	}
}

// A store that goes away in the middle, be it for one of its keys, is no list of fewer names.
func TestNamesOfAStoreThatGoesAway(t *testing.T) {
	t.Parallel()
	mini, _ := redistest.Mini(t)
	s := shell{t: t, url: "redis://" + mini.Addr()}
	for _, name := range []string{"a", "b", "c"} {
		s.run("init " + name + " --partitions 1")
	}
	for command, after := range map[string]int32{"HMGET": 2, "HGETALL": 2, "EXISTS": 1} {
		var calls atomic.Int32
		mini.Server().SetPreHook(func(peer *server.Peer, cmd string, _ ...string) bool {
			if cmd != command || calls.Add(1) < after {
				return false
			}
			peer.Close()
			return true
		})
		var out output
		if err := s.start(t.Context(), &out, "names"); codeOf(err) != exit.Unreachable {
			t.Errorf("%s: %v\n%s", command, err, out.String())
		}
	}
}

// Who may not read all that stands of one name, or nothing of another, is told of the others.
func TestNamesOfWhoMayNotReadAll(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	s := shell{t, "redis://" + server.Addr(), ""}
	for _, name := range []string{"a", "b", "c"} {
		s.run("init " + name + " --partitions 1")
	}
	if err := server.Client().Do(t.Context(), "ACL", "SETUSER", "few", "on", ">x", "~{a}:config", "~{c}:*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	s.url = "redis://few:x@" + server.Addr()
	lines := strings.Split(strings.TrimSpace(s.run("names")), "\n")
	for i, want := range []string{"NAME PARTITIONS PEERS INGRESS", "a 1 ? redisledger: a: ", "b ? ? redisconfig: read {b}:config: NOPERM ", "c 1 0"} {
		if len(lines) != 4 || !strings.HasPrefix(strings.Join(strings.Fields(lines[i]), " "), want) {
			t.Fatalf("want %q, said\n%s", want, strings.Join(lines, "\n"))
		}
	}
}

// Who looks at one node of a cluster alone is told that there may be more.
func TestNamesOfOneNodeOfACluster(t *testing.T) {
	s := newShell(t)
	node := redistest.Single(t, redistest.Server(t, "--cluster-enabled", "yes").Client()).Options().Addr
	for url, want := range map[string]bool{"redis://" + node: true, "redis://" + node + "?protocol=2": true, s.url: false} {
		s.url = url
		if said := s.run("names"); strings.Contains(said, "one node of a cluster") != want || !strings.Contains(said, "no names") {
			t.Errorf("of %s it says %q", url, said)
		}
	}
}
