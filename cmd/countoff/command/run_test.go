//go:build unix

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/program/signals"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/redisledger"
)

// Peers are killed and stand still, with commands that work on: no unit is ever two
// commands', and none is left alone.
func TestRunKeepsOneOwner(t *testing.T) {
	t.Parallel()
	f := newFloor(t, 20)
	ann, bob, eve := f.mortal("ann"), f.mortal("bob"), f.mortal("eve")
	has := func(peers ...string) func(string, string) bool {
		return func(_, owner string) bool { return slices.Contains(peers, owner) }
	}
	await := func(peers ...string) map[string]string {
		t.Helper()
		return f.until(fmt.Sprint("units of ", peers), has(peers...))
	}
	all := f.until("three owners", func(string, string) bool {
		n := map[string]bool{}
		for _, owner := range f.owners() {
			n[owner] = true
		}
		return len(n) == 3
	})

	ann.signal(t, syscall.SIGKILL) // its command is orphaned
	without := await("bob", "eve")
	for unit, owner := range all {
		if owner != "ann" && without[unit] != owner {
			t.Errorf("%s moved from %s to %s", unit, owner, without[unit])
		}
	}
	bob.signal(t, syscall.SIGSTOP) // its command goes on
	await("eve")
	bob.signal(t, syscall.SIGCONT)
	back := await("bob", "eve")
	for unit, owner := range without {
		if back[unit] != owner && back[unit] != "eve" {
			t.Errorf("%s is %s's, and was %s's before", unit, back[unit], owner)
		}
	}
	f.until("bob to have his own again", func(unit, owner string) bool { return owner == without[unit] })
	bob.signal(t, syscall.SIGTERM)
	if code := bob.code(t); code != exit.OK {
		t.Errorf("bob ended with %d: %s", code, bob.log.String())
	}
	await("eve")
	eve.signal(t, syscall.SIGTERM)
	if code := eve.code(t); code != exit.OK {
		t.Errorf("eve ended with %d: %s", code, eve.log.String())
	}
	if owners := f.owners(); len(owners) != 0 {
		t.Errorf("all have left, and these are owned: %v", owners)
	}
}

// Few units are shared out evenly: ten over three are four, three and three; those of a peer
// that is killed are dealt out to the others, whose own stay. What asks for a tag goes to who has it.
func TestRunSharesEvenly(t *testing.T) {
	t.Parallel()
	f := newFloor(t, 10)
	f.mortal("ann", "--even")
	bob := f.mortal("bob", "--even")
	f.mortal("eve", "--even", "--tags", "gpu,eu")
	shares := func(want ...int) map[string]string {
		t.Helper()
		return f.until(fmt.Sprint("shares of ", want), func(string, string) bool {
			count := map[string]int{}
			for _, owner := range f.owners() {
				count[owner]++
			}
			return slices.Equal(slices.Sorted(maps.Values(count)), want)
		})
	}
	all := shares(3, 3, 4)
	bob.signal(t, syscall.SIGKILL)
	without := shares(5, 5)
	for unit, owner := range all {
		if owner != "bob" && without[unit] != owner {
			t.Errorf("%s moved from %s to %s because bob was killed", unit, owner, without[unit])
		}
	}
	var asks string
	for unit, owner := range without {
		if owner == "ann" {
			asks = unit
			break
		}
	}
	cmd := Root(nil)
	cmd.SetOut(io.Discard)
	cmd.SetArgs([]string{"require", f.name, asks + "=gpu", "--redis", "redis://" + f.server.Addr()})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.until(asks+" to be eve's", func(unit, owner string) bool { return unit != asks || owner == "eve" })
}

// A command that never answers is ended, and what it had moves only then.
func TestRunEndsWhoDoesNotRelease(t *testing.T) {
	t.Parallel()
	f := newFloor(t, 8)
	f.worker("ann")
	f.until("ann to have all", func(_, owner string) bool { return owner == "ann" })
	said := f.pipe()
	deaf := f.run("deaf", []string{"--drain", "1s"}, "sh", "-c", `trap '' HUP TERM; echo begun >`+said.path+`; while :; do sleep 0.1; done`)
	said.comes("begun")
	deaf.signal(t, syscall.SIGTERM)
	if code := deaf.code(t); code != exit.OK {
		t.Errorf("it ended with %d: %s", code, deaf.log.String())
	}
	if log := deaf.log.String(); !strings.Contains(log, "was not released within 1s") {
		t.Errorf("it says %q", log)
	}
	f.until("ann to have all again", func(_, owner string) bool { return owner == "ann" })
}

