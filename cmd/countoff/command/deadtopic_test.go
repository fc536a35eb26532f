package command

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/kafkasource"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition/redisledger"
)

// The dead letters of a name that works a topic are on a topic: the commands say so, and
// list, show, requeue and drop them there.
func TestDeadTopic(t *testing.T) {
	mini, _ := redistest.Mini(t)
	s := shell{t, "redis://" + mini.Addr(), ""}
	broker := kafkatest.New(t)
	topic := broker.Topic(2)
	kafka := []string{"--kafka", "kafka://" + strings.Join(broker.Seeds(), ","), "--topic", topic}
	client := s.client()
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2, Hash: partition.Murmur2}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"dead list n", "dead show n x", "dead drop n --all", "dead requeue n --all"} {
		if said := s.fails(exit.Failed, line); !strings.Contains(said, "say --kafka") {
			t.Errorf("%s says %q", line, said)
		}
	}
	s.fails(exit.Usage, "dead list n --topic t")
	s.fails(exit.Usage, "dead show n x --topic t")
	s.fails(exit.Usage, "dead list n --kafka nonsense")
	s.fails(exit.Usage, "dead requeue n x", kafka...)
	for _, line := range []string{"dead list n --topic misspelt", "dead list n"} { // the topic of the last is called as the name
		if said := s.fails(exit.Failed, line, kafka[:2]...); !strings.Contains(said, "correct its name") {
			t.Errorf("%s says %q", line, said)
		}
	}
	if out := s.run("dead list n", kafka...); !strings.Contains(out, "no dead letters") {
		t.Error(out)
	}

	broker.Create(topic+".dead", 2)
	for line, more := range map[string][]string{"dead list n": {"--dead-topic", "misspelt"}, "dead list misspelt": nil, "dead requeue misspelt --all": nil, "dead drop misspelt --all": nil} {
		if out := s.run(line, append(kafka, more...)...); !strings.Contains(out, "misspelt") {
			t.Errorf("%s finds nothing, and does not say where, or of whom: %s", line, out)
		}
	}
	producer := broker.Client()
	die := func(values ...string) {
		t.Helper()
		for i, v := range values {
			r := &kgo.Record{Topic: topic + ".dead", Partition: 1, Key: []byte("ann"), Value: []byte(v), Headers: []kgo.RecordHeader{
				{Key: kafkasource.HeaderDeadTopic, Value: []byte(topic)}, {Key: kafkasource.HeaderDeadPartition, Value: []byte("1")},
				{Key: kafkasource.HeaderDeadOffset, Value: fmt.Append(nil, i)}, {Key: kafkasource.HeaderDeadReason, Value: []byte("550 no such user")},
				{Key: kafkasource.HeaderDeadAttempts, Value: []byte("3")}, {Key: "trace", Value: []byte("ab")},
			}}
			if err := producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	die("one", "two")
	out := s.run("dead list n", kafka...)
	for _, want := range []string{topic + "-1-0", topic + "-1-1", "ann", "550 no such user", "3"} {
		if !strings.Contains(out, want) {
			t.Errorf("the list does not show %q:\n%s", want, out)
		}
	}
	if out := s.run("dead list n --json", kafka...); !strings.Contains(out, `"payload":"two"`) || !strings.Contains(out, `"trace":"ab"`) {
		t.Error(out)
	}
	for id, want := range map[string]string{topic + "-1-1": "two", "1/0": "one"} {
		if out := s.run("dead show n "+id, kafka...); !strings.Contains(out, "\n\n"+want+"\n") || !strings.Contains(out, "trace: ab") {
			t.Error(out)
		}
	}
	if out := s.run("dead show n 1/1 --json", kafka...); !strings.Contains(out, `"payload":"two"`) {
		t.Error(out)
	}
	if said := s.fails(exit.Failed, "dead show n 1/2", kafka...); !strings.Contains(said, "1/2") {
		t.Error(said)
	}
	if out := s.run("dead list n --limit 1", kafka...); !strings.Contains(out, "more") || strings.Contains(out, topic+"-1-1") {
		t.Error(out)
	}
	if out := s.run("dead requeue n --all", kafka...); !strings.Contains(out, "2 requeued") {
		t.Error(out)
	}
	die("three")
	if out := s.run("dead drop n --all", kafka...); !strings.Contains(out, "1 dropped") {
		t.Error(out)
	}
	if out := s.run("dead list n", kafka...); !strings.Contains(out, "no dead letters") {
		t.Error(out)
	}
}

// What makes sense for lists only is refused for a name that works a topic.
func TestListsOnly(t *testing.T) {
	mini, _ := redistest.Mini(t)
	s := shell{t, "redis://" + mini.Addr(), ""}
	client := s.client()
	if _, err := redisledger.Init(t.Context(), client, "n", partition.Config{Total: 2, Hash: partition.Murmur2}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"enqueue n --key k x", "resize n --partitions 4"} {
		if said := s.fails(exit.Config, line); !strings.Contains(said, "Kafka") {
			t.Errorf("countoff %s: %s", line, said)
		}
	}
	for _, line := range []string{"delayed list n", "delayed run n x", "delayed cancel n x"} { // it takes no --kafka
		if said := s.fails(exit.Failed, line); !strings.Contains(said, "no task waits for its time") || strings.Contains(said, "--kafka") {
			t.Errorf("countoff %s: %s", line, said)
		}
	}
	for _, line := range []string{"status n", "doctor n", "history n", "destroy n --yes"} {
		s.run(line)
	}
}

// Lists whose keys are hashed as those of a topic are lists: their dead letters are in Redis, and tasks are put there.
func TestListsThatAreHashedAsATopic(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	producer, err := redissource.NewProducer(t.Context(), s.client(), "n", redissource.ProducerConfig{Partitions: 2, Hash: partition.Murmur2})
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close(t.Context())
	if out := s.run("enqueue n x --key k"); !strings.Contains(out, " partition ") {
		t.Error(out)
	}
	for line, want := range map[string]string{"dead list n": "no dead letters", "resize n --partitions 4 --dry-run": "2 to 4 partitions; 1 task,", "dead drop n --all": "0 dropped"} {
		if out := s.run(line); !strings.Contains(out, want) {
			t.Errorf("%s says %s", line, out)
		}
	}
}
