// Command mail-sender is `mail-sender work` of the example of that name, built with NATS: its
// peers may be counted there, while their mails and the record of who holds what stay in Redis.
//
//	mail-sender work --indexer interval --counter nats://host:4222/bucket --redis redis://host:6379 …
package main

import (
	"os"

	"github.com/nats-io/nats.go"

	"github.com/countoff/countoff/examples/mail-sender/service"
	"github.com/countoff/countoff/partition/intervalindexer/natscounter"
)

func main() { os.Exit(run()) }

func run() int {
	return service.Main("sends queued mails by peers that come and go, which may be counted in NATS", service.Stores{
		Counters: map[string]func(url, name string) (service.Counter, error){"nats": open, "tls": open},
	})
}

// A counter owns its connection.
type counter struct {
	*natscounter.Counter
	conn *nats.Conn
}

func open(url, _ string) (service.Counter, error) {
	conn, cfg, err := natscounter.Open(url)
	if err != nil {
		return nil, err
	}
	c, err := natscounter.New(conn, cfg)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return counter{c, conn}, nil
}

// Close implements service.Counter.
func (c counter) Close() error {
	c.conn.Close()
	return nil
}
