package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status/partitionmap"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/redissource"
)

// letters makes a dead letter of each id, all in partition 0 of n, and one that nobody can read
// before each that bad names.
func letters(t *testing.T, s shell, ids, bad []string) redis.UniversalClient {
	t.Helper()
	client := s.client()
	p, err := redissource.NewProducer(t.Context(), client, "n", redissource.ProducerConfig{Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	var messages []redissource.Message
	for _, id := range ids {
		messages = append(messages, redissource.Message{ID: id})
	}
	if _, err := p.Enqueue(t.Context(), messages...); err != nil {
		t.Fatal(err)
	}
	source, err := redissource.New(client, "n", redissource.Config{})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := source.Open(t.Context(), partition.Grant{Epoch: 1}, partition.Token{Epoch: 1, Session: "aa"})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(ids); {
		tasks, err := stream.Fetch(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			for n++; len(bad) > 0 && bad[0] == task.ID; bad = bad[1:] {
				if err := client.RPush(t.Context(), redissource.KeysOf("n", 0).Dead, "nobody reads "+task.ID).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if err := stream.Settle(t.Context(), sources.Settlement{Task: &task, Outcome: sources.Dead, Attempt: 1, Reason: "no"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := stream.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return client
}

// All dead letters are more than are read at once: none is left out although those before it
// leave the list, and what cannot be requeued stays and holds up no other.
func TestDeadAll(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	var ids, bad []string
	for i := range 2*takePage + 100 {
		ids = append(ids, fmt.Sprintf("t%04d", i))
		if i%200 == 7 {
			bad = append(bad, ids[i])
		}
	}
	client := letters(t, s, ids, bad)
	var out output
	err := s.start(t.Context(), &out, "dead requeue n --all")
	if !errors.Is(err, redissource.ErrRaw) || strings.Count(err.Error(), "nobody could read it") != len(bad) {
		t.Errorf("it says %v", err)
	}
	if want := fmt.Sprintf("%d requeued\n", len(ids)); !strings.HasSuffix(out.String(), want) { // a slow one says before how far it is
		t.Errorf("%q, want %q", out.String(), want)
	}
	all, err := client.LRange(t.Context(), redissource.KeysOf("n", 0).Pending, 0, -1).Result()
	if err != nil || len(all) != len(ids) {
		t.Fatalf("%d tasks wait: %v", len(all), err)
	}
	for i, id := range ids {
		if !strings.Contains(all[i], id) {
			t.Fatalf("task %d is %q, want %s: they wait in another order", i, all[i], id)
		}
	}
	if out := s.run("dead drop n --all"); out != fmt.Sprintf("%d dropped\n", len(bad)) {
		t.Error(out)
	}
}

type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

// A store that takes one letter no more takes no other: thousands of errors would say the same, each after
// the client has tried for a while. What is wrong with one letter holds up no other.
func TestDeadOfAStoreThatTakesNothing(t *testing.T) {
	n := 0
	left, failed, err := takeEach(t.Context(), make([]redissource.DeadLetter, 9), func(redissource.DeadLetter) error {
		switch n++; n {
		case 2:
			return fmt.Errorf("letter 2: %w", redissource.ErrRaw)
		case 4:
			return errFull
		}
		return nil
	})
	if n != 4 || left != 1 || len(failed) != 1 || !errors.Is(err, errFull) {
		t.Errorf("it tried %d, left %d, and says %v, %v", n, left, failed, err)
	}

	client := letters(t, newShell(t), []string{"a"}, nil)
	tried := 0
	err = takeAll(t.Context(), client, "n", []partition.ID{0, 0}, func(redissource.DeadLetter) error {
		tried++
		return errFull
	})
	if tried != 1 || !errors.Is(err, errFull) {
		t.Errorf("of two partitions it tried %d letters, and says %v", tried, err)
	}
}

// A partition whose dead letters cannot be read is told of, and holds up no other.
func TestDeadAllBesideAPartitionThatCannotBeRead(t *testing.T) {
	client := letters(t, newShell(t), []string{"a", "b"}, nil)
	if err := client.Set(t.Context(), redissource.KeysOf("n", 7).Dead, "no list", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var taken []string
	err := takeAll(t.Context(), client, "n", []partition.ID{7, 0}, func(d redissource.DeadLetter) error {
		taken = append(taken, d.ID)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "partition 7") || !slices.Equal(taken, []string{"a", "b"}) {
		t.Errorf("it took %v, and says %v", taken, err)
	}
}

// Whoever is told to stop in the midst of many takes no other.
func TestDeadIsToldToStop(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	n := 0
	_, _, err := takeEach(ctx, make([]redissource.DeadLetter, 3), func(redissource.DeadLetter) error {
		if n++; n == 2 {
			stop()
		}
		return nil
	})
	if n != 2 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d of 3 taken, and it says %v", n, err)
	}
}

// What could not be written is no list of all dead letters.
func TestDeadListThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	letters(t, s, []string{"a"}, nil)
	cmd := Root(nil)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"dead", "list", "n", "--json", "--redis", s.url})
	cmd.SetOut(full{})
	if err := cmd.ExecuteContext(t.Context()); !errors.Is(err, errFull) {
		t.Errorf("it ended with %v", err)
	}
}

// What nobody could read has no position in the log: several may have one. A letter is taken only by
// a name that no other has.
func TestDeadTakesWhatIsNamed(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	client := letters(t, s, []string{"a"}, nil)
	key := redissource.KeysOf("n", 0).Dead
	client.RPush(t.Context(), key, "one", "two", "twice", "twice")
	var names []string
	for line := range strings.Lines(s.run("dead list n")) {
		names = append(names, strings.Fields(line)[0])
	}
	if len(names) != 6 || names[1] != "a" || names[2] == names[3] || names[4] != names[5] || !strings.HasPrefix(names[2], "0/0-") {
		t.Fatalf("they are called %q", names)
	}
	for _, verb := range []string{"drop", "requeue"} {
		err := s.fails(exit.Usage, "dead "+verb+" n 0/0")
		if n := client.LLen(t.Context(), key).Val(); n != 5 || !strings.Contains(err, "say 0/0 or "+names[2]+" or "+names[3]) {
			t.Errorf("%d of 5 are left, and it says %q", n, err)
		}
	}
	if out := s.run("dead show n 0/0"); !strings.Contains(out, "\none\n") || !strings.Contains(out, "\ntwo\n") {
		t.Errorf("shown was %s", out)
	}
	if out := s.run("dead drop n " + names[3]); out != "1 dropped\n" {
		t.Error(out)
	}
	if out := s.run("dead drop n " + names[4]); out != "2 dropped\n" { // one and the same text
		t.Error(out)
	}
	if left := client.LRange(t.Context(), key, 0, -1).Val(); len(left) != 2 || left[1] != "one" {
		t.Errorf("left are %q", left)
	}
	if out := s.run("dead list n --json"); !strings.Contains(out, `{"name":"`+names[2]+`","id":""`) {
		t.Error(out)
	}
}

// What a limit leaves out is said, beside the lines of JSON and not among them.
func TestDeadListSaysThatThereAreMore(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	letters(t, s, []string{"a", "b", "c"}, nil)
	const more = "more than 2 (--limit 0 lists all)"
	if out := s.run("dead list n --limit 2"); !strings.Contains(out, more) || strings.Count(out, "\n") != 4 {
		t.Errorf("with a limit of 2 it lists\n%s", out)
	}
	if out := s.run("dead list n --limit 3"); strings.Contains(out, "more than") {
		t.Errorf("all are listed, and it says\n%s", out)
	}
	cmd := Root(nil)
	cmd.SetArgs([]string{"dead", "list", "n", "--json", "--limit", "2", "--redis", s.url})
	var out, notes strings.Builder
	cmd.SetOut(&out)
	cmd.SetErr(&notes)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\n") != 2 || strings.Contains(out.String(), "more") || !strings.Contains(notes.String(), more) {
		t.Errorf("in JSON it lists\n%sand says %q beside it", out.String(), notes.String())
	}
}

// Many lines travel together, in their order; one that has come does not wait for the next.
func TestEnqueueLines(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	var in strings.Builder
	for i := range 1200 {
		fmt.Fprintf(&in, "line %04d\n", i)
	}
	s.stdin = in.String()
	if out := s.run("enqueue n --lines --key k --partitions 1"); strings.Count(out, " partition 0\n") != 1200 {
		t.Errorf("%d lines are answered", strings.Count(out, "\n"))
	}
	client := s.client()
	all, err := client.LRange(t.Context(), redissource.KeysOf("n", 0).Pending, 0, -1).Result()
	if err != nil || len(all) != 1200 {
		t.Fatalf("%d tasks wait: %v", len(all), err)
	}
	for i, body := range all {
		if !strings.HasSuffix(body, fmt.Sprintf("line %04d", i)) {
			t.Fatalf("task %d is %q: they wait in another order", i, body)
		}
	}

	r, w := io.Pipe()
	var sizes []int
	asked := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- enqueueLines(r, func(lines ...[]byte) ([]redissource.Result, error) {
			sizes = append(sizes, len(lines))
			asked <- struct{}{}
			if string(lines[0]) != "f" {
				return make([]redissource.Result, len(lines)), nil
			}
			return []redissource.Result{{}, {Err: errFull}, {}}, errFull
		})
	}()
	for _, text := range []string{"a\n", "b\nc\nd\nhal", "e\n", "f\ng\nh\ni"} {
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		<-asked
	}
	err = <-ended
	if !errors.Is(err, errFull) || !strings.HasPrefix(err.Error(), "not enqueued: line 7, and all after 8:") {
		t.Errorf("it says %v", err)
	}
	if fmt.Sprint(sizes) != "[1 3 1 3]" {
		t.Errorf("lines travel together as %v", sizes)
	}
}

// An interrupt fails all lines of a batch: five hundred numbers say no more than two.
func TestLinesThatFailedAreRanges(t *testing.T) {
	bad, good := redissource.Result{Err: errFull}, redissource.Result{}
	for _, c := range []struct {
		results []redissource.Result
		want    string
	}{
		{nil, "101-106"},
		{[]redissource.Result{bad, bad, good, bad, good, bad}, "101-102, 104, 106"},
		{[]redissource.Result{good, good, good, bad, bad, bad}, "104-106"},
	} {
		if got := failed(c.results, 100, 6); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// xs is a line without an end.
type xs struct{}

func (xs) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// Half a line is no payload: where the read fails, what came of the last line is not enqueued, and
// the error says which line that is. What ends without a line break is a line.
func TestEnqueueOfATornLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   io.Reader
		put  string
		says string
		is   error
	}{
		"torn":           {io.MultiReader(strings.NewReader("a\nb\nhal"), iotest.ErrReader(errFull)), `["a" "b"]`, "line 3 and all after it", errFull},
		"between two":    {io.MultiReader(strings.NewReader("a\n"), iotest.ErrReader(errFull)), `["a"]`, "line 2 and all after it", errFull},
		"with the error": {iotest.DataErrReader(io.MultiReader(strings.NewReader("a\nb\nhal"), iotest.ErrReader(errFull))), `["a" "b"]`, "line 3 and all after it", errFull},
		"broken off":     {io.MultiReader(strings.NewReader("a\nhal"), iotest.ErrReader(io.ErrUnexpectedEOF)), `["a"]`, "line 2 and all after it", io.ErrUnexpectedEOF},
		"too long":       {io.MultiReader(strings.NewReader("a\nb\n"), xs{}), `["a" "b"]`, "line 3 and all after it", bufio.ErrTooLong},
		"whole":          {strings.NewReader("a\nb"), `["a" "b"]`, "", nil},
		"whole at once":  {iotest.DataErrReader(strings.NewReader("a\nb")), `["a" "b"]`, "", nil},
	} {
		put := []string{}
		err := enqueueLines(c.in, func(lines ...[]byte) ([]redissource.Result, error) {
			for _, line := range lines {
				put = append(put, string(line))
			}
			return nil, nil
		})
		if fmt.Sprintf("%q", put) != c.put || !errors.Is(err, c.is) {
			t.Errorf("%s: it enqueued %q, and says %v", name, put, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "not enqueued: "+c.says+": ") {
			t.Errorf("%s: it says %v, want %q", name, err, c.says)
		}
	}
}

func TestTheFirstLineGoesAlone(t *testing.T) {
	t.Parallel()
	errNone := errors.New("none")
	err := enqueueLines(strings.NewReader(strings.Repeat("x\n", 1000)), func(lines ...[]byte) ([]redissource.Result, error) { return nil, errNone })
	if err == nil || !strings.HasPrefix(err.Error(), "not enqueued: line 1, and all after 1: ") {
		t.Errorf("it says %v", err)
	}
}

// What is in a task moves no cursor of who looks at it.
func TestDeadLettersAreNotObeyedByTheTerminal(t *testing.T) {
	s := newShell(t)
	const evil = "a\x1b[2J\nb\u009b31m"
	letters(t, s, []string{evil}, nil)
	for _, line := range []string{"dead list n", "dead show n 0/0"} {
		if got := s.run(line); strings.ContainsAny(got, "\x1b\u009b") || !strings.Contains(got, "a\ufffd[2J b\ufffd31m") {
			t.Errorf("%s: %q", line, got)
		}
	}
	for payload, want := range map[string]string{"ann\n\tbob": "\nann\n\tbob\n", "a\x1b[2J": "\n\"a\\x1b[2J\"\n"} {
		var b strings.Builder
		if printLetter(&b, redissource.DeadLetter{Payload: []byte(payload)}); !strings.HasSuffix(b.String(), want) {
			t.Errorf("%q", b.String())
		}
	}
}

// Errors that were joined have a line each, and shown one after the other they are one sentence of two.
func TestAReasonOfSeveralLinesIsShownAsSuch(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	printLetter(&b, redissource.DeadLetter{Type: "a\nb", Reason: "card refused\nid  \x1b[2Jmail refused\n", FirstError: "slow"})
	if want := "reason       card refused\n             id  \ufffd[2Jmail refused\nfirst error  slow\n"; !strings.Contains(b.String(), want) || !strings.Contains(b.String(), "type         a b\n") {
		t.Errorf("it shows\n%s", b.String())
	}
}

// JSON has no years but 0 to 9999: one odd time, of whoever wrote it, must not hide the letters behind it.
func TestJSONOfAnOddTime(t *testing.T) {
	t.Parallel()
	for at, want := range map[time.Time]bool{
		{}: false,
		time.Date(-1, 12, 31, 23, 0, 0, 0, time.UTC): false, time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC): true,
		time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC): true, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC): false,
	} {
		data, err := json.Marshal(jsonLetter(redissource.DeadLetter{Born: at, Died: at}, true))
		var got struct{ Born, Died *time.Time }
		if err = errors.Join(err, json.Unmarshal(data, &got)); err != nil || (got.Born != nil) != want || (got.Died != nil) != want {
			t.Errorf("%v: %s, %v", at, data, err)
		}
	}
}

// A letter looks the same each time: two of them are compared.
func TestHeadersOfALetterHaveAnOrder(t *testing.T) {
	d := redissource.DeadLetter{Headers: map[string]string{}}
	for c := 'a'; c <= 'z'; c++ {
		d.Headers[string(c)] = "x"
	}
	var out strings.Builder
	printLetter(&out, d)
	var names []string
	for line := range strings.Lines(out.String()) {
		if name, ok := strings.CutPrefix(line, "header "); ok {
			names = append(names, name)
		}
	}
	if len(names) != 26 || !slices.IsSorted(names) {
		t.Errorf("it shows\n%s", out.String())
	}
}

// Characters that take two columns of a terminal, or none, move nothing that stands beside them.
func TestDeadListHasColumns(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	letters(t, s, []string{"plain", "漢字カナ", "e\u0301te\u0301", "📦📦"}, nil)
	day := regexp.MustCompile(`\d{4}-\d\d-\d\d|DIED`)
	at := -1
	lines := strings.Split(strings.TrimSpace(s.run("dead list n")), "\n")
	for _, line := range lines {
		found := day.FindStringIndex(line)
		if found == nil {
			t.Fatalf("%q has no day", line)
		}
		column := partitionmap.Room(line[:found[0]])
		if at < 0 {
			at = column
		}
		if column != at {
			t.Errorf("DIED is at column %d of %q, and at %d of the first", column, line, at)
		}
	}
	if len(lines) != 5 {
		t.Errorf("%d lines, want 5", len(lines))
	}
}

// A key, a type and an id are as long as who enqueued the task liked. What is long moves no other row, and a key or a type
// is not printed whole.
func TestAListWithOneLongTask(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	letter := newLetterList(&cobra.Command{}, 0, false, false).row(redissource.DeadLetter{ID: long, Type: long, Key: long})
	for what, row := range map[string][]string{"dead letter": letter, "delayed task": delayedRow(redissource.Delayed{ID: long, Type: long, Key: long})} {
		if row[0] != long { // for who requeues, drops, runs or cancels it
			t.Errorf("%s: an id of %d characters, want all", what, len(row[0]))
		}
		for _, cell := range row[1:] {
			if partitionmap.Room(cell) > widest {
				t.Errorf("%s: a cell of %d columns", what, partitionmap.Room(cell))
			}
		}
		var list table
		list.add(row...)
		list.add("plain", "type", "key", "0", "", "")
		var out strings.Builder
		if err := list.print(&out); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Split(out.String(), "\n"); partitionmap.Room(lines[1]) > 2*widest {
			t.Errorf("%s: beside a long id the next row has %d columns", what, partitionmap.Room(lines[1]))
		}
	}
}
