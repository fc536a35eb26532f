//go:build unix

package command

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition/redisledger"
)

// patience is how long anything may take before it counts as never.
const patience = time.Minute

// play is the variable that makes the test's own program another: "countoff", or a command
// that countoff runs.
const play = "TEST_OF_COUNTOFF_PLAYS"

// part plays what the environment says, if it says anything.
func part() {
	if len(os.Args) > 1 && os.Args[1] == guardCommand {
		os.Exit(Main(nil))
	}
	switch os.Getenv(play) {
	case "countoff":
		os.Setenv(play, "worker") // for the command
		os.Exit(Main(nil))
	case "worker":
		worker(os.Args[1], os.Args[2])
		os.Exit(0)
	}
}

// worker is a command: it locks a file for each of its units, which the system unlocks if it
// dies, and tells of every one that another has locked.
func worker(dir, peer string) {
	signal.Ignore(syscall.SIGHUP) // the lines say the same
	answers := os.NewFile(3, "answers")
	locks := map[string]*os.File{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.SplitN(lines.Text(), " ", 3)
		if len(words) < 3 {
			continue
		}
		word, token, unit := words[0], words[1], words[2]
		switch word {
		case "added":
			f, err := os.OpenFile(filepath.Join(dir, unit), os.O_CREATE|os.O_RDWR, 0o600)
			if err == nil {
				err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
			}
			if err != nil {
				os.WriteFile(filepath.Join(dir, "double-"+unit+"-"+peer), []byte(err.Error()), 0o600)
				continue
			}
			f.Truncate(0)
			f.WriteAt([]byte(peer), 0)
			locks[unit] = f
		case "moved", "removed":
			<-time.After(50 * time.Millisecond) // putting things in order takes its time: whoever has the unit too early meets the lock
			locks[unit].Truncate(0)
			locks[unit].Close()
			delete(locks, unit)
			fmt.Fprintln(answers, "released", token, unit)
		}
	}
}

// A runner is one process of countoff run.
type runner struct {
	cmd   *exec.Cmd
	log   bytes.Buffer // read it after ended
	ended chan struct{}
}

// A floor has a store, a name with units, and runners.
type floor struct {
	t      *testing.T
	dir    string
	name   string
	server *redistest.Process
	client redis.UniversalClient
	units  []string
}

func newFloor(t *testing.T, units int) *floor { return newFloorOf(t, units, partition.Config{}) }

func newFloorOf(t *testing.T, units int, cfg partition.Config) *floor {
	f := &floor{t: t, dir: t.TempDir(), name: redistest.Name(t), server: redistest.Server(t)}
	f.client = f.server.Client()
	if _, err := redisledger.Init(t.Context(), f.client, f.name, cfg); err != nil {
		t.Fatal(err)
	}
	for i := range units {
		f.units = append(f.units, fmt.Sprintf("unit %02d", i)) // with a space
		f.client.SAdd(t.Context(), "{"+f.name+"}:units", f.units[i])
	}
	return f
}

// A pipe is a named pipe: what commands write there the test reads.
type pipe struct {
	t     *testing.T
	path  string
	file  *os.File
	lines *bufio.Scanner
}

func (f *floor) pipe() *pipe {
	f.t.Helper()
	path := filepath.Join(f.dir, "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		f.t.Fatal(err)
	}
	// For reading and writing: it never ends, whoever comes and goes at the other end.
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { file.Close() })
	return &pipe{f.t, path, file, bufio.NewScanner(file)}
}

// comes reads until a line comes.
func (p *pipe) comes(want string) {
	p.t.Helper()
	p.first(fmt.Sprintf("%q", want), func(line string) bool { return line == want })
}

// first reads until a line comes that is one of what.
func (p *pipe) first(what string, is func(line string) bool) string {
	p.t.Helper()
	if err := p.file.SetReadDeadline(time.Now().Add(patience)); err != nil {
		p.t.Fatal(err)
	}
	var got []string
	for p.lines.Scan() {
		got = append(got, p.lines.Text())
		if is(p.lines.Text()) {
			return p.lines.Text()
		}
	}
	p.t.Fatalf("%s does not come, only %q: %v", what, got, p.lines.Err())
	return ""
}

// run starts countoff run for a command. The lease is long, so that it does not run out on a slow machine: where
// it must, more says so.
func (f *floor) run(peer string, more []string, command ...string) *runner {
	f.t.Helper()
	self, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	r := &runner{ended: make(chan struct{})}
	args := append([]string{"run", "--name", f.name, "--id", peer, "--lease", "60s", "--redis", "redis://" + f.server.Addr()}, more...)
	r.cmd = exec.Command(self, append(append(args, "--"), command...)...)
	// Without those of the suite: it says of each that no command reads it.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, variables) })
	r.cmd.Env = append(env, play+"=countoff")
	r.cmd.Stdout, r.cmd.Stderr = &r.log, &r.log
	r.cmd.WaitDelay = 5 * time.Second
	if err := r.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait()
		close(r.ended)
	}()
	f.t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
		if f.t.Failed() {
			f.t.Logf("%s: %s\n%s", peer, r.cmd.ProcessState, r.log.String())
		}
	})
	return r
}

// worker starts countoff run for the worker of this test.
func (f *floor) worker(peer string, more ...string) *runner {
	self, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	return f.run(peer, more, self, f.dir, peer)
}

// mortal starts a worker that is soon heard of no more when it dies. One that gets no time for half of its lease counts
// as dead, too.
func (f *floor) mortal(peer string, more ...string) *runner {
	return f.worker(peer, append(more, "--lease", "5s")...)
}

func (r *runner) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// code waits for the end and returns the code.
func (r *runner) code(t *testing.T) int {
	t.Helper()
	select {
	case <-r.ended:
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatal("it does not end")
		return 0
	}
}

// owners returns who has locked which unit last, and not unlocked it.
func (f *floor) owners() map[string]string {
	f.t.Helper()
	if double, _ := filepath.Glob(filepath.Join(f.dir, "double-*")); len(double) > 0 {
		f.t.Fatalf("two had one unit: %q", double)
	}
	owners := map[string]string{}
	for _, u := range f.units {
		owner, err := os.ReadFile(filepath.Join(f.dir, u))
		if err == nil && len(owner) > 0 {
			owners[u] = string(owner)
		}
	}
	return owners
}

// until waits until every unit is owned, by somebody whom ok likes, and the table says so.
func (f *floor) until(what string, ok func(unit, owner string) bool) map[string]string {
	f.t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		owners := f.owners()
		table, err := redisledger.ReadTable(context.Background(), f.client, f.name)
		good := err == nil && len(owners) == len(f.units)
		for unit, owner := range owners {
			good = good && ok(unit, owner) && slices.Contains(table[owner], unit)
		}
		if good {
			return owners
		}
		select {
		case <-tick.C:
		case <-deadline:
			f.t.Fatalf("waited for %s: %v; the table is %v %v", what, owners, table, err)
		}
	}
}
