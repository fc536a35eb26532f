package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countoff/countoff/examples/mail-sender/mailbox"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/intervalindexer/natscounter"
	"github.com/countoff/countoff/partition/intervalindexer/natscounter/natstest"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition/redisledger"
)

const workV = "COUNTOFF_TEST_MAIL_SENDER"

func TestMain(m *testing.M) {
	natstest.Main()
	if os.Getenv(workV) != "" { // a worker of TestMails
		os.Exit(run())
	}
	os.Exit(m.Run())
}

const (
	name     = "mail-sender"
	shares   = 8
	patience = 90 * time.Second
)

// TestMails sends mails by processes that are counted in NATS, kills a worker and NATS, and
// wants every mail delivered, in the order of its recipient.
func TestMails(t *testing.T) {
	redis := redistest.Server(t)
	server := natstest.StartProcess(t)
	box, err := mailbox.Start(mailbox.Config{Latency: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	ctx := t.Context()
	layout := partition.Config{Total: shares, Units: []string{name + ":inbox"}}
	if _, err := redisledger.Init(ctx, redis.Client(), name, layout); err != nil {
		t.Fatal(err)
	}

	work := func(id string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], "work", "--indexer", "interval", "--interval", "1s", "--counter", server.URL()+"/mails",
			"--redis", "redis://"+redis.Addr(), "--smtp", box.URL()+"?helo="+id, "--id", id, "--lease", "4s", "--http", "")
		cmd.Env = append(os.Environ(), workV+"=1")
		log := new(bytes.Buffer)
		cmd.Stderr = log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if t.Failed() {
				t.Logf("%s said:\n%s", id, log.Bytes()[max(0, log.Len()-4000):])
			}
		})
		return cmd
	}
	until := func(what string, ok func() error) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
			err := ok()
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("waited for %s: %v", what, err)
			}
		}
	}
	ledger, err := redisledger.New(redis.Client(), name, redisledger.Config{Config: layout})
	if err != nil {
		t.Fatal(err)
	}
	shared := func(n int) {
		t.Helper()
		until(fmt.Sprint(n, " peers to share the work"), func() error {
			c, err := ledger.Census(ctx)
			if err != nil {
				return err
			}
			holders := map[partition.Session]int{}
			for _, g := range c.Grants {
				holders[g.Session]++
			}
			if len(holders) != n || len(c.Grants) != shares+1 {
				return fmt.Errorf("%d holders of %d grants", len(holders), len(c.Grants))
			}
			return nil
		})
	}

	victim := work("victim")
	work("a")
	work("b")
	shared(3)
	conn, _, err := natscounter.Open(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	until("the counts to stand in NATS", func() error {
		kv, err := js.KeyValue(ctx, "mails")
		if err != nil {
			return err
		}
		keys, err := kv.Keys(ctx)
		if err == nil && len(keys) == 0 {
			err = fmt.Errorf("none do")
		}
		return err
	})

	producer, err := redissource.NewProducer(ctx, redis.Client(), name, redissource.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	const recipients, each = 20, 20
	send := func(from, to int) {
		for n := from; n < to; n++ {
			for r := range recipients {
				address := fmt.Sprintf("r%d@example.com", r)
				mail, _ := json.Marshal(map[string]string{"to": address, "subject": fmt.Sprint("mail ", n), "text": "x"})
				if _, err := producer.Enqueue(ctx, redissource.Message{Type: "mail", Key: address, Payload: mail}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	send(0, each/2)
	server.Kill()
	_ = victim.Process.Kill()
	server.Start()
	send(each/2, each)
	if err := producer.Close(context.Background()); err != nil {
		t.Error(err)
	}
	shared(2)
	until("all mails", func() error {
		for r := range recipients {
			if n := len(subjects(box, fmt.Sprintf("r%d@example.com", r))); n != each {
				return fmt.Errorf("recipient %d has %d", r, n)
			}
		}
		return nil
	})
	for r := range recipients {
		for n, subject := range subjects(box, fmt.Sprintf("r%d@example.com", r)) {
			if want := fmt.Sprint("mail ", n); subject != want {
				t.Errorf("recipient %d: mail %d is %q", r, n, subject)
			}
		}
	}
}

// subjects are those of the mails that arrived for a recipient, each once, in the order in
// which they first did.
func subjects(box *mailbox.Server, recipient string) []string {
	var all []string
	for _, d := range box.Deliveries(0) {
		if d.Accepted && d.To[0] == recipient && !slices.Contains(all, d.Subject) {
			all = append(all, d.Subject)
		}
	}
	return all
}
