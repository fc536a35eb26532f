package main

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countoff/countoff/examples/mail-sender/mailtest"
	"github.com/countoff/countoff/partition/intervalindexer/natscounter"
	"github.com/countoff/countoff/partition/intervalindexer/natscounter/natstest"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition/redisledger"
)

func TestMain(m *testing.M) {
	natstest.Main()
	mailtest.Main(run)
	os.Exit(m.Run())
}

// TestMails sends mails by processes that are counted in NATS, kills a worker and NATS, and
// wants every mail delivered, in the order of its recipient.
func TestMails(t *testing.T) {
	redis := redistest.Server(t)
	server := natstest.StartProcess(t)
	ledger, err := redisledger.New(redis.Client(), mailtest.Name, redisledger.Config{Config: mailtest.Layout})
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := natscounter.Open(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	mailtest.Build{
		Redis: redis.Client(), Address: redis.Addr(), Ledger: ledger,
		Flags: []string{"--indexer", "interval", "--interval", "1s", "--counter", server.URL() + "/mails"},
		Stands: func(ctx context.Context) error {
			kv, err := js.KeyValue(ctx, "mails")
			if err != nil {
				return err
			}
			keys, err := kv.Keys(ctx)
			if err == nil && len(keys) == 0 {
				err = errors.New("no counts")
			}
			return err
		},
		Kill: server.Kill, Start: server.Start,
	}.Mails(t)
}
