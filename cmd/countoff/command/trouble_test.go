package command

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition/redistest"
)

// looks are the commands that change nothing, of a name n with a task of the key k.
var looks = map[string]string{
	"status n": "pending 1", "explain n k": "stands behind 0 of others", "tasks n": "waits", "history n": "the name was made", "names": "n", "dead list n": "no dead letters",
	"require n": "no partition asks", "ingress n": "no ingress lists", "plan n --peers 2": "somebody's then: 0-1",
}

// What only reads works on a server that refuses every write since it cannot save to its disk. It
// refuses PING, too: who looked for the reason was told that Redis could not be used.
func TestLooksAtAServerThatCannotSave(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, "--enable-protected-configs", "yes")
	s := shell{t, "redis://" + server.Addr(), ""}
	s.run("init n --partitions 2")
	s.run("enqueue n x --key k")
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "dump"), 0o700); err != nil {
		t.Fatal(err)
	}
	// A snapshot cannot be renamed to the name of a directory.
	server.Config("dir", dir)
	server.Config("dbfilename", "dump")
	server.Config("save", "3600 1")
	if err := server.Client().BgSave(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	wait(t, func() bool {
		err := server.Client().Set(t.Context(), "probe", "x", 0).Err()
		return err != nil && strings.HasPrefix(err.Error(), "MISCONF")
	})
	for line, want := range looks {
		if out := s.run(line); !strings.Contains(out, want) {
			t.Errorf("countoff %s does not say %q:\n%s", line, want, out)
		}
	}
	var out output
	if code := codeOf(s.start(t.Context(), &out, "doctor n")); code != exit.Verdict || !strings.Contains(out.String(), "refuses writes because of it (MISCONF)") {
		t.Errorf("code %d:\n%s", code, out.String())
	}
	if err := s.fails(exit.Unreachable, "enqueue n y"); !strings.Contains(err, "free its disk") {
		t.Errorf("enqueue says %s", err)
	}
}

// A server that has fewer replicas than it asks for refuses every write: who looks is told why nothing is worked on,
// and who changes something what to do.
func TestLooksAtAServerThatLacksReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	s := shell{t, "redis://" + server.Addr(), ""}
	s.run("init n --partitions 2")
	s.run("enqueue n x --key k")
	server.Config("min-replicas-to-write", "1")
	for line, want := range looks {
		if out := s.run(line); !strings.Contains(out, want) {
			t.Errorf("countoff %s does not say %q:\n%s", line, want, out)
		}
	}
	var out output
	if code := codeOf(s.start(t.Context(), &out, "doctor n")); code != exit.Verdict || !strings.Contains(out.String(), "refuses every write (NOREPLICAS)") {
		t.Errorf("code %d:\n%s", code, out.String())
	}
	if err := s.fails(exit.Unreachable, "pause n"); !strings.Contains(err, "fewer replicas follow it than its min-replicas-to-write") {
		t.Errorf("pause says %s", err)
	}
}

// What only reads works on a server that is full: it takes no transaction then, not even one that
// reads, and explain was refused.
func TestLooksAtAFullServer(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	s := shell{t, "redis://" + server.Addr(), ""}
	s.run("init n --partitions 2")
	s.run("enqueue n x --key k")
	server.Config("maxmemory", "1")
	for line, want := range looks {
		if out := s.run(line); !strings.Contains(out, want) {
			t.Errorf("countoff %s does not say %q:\n%s", line, want, out)
		}
	}
	var out output
	if code := codeOf(s.start(t.Context(), &out, "doctor n")); code != exit.Verdict || !strings.Contains(out.String(), "risk: enqueues are refused; settles and leases go on") {
		t.Errorf("code %d:\n%s", code, out.String())
	}
	if err := s.fails(exit.Unreachable, "enqueue n y"); !strings.Contains(err, "raise maxmemory") {
		t.Errorf("enqueue says %s", err)
	}
}

// A variable that somebody set long ago is named where it is wrong, and no flag that nobody gave.
func TestAWrongVariableIsNamed(t *testing.T) {
	t.Setenv("COUNTOFF_REDIS_URL", "")
	t.Setenv("COUNTOFF_LEDGER", "etcd://h")
	t.Setenv("COUNTOFF_TIMEOUT", "-1s")
	t.Setenv("COUNTOFF_DASHBOARD_EVERY", "1ms")
	t.Setenv("COUNTOFF_DASHBOARD_LOGIN", "ops")
	for line, want := range map[string][]string{
		"status n":                            {"$COUNTOFF_REDIS_URL: redis URL", `$COUNTOFF_LEDGER: "etcd": this program knows redis`},
		"status n --ledger= --redis=":         {"--redis: redis URL", `--ledger: "": this program knows redis`},
		"run --name n -- true":                {"$COUNTOFF_LEDGER: run works with"},
		"names --timeout 0s":                  {"--timeout 0s: want"},
		"dashboard":                           {"$COUNTOFF_TIMEOUT -1s: want", "$COUNTOFF_DASHBOARD_EVERY 1ms: want", "$COUNTOFF_DASHBOARD_LOGIN: want user:password"},
		"dashboard --login ops --every 2ms":   {"--login: want user:password", "--every 2ms: want"},
		"run --ledger redis --name n -- true": {"$COUNTOFF_REDIS_URL: redis URL", "$COUNTOFF_TIMEOUT -1s: want"},
	} {
		cmd := Root(nil)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(strings.Fields(line))
		err := cmd.Execute()
		for _, w := range want {
			if codeOf(err) != exit.Usage || !strings.Contains(err.Error(), w) {
				t.Errorf("countoff %s does not say %q: %v", line, w, err)
			}
		}
	}
}

