package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition/redistest"
)

// looks are the commands that change nothing, of a name n with a task of the key k.
var looks = map[string]string{
	"status n": "pending 1", "explain n k": "stands behind 0 of others", "history n": "the name was made", "names": "n", "dead list n": "no dead letters",
	"require n": "no partition asks", "ingress n": "no ingress lists",
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
	for line, want := range map[string][]string{
		"status n":                            {"$COUNTOFF_REDIS_URL: redis URL", `$COUNTOFF_LEDGER: "etcd": this program knows redis`},
		"status n --ledger= --redis=":         {"--redis: redis URL", `--ledger: "": this program knows redis`},
		"run --name n -- true":                {"$COUNTOFF_LEDGER: run works with"},
		"run --ledger redis --name n -- true": {"$COUNTOFF_REDIS_URL: redis URL"},
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

// Who may not read a name is told what to do by each command.
func TestWhoMayNotRead(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	if err := server.Client().Do(t.Context(), "ACL", "SETUSER", "few", "on", ">x", "~{other}*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	s := shell{t, "redis://few:x@" + server.Addr(), ""}
	for _, line := range []string{"status n", "explain n k", "history n", "dead list n", "enqueue n x", "jobs n", "require n", "ingress n", "resize n --partitions 4"} {
		if err := s.fails(exit.Unreachable, line); !strings.Contains(err, "the user of the URL ") {
			t.Errorf("countoff %s says %s", line, err)
		}
	}
}
