// Command countoff is the command of that name, built with etcd: it also looks at ledgers
// there.
//
//	countoff status mail-sender --ledger etcd://host:2379/prefix --redis redis://host:6379
//	countoff watch billing --ledger etcd://host:2379/prefix
package main

import (
	"context"
	"fmt"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/countoff/countoff/cmd/countoff/command"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/etcdledger"
)

func main() { os.Exit(command.Main(stores)) }

var stores = command.Stores{"etcd": open, "etcds": open}

// A store is an etcd.
type store struct {
	*clientv3.Client
	prefix, url string
}

func open(url string) (command.Store, error) {
	client, prefix, err := etcdledger.Open(url)
	if err != nil {
		return nil, err
	}
	return store{client, prefix, url}, nil
}

// Ledger implements command.Store.
func (s store) Ledger(ctx context.Context, name string, timing transition.Timing) (transition.Ledger, partition.Config, error) {
	cfg, known, err := etcdledger.ReadConfig(ctx, s.Client, s.prefix, name)
	if err == nil && !known {
		err = fmt.Errorf("etcd %s/%s: %w", s.prefix, name, redisconfig.ErrNone)
	}
	if err != nil {
		return nil, cfg, err
	}
	ledger, err := etcdledger.New(s.Client, s.prefix, name, etcdledger.Config{Config: cfg, Timing: timing})
	if err != nil {
		return nil, cfg, err
	}
	return ledger, cfg, nil
}

// Init implements command.Store.
func (s store) Init(ctx context.Context, name string, cfg partition.Config) (bool, error) {
	return etcdledger.Init(ctx, s.Client, s.prefix, name, cfg)
}

// Require implements command.Store.
func (s store) Require(ctx context.Context, name string, requires []partition.Requirement) error {
	return etcdledger.Require(ctx, s.Client, s.prefix, name, requires)
}

// Reach implements command.Store.
func (s store) Reach(ctx context.Context) error { return etcdledger.Reach(ctx, s.Client, s.url) }