// releases is a command that gives its units up at once and then does what the line says when
// it gets SIGTERM.
func releases(begun, last string) []string {
	return []string{"sh", "-c", `trap '' HUP; trap '` + last + `' TERM; echo begun >` + begun + `
		while read -r word token unit; do
			case $word in moved | removed) echo released $token $unit >&3 ;; esac
		done`}
}

// A command that has released everything has its --drain to end in, of which no lease that
// runs out takes anything: nothing is owned under it.
func TestRunLeavesTimeToEnd(t *testing.T) {
	t.Parallel()
	f := newFloor(t, 2)
	said := f.pipe()
	flushed := filepath.Join(f.dir, "flushed")
	r := f.run("ann", []string{"--drain", "1m", "--lease", "2500ms"}, releases(said.path, "sleep 3; touch "+flushed+"; exit")...) // longer than the lease is believed in
	said.comes("begun")
	r.signal(t, syscall.SIGTERM)
	if code := r.code(t); code != exit.OK {
		t.Errorf("it ended with %d: %s", code, r.log.String())
	}
	if _, err := os.Stat(flushed); err != nil {
		t.Errorf("the command was killed meanwhile: %v", err)
	}
}

// A terminal that is closed stops it as SIGTERM does: it hands over, and nobody waits for its lease.
func TestRunHandsOverWhenTheTerminalIsClosed(t *testing.T) {
	t.Parallel()
	f := newFloor(t, 1)
	said := f.pipe()
	r := f.run("ann", nil, releases(said.path, "exit")...)
	said.comes("begun")
	r.signal(t, syscall.SIGHUP)
	if code := r.code(t); code != exit.OK {
		t.Errorf("it ended with %d: %s", code, r.log.String())
	}
}

// A second signal ends at once also a command that has released everything.
func TestRunSecondSignalWhenAllIsReleased(t *testing.T) {
	t.Parallel()
	f := newFloor(t, 2)
	said := f.pipe()
	r := f.run("ann", []string{"--drain", "10m"}, releases(said.path, "echo told >"+said.path+"; while :; do sleep 0.1; done")...)
	said.comes("begun")
	r.signal(t, syscall.SIGTERM)
	said.comes("told")
	<-time.After(signals.Together) // since the first was heard: until then another one is the same
	r.signal(t, syscall.SIGTERM)
	if code := r.code(t); code != exit.OK {
		t.Errorf("it ended with %d: %s", code, r.log.String())
	}
}

// A program that knows of nothing but its environment: the signal ends it, and it is started
// again with what it has now.
func TestRunStartsAnewWithTheEnvironment(t *testing.T) {
	t.Parallel()
	f := newFloor(t, 2)
	said := f.pipe()
	r := f.run("ann", []string{"--notify", "change"}, "sh", "-c", `echo $COUNTOFF_UNITS >`+said.path+`; sleep 1000`)
	said.comes("unit 00 unit 01")
	f.client.SAdd(t.Context(), "{"+f.name+"}:units", "unit 02")
	said.comes("unit 00 unit 01 unit 02")
	f.client.SRem(t.Context(), "{"+f.name+"}:units", "unit 00")
	said.comes("unit 01 unit 02")
	r.signal(t, syscall.SIGTERM)
	if code := r.code(t); code != exit.OK {
		t.Errorf("it ended with %d: %s", code, r.log.String())
	}
}

// Units that come together are one start's, whatever has come and gone before.
func TestRunStartsOnceForWhatComesTogether(t *testing.T) {
	t.Parallel()
	f := newFloor(t, 1)
	said := f.pipe()
	f.run("ann", nil, "sh", "-c", `echo begins $COUNTOFF_UNITS >`+said.path+`
		while read -r word token unit; do echo $word $unit >`+said.path+`; done`)
	said.comes("begins unit 00")
	f.client.SAdd(t.Context(), "{"+f.name+"}:units", "unit 01")
	said.comes("added unit 01")
	old := time.After(1100 * time.Millisecond) // what came then waits for no other any more
	f.client.Del(t.Context(), "{"+f.name+"}:units")
	deadline, tick := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		table, err := redisledger.ReadTable(t.Context(), f.client, f.name)
		if err == nil && len(table["ann"]) == 0 {
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("ann has %q: %v", table["ann"], err)
		}
	}
	<-old
	f.client.SAdd(t.Context(), "{"+f.name+"}:units", "c", "d", "e", "f", "g", "h")
	got := said.first("a start with what came last", func(line string) bool {
		return strings.HasPrefix(line, "begins ") && !strings.Contains(line, "unit")
	})
	if got != "begins c d e f g h" {
		t.Errorf("it %s", got)
	}
}

