package command

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/sources/redissource"
)

func TestDelayed(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	client := s.client()
	p, err := redissource.NewProducer(t.Context(), client, "n", redissource.ProducerConfig{Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	if out := s.run("delayed list n"); out != "no delayed tasks\n" {
		t.Errorf("%q", out)
	}
	at := time.Date(2096, 2, 29, 12, 30, 0, 0, time.UTC)
	for _, m := range []redissource.Message{
		{ID: "b", Type: "mail", Key: "ann\n", At: at.Add(time.Hour), Payload: []byte("hi")},
		{ID: "a", Key: "ann\n", At: at}, {ID: "b", Key: "ann\n", At: at.Add(2 * time.Hour), Payload: []byte("\xff")}, {ID: "now", Key: "ann\n"},
	} {
		if _, err := p.Enqueue(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	table := s.run("delayed list n")
	if want := "ID  TYPE  KEY   DUE                  TRIES  FIRST ERROR\na"; !strings.HasPrefix(table, want) || strings.Count(table, "\n") != 4 ||
		!strings.Contains(table, "b   mail  ann   2096-02-29 13:30:00  0") {
		t.Errorf("%s", table)
	}
	if out := s.run("delayed list n --limit 2"); !strings.Contains(out, "more than 2 (--limit 0") {
		t.Errorf("%s", out)
	}
	if out := s.run("delayed list n a"); strings.Count(out, "\n") != 2 {
		t.Errorf("%s", out)
	}
	if out := s.run("delayed list n nope"); out != "no delayed task is called nope\n" {
		t.Errorf("%q", out)
	}
	s.fails(exit.Usage, "delayed list n", "")
	var got []map[string]any
	for line := range strings.Lines(s.run("delayed list n b --json")) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		got = append(got, one)
	}
	if len(got) != 2 {
		t.Fatalf("%v", got)
	}
	for _, one := range got {
		if one["id"] != "b" || one["due"] == nil || one["born"] == nil || one["payload"] == nil && one["payload_base64"] != "/w==" {
			t.Errorf("%v", one)
		}
	}

	// What nobody can read, of a time that nobody has, hides no other.
	if err := client.ZAdd(t.Context(), redissource.KeysOf("n", 0).Delayed, redis.Z{Score: 1e18, Member: "garbage"}).Err(); err != nil {
		t.Fatal(err)
	}
	if out := s.run("delayed list n"); strings.Count(out, "\n") != 5 || !strings.Contains(out, "it becomes a dead letter") {
		t.Errorf("%s", out)
	}
	if out := s.run("delayed list n --json"); !strings.Contains(out, `"due":null`) || strings.Count(out, "\n") != 4 {
		t.Errorf("%s", out)
	}

	if out := s.run("delayed cancel n b"); out != "2 cancelled\n" {
		t.Errorf("%q", out)
	}
	if said := s.fails(exit.Failed, "delayed cancel n b a"); !strings.Contains(said, "called b: it is due or done, or never was: see countoff delayed list n") {
		t.Errorf("%q", said)
	}
	if out := s.run("status n"); !strings.Contains(out, "delayed 1 ") { // a went although b was not there; garbage is counted
		t.Errorf("%s", out)
	}
	if _, err := p.Enqueue(t.Context(), redissource.Message{ID: "c", At: at}); err != nil {
		t.Fatal(err)
	}
	if out := s.run("delayed run n c"); out != "1 put at the end of their partitions\n" {
		t.Errorf("%q", out)
	}
	if out := s.run("status n"); !strings.Contains(out, "pending 2 ") {
		t.Errorf("%s", out)
	}
	for _, line := range []string{"delayed cancel n", "delayed list n --limit -1", "delayed list"} {
		s.fails(exit.Usage, line)
	}
	s.fails(exit.Failed, "delayed list nobody")
	s.fails(exit.Usage, "delayed run n", "")
}
