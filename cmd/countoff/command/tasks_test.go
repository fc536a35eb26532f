package command

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/redissource"
)

var instants = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)

// cells are the lines of a table without the times of births and what is between its columns.
func cells(table string) (lines []string) {
	for line := range strings.Lines(table) {
		lines = append(lines, strings.Join(strings.Fields(instants.ReplaceAllString(line, "")), " "))
	}
	return lines
}

func TestTasks(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	client := s.client()
	p, err := redissource.NewProducer(t.Context(), client, "n", redissource.ProducerConfig{Partitions: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	same := func(what, line string, want ...string) {
		t.Helper()
		if got := cells(s.run(line)); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	same("of none", "tasks n", "no open tasks")
	same("of none", "tasks n --by key", "no open tasks")
	for i, m := range []redissource.Message{
		{Type: "mail", Key: "ann"}, {Type: "mail", Key: "ann"}, {Type: "sms", Key: "ann", Payload: []byte("\xff")}, {Type: "mail", Key: "bob", Payload: []byte("hi")}, {Key: "ann"}, {Type: "mail", Key: "cat"},
	} {
		m.ID = "t" + strconv.Itoa(i)
		if _, err := p.Enqueue(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	place := func(key string) (partition.ID, redissource.Keys) {
		id, err := partition.XXHash64.Of(key, 4)
		if err != nil {
			t.Fatal(err)
		}
		return id, redissource.KeysOf("n", id)
	}
	ann, anns := place("ann")
	bob, bobs := place("bob")
	if ann >= bob {
		t.Fatalf("ann is in %v, bob in %v: other names", ann, bob)
	}
	due := time.Now().Add(time.Hour).UTC()
	client.HSet(t.Context(), anns.Fence, "t", "1:s", "e", 1, "b", 0, "h", 2, "s", 0, "a", "")
	client.HSet(t.Context(), anns.Tries, "0", fmt.Sprintf("2 1 %d broken\nline", due.UnixMilli()))
	client.HSet(t.Context(), bobs.Fence, "t", "1:s", "e", 1, "b", 0, "h", 2, "s", 1, "a", "")
	client.RPush(t.Context(), bobs.Pending, "garbage")

	const head = "ID TYPE KEY PARTITION BORN TRIES STATE FIRST ERROR"
	all := []string{
		head,
		fmt.Sprintf("t0 mail ann %v 2, 1 crashed runs again broken line", ann), // when is a time, too
		fmt.Sprintf("t1 mail ann %v 0 waits for its key", ann),
		fmt.Sprintf("t2 sms ann %v 0 waits for its key", ann),
		fmt.Sprintf("t4 ann %v 0 waits for its key", ann),
		fmt.Sprintf("t3 mail bob %v 0 is to run alone", bob),
		fmt.Sprintf("t5 mail cat %v 0 may be running", bob),
		fmt.Sprintf("%v/2 %v waits nobody can read it: it becomes a dead letter when it is its turn", bob, bob),
	}
	same("all", "tasks n", all...)
	if out := s.run("tasks n"); !strings.Contains(out, "runs again "+due.Format("2006-01-02 15:04:05")) {
		t.Errorf("when it runs again is not said:\n%s", out)
	}
	same("some", "tasks n --limit 2", all[0], all[1], all[2], "… more than 2 (--limit 0 lists all)")
	same("of a key", "tasks n --key bob", head, all[5])
	same("of another", "tasks n --key zoe", "no open task has this key")
	same("of a type", "tasks n --type sms", head, all[3])
	same("of a partition", fmt.Sprintf("tasks n --partition %v", bob), head, all[5], all[6], all[7])
	same("the first", "tasks n --depth 1", head, all[1], all[5], "looked at the first 1 of each partition, 2 in all; about 5 stand behind them (--depth 0 looks at all)")

	const apart = "besides: %d that have no %s, or that nobody can read"
	same("by key", "tasks n --by key", "TASKS TRIED OLDEST PARTITION KEY",
		fmt.Sprintf("4 1 %v ann", ann), fmt.Sprintf("1 0 %v bob", bob), fmt.Sprintf("1 0 %v cat", bob), fmt.Sprintf(apart, 1, "key"))
	same("by type", "tasks n --by type --limit 1", "TASKS TRIED OLDEST TYPE", "4 1 mail", "… more than 1 (--limit 0 lists all)", fmt.Sprintf(apart, 2, "type"))
	same("by key of one partition", fmt.Sprintf("tasks n --by type --partition %v --type none", ann), "no open task is of this type")

	var one map[string]any
	if err := json.Unmarshal([]byte(s.run("tasks n --json --type sms")), &one); err != nil || one["id"] != "t2" || one["partition"] != float64(ann) || one["position"] != 2.0 ||
		one["payload_base64"] != "/w==" || one["born"] == nil || one["not_before"] != nil {
		t.Errorf("as JSON: %v, %v", one, err)
	}
	first, _, _ := strings.Cut(s.run("tasks n --json"), "\n")
	if err := json.Unmarshal([]byte(first), &one); err != nil || one["not_before"] == nil || one["attempts"] != 2.0 || one["crashes"] != 1.0 ||
		one["first_error"] != "broken\nline" {
		t.Errorf("as JSON: %v, %v", one, err)
	}
	one = nil
	if err := json.Unmarshal([]byte(s.run("tasks n --by key --json --key ann")), &one); err != nil || len(one) != 5 || one["key"] != "ann" || one["tasks"] != 4.0 || one["tried"] != 1.0 ||
		one["partition"] != float64(ann) || one["oldest"] == nil {
		t.Errorf("by key as JSON: %v, %v", one, err)
	}

	// A partition that cannot be read hides no other.
	client.Del(t.Context(), bobs.Pending)
	client.Set(t.Context(), bobs.Pending, "no list", 0)
	var out output
	if err := s.start(t.Context(), &out, "tasks n"); codeOf(err) != exit.Unreachable || !strings.Contains(err.Error(), fmt.Sprintf("partition %v cannot be read", bob)) ||
		!strings.Contains(out.String(), "t4") {
		t.Errorf("with one that cannot be read: %v\n%s", err, out.String())
	}
}

// What is wrong with the line is said at once, and what has no tasks in lists says who has them.
func TestTasksThatAreNotThere(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	err := s.fails(exit.Usage, "tasks n", "--key", "", "--partition", "-2", "--by", "x", "--depth", "-1", "--limit", "-1")
	for _, want := range []string{"the key is empty", "--partition -2", "give one of them", `--by "x"`, "--depth -1", "--limit -1"} {
		if !strings.Contains(err, want) {
			t.Errorf("%q is not said: %s", want, err)
		}
	}
	s.run("init n --partitions 4")
	s.client().HSet(t.Context(), redissource.KeysOf("n", 2).Fence, "b", 3, "x", 7)
	if err := s.fails(exit.Config, "tasks n"); !strings.Contains(err, "lie elsewhere") {
		t.Error(err)
	}
	s.client().Del(t.Context(), redissource.KeysOf("n", 2).Fence)
	if err := s.fails(exit.Usage, "tasks n --partition 4"); !strings.Contains(err, "n has 4, 0 to 3") {
		t.Error(err)
	}
	for kind, want := range map[redisconfig.Kind]string{redisconfig.Topic: "topic of Kafka", redisconfig.Units: "units of work"} {
		s.client().HSet(context.Background(), redisconfig.Key("n"), "kind", string(kind))
		if err := s.fails(exit.Config, "tasks n"); !strings.Contains(err, want) {
			t.Errorf("%s: %s", kind, err)
		}
	}
}