// A command may have released everything already when the signal ends it, or what it reads
// from: that is not the end of its work.
func TestRunStartsAnewWhoTookTheSignalForTheEnd(t *testing.T) {
	t.Parallel()
	f := newFloor(t, 2)
	said := f.pipe()
	r := f.run("ann", nil, "sh", "-c", `trap '' HUP; echo $COUNTOFF_UNITS >`+said.path+`
		while read -r word token unit; do
			case $word in removed) echo released $token $unit >&3; sleep 0.3; exit ${unit#unit 0} ;; moved) exit ;; esac
		done`)
	said.comes("unit 00 unit 01")
	f.client.SRem(t.Context(), "{"+f.name+"}:units", "unit 00") // it ends with 0
	said.comes("unit 01")
	f.client.SAdd(t.Context(), "{"+f.name+"}:units", "unit 02")
	f.client.SRem(t.Context(), "{"+f.name+"}:units", "unit 01") // and with 1
	said.comes("unit 02")
	r.signal(t, syscall.SIGTERM)
	if code := r.code(t); code != exit.OK {
		t.Errorf("it ended with %d: %s", code, r.log.String())
	}
	if log := r.log.String(); strings.Count(log, "started again") != 1 || !strings.Contains(log, "code 1 soon after") {
		t.Errorf("it says %q", log)
	}
}

// scriptsOfTheDocumentation returns those of docs/units.md, with what they are run by.
func scriptsOfTheDocumentation(t *testing.T) [][]string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/units.md")
	if err != nil {
		t.Fatal(err)
	}
	scripts := regexp.MustCompile("(?ms)^```(?:sh|python)\n(#!(\\S+(?: \\S+)?)\n.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(scripts) != 2 {
		t.Fatalf("docs/units.md has %d scripts", len(scripts))
	}
	return scripts
}

