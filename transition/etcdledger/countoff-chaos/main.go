// Command countoff-chaos is the command of that name, whose peers keep the record of who
// holds what in etcd: it breaks that too. Their tasks stay in Redis.
//
//	countoff-chaos --faults 60
//	countoff-chaos --faults 40 --only ledger-restart,ledger-pause,ledger-cut,kill
package main

import (
	"context"
	"fmt"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/countoff/countoff/cmd/countoff-chaos/command"
	"github.com/countoff/countoff/cmd/countoff-chaos/peer"
	"github.com/countoff/countoff/cmd/countoff-chaos/play"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/etcdledger"
)

func main() {
	if len(os.Args) == serverWords && os.Args[1] == serverCommand {
		fmt.Fprintln(os.Stderr, serve(os.Args[2], os.Args[3], os.Args[4]))
		os.Exit(1)
	}
	os.Exit(command.Main(&ledgers))
}

var ledgers = command.Ledger{
	Start: func(ctx context.Context, dir string) (play.LedgerServer, error) { return start(ctx, dir) },
	Open:  open,
}

// A ledger is one with a client of its own.
type ledger struct {
	*etcdledger.Ledger
	client *clientv3.Client
}

func (l ledger) Close() error { return l.client.Close() }

func open(url, name string, layout partition.Config, timing transition.Timing) (peer.OpenLedger, error) {
	client, prefix, err := etcdledger.Open(url)
	if err != nil {
		return nil, err
	}
	l, err := etcdledger.New(client, prefix, name, etcdledger.Config{Config: layout, Timing: timing})
	if err != nil {
		return nil, err
	}
	return ledger{l, client}, nil
}
