// Command mail-sender is `mail-sender work` of the example of that name, built with etcd:
// its peers may keep the record of who holds what there, or be counted there, while their
// mails stay in Redis.
//
//	mail-sender work --ledger etcd://host:2379/prefix --redis redis://host:6379 …
//	mail-sender work --indexer interval --counter etcd://host:2379/prefix --redis redis://host:6379 …
package main

import (
	"context"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/countoff/countoff/examples/mail-sender/service"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/etcdledger"
	"github.com/countoff/countoff/transition/etcdledger/etcdcounter"
)

func main() { os.Exit(run()) }

func run() int {
	return service.Main("sends queued mails by peers that come and go, whose record or counts may stand in etcd", service.Stores{
		Ledgers:  map[string]func(url, name string) (service.Store, error){"etcd": open, "etcds": open},
		Counters: map[string]func(url, name string) (service.Counter, error){"etcd": openCounter, "etcds": openCounter},
	})
}

// A store is the etcd of one name.
type store struct {
	*clientv3.Client
	prefix, name, url string
}

func open(url, name string) (service.Store, error) { return dial(url, name) }

func dial(url, name string) (store, error) {
	client, prefix, err := etcdledger.Open(url)
	return store{client, prefix, name, url}, err
}

// Ledger implements service.Store.
func (s store) Ledger(layout partition.Config, timing transition.Timing, deployment string) (transition.Ledger, error) {
	return etcdledger.Make(s.Client, s.prefix, s.name)(layout, timing, deployment)
}

// Reach implements service.Store.
func (s store) Reach(ctx context.Context) error { return etcdledger.Reach(ctx, s.Client, s.url) }

// A counter is where peers are counted in it.
type counter struct {
	etcdcounter.Counter
	store
}

func openCounter(url, name string) (service.Counter, error) {
	s, err := dial(url, name)
	if err != nil {
		return nil, err
	}
	return counter{etcdcounter.New(s.Client, s.prefix), s}, nil
}
