package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

func TestMain(m *testing.M) {
	part()
	redisurl.Quiet()
	// The tests wait for leases most of the time. -parallel on the command line goes
	// before this.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// output may be read while a command writes it.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// A shell runs commands against one store.
type shell struct {
	t     *testing.T
	url   string
	stdin string
}

func newShell(t *testing.T) shell {
	mini, _ := redistest.Mini(t)
	return shell{t, "redis://" + mini.Addr(), "one\ntwo\n"}
}

// client is one of the store, until the test ends.
func (s shell) client() redis.UniversalClient {
	s.t.Helper()
	client, err := redisurl.Open(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { client.Close() })
	return client
}

// start runs a command line until ctx ends or it does.
func (s shell) start(ctx context.Context, out *output, line string, more ...string) error {
	return s.command(out, line, more...).ExecuteContext(ctx)
}

func (s shell) command(out *output, line string, more ...string) *cobra.Command {
	cmd := Root(nil)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	args := append([]string{"--timeout", "1m"}, strings.Fields(line)...) // the line may say another
	cmd.SetArgs(append(append(args, more...), "--redis", s.url))
	cmd.SetOut(out)
	cmd.SetErr(out)
	cmd.SetIn(strings.NewReader(s.stdin))
	return cmd
}

// run runs a command line that must succeed and returns what it printed.
func (s shell) run(line string, more ...string) string {
	s.t.Helper()
	var out output
	if err := s.start(s.t.Context(), &out, line, more...); err != nil {
		s.t.Fatalf("countoff %s: %v\n%s", line, err, out.String())
	}
	return out.String()
}

// fails runs a command line that must fail with code.
func (s shell) fails(code int, line string, more ...string) string {
	s.t.Helper()
	var out output
	err := s.start(s.t.Context(), &out, line, more...)
	if got := codeOf(err); got != code {
		s.t.Errorf("countoff %s: code %d, want %d: %v", line, got, code, err)
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// codeOf is what the program ends with.
func codeOf(err error) int {
	var coded *exit.Error
	switch {
	case errors.As(err, &coded):
		return coded.Code
	case err != nil:
		return exit.Usage
	}
	return exit.OK
}

func TestRequire(t *testing.T) {
	s := newShell(t)
	s.fails(exit.Failed, "require n 0=gpu")
	if out := s.run("init n --partitions 4 --require 1-2=gpu,eu --require 3=eu"); !strings.Contains(out, "4 partitions") {
		t.Error(out)
	}
	if out := s.run("require n"); out != "1-2=eu,gpu\n3=eu\n" {
		t.Error(out)
	}
	if out := s.run("require n 0=eu"); out != "0=eu\n" {
		t.Error(out)
	}
	if out := s.run("require n --none"); !strings.Contains(out, "no partition asks") {
		t.Error(out)
	}
	if out := s.run("require n 2-9=gpu"); !strings.Contains(out, "2-9=gpu asks for no more than 2 to 3: n has no others") {
		t.Errorf("said %q", out)
	}
	if out := s.run("require n 4-9=gpu"); !strings.Contains(out, "4-9=gpu asks for nothing: n has the partitions 0 to 3") {
		t.Error(out)
	}
	for _, line := range []string{"require n 0", "require n 3-1=eu", "require n 0=eu --none", "init m --require gpu"} {
		s.fails(exit.Usage, line)
	}
}

// A work unit asks by its partition, wherever the list is; a name that is nobody's is refused.
func TestRequireOfUnits(t *testing.T) {
	s := newShell(t)
	s.run("init n --partitions 4 --unit n:inbox")
	if said := s.fails(exit.Usage, "require n a=gpu n:inbox=eu typo=gpu"); !strings.Contains(said, "--units") || !strings.Contains(said, "{n}:units") || !strings.Contains(said, "typo") {
		t.Errorf("it says %q", said)
	}
	s.fails(exit.Usage, "init n --partitions 4 --unit n:inbox --require n:outbox=eu")
	client := s.client()
	client.SAdd(t.Context(), "{n}:sites", "a", "b", "c", "d", "e", "f", "g", "h")
	s.fails(exit.Usage, "require n a=gpu")
	if out := s.run("require n"); !strings.Contains(out, "no partition asks") {
		t.Errorf("after refusals: %s", out)
	}
	id, err := partition.XXHash64.Of("a", 4)
	if err != nil {
		t.Fatal(err)
	}
	client.SAdd(t.Context(), "{n}:sites", "3", "0-1")
	at, err := partition.XXHash64.Of("3", 4)
	if err != nil {
		t.Fatal(err)
	}
	if out := s.run("require n 3=gpu 2=gpu 0-1=eu --units {n}:sites"); strings.Count(out, "is said of partitions by their numbers") != 2 ||
		!strings.Contains(out, fmt.Sprintf("the work unit 3 is in partition %v, for which it is %v=gpu\n", at, at)) || !strings.HasSuffix(out, "\n3=gpu\n2=gpu\n0-1=eu\n") {
		t.Errorf("of units that are called as partitions are it says %q", out)
	}
	out := s.run("require n a=gpu n:inbox=eu --units {n}:sites")
	if !strings.HasSuffix(out, fmt.Sprintf("\n%v=gpu\nn:inbox=eu\n", id)) || !strings.HasPrefix(out, fmt.Sprintf("a is in partition %v with ", id)) {
		t.Errorf("it says %q", out)
	}
}

func TestInitStatusEnqueue(t *testing.T) {
	s := newShell(t)
	if said := s.fails(exit.Failed, "status n"); !strings.Contains(said, "countoff init") {
		t.Errorf("status of an unknown name: %s", said)
	}
	if out := s.run("init n --partitions 4"); !strings.Contains(out, "4 partitions") {
		t.Error(out)
	}
	if out := s.run("init n --partitions 4"); !strings.Contains(out, "there already") {
		t.Error(out)
	}
	s.fails(exit.Config, "init n --partitions 5")
	s.fails(exit.Config, "enqueue n --partitions 5", "x")

	if out := s.run("enqueue single --partitions 1", "x"); !strings.Contains(out, "single was new, and has 1 partition now") {
		t.Error(out)
	}
	if out := s.run("enqueue misspelt", "x"); !strings.Contains(out, "misspelt was new, and has 256 partitions") {
		t.Error(out)
	}
	if out := s.run("enqueue n --key k --id i --unique", "x"); !strings.HasPrefix(out, "i partition ") {
		t.Error(out)
	}
	if out := s.run("enqueue n --key k --id i --unique", "x"); !strings.Contains(out, "duplicate") {
		t.Error(out)
	}
	s.fails(exit.Usage, "enqueue n --unique", "x")
	if out := s.run("enqueue misspelt --id i --unique", "x") + s.run("enqueue misspelt --id i --unique", "x"); strings.Count(out, "duplicate") != 1 {
		t.Errorf("a unique task without a key, twice: %q", out)
	}
	if out := s.run("enqueue n --lines"); strings.Count(out, "partition") != 2 {
		t.Errorf("two lines of stdin: %s", out)
	}
	s.run("enqueue n --delay 1h", "later")

	var st status.Status
	if err := json.Unmarshal([]byte(s.run("status n --json")), &st); err != nil {
		t.Fatal(err)
	}
	if total := st.Totals(); st.Name != "n" || len(st.Partitions) != 4 || total.Pending != 3 || total.Delayed != 1 || len(st.Coverage.Unowned) != 4 {
		t.Errorf("%+v", st)
	}
	text := s.run("status n --all")
	for _, want := range []string{"4 partitions: 0 owned, 4 unowned", "nobody takes part", "pending 3", "owner@epoch"} {
		if !strings.Contains(text, want) {
			t.Errorf("status does not say %q:\n%s", want, text)
		}
	}
	if out := s.run("dead list n"); !strings.Contains(out, "no dead letters") {
		t.Error(out)
	}
	s.fails(exit.Failed, "dead show n nothing")
	s.fails(exit.Usage, "dead drop n")
	s.fails(exit.Usage, "dead requeue n x --all")
}

// A key that the hash refuses is an argument that is wrong: to say it again cannot help.
func TestAKeyThatIsNoNumber(t *testing.T) {
	s := newShell(t)
	s.run("init ids --hash id --partitions 4")
	for _, line := range []string{"enqueue ids --key abc x", "explain ids abc", "history ids --key abc"} {
		if said := s.fails(exit.Usage, line); !strings.Contains(said, `key "abc": the hash "id" wants a decimal number`) || strings.Contains(said, "message") {
			t.Errorf("%s says %q", line, said)
		}
	}
	s.run("enqueue ids --key 7 x")
}

// What is wrong with a command line is said at once, all of it, and nothing is asked of
// the store or written there.
func TestUsage(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init there --partitions 4")
	ctx, stop := context.WithCancel(t.Context())
	var out output
	done := make(chan error, 1)
	go func() { done <- s.start(ctx, &out, "index there --follow --lease 60s") }()
	wait(t, func() bool { return strings.Contains(out.String(), "0 1") })
	before := s.keys()
	s.stdin = ""
	for _, c := range []struct {
		line string
		more []string
		says string
	}{
		{"status", []string{"bad name"}, `name "bad name"`},
		{"watch", []string{"bad name"}, `name "bad name"`},
		{"enqueue --partitions -1 --delay -5s --unique --timeout 0s", []string{"bad name", "x"}, `name "bad name"`},
		{"enqueue --partitions -1 --delay -5s --unique --timeout 0s", []string{"bad name", "x"}, "--partitions -1"},
		{"enqueue --partitions -1 --delay -5s --unique --timeout 0s", []string{"bad name", "x"}, "--delay -5s"},
		{"enqueue --partitions -1 --delay -5s --unique --timeout 0s", []string{"bad name", "x"}, "--unique"},
		{"enqueue --partitions -1 --delay -5s --unique --timeout 0s", []string{"bad name", "x"}, "--timeout 0s"},
		{"enqueue x --partitions 0", []string{"x"}, "--partitions 0"},
		{"enqueue x --lines", []string{"x"}, "--lines"},
		{"enqueue x --lines --id i", nil, "--id"},
		{"enqueue there x --delay 876001h", nil, "--delay 876001h0m0s: want from 0 to 100 years"},
		{"enqueue there", nil, "nothing came from stdin"},
		{"init x --partitions 0", nil, "--partitions 0"},
		{"init x --partitions -3 --hash foo", nil, "--partitions -3"},
		{"init x --partitions -3 --hash foo", nil, `hash "foo"`},
		{"resize there --partitions 9999999", nil, "--partitions 9999999"},
		{"resize there --partitions 0", nil, "--partitions 0"},
		{"status there --timeout 0s", nil, "--timeout 0s"},
		{"watch there --every 1ms", nil, "--every 1ms"},
		{"dashboard there --every 1ms --login x", []string{"bad name"}, "--every 1ms"},
		{"dashboard there --every 1ms --login x", []string{"bad name"}, "--login"},
		{"dashboard there --every 1ms --login x", []string{"bad name"}, `name "bad name"`},
		{"dashboard there --listen nowhere", nil, "--listen"},
		{"plan there", nil, "nothing changes"},
		{"plan there --peers 0 --strategy x", nil, "--peers 0"},
		{"plan there --peers 0 --strategy x", nil, `strategy "x"`},
		{"plan there --leave nope", nil, `no peer that takes part has the id "nope": countoff status lists them`},
		{"index there --lease 0s", nil, "--lease 0s"},
		{"index there --lease 0s --id _", nil, `--id: partition: peer id "_"`},
		{"index there --id", []string{"\x1b[2J"}, `--id: partition: peer id "\x1b[2J"`},
		{"index there --lease 1s --id _", nil, `--id: partition: peer id "_"`},
		{"history there -n 0 --at 5s", nil, "-n 0"},
		{"history there -n 0 --at 5s", nil, "--at wants"},
		{"history there -n 0 --partition 0 --at noon", nil, `--at "noon"`},
		{"history there -n 0 --partition 0 --at noon", nil, "-n 0"},
		{"dead requeue there --kafka h:1", nil, "say --all"},
		{"dead requeue there --kafka h:1", nil, "want kafka://"},
		{"run --name there --units {there}:config --weight -1 -- sh", nil, "--units: redisconfig: list {there}:config"},
		{"run --name there --units {there}:config --weight -1 -- sh", nil, "--weight -1"},
		{"history there --partition 4096", nil, "--partition 4096: there has 0 to"},
		{"history there --key=", nil, "the key is empty"},
		{"history there --key k --at 2999-01-01T00:00:00Z", nil, "has not come yet"},
		{"explain there", []string{""}, "the key is empty"},
		{"dead list there --limit -1", nil, "--limit -1"},
		{"dead lst there", nil, `unknown command "lst"`},
	} {
		if said := s.fails(exit.Usage, c.line, c.more...); !strings.Contains(said, c.says) {
			t.Errorf("%s %q does not say %q: %s", c.line, c.more, c.says, said)
		}
	}
	if said := s.fails(exit.Failed, "index typo"); !strings.Contains(said, "countoff init") {
		t.Errorf("count off under an unknown name: %s", said)
	}
	if out := s.run("destroy typo --yes"); !strings.Contains(out, "there is nothing of typo") {
		t.Error(out)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if after := s.keys(); !slices.Equal(after, before) {
		t.Errorf("there were the keys %q, now %q", before, after)
	}
}

// A variable that cannot be read is told by each command, once, and beside what else is wrong.
func TestAVariableThatCannotBeReadIsToldBesideTheRest(t *testing.T) {
	t.Setenv("COUNTOFF_TIMEOUT", "soon")
	told := func(cmd *cobra.Command) (last string) {
		flags := []string{"--redis", "http://x"}
		if cmd.Flags().Lookup("name") != nil { // which run wants
			flags = append(flags, "--name", "a/b")
		}
		for n := range 4 { // as many arguments as it takes
			root := Root(Stores{})
			root.SilenceErrors, root.SilenceUsage = true, true
			root.SetOut(io.Discard)
			root.SetIn(strings.NewReader(""))
			root.SetArgs(slices.Concat(strings.Fields(cmd.CommandPath())[1:], flags, []string{"a/b", "a/b", "a/b"}[:n]))
			err := root.ExecuteContext(t.Context())
			if err == nil {
				return "nothing"
			}
			last = err.Error()
			if strings.Contains(last, "COUNTOFF_TIMEOUT") {
				return last
			}
		}
		return last
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.HasSubCommands() || !cmd.Runnable() || ofItself(cmd) {
			return
		}
		said := told(cmd)
		if strings.Count(said, "$COUNTOFF_TIMEOUT: ") != 1 || !strings.Contains(said, "--redis: ") || strings.Contains(said, "--timeout 0s") {
			t.Errorf("%s says %s", cmd.CommandPath(), said)
		}
	}
	walk(Root(Stores{}))
}

// keys lists what is in the store.
func (s shell) keys() []string {
	s.t.Helper()
	keys, err := s.client().Keys(s.t.Context(), "*").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

// After all peers have died as one no lease ends by itself: a resize sees to it, and waits.
func TestResizeAfterAFleetDied(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 4")
	client, layout := s.client(), partition.Config{Total: 4}
	ledger, err := redisledger.New(client, "n", redisledger.Config{Config: layout, Timing: transition.Timing{Lease: 8 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Sync(t.Context(), transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live}); err != nil {
		t.Fatal(err)
	}
	// It was heard of just now.
	if said := s.fails(exit.InUse, "resize n --partitions 8"); !strings.Contains(said, "the name is in use: stop its peers first") {
		t.Error(said)
	}
	if err := client.HIncrBy(t.Context(), "{n}:meta", "raw", -time.Minute.Milliseconds()).Err(); err != nil {
		t.Fatal(err)
	}
	silence := regexp.MustCompile("no peer of n has been heard of for (5[6-9]|1m[0-9]+)s") // a minute, less a step of the ledger's clock
	out := s.run("resize n --partitions 8")
	if !silence.MatchString(out) || !strings.Contains(out, "4 to 8 partitions") {
		t.Error(out)
	}
	if !strings.Contains(out, "waiting until the leases of the peers of n are over") || strings.Contains(out, "when the store answers") {
		t.Errorf("the store has answered all the time, and it says\n%s", out)
	}
}

func TestResizeThatGoesOn(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 4")
	for i := range 20 {
		s.run("enqueue n --key "+strings.Repeat("k", i+1), "x")
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	if _, err := redissource.Resize(ctx, s.client(), "n", 8, redissource.ResizeConfig{
		Idle: func(context.Context) error { return nil },
		Tell: func(at redissource.Resized, _ bool) {
			if at.Tasks > 10 {
				interrupt()
			}
		},
	}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if out := s.run("resize n --partitions 8"); !strings.Contains(out, "not counting what an earlier resize had moved") {
		t.Error(out)
	}
}

func TestResizeAndDestroy(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 4")
	for i := range 20 {
		s.run("enqueue n --key "+strings.Repeat("k", i+1), "x")
	}
	s.fails(exit.Usage, "resize n")
	dry := s.run("resize n --partitions 8 --dry-run")
	if !strings.Contains(dry, "4 to 8 partitions; 20 tasks") || !strings.Contains(dry, "would move") {
		t.Error(dry)
	}
	if out := s.run("resize n --partitions 8"); out != strings.Replace(dry, "would move", "moved", 1) {
		t.Errorf("%q after %q", out, dry)
	}
	// Who calls it again, as after one whose end was not seen, is not told that there are no tasks.
	if out := s.run("resize n --partitions 8"); out != "n has 8 partitions already: nothing was moved\n" {
		t.Error(out)
	}
	var st status.Status
	if err := json.Unmarshal([]byte(s.run("status n --json")), &st); err != nil {
		t.Fatal(err)
	}
	if len(st.Partitions) != 8 || st.Totals().Pending != 20 {
		t.Errorf("%+v", st)
	}

	// A peer that lives keeps both away.
	ctx, stop := context.WithCancel(t.Context())
	var out output
	done := make(chan error, 1)
	go func() { done <- s.start(ctx, &out, "index n --follow --lease 60s") }()
	wait(t, func() bool { return strings.Contains(out.String(), "0 1") })
	s.fails(exit.InUse, "resize n --partitions 4")
	s.fails(exit.InUse, "destroy n --yes")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.fails(exit.Usage, "destroy n")
	s.run("destroy n --yes")
	s.fails(exit.Failed, "status n")
	if keys := s.keys(); len(keys) > 0 {
		t.Errorf("left behind: %q", keys)
	}
}

// A ledger in another store knows who is alive: who does not look there changes nothing under peers at work, unless
// it is said that the ledger is gone.
func TestResizeAndDestroyBesideALedgerElsewhere(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	letters(t, s, []string{"a"}, nil)
	before := s.run("status n --json")
	lines := []string{"ingress n inbox", "resize n --partitions 8", "destroy n --yes"}
	for range 2 { // what looked and was refused is in nobody's way
		for _, line := range lines {
			if said := s.fails(exit.InUse, line); !strings.Contains(said, "--ledger URL") || !strings.Contains(said, "--ledger-gone") {
				t.Errorf("%s says %q", line, said)
			}
		}
		s.run("resize n --partitions 8 --dry-run")
		s.run("ingress n")
	}
	if after := s.run("status n --json"); after != before {
		t.Errorf("before all was refused it was\n%safter\n%s", before, after)
	}
	for _, line := range lines {
		if said := s.fails(exit.Usage, line+" --ledger etcd://h/p"); !strings.Contains(said, "--ledger-gone") {
			t.Errorf("with its ledger %s says %q", line, said)
		}
		s.run(line + " --ledger-gone")
	}
	if keys := s.keys(); len(keys) > 0 {
		t.Errorf("left behind: %q", keys)
	}
	s.run("init n --partitions 4")
	for _, line := range lines {
		s.run(line)
	}
}

// So it is where the configuration is lost, or the ledger in this Redis was that of peers before.
func TestDestroyBesideALedgerElsewhereThatIsNotSeenAtOnce(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	letters(t, s, []string{"a"}, nil)
	s.client().Del(t.Context(), redisconfig.Key("n"))
	refused := func(when string) {
		if said := s.fails(exit.InUse, "destroy n --yes"); !strings.Contains(said, "--ledger-gone") {
			t.Errorf("%s it says %q", when, said)
		}
	}
	refused("without its configuration")
	s.run("destroy n --yes --ledger-gone")
	if keys := s.keys(); len(keys) > 0 {
		t.Errorf("left behind: %q", keys)
	}

	s.run("init n --partitions 4")
	l, err := redisledger.New(s.client(), "n", redisledger.Config{Config: partition.Config{Total: 4}})
	if err != nil {
		t.Fatal(err)
	}
	ann := transition.Request{Session: "aa", Peer: "ann", Weight: 1, State: machine.Live}
	for range 2 {
		if _, err := l.Sync(t.Context(), ann); err != nil {
			t.Fatal(err)
		}
		ann.State = machine.Gone
	}
	s.client().HSet(t.Context(), redissource.KeysOf("n", 1).Fence, "t", "99:bb", "e", 99, "b", 0)
	refused("after peers of a ledger here")
	s.run("destroy n --yes --ledger-gone")
}

func TestWatch(t *testing.T) {
	s := newShell(t)
	s.run("init n --partitions 8")
	ctx, stop := context.WithCancel(t.Context())
	var out output
	done := make(chan error, 1)
	go func() { done <- s.start(ctx, &out, "watch n --every 100ms") }()
	wait(t, func() bool { return strings.Count(out.String(), "8 partitions") >= 2 })
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A store that stands still is told of after --timeout, as by any other command. Of several looks the
// quickest counts: the machine may be slow.
func TestWatchOfASilentStore(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 8")
	var silent silence
	s.url = "redis://" + through(t, strings.TrimPrefix(s.url, "redis://"), &silent)
	ctx, stop := context.WithCancel(t.Context())
	var out output
	done := make(chan error, 1)
	go func() { done <- s.start(ctx, &out, "watch n --every 100ms --timeout 1s") }()
	wait(t, func() bool { return strings.Contains(out.String(), "8 partitions") })
	silent.Store(true)
	told, last := 0, time.Now()
	wait(t, func() bool {
		n := strings.Count(out.String(), "deadline exceeded")
		if n == told {
			return false
		}
		took := time.Since(last) / time.Duration(n-told)
		told, last = n, time.Now()
		return took < 4*time.Second
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Who is told to end in the midst of a look leaves what was seen last, and says nothing of a failure. The
// answer may never come: it is not waited for.
func TestWatchEndsInTheMidstOfALook(t *testing.T) {
	t.Parallel()
	mini, _ := redistest.Mini(t)
	var silent silence
	s := shell{t, "redis://" + through(t, mini.Addr(), &silent), ""}
	s.run("init n --partitions 8")
	ctx, stop := context.WithCancel(t.Context())
	var out output
	done := make(chan error, 1)
	// The client would give the answer up after 3 s.
	s.url += "?read_timeout=10m"
	go func() { done <- s.start(ctx, &out, "watch n --every 100ms --timeout 10m") }()
	wait(t, func() bool { return strings.Contains(out.String(), "8 partitions") })
	silent.Store(true)
	wait(t, func() bool { return silent.held.Load() > 0 })
	stop()
	if err := <-done; err != nil || strings.Contains(out.String(), "cancel") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

// A command whose time is over before it has looked through all says which time that is.
func TestTimeIsOver(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	for _, c := range []struct {
		runs  span
		fails error
		over  bool // the time of the command
		want  string
	}{
		{brief, context.DeadlineExceeded, true, "partitions 7-9: context deadline exceeded: there was no full answer within --timeout 3s"},
		{brief, context.DeadlineExceeded, false, "partitions 7-9: context deadline exceeded: there was no full answer within half of --timeout 3s (a node of the store stands still"},
		{brief, os.ErrDeadlineExceeded, true, "partitions 7-9: i/o timeout: there was no full answer within --timeout 3s"}, // of the connection
		{brief, os.ErrDeadlineExceeded, false, "partitions 7-9: i/o timeout"},
		{long, context.DeadlineExceeded, false, "partitions 7-9: context deadline exceeded"},
	} {
		cmd := s.command(&output{}, "letters --timeout 3s")
		cmd.AddCommand(&cobra.Command{Use: "letters", RunE: onStore(c.runs, nil, func(ctx context.Context, _ redis.UniversalClient, _ *cobra.Command, _ []string) error {
			if c.over {
				<-ctx.Done()
			}
			return fmt.Errorf("partitions 7-9: %w", c.fails)
		})})
		err := cmd.ExecuteContext(t.Context())
		if codeOf(err) != exit.Unreachable || err == nil || !strings.HasPrefix(err.Error(), c.want) || !strings.Contains(c.want, "answer") && err.Error() != c.want {
			t.Errorf("it ends with %d: %v, want %s", codeOf(err), err, c.want)
		}
		if strings.Contains(c.want, "answer") && !strings.Contains(err.Error(), "what was to change may have changed") { // a recall, say
			t.Errorf("it does not say that it may be done: %v", err)
		}
	}
}

// A silence holds answers back while it is true.
type silence struct {
	atomic.Bool
	held atomic.Int64 // pieces of answers
}

// through returns the address of a way to that of a server, whose answers are held back while
// it is silent.
func through(t *testing.T, server string, silent *silence) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { l.Close() })
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			redis, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			all.Go(func() { // ends with the client, which ends with its command
				defer redis.Close()
				_, _ = io.Copy(redis, client)
			})
			all.Go(func() {
				defer client.Close()
				_, _ = io.Copy(muted{client, silent}, redis)
			})
		}
	})
	return l.Addr().String()
}

// muted takes what it is given and passes nothing on while it is silent.
type muted struct {
	net.Conn
	silent *silence
}

func (m muted) Write(p []byte) (int, error) {
	if m.silent.Load() {
		m.silent.held.Add(1)
		return len(p), nil
	}
	return m.Conn.Write(p)
}

// What is told to stop before it has done all does not end as if it had: a script would go on,
// and start peers in the middle of a resize. What runs until it is told to stop has done all.
func TestToldToStop(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run("init n --partitions 4")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var out output
	for line, want := range map[string]int{
		"resize n --partitions 8":        exit.Hard,
		"destroy n --yes":                exit.Hard,
		"dead requeue n --all":           exit.Hard,
		"enqueue n x":                    exit.Hard,
		"watch n":                        exit.OK,
		"dashboard --listen=127.0.0.1:0": exit.OK,
		"index n --follow":               exit.OK,
	} {
		if err := s.start(over, &out, line); codeOf(err) != want {
			t.Errorf("countoff %s: code %d, want %d: %v", line, codeOf(err), want, err)
		}
	}
}

func TestVersionAndCompletion(t *testing.T) {
	s := newShell(t)
	if out := s.run("version"); !strings.Contains(out, "protocol 1") {
		t.Error(out)
	}
	if out := s.run("completion bash"); !strings.Contains(out, "countoff") {
		t.Error("no completion")
	}
}

// The README says which commands there are.
func TestTheReadmeNamesAllCommands(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, _ := strings.Cut(string(text), "| `cmd/` | `countoff`: ")
	row, _, _ = strings.Cut(row, ";")
	listed := strings.FieldsFunc(row, func(r rune) bool { return r == ',' || r == ' ' })
	for _, cmd := range Root(nil).Commands() {
		if name := cmd.Name(); !cmd.Hidden && name != "version" && !slices.Contains(listed, name) {
			t.Errorf("%s is not among %q", name, row)
		}
	}
}

// Whoever has never used a command begins with a line that can be typed.
func TestEachCommandHasAnExample(t *testing.T) {
	t.Parallel()
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		says := cmd.Long + "\n" + cmd.Example
		if !cmd.HasSubCommands() && !cmd.Hidden && !strings.Contains(says, "\n  "+cmd.CommandPath()) && !strings.HasPrefix(cmd.Example, "  "+cmd.CommandPath()) {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
	}
	walk(Root(nil))
}

// Whoever writes a script reads the help of the command that it calls: the exit codes are those of the program.
func TestEachHelpLeadsToTheExitCodes(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	const lead = "Exit codes: see countoff --help\n"
	for _, line := range []string{"status --help", "resize --help", "dead requeue --help", "help pause"} {
		if out := s.run(line); !strings.HasSuffix(out, lead) {
			t.Errorf("countoff %s says\n%s", line, out)
		}
	}
	if out := s.run("help"); strings.Contains(out, lead) || !strings.Contains(out, exit.Help) {
		t.Errorf("countoff --help says\n%s", out)
	}
}

func wait(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("what is waited for did not come")
		}
		<-time.After(10 * time.Millisecond)
	}
}

// A dashboard that nobody looks at for a night has no connections left that a firewall may have forgotten: its page waited
// for each of them, one after the other.
func TestConnectionsAreNotKeptForHours(t *testing.T) {
	t.Parallel()
	cmd, _, err := Root(Stores{}).Find([]string{"dashboard"})
	if err == nil {
		err = cmd.ParseFlags(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	at, err := prepare(cmd, nil, time.Second, nil, func(string) (*stand, error) { return &stand{}, nil })
	defer at.close()
	if err != nil {
		t.Fatal(err)
	}
	if idle := at.client.(*redis.Client).Options().ConnMaxIdleTime; idle <= 0 || idle > 10*time.Second {
		t.Errorf("a connection that nobody uses is kept for %v", idle)
	}
}