// What tells of the program alone has no use for a variable, and does not end with one that cannot be read.
func TestAWrongVariableIsNothingToHelp(t *testing.T) {
	t.Setenv("COUNTOFF_TIMEOUT", "5")
	for line, want := range map[string]int{
		"version": exit.OK, "help": exit.OK, "help status": exit.OK, "completion bash": exit.OK, "__complete sta": exit.OK, "__completeNoDesc sta": exit.OK,
		"names": exit.Usage,
	} {
		cmd := Root(nil)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(strings.Fields(line))
		err := cmd.Execute()
		if code := codeOf(err); code != want {
			t.Errorf("countoff %s: code %d, want %d: %v", line, code, want, err)
		}
	}
}

// Who may not read a name is told what to do by each command.
func TestWhoMayNotRead(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	if err := server.Client().Do(t.Context(), "ACL", "SETUSER", "few", "on", ">x", "~{other}*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	s := shell{t, "redis://few:x@" + server.Addr(), ""}
	s.run("init other --partitions 2")
	if err := server.Client().Do(t.Context(), "ACL", "SETUSER", "few", "-evalsha", "-eval").Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.fails(exit.Unreachable, "resize other --partitions 4"); strings.Count(err, "the user of the URL ") != 1 {
		t.Errorf("what to do is not said once: %s", err)
	}
	for _, line := range []string{"status n", "explain n k", "history n", "dead list n", "enqueue n x", "jobs n", "require n", "ingress n", "resize n --partitions 4"} {
		if err := s.fails(exit.Unreachable, line); !strings.Contains(err, "the user of the URL ") {
			t.Errorf("countoff %s says %s", line, err)
		}
	}
}

// Who is told to end while the store stands still does not wait for its answer, and is not told that it
// cannot be used.
func TestWhoIsToldToEndDoesNotWait(t *testing.T) {
	t.Parallel()
	for line, c := range map[string]struct {
		at   string // the command that has no answer any more
		code int
	}{
		"status n": {"hello", exit.Failed}, "names": {"hello", exit.Hard}, "watch n": {"hello", exit.OK}, "enqueue n x": {"hello", exit.Hard}, "doctor nn": {"hello", exit.Failed}, "run true --name n": {"hello", exit.OK},
		"explain n k": {"hgetall", exit.Failed}, "history n": {"hgetall", exit.Failed}, "require n": {"hgetall", exit.Failed}, "doctor n": {"info", exit.Failed},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			mini, _ := redistest.Mini(t)
			var silent silence
			s := shell{t, "redis://" + through(t, mini.Addr(), &silent), ""}
			s.run("init n --partitions 8")
			mini.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
				if strings.EqualFold(cmd, c.at) {
					silent.Store(true)
				}
				return false
			})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var out output
			done := make(chan error, 1)
			s.url += "?read_timeout=10m"
			go func() { done <- s.start(ctx, &out, line+" --timeout 10m") }()
			wait(t, silent.Load)
			stop()
			err := <-done
			if codeOf(err) != c.code || err != nil && !strings.HasPrefix(err.Error(), "interrupted: ") || out.String() != "" {
				t.Errorf("code %d, want %d: %v\n%s", codeOf(err), c.code, err, out.String())
			}
		})
	}
}

// Who has the rights that docs/stores.md gives to those who only look may do that, is refused
// nothing on the way, and changes nothing.
func TestWhoOnlyLooks(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	admin := server.Client()
	s := shell{t, "redis://" + server.Addr(), ""}
	s.run("init n --partitions 2")
	s.run("enqueue n x --key k")
	s.run("enqueue n x --id later --delay 1h")
	allow := func(rules string) {
		t.Helper()
		args := []any{"ACL", "SETUSER", "viewer", "on", ">x"}
		for _, rule := range strings.Fields(rules) {
			args = append(args, rule)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile("../../../docs/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rules, found := strings.Cut(string(page), "\nACL SETUSER viewer on >secret ")
	rules, _, _ = strings.Cut(rules, "\n")
	if !found {
		t.Fatal("the page has no such user")
	}
	allow(strings.ReplaceAll(rules, "mail-*", "n*"))
	if err := admin.ScriptFlush(t.Context()).Err(); err != nil { // the server may have been asked by nobody
		t.Fatal(err)
	}
	before := admin.Dump(t.Context(), "{n}:meta").Val()
	viewer := shell{t, "redis://viewer:x@" + server.Addr(), ""}
	for line, want := range looks {
		if out := viewer.run(line); !strings.Contains(out, want) {
			t.Errorf("countoff %s does not say %q:\n%s", line, want, out)
		}
	}
	viewer.run("jobs n")
	viewer.run("cancel n")
	for _, line := range []string{"delayed list n", "delayed list n later"} {
		if out := viewer.run(line); !strings.Contains(out, "\nlater ") {
			t.Errorf("countoff %s: %s", line, out)
		}
	}
	allow("+info +config|get")
	var out output
	if err := viewer.start(t.Context(), &out, "doctor n"); strings.Contains(out.String(), "the store does not tell") {
		t.Errorf("%v\n%s", err, out.String())
	}
	log, err := admin.ACLLog(t.Context(), 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range log {
		t.Errorf("refused: %s %s", e.Reason, e.Object)
	}
	for _, line := range []string{"enqueue n y", "require n 0=gpu", "resize n --partitions 4", "destroy n --yes"} {
		viewer.fails(exit.Unreachable, line)
	}
	if s.run("status n"); before != admin.Dump(t.Context(), "{n}:meta").Val() {
		t.Error("the ledger was changed")
	}
}