// The script in Python that cannot start a unit's program ends, and what it has started. It does not sit on its units.
func TestRunScriptOfTheDocumentationFails(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	for _, s := range scriptsOfTheDocumentation(t) {
		if !strings.HasSuffix(s[2], "python3") {
			continue
		}
		f := newFloorOf(t, 1, partition.Config{Total: 1})
		said := f.pipe()
		script, program := filepath.Join(f.dir, "script"), filepath.Join(f.dir, "watch-site")
		watch := "#!/bin/sh\ntrap 'echo ends $1 >" + said.path + "; exit' TERM\necho begins $1 >" + said.path + "\nwhile :; do sleep 0.05; done\n"
		for path, content := range map[string]string{script: s[1], program: watch} {
			if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		r := f.run("ann", []string{"--partitions", "1"}, "env", "PATH="+f.dir+":"+os.Getenv("PATH"), "python3", script)
		said.comes("begins unit 00")
		if err := os.Remove(program); err != nil {
			t.Fatal(err)
		}
		f.client.SAdd(t.Context(), "{"+f.name+"}:units", "unit 01")
		said.comes("ends unit 00")
		if code := r.code(t); code != exit.Failed || !strings.Contains(r.log.String(), "watch-site") {
			t.Errorf("it ended with %d and says %q", code, r.log.String())
		}
	}
}

// eachScript runs a test with a peer whose command is a script of docs/units.md, of which watch is the program for a unit:
// said hears what it writes to its $SAID. In the end the peer is told to leave, which ends unit 01.
func eachScript(t *testing.T, units int, watch string, test func(f *floor, said *pipe)) {
	for _, s := range scriptsOfTheDocumentation(t) {
		interpreter := s[2][strings.LastIndexAny(s[2], "/ ")+1:]
		t.Run(interpreter, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(interpreter); err != nil {
				t.Skip(err)
			}
			f := newFloorOf(t, units, partition.Config{Total: 1})
			said := f.pipe()
			script := filepath.Join(f.dir, "script")
			for path, content := range map[string]string{script: s[1], filepath.Join(f.dir, "watch-site"): "#!/bin/sh\n" + watch} {
				if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			r := f.run("ann", []string{"--partitions", "1"}, "env", "PATH="+f.dir+":"+os.Getenv("PATH"), "SAID="+said.path, interpreter, script)
			test(f, said)
			r.signal(t, syscall.SIGTERM)
			said.comes("ends unit 01")
			if code := r.code(t); code != exit.OK || r.log.Len() > 0 {
				t.Errorf("it ended with %d and says %q", code, r.log.String())
			}
		})
	}
}

// The scripts of docs/units.md do as they say, also when two units share a token.
func TestRunScriptsOfTheDocumentation(t *testing.T) {
	t.Parallel()
	const watch = `trap 'echo ends $1 >$SAID; exit' TERM
echo begins $1 >$SAID
while :; do sleep 0.05; done
`
	eachScript(t, 2, watch, func(f *floor, said *pipe) {
		said.comes("begins unit 01")
		f.client.SRem(t.Context(), "{"+f.name+"}:units", "unit 00")
		said.comes("ends unit 00")
		f.client.SAdd(t.Context(), "{"+f.name+"}:units", "unit 00")
		said.comes("begins unit 00")
	})
}

// A program that ends by itself leaves its unit to nobody: the scripts of docs/units.md start it again, and end that one.
func TestRunScriptsOfTheDocumentationStartAgain(t *testing.T) {
	t.Parallel()
	const watch = `trap 'echo ends $1 >$SAID; exit' TERM
if mkdir ${0%/*}/once; then echo fails $1 >$SAID; exit 1; fi 2>/dev/null
echo begins $1 >$SAID
while :; do sleep 0.05; done
`
	eachScript(t, 1, watch, func(f *floor, said *pipe) {
		said.comes("fails unit 00")
		said.comes("begins unit 00")
		f.client.SRem(t.Context(), "{"+f.name+"}:units", "unit 00")
		said.comes("ends unit 00")
		f.client.SAdd(t.Context(), "{"+f.name+"}:units", "unit 01")
		said.comes("begins unit 01")
	})
}

// A peer that is not well keeps its seat and gives its units away; one that has not been
// well yet takes none.
func TestRunUnwellGivesItsUnitsAway(t *testing.T) {
	t.Parallel()
	f := newFloor(t, 8)
	well := filepath.Join(f.dir, "well-ann")
	ann := f.mortal("ann", "--health", "test -e "+well+" || { echo what is lacking; echo; exit 3; }", "--health-interval", "100ms")
	f.worker("bob", "--health", "true")
	f.until("bob to have all", func(_, owner string) bool { return owner == "bob" })
	if err := os.WriteFile(well, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	of := func(want string) map[string]string {
		t.Helper()
		return f.until("shares of "+want, func(string, string) bool {
			return slices.Contains(slices.Collect(maps.Values(f.owners())), want)
		})
	}
	of("ann")
	ledger, err := redisledger.New(f.client, f.name, redisledger.Config{})
	if err != nil {
		t.Fatal(err)
	}
	index := func() int {
		t.Helper()
		census, err := ledger.Census(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range census.Roll.Members {
			if m.Peer == "ann" {
				return m.Index
			}
		}
		t.Fatalf("ann is not in %+v", census.Roll)
		return 0
	}
	before := index()
	if err := os.Remove(well); err != nil {
		t.Fatal(err)
	}
	f.until("bob to have all", func(_, owner string) bool { return owner == "bob" })
	if after := index(); after != before {
		t.Errorf("ann had the index %d, and has %d", before, after)
	}
	ann.signal(t, syscall.SIGTERM)
	if code := ann.code(t); code != exit.OK {
		t.Errorf("it ended with %d: %s", code, ann.log.String())
	}
	if log := ann.log.String(); !strings.Contains(log, "not well") || !strings.Contains(log, "exit status 3: what is lacking") {
		t.Errorf("it says %q", log)
	}
}

// A health command that hangs is not well, and does not outlive its time.
func TestRunHealthTimeout(t *testing.T) {
	t.Parallel()
	f := newFloor(t, 1)
	said := f.pipe()
	r := f.run("ann", []string{"--health", "echo begins >" + said.path + "; sleep 1000 & wait", "--health-timeout", "100ms", "--lease", "5s"}, "true") // what is not said follows from the lease
	said.comes("begins")
	said.comes("begins")
	r.signal(t, syscall.SIGTERM)
	if code := r.code(t); code != exit.OK {
		t.Errorf("it ended with %d: %s", code, r.log.String())
	}
	if log := r.log.String(); !strings.Contains(log, "did not end within 100ms") {
		t.Errorf("it says %q", log)
	}
}

// A deploy may end it before the store has answered.
func TestRunToldToStopBeforeTheStart(t *testing.T) {
	t.Parallel()
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	for _, line := range []string{"run --name n -- true", "index n", "watch n"} {
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			called, err := deaf.Accept()
			if err != nil {
				return
			}
			stop()
			<-ctx.Done()
			called.Close()
		}()
		words := strings.Fields(line)
		cmd := Root(nil)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{words[0], "--redis", "redis://" + deaf.Addr().String()}, words[1:]...))
		if err := cmd.ExecuteContext(ctx); err != nil {
			t.Errorf("countoff %s: %v", line, err)
		}
		stop()
	}
}

func TestRunEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	f := newFloorOf(t, 1, partition.Config{Total: 8}) // it goes by what stands
	for command, want := range map[string]int{"exit 0": exit.OK, "exit 3": exit.Failed} {
		r := f.run("ann", nil, "sh", "-c", command)
		if code := r.code(t); code != want {
			t.Errorf("%s: code %d, want %d: %s", command, code, want, r.log.String())
		}
		if want != exit.OK && !strings.Contains(r.log.String(), "code 3") {
			t.Errorf("it says %q", r.log.String())
		}
	}
}

// A command that kills its whole group has killed its guard: that is its end, like any other,
// and no reason to start it again at once, again and again.
func TestRunEndsWithACommandThatKillsItsGuard(t *testing.T) {
	t.Parallel()
	f := newFloor(t, 1)
	r := f.run("ann", nil, "sh", "-c", "kill -9 0")
	if code := r.code(t); code != exit.Failed || !strings.Contains(r.log.String(), "the guard of the command was killed") {
		t.Errorf("it ended with %d and says %q", code, r.log.String())
	}
}

// What others have put in the store is one line, which no terminal obeys.
func TestTroubleIsNotObeyedByTheTerminal(t *testing.T) {
	var out output
	tellTrouble(&out, framework.UnitsTroubled{Err: errors.New("a\x1b[2J\nb")})
	if got, want := out.String(), "countoff run: a\ufffd[2J b\n"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// A platform that kills the process before it has ended its command is told of at the start.
func TestRunFitsIntoTheGrace(t *testing.T) {
	s := newShell(t)
	s.run("init n --partitions 4")
	s.client().SAdd(t.Context(), "{n}:units", "a")
	t.Setenv(framework.GraceVariable, "29")
	run := "run --redis " + s.url + " --name n" // what the shell adds is the command's
	if said := s.fails(exit.Usage, run+" -- true"); !strings.Contains(said, "pod grace 29s") {
		t.Errorf("it says %q", said)
	}
	s.run(run + " --drain 24s -- true")
}

func TestRunUsage(t *testing.T) {
	s := newShell(t)
	if help := s.run("run --help"); !strings.Contains(help, "\n  countoff run --name NAME [flags] -- COMMAND [ARGUMENT...]\n") {
		t.Error(help) // flags behind the command are the command's
	}
	for _, line := range []string{
		"run -- true",
		"run --name {no} -- true",
		"run --name n",
		"run --name n --signal KILL -- true",
		"run --name n --notify never -- true",
		"run --name n --lease 1s -- true",
		"run --name n --drain 0s -- true",
		"run --name n --weight 0 -- true",
		"run --name n --timeout 0s -- true",
		"run --name n --id _ -- true",
		"run --name n --tags a,b! -- true",
		"run --name n --health-interval 1s -- true",
		"run --name n --health true --health-interval 0s -- true",
		"run --name n --health true --health-timeout 0s -- true",
		"run --name n -- no-such-command-anywhere",
	} {
		words := strings.Fields(line)
		cmd := Root(nil)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{words[0], "--redis", s.url}, words[1:]...))
		err := cmd.ExecuteContext(t.Context())
		var coded *exit.Error
		if err == nil || errors.As(err, &coded) && coded.Code != exit.Usage {
			t.Errorf("countoff %s: %v", line, err)
		}
	}
}
