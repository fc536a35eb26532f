package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/countoff/countoff/examples/mail-sender/mailtest"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition/etcdledger"
	"github.com/countoff/countoff/transition/etcdledger/etcdtest"
	"github.com/countoff/countoff/transition/redisledger"
)

func TestMain(m *testing.M) {
	etcdtest.Main()
	mailtest.Main(run)
	os.Exit(m.Run())
}

// A stage has an etcd and a Redis.
type stage struct {
	redis  *redistest.Process
	etcd   *etcdtest.Process
	at     string
	client *clientv3.Client
}

func newStage(t *testing.T) stage {
	t.Helper()
	s := stage{redis: redistest.Server(t), etcd: etcdtest.StartProcess(t)}
	s.at = strings.TrimPrefix(s.etcd.Endpoint(), "http://")
	client, err := etcdtest.Dial(s.at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	s.client = client
	return s
}

// TestMails sends mails whose tasks stand in Redis by processes whose record stands in
// etcd, kills a worker and etcd, and wants every mail delivered, in the order of its
// recipient.
func TestMails(t *testing.T) {
	s := newStage(t)
	if _, err := etcdledger.Init(t.Context(), s.client, "/mails", mailtest.Name, mailtest.Layout); err != nil {
		t.Fatal(err)
	}
	ledger, err := etcdledger.New(s.client, "/mails", mailtest.Name, etcdledger.Config{Config: mailtest.Layout})
	if err != nil {
		t.Fatal(err)
	}
	mailtest.Build{
		Redis: s.redis.Client(), Address: s.redis.Addr(), Ledger: ledger, Flags: []string{"--ledger", "etcd://" + s.at + "/mails"},
		Stands: func(ctx context.Context) error { // the ledger does: the grants are those of the census
			if n := s.redis.Client().HLen(ctx, "{"+mailtest.Name+"}:transition").Val(); n != 0 {
				return fmt.Errorf("%d grants stand in Redis", n)
			}
			return nil
		},
		Kill: s.etcd.Kill, Start: s.etcd.Start,
	}.Mails(t)
}

// TestMailsCounted is the same by processes that are counted in etcd, and whose record
// stands in Redis.
func TestMailsCounted(t *testing.T) {
	s := newStage(t)
	ledger, err := redisledger.New(s.redis.Client(), mailtest.Name, redisledger.Config{Config: mailtest.Layout})
	if err != nil {
		t.Fatal(err)
	}
	mailtest.Build{
		Redis: s.redis.Client(), Address: s.redis.Addr(), Ledger: ledger,
		Flags: []string{"--indexer", "interval", "--interval", "1s", "--counter", "etcd://" + s.at + "/counts"},
		Stands: func(ctx context.Context) error {
			counts, err := s.client.Get(ctx, "/counts/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err == nil && counts.Count == 0 {
				err = errors.New("no counts")
			}
			return err
		},
		Kill: s.etcd.Kill, Start: s.etcd.Start,
	}.Mails(t)
}
