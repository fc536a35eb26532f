package command

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/asynqsource/queuestat"
	"github.com/countoff/countoff/transition/redisledger"
)

// Of a name that works queues of asynq the commands tell what stands in them, and put
// nothing where nobody would find it.
func TestQueuesOfAsynq(t *testing.T) {
	mini, _ := redistest.Mini(t)
	s := shell{t, "redis://" + mini.Addr(), ""}
	client := s.client()
	for name, queues := range map[string]string{"n": "", "named": "critical\nlow"} {
		if _, err := redisledger.Init(t.Context(), client, name, partition.Config{Total: 2}); err != nil {
			t.Fatal(err)
		}
		if err := client.HSet(t.Context(), redisconfig.Key(name), queuestat.Field, queues).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, pending := range []string{"n:0", "n:1", "low"} {
		if err := client.LPush(t.Context(), queuestat.Pending(pending), "a", "b", "c").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if out := s.run("status n"); !strings.Contains(out, "pending 6") {
		t.Error(out)
	}
	if out := s.run("status named"); !strings.Contains(out, "pending 3") {
		t.Error(out)
	}
	if out := s.run("explain n ann"); !strings.Contains(out, `for its turn in queue "n:`) || !strings.Contains(out, "pending 3") {
		t.Error(out)
	}
	// What waits in an ingress for its time is no line yet, and is not hidden.
	if _, err := redisledger.Init(t.Context(), client, "ingress", partition.Config{Total: 2, Units: []string{"default", "idle"}}); err != nil {
		t.Fatal(err)
	}
	if err := client.HSet(t.Context(), redisconfig.Key("ingress"), queuestat.Field, "").Err(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"scheduled", "retry", "g:mails"} {
		if err := client.ZAdd(t.Context(), "asynq:{default}:"+key, redis.Z{Score: 1, Member: key}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.SAdd(t.Context(), "asynq:{default}:groups", "mails").Err(); err != nil {
		t.Fatal(err)
	}
	if out := s.run("status ingress"); !strings.Contains(out, "ingress default: unowned, nobody, 0 lines waiting, 3 delayed\n") ||
		!strings.Contains(out, "ingress idle: unowned, nobody, 0 lines waiting\n") {
		t.Error(out)
	}
	if out := s.run("doctor ingress"); !strings.Contains(out, "nobody takes part, and 3 tasks wait") {
		t.Error(out)
	}
	for _, line := range []string{"dead list n", "dead show n x", "dead drop n --all", "dead requeue n --all", "delayed list n", "delayed run n x", "delayed cancel n x"} {
		if said := s.fails(exit.Failed, line); !strings.Contains(said, "asynq task ls --queue=n:0") || strings.Contains(said, "archived") == strings.HasPrefix(line, "delayed") {
			t.Errorf("%s says %q", line, said)
		}
	}
	for line, anew := range map[string]string{
		"resize named --partitions 3": "countoff init named --partitions 3, ", "ingress n default": "countoff init n with the --partitions it has and a --unit for each, ",
	} {
		name := strings.Fields(line)[1]
		if said := s.fails(exit.Config, line); !strings.Contains(said, "countoff destroy "+name+" --yes, which leaves queues of asynq and their tasks as they are, "+anew) {
			t.Errorf("%s says %q", line, said)
		}
	}
	for line, code := range map[string]int{"enqueue n {}": exit.Config, "resize n --partitions 4": exit.Config, "tasks n": exit.Config, "explain named ann": exit.Failed} {
		if said := s.fails(code, line); !strings.Contains(said, "queues of asynq") {
			t.Errorf("%s says %q", line, said)
		}
	}
	for name, keeps := range map[string]string{"n": "n:0 .. n:1", "named": "critical, low"} {
		if out := s.run("destroy " + name + " --yes"); !strings.Contains(out, "its queues of asynq keep their tasks, "+keeps+"; ") ||
			!strings.Contains(out, "asynq queue rm --force") {
			t.Errorf("destroy %s says %q", name, out)
		}
	}
	if n := client.LLen(t.Context(), queuestat.Pending("n:0")).Val(); n != 3 {
		t.Errorf("destroy left %d of 3 tasks", n)
	}
}
