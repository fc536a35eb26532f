package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/cmd/countoff/command"
	"github.com/countoff/countoff/cmd/countoff/doctor"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/framework/status"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/etcdledger/etcdtest"
	"github.com/countoff/countoff/transition/machine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// countoff runs a command line and returns what it printed, and its error.
func countoff(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := command.Root(stores)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// says runs a command line that must succeed and print all of want.
func says(t *testing.T, line string, want ...string) string {
	t.Helper()
	out, err := countoff(t, strings.Fields(line)...)
	if err != nil {
		t.Errorf("countoff %s: %v", line, err)
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("countoff %s does not say %q:\n%s", line, w, out)
		}
	}
	return out
}

// fails runs a command line that must fail with that code and say all of want.
func fails(t *testing.T, code int, line string, want ...string) {
	t.Helper()
	_, err := countoff(t, strings.Fields(line)...)
	var coded *exit.Error
	switch {
	case err == nil:
		t.Errorf("countoff %s: it succeeded", line)
		return
	case errors.As(err, &coded) && coded.Code != code, coded == nil && code != exit.Usage:
		t.Errorf("countoff %s: %v, want code %d", line, err, code)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("countoff %s does not say %q: %v", line, w, err)
		}
	}
}

// TestLedgerInEtcd looks at a name whose ledger is in etcd, with its tasks in Redis and
// without knowing where they are. What cannot be seen is said.
func TestLedgerInEtcd(t *testing.T) {
	server := etcdtest.Start(t)
	mini, redis := redistest.Mini(t)
	url := strings.Replace(server.Client().Endpoints()[0], "http", "etcd", 1) + "/there"
	ledger := " --ledger " + url
	both := ledger + " --redis redis://" + mini.Addr()

	fails(t, exit.Failed, "status n"+ledger, "/there/n", "no configuration yet")
	says(t, "doctor n"+both, "nobody has used n yet")
	says(t, "init n --partitions 4"+both, "4 partitions")
	says(t, "init n --partitions 4"+both, "there already")
	fails(t, exit.Config, "init n --partitions 5"+both, "4", "5")
	says(t, "init other --partitions 2"+ledger, "in the ledger alone", "2 partitions")

	opened, err := open(url)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	l, cfg, err := opened.Ledger(t.Context(), "n", transition.Timing{})
	if err != nil || cfg.Total != 4 {
		t.Fatalf("%+v, %v", cfg, err)
	}
	a, err := l.Sync(t.Context(), transition.Request{
		Session: "aa", Peer: "ann", Weight: 1, State: machine.Live, Claim: []partition.ID{0, 1, 2, 3}, Barrier: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	tasks := redissource.Message{Key: "k", Payload: []byte("x")}
	producer, err := redissource.NewProducer(t.Context(), redis, "n", redissource.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := producer.Enqueue(t.Context(), tasks, tasks); err != nil {
		t.Fatal(err)
	}
	if err := producer.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}

	says(t, "status n --all"+both, "1 peer", "A ann", "4 opening", "ann@", "pending 2")
	says(t, "status n --all"+ledger, "1 peer", "A ann", "4 owned", "ann@", "nobody said where the tasks are", "?")
	for line, unknown := range map[string]bool{"status n --json" + both: false, "status n --json" + ledger: true} {
		var s status.Status
		if err := json.Unmarshal([]byte(says(t, line)), &s); err != nil {
			t.Fatal(err)
		}
		if s.TasksUnknown != unknown || len(s.Partitions) != 4 || s.Partitions[0].Epoch != a.Mine[0].Grant.Epoch {
			t.Errorf("countoff %s: %+v", line, s)
		}
	}
	says(t, "explain n k"+both, "ann, epoch", "ann got 3@5", "1 of this key wait behind it")
	says(t, "explain n k"+ledger, "ann, epoch", "ann got 3@5", "nobody said where the tasks are")
	says(t, "history n"+ledger, "made", "ann joined", "ann got 0-3")
	says(t, "history n --key k --at 0s"+ledger, ": ann, epoch")
	says(t, "doctor n"+both, "it has one member", "4 partitions")
	says(t, "doctor n"+ledger, "it has one member", "what waits", "give --redis")
	says(t, "jobs n"+both, "no peer of n has had a job") // on tasks: the ledger is nothing to it
	says(t, "dead list n"+both, "no dead letters")

	fails(t, exit.Failed, "require nobody 0=gpu"+ledger, "no configuration yet")
	if out := says(t, "require n 0-1=gpu 3=eu"+ledger); out != "0-1=gpu\n3=eu\n" {
		t.Errorf("require says %q", out)
	}
	says(t, "require n"+both, "0-1=gpu\n3=eu\n")
	fails(t, exit.Usage, "require n site=gpu"+ledger, "give --redis too")
	fails(t, exit.Usage, "require n site=gpu"+both, "neither an ingress list of n nor in {n}:units")
	redis.SAdd(t.Context(), "{n}:units", "site")
	says(t, "require n site=gpu"+both, "=gpu")
	says(t, "require n --none"+ledger, "no partition asks")
	says(t, "init asks --partitions 4 --require 0=gpu"+ledger, "4 partitions")
	says(t, "require asks"+ledger, "0=gpu")

	// Nobody calls any more, as where all have died or etcd is full.
	if _, err := server.Client().Put(t.Context(), "/there/n/seen", fmt.Sprint(time.Now().Add(-time.Hour).UnixMilli())); err != nil {
		t.Fatal(err)
	}
	says(t, "status n --timeout 2s"+ledger, "nobody takes part, for 59m", "expired")

	for line, instead := range map[string]string{
		"resize n --partitions 8": "stop all peers",
		"destroy n --yes":         "etcdctl del", "run --name n -- true": "units",
	} {
		line, cmd, _ := strings.Cut(line, " -- ")
		if cmd != "" {
			cmd = " -- " + cmd
		}
		fails(t, exit.Usage, line+both+cmd, "in Redis only", instead)
	}
	fails(t, exit.Usage, "status n --ledger consul://h", "this program knows redis, etcd, etcds")
	fails(t, exit.Usage, "status n --ledger etcd://", "etcd://[user:password@]host")
	fails(t, exit.Unreachable, "status n --timeout 1s --ledger etcd://127.0.0.1:1", "is it running")
}

// An alarm is said once, with what to do about it: a member whose data differ from the others' wants something else than
// one that is full. Who may not list alarms hears of them from the members.
func TestDoctorSaysWhatToDoAboutAnAlarm(t *testing.T) {
	for alarm, do := range map[pb.AlarmType]string{pb.AlarmType_NOSPACE: "defrag", pb.AlarmType_CORRUPT: "member remove"} {
		t.Run(alarm.String(), func(t *testing.T) {
			server := etcdtest.Start(t)
			client := server.Client()
			status, err := client.Status(t.Context(), client.Endpoints()[0])
			if err != nil {
				t.Fatal(err)
			}
			maintenance := pb.NewMaintenanceClient(client.ActiveConnection())
			raise := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId + 1, Alarm: alarm}
			if _, err := maintenance.Alarm(t.Context(), raise); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Put(t.Context(), "k", "v"); err == nil {
				t.Error("a member writes while another one has the alarm: it is not so that all peers stop")
			}
			opened, err := open(strings.Replace(client.Endpoints()[0], "http", "etcd", 1))
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			said := 0
			found, err := opened.(store).Examine(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				if !strings.Contains(f.What, alarm.String()) {
					continue
				}
				said++
				if f.Severity != doctor.Danger || !strings.Contains(f.Do, do) || !strings.Contains(f.Risk, "all peers stop") {
					t.Errorf("doctor says %+v, want a danger that all peers stop, with %q", f, do)
				}
			}
			if said != 1 {
				t.Errorf("the alarm is said %d times: %+v", said, found)
			}
		})
	}
}

// TestIndex counts off in etcd.
func TestIndex(t *testing.T) {
	server := etcdtest.Start(t)
	ledger := " --ledger " + strings.Replace(server.Client().Endpoints()[0], "http", "etcd", 1)
	says(t, "init n --partitions 4"+ledger)
	out := says(t, "index n --lease 60s --id me"+ledger)
	if lines := strings.SplitAfter(out, "\n"); !slices.Contains(lines, "0 1\n") { // and what is said of a call that took long
		t.Errorf("it prints %q", out)
	}
}

// TestSinceWhen reads from the history for how long a barrier is closed.
func TestSinceWhen(t *testing.T) {
	server := etcdtest.Start(t)
	url := strings.Replace(server.Client().Endpoints()[0], "http", "etcd", 1)
	says(t, "init n --partitions 4 --ledger "+url)
	opened, err := open(url)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	l, _, err := opened.Ledger(t.Context(), "n", transition.Timing{})
	if err != nil {
		t.Fatal(err)
	}
	for _, arrives := range []string{"ann", "bob"} {
		r := transition.Request{Session: partition.Session(arrives), Peer: arrives, Weight: 1, State: machine.Live, Barrier: true}
		if _, err := l.Sync(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		census, err := l.Census(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next := transition.Roll{Version: census.Roll.Version, Membership: census.Membership}
		for i, x := range census.Sessions {
			next.Members = append(next.Members, machine.RollMember{Member: partition.Member{Session: x.Session, Peer: x.Peer, Index: i, Weight: 1}})
		}
		if err := l.Seal(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		if arrives == "bob" {
			break // nobody comes to his roll
		}
		if census, err = l.Census(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.View, r.Arrived = census.Roll.Version, census.Roll.Version
		if _, err := l.Sync(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	var s status.Status
	if err := json.Unmarshal([]byte(says(t, "status n --json --ledger "+url)), &s); err != nil {
		t.Fatal(err)
	}
	if s.Barrier == nil || s.Barrier.ForMS < 0 || s.Barrier.ForMS > time.Minute.Milliseconds() {
		t.Errorf("the barrier is %+v, want it closed since the roll was sealed", s.Barrier)
	}
}
