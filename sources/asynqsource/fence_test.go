package asynqsource

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// asynqCode parses the file in which asynq talks to Redis.
func asynqCode(t testing.TB) *ast.File {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/hibiken/asynq").Output()
	if err != nil {
		t.Skipf("the source of asynq cannot be found: %v", err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "internal/rdb/rdb.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// asynqScripts are the scripts in asynq's source, by the names of their variables.
func asynqScripts(t testing.TB) map[string]string {
	t.Helper()
	scripts := make(map[string]string)
	ast.Inspect(asynqCode(t), func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		call, ok := spec.Values[0].(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		if lit, ok := call.Args[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			scripts[spec.Names[0].Name] = text
		}
		return true
	})
	if len(scripts) < 20 {
		t.Fatalf("only %d scripts were found in the source of asynq", len(scripts))
	}
	return scripts
}

// dump is everything Redis holds of a queue.
func (s *store) dump(t testing.TB, queue string) string {
	t.Helper()
	ctx := t.Context()
	var all []string
	for _, key := range redistest.Keys(t, s.UniversalClient, "*{"+queue+"}*") {
		var value any
		switch kind := s.Type(ctx, key).Val(); kind {
		case "list":
			value = s.LRange(ctx, key, 0, -1).Val()
		case "hash":
			value = s.HGetAll(ctx, key).Val() // printed in the order of its fields
		case "zset":
			value = s.ZRangeWithScores(ctx, key, 0, -1).Val()
		case "set":
			value = slices.Sorted(slices.Values(s.SMembers(ctx, key).Val()))
		default:
			value = s.Get(ctx, key).Val()
		}
		all = append(all, fmt.Sprintf("%s %q", key, value))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// Whatever asynq does to a queue under a token that is not the newest, Redis refuses,
// and nothing is changed: each script in asynq's source, with the keys of a task that
// another owner runs.
func TestEveryScriptOfAsynqIsFenced(t *testing.T) {
	s := newStore(t)
	queue := QueueOf(s.name, 0)
	k := keysOf(queue)
	info := s.enqueue(t, 0, asynq.NewTask("mail", nil), asynq.TaskID("held"))
	s.enqueue(t, 0, asynq.NewTask("mail", nil))
	src, _, _ := s.peer(t, Config{})
	old := s.open(t, src, 0, 1)
	stands := s.open(t, s.source(t), 0, 2)
	if _, err := stands.Fetch(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	former := s.dump(t, queue)
	names := []string{
		k.active, k.lease, k.task + info.ID, k.pending, k.retry, k.archived, k.completed, k.processed + ":d", k.task,
	}
	for name, source := range asynqScripts(t) {
		n := &native{script: newScript(before + source + after), keys: names, args: []any{info.ID, "2", "3", "4", "5", "6", "7"}}
		for _, number := range []string{"", "1", "7"} {
			err := n.send(t.Context(), s, k, old.fence, number, info.ID, true).Err()
			if !refused(err) {
				t.Errorf("%s under an old token: %v, want a refusal", name, err)
			}
		}
		if now := s.dump(t, queue); now != former {
			t.Fatalf("%s under an old token changed\n%s\nto\n%s", name, former, now)
		}
	}
	if t.Failed() {
		return
	}
	// With the token that stands, but the number of another trip, they do nothing either.
	n := &native{script: newScript(before + asynqScripts(t)["doneCmd"] + after), keys: names, args: []any{info.ID, "2", "3"}}
	if err := n.send(t.Context(), s, k, stands.fence, "1", info.ID, true).Err(); !refused(err) {
		t.Errorf("a done that comes late: %v, want a refusal", err)
	}
}

// The plain commands of asynq are known, each of them: one that writes to a queue has to
// be fenced by the view.
func TestThePlainCommandsOfAsynqAreKnown(t *testing.T) {
	known := map[string]string{
		"Close": "not ours to close", "Ping": "asks", "Publish": "of a cancel channel", "Subscribe": "to it",
		"SAdd": "asynq:queues", "ZAdd": "of servers and schedulers", "ZRem": "of servers and schedulers",
		"Del": "of schedulers", "ZScore": "asks",
		"SMembers": "answered by the view", "ZAddXX": "fenced by the view", "HSet": "fenced by the view",
	}
	found := make(map[string]bool)
	ast.Inspect(asynqCode(t), func(n ast.Node) bool {
		call, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if of, ok := call.X.(*ast.SelectorExpr); ok && of.Sel.Name == "client" {
			found[call.Sel.Name] = true
		}
		return true
	})
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if known[name] == "" {
			t.Errorf("asynq sends %s: is that fenced?", name)
		}
	}
	if !found["ZAddXX"] || !found["HSet"] {
		t.Errorf("the plain writes are not found: %v", found)
	}
}

// What the view is asked by a server whose stream is not the newest any more.
func TestTheViewIsFenced(t *testing.T) {
	s := newStore(t)
	queue := QueueOf(s.name, 0)
	k := keysOf(queue)
	s.enqueue(t, 0, asynq.NewTask("mail", nil), asynq.TaskID("held"))
	inside, leave := make(chan struct{}), make(chan struct{})
	old := s.run(t, Config{}, asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		close(inside)
		<-leave
		if _, err := task.ResultWriter().Write([]byte("late")); !refused(errors.Unwrap(err)) && !strings.Contains(fmt.Sprint(err), fencedReply) {
			t.Errorf("a result under an old token: %v, want a refusal", err)
		}
		return nil
	}), asynq.Config{})
	mine := old.serve(0, 1)
	<-inside
	stands := s.open(t, s.source(t), 0, 2)
	if _, err := stands.Fetch(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	former := s.dump(t, queue)
	v := &view{UniversalClient: old.client, source: old.src, engine: old.engine}
	if err := v.ZAddXX(t.Context(), k.lease, redis.Z{Score: 1, Member: "held"}).Err(); !refused(err) {
		t.Errorf("a lease under an old token: %v, want a refusal", err)
	}
	group := []string{k.group + "g", k.sets, k.groups}
	for _, source := range asynqScripts(t) {
		if k, _ := kindOf(group); k != kindTakeSet {
			t.Fatalf("a script on groups is taken for %v", k)
		}
		if err := v.Eval(t.Context(), source, []string{k.pending}, 1, 2, 3, 4, 5, 6).Err(); !refused(err) {
			t.Errorf("a script under an old token: %v, want a refusal", err)
		}
		// What asynq looks after from time to time it would log as an error.
		for _, names := range [][]string{group, {k.sets}, {k.completed}} {
			if n, err := v.Eval(t.Context(), source, names, 1, 2, 3, 4, 5, 6).Int(); n != 0 || err != nil {
				t.Errorf("asynq hears %d, %v of %v under an old token, want that there is nothing to do", n, err, names)
			}
		}
	}
	close(leave)
	until(t, "the handler has returned", func() bool { return old.engine.find(queue, "held") == nil })
	mine.lost()
	if now := s.dump(t, queue); now != former {
		t.Errorf("the old owner changed\n%s\nto\n%s", former, now)
	}
	// Of a queue that is not open here a server hears that there is nothing to do.
	for _, keys := range [][]string{{k.completed}, {k.scheduled, k.pending}, {k.sets}} {
		if n, err := v.Eval(t.Context(), "return 7", keys).Int(); n != 0 || err != nil {
			t.Errorf("of a queue that is not open the view answers %d, %v to %v", n, err, keys)
		}
	}
	if list, err := v.Eval(t.Context(), "return 7", []string{k.lease}).Slice(); len(list) != 0 || err != nil {
		t.Errorf("of a queue that is not open the view lists the leases %v, %v", list, err)
	}
	if groups, err := v.SMembers(t.Context(), k.prefix+"groups").Result(); len(groups) != 0 || err != nil {
		t.Errorf("of a queue that is not open the view lists the groups %v, %v", groups, err)
	}
}

// source is a peer's without an engine.
func (s *store) source(t testing.TB) *Source {
	t.Helper()
	src, _, _ := s.peer(t, Config{})
	return src
}

// open opens a partition, and drops it at the end of the test.
func (s *store) open(t testing.TB, src *Source, id partition.ID, epoch partition.Epoch) *stream {
	t.Helper()
	tok := partition.Token{Epoch: epoch, Session: partition.Session(fmt.Sprintf("%032x", epoch))}
	var st sources.Stream
	st, err := src.Open(t.Context(), partition.Grant{ID: id, Epoch: epoch}, tok)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = st.Close(ctx) // only frees what it holds
	})
	return st.(*stream)
}
