package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/examples/orders/play"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
)

// script is what starts a real broker, and runs the tools that come with it.
const script = "../../.ci/kafka"

// EnvRestart says that the broker of COUNTOFF_KAFKA_DIR may be restarted: nobody else
// is using it.
const envRestart = "COUNTOFF_KAFKA_RESTART"

func run(ctx context.Context, t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, script, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// A broker that is restarted while peers work costs time and nothing else.
func TestBrokerRestart(t *testing.T) {
	kafkatest.Real(t)
	dir := os.Getenv("COUNTOFF_KAFKA_DIR")
	if dir == "" || os.Getenv(envRestart) == "" {
		t.Skipf("set %s=1 to let this test restart the broker of COUNTOFF_KAFKA_DIR", envRestart)
	}
	for _, progress := range []string{"redis", "kafka"} {
		t.Run("progress in "+progress, func(t *testing.T) { brokerRestart(t, dir, progress) })
	}
}

func brokerRestart(t *testing.T, dir, progress string) {
	cfg, ctx := config(t)
	cfg.Progress = progress
	p, err := play.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, id := range []string{"ann", "bob"} {
		if _, err = p.Peer(id); err != nil {
			t.Fatal(err)
		}
	}
	load := play.Load{Customers: 60, Each: 60, Pause: 100 * time.Millisecond}
	sent := make(chan error, 1)
	go func() { sent <- p.Send(ctx, load) }()
	if err := p.Await(ctx, 10*load.Customers, false); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	run(ctx, t, "", "restart", dir)
	t.Logf("the broker was away for %v", time.Since(began))
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if err := p.Await(ctx, load.Customers*load.Each, true); err != nil {
		t.Fatal(err)
	}
	report, err := p.Report(ctx, load, nil, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if report.Bad() || report.Twice > 0 {
		t.Errorf("the report: %+v", report)
	}
}

// What Java's console producer writes is worked, and its tool for consumer groups
// shows how far.
func TestJavaTools(t *testing.T) {
	kafkatest.Real(t)
	if _, err := exec.LookPath("mvn"); err != nil {
		t.Skip("no mvn, so no jars")
	}
	cfg, ctx := config(t)
	p, err := play.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err = p.Peer("ann"); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for n := range 3 {
		for c := range 5 {
			fmt.Fprintf(&lines, "c%d\t{\"customer\":\"c%d\",\"n\":%d}\n", c, c, n)
		}
	}
	server := strings.TrimPrefix(p.Kafka(), "kafka://")
	run(ctx, t, lines.String(), "tool", "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", server,
		"--topic", cfg.Topic, "--property", "parse.key=true")
	load := play.Load{Customers: 5, Each: 3}
	if err := p.Await(ctx, 15, true); err != nil {
		t.Fatal(err)
	}
	report, err := p.Report(ctx, load, nil, time.Time{})
	if err != nil || report.Bad() {
		t.Errorf("the report: %+v, %v", report, err)
	}
	out := run(ctx, t, "", "tool", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", server,
		"--describe", "--group", cfg.Name)
	t.Log(out)
	rows, behind := 0, 0
	for _, line := range strings.Split(out, "\n") {
		w := strings.Fields(line) // GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG ...
		if len(w) > 5 && w[0] == cfg.Name {
			rows++
			if w[5] != "0" {
				behind++
			}
		}
	}
	if rows != 6 || behind > 0 {
		t.Errorf("the tool shows %d partitions, %d of them behind, want 6 and 0", rows, behind)
	}
}
