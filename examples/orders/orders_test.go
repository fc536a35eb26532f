package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/examples/orders/play"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
)

// TestMain is the program as well: the peers of a play are processes of it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "work" {
		main()
	}
	// The tests wait most of the time. -parallel on the command line goes before this.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

const patience = 4 * time.Minute

// brief is the lease where somebody dies, or stands still until it is over: a peer that gets no time for half of it
// counts as dead, on a busy machine too.
const brief = 4 * time.Second

// config plays on the broker of the environment, if there is one, else on embedded ones.
func config(t *testing.T) (play.Config, context.Context) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cfg := play.Config{Program: self, Errors: io.Discard, Name: redistest.Name(t), Topic: kafkatest.Name(t), Lease: 20 * time.Second}
	if addr := os.Getenv(kafkatest.BrokerVariable); addr != "" {
		cfg.Kafka = "kafka://" + addr
	}
	return cfg, ctx
}

// Peers that end because of what they were told are not waited for.
func TestDemoOfPeersThatDoNotStart(t *testing.T) {
	t.Parallel()
	cfg, ctx := config(t)
	cfg.Progress = "paper"
	if _, err := demo(ctx, cfg, play.Load{Customers: 1, Each: 1}, io.Discard); err == nil || !strings.Contains(err.Error(), "has ended by itself") {
		t.Errorf("it says %v", err)
	}
	for _, args := range [][]string{
		{"--partitions=0"}, {"--customers=0"}, {"--each=0"}, {"--kafka=h:9092"}, {"--redis=h"},
		{"--partitions=65537"}, {"--progress=memory"}, {"--lease=0s"}, {"--lease=-1s"}, {"--name={orders}"},
		{"send", "--customers=-1"}, {"send", "--each=0"},
	} {
		cmd := root()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(args)
		var coded *exit.Error
		if err := cmd.ExecuteContext(ctx); !errors.As(err, &coded) || coded.Code != exit.Usage {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// All that is wrong is said at once, each thing once.
func TestUsageSaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	for args, want := range map[string][]string{
		"demo --partitions 0 --customers 0 --lease 1s --progress paper --kafka h:1 --redis http://x --name {no}": {
			"--customers 0 ", "--partitions 0: ", `name "{no}": `, "lease 1s is too short", "--progress paper: want redis or kafka", "want kafka://", `scheme "http"`},
		"send --each 0 --kafka h:1 --create -1": {"--each 0: ", "want kafka://", "--create -1"},
	} {
		cmd := root()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(strings.Fields(args))
		err := cmd.ExecuteContext(t.Context())
		var coded *exit.Error
		if !errors.As(err, &coded) || coded.Code != exit.Usage || strings.Count(err.Error(), "\n") != len(want)-1 {
			t.Errorf("%s: want %d lines:\n%v", args, len(want), err)
			continue
		}
		for _, says := range want {
			if strings.Count(err.Error(), says) != 1 {
				t.Errorf("%s does not say %q once:\n%v", args, says, err)
			}
		}
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	cfg, ctx := config(t)
	cfg.Lease = brief
	var out strings.Builder
	report, err := demo(ctx, cfg, play.Load{Customers: 60, Each: 20, Pause: 50 * time.Millisecond}, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if report.Bad() || report.TakenOver == 0 {
		t.Errorf("the report: %+v\n%s", report, out.String())
	}
}

// A store outlives the embedded broker: what it knew of the last one would be wrong of the next.
func TestTwoDemosOnOneStore(t *testing.T) {
	t.Parallel()
	cfg, ctx := config(t)
	if cfg.Kafka != "" {
		t.Skip("a broker of its own goes on where it was")
	}
	server := redistest.Server(t)
	cfg.Lease, cfg.Redis = brief, "redis://"+server.Addr()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for range 2 {
		var out strings.Builder
		report, err := demo(ctx, cfg, play.Load{Customers: 20, Each: 5, Pause: 50 * time.Millisecond}, &out)
		if err != nil || report.Bad() {
			t.Fatalf("%v: %+v\n%s", err, report, out.String())
		}
		if left := server.Client().Keys(ctx, "*").Val(); len(left) != 0 {
			t.Errorf("it left %q", left)
		}
	}
}

// A send that reaches no broker says so; a record would wait for one for ever.
func TestSendWithoutABroker(t *testing.T) {
	t.Parallel()
	cmd := root()
	cmd.SetArgs([]string{"send", "--kafka", "kafka://127.0.0.1:1"})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var coded *exit.Error
	if err := cmd.ExecuteContext(ctx); !errors.As(err, &coded) || coded.Code != exit.Unreachable || ctx.Err() != nil {
		t.Errorf("it ends with %v", err)
	}
}

// Nor does it make the topic, whose partitions are for ever.
func TestSendWithoutATopic(t *testing.T) {
	t.Parallel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	cmd := root()
	cmd.SetArgs([]string{"send", "--kafka", "kafka://" + broker.ListenAddrs()[0]})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := cmd.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), "create it first") {
		t.Errorf("it ends with %v", err)
	}
}

// What is not done of a topic is what countoff status shows, partition by partition.
func TestLagInStatus(t *testing.T) {
	t.Parallel()
	cfg, ctx := config(t)
	cfg.Takes = time.Hour
	p, err := play.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Send(ctx, play.Load{Customers: 30, Each: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Peer("ann"); err != nil {
		t.Fatal(err)
	}
	client, err := redisurl.Open(p.Redis())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var seen status.Status
	err = play.Until(ctx, func() (bool, error) {
		seen, err = status.Read(ctx, client, cfg.Name)
		t := seen.Totals()
		return t.Pending+t.InFlight == 60 && t.InFlight > 0, err
	})
	if err != nil {
		t.Errorf("%v: status shows %+v", err, seen.Partitions)
	}
	for _, part := range seen.Partitions {
		if part.Owner != "ann" || part.State != status.Owned {
			t.Errorf("partition %v is %s, of %q", part.ID, part.State, part.Owner)
		}
	}
}

// An owner that is stopped past its lease and then goes on begins nothing more and
// settles nothing: the topic is worked to its end, in order, and the group stays at
// the end, whatever the old owner still had to say.
func TestPausedOwner(t *testing.T) {
	t.Parallel()
	for _, progress := range []string{"redis", "kafka"} {
		t.Run("progress in "+progress, func(t *testing.T) {
			t.Parallel()
			pausedOwner(t, progress)
		})
	}
}

func pausedOwner(t *testing.T, progress string) {
	cfg, ctx := config(t)
	cfg.Progress, cfg.Takes, cfg.Lease = progress, 50*time.Millisecond, brief
	p, err := play.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	peers := map[string]*play.Peer{}
	for _, id := range []string{"ann", "bob"} {
		if peers[id], err = p.Peer(id); err != nil {
			t.Fatal(err)
		}
	}
	first := play.Load{Customers: 60, Each: 10}
	sent := make(chan error, 1)
	go func() { sent <- p.Send(ctx, play.Load{Customers: 60, Each: 20, Pause: 100 * time.Millisecond}) }()
	until := func(what string, so func() bool) {
		t.Helper()
		if err := play.Until(ctx, func() (bool, error) { return so(), nil }); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	// what are the lines of a peer that say something, since an instant.
	what := func(id, says string, since time.Time) (lines []play.Line) {
		for _, l := range p.Lines() {
			if l.Peer == id && l.What == says && l.At.After(since) {
				lines = append(lines, l)
			}
		}
		return lines
	}
	until("both work", func() bool {
		return p.Done() >= first.Customers && len(what("ann", play.Begin, time.Time{})) > 0 && len(what("bob", play.Begin, time.Time{})) > 0
	})
	if err := peers["ann"].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until("bob takes over", func() bool { // what he has already, too: who came later is given some of what the first had
		last := map[partition.ID]play.Line{}
		for _, id := range []string{"ann", "bob"} {
			for _, l := range what(id, play.Opened, time.Time{}) {
				if l.By > last[l.ID].By {
					last[l.ID] = l
				}
			}
		}
		for _, l := range last {
			if l.Peer != "bob" {
				return false
			}
		}
		return true
	})
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	load := play.Load{Customers: 60, Each: 20}
	if err := p.Await(ctx, load.Customers*load.Each, true); err != nil {
		t.Fatalf("bob alone: %v", err)
	}
	resumed := time.Now()
	if err := peers["ann"].Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until("ann learns that it lost them", func() bool { return len(what("ann", play.Lost, resumed)) >= 1 })
	for _, id := range []string{"ann", "bob"} {
		if err := peers[id].Leave(ctx); err != nil {
			t.Fatal(err)
		}
	}
	report, err := p.Report(ctx, load, nil, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	// One order may have asked for the lease right before the stop, and say after it that it begins.
	if report.Zombies == 1 {
		report.Zombies = 0
	}
	if report.Bad() {
		t.Errorf("the report: %+v", report)
	}
	var stale []play.Line
	for _, l := range what("ann", play.Begin, resumed) {
		own := slices.ContainsFunc(what("ann", play.Opened, resumed), func(b play.Line) bool { return b.ID == l.ID && b.By == l.By })
		if !own { // not under a grant that it got since
			stale = append(stale, l)
		}
	}
	if len(stale) > 1 { // as above
		t.Errorf("after its pause ann began %+v", stale)
	}
}
