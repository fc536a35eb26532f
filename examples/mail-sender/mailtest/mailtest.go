// Package mailtest tests builds of mail-sender with other stores: that its mails, whose tasks
// stand in Redis, arrive all and in order while the other store is killed and a worker with it.
package mailtest

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

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/examples/mail-sender/mailbox"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

// Name is the name of the peers.
const Name = "mail-sender"

// Layout is what the peers agree on.
var Layout = partition.Config{Total: 8, Units: []string{Name + ":inbox"}}

const (
	workV    = "COUNTOFF_TEST_MAIL_SENDER"
	patience = 90 * time.Second
)

// Main is what a TestMain calls before it runs the tests: in a process that is to be a
// worker it does not return.
func Main(run func() int) {
	if os.Getenv(workV) != "" {
		os.Exit(run())
	}
}

// A Build is a build of mail-sender with another store.
type Build struct {
	// Redis has the tasks, at Address.
	Redis   redis.UniversalClient
	Address string
	// Flags of work that name the other store.
	Flags []string
	// Ledger is the record of who holds what.
	Ledger transition.Ledger
	// Stands returns nil when what the peers keep stands in the other store.
	Stands func(ctx context.Context) error
	// Kill ends the other store, Start brings it back.
	Kill, Start func()
}

// Mails sends mails by three processes, kills a worker and the store, and wants every mail
// delivered, in the order of its recipient. Redis must know of Layout.
func (b Build) Mails(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	box, err := mailbox.Start(mailbox.Config{Latency: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	if _, err := redisledger.Init(ctx, b.Redis, Name, Layout); err != nil { // at least the producers' half of it
		t.Fatal(err)
	}

	victim := b.work(t, box, "victim")
	b.work(t, box, "a")
	b.work(t, box, "b")
	b.shared(t, 3)
	until(t, "what the peers keep to stand in the other store", func() error { return b.Stands(ctx) })

	producer, err := redissource.NewProducer(ctx, b.Redis, Name, redissource.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	const recipients, each = 20, 20
	send := func(from, to int) {
		t.Helper()
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
	b.Kill()
	_ = victim.Process.Kill()
	b.Start()
	send(each/2, each)
	if err := producer.Close(context.Background()); err != nil {
		t.Error(err)
	}
	b.shared(t, 2)
	until(t, "all mails", func() error {
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

// work starts a worker: the test's own program, see Main.
func (b Build) work(t *testing.T, box *mailbox.Server, id string) *exec.Cmd {
	t.Helper()
	args := append([]string{
		"work", "--redis", "redis://" + b.Address, "--smtp", box.URL() + "?helo=" + id, "--id", id, "--lease", "4s", "--http", "",
	}, b.Flags...)
	cmd := exec.Command(os.Args[0], args...)
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

// shared waits until n peers hold all there is to hold.
func (b Build) shared(t *testing.T, n int) {
	t.Helper()
	until(t, fmt.Sprint(n, " peers to share the work"), func() error {
		c, err := b.Ledger.Census(t.Context())
		if err != nil {
			return err
		}
		holders := map[partition.Session]int{}
		for _, g := range c.Grants {
			holders[g.Session]++
		}
		if len(holders) != n || len(c.Grants) != Layout.Total+len(Layout.Units) {
			return fmt.Errorf("%d holders of %d grants", len(holders), len(c.Grants))
		}
		return nil
	})
}

func until(t *testing.T, what string, ok func() error) {
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
