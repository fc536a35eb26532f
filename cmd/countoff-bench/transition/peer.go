package transition

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Command is the word with which the program runs itself as a peer.
const Command = "transition-peer"

// Both sides wait as long for a peer they hear nothing of. For the protocol of KIP-848 the
// brokers say how long: see .ci/kafka.
const (
	lease = 6 * time.Second
	beat  = lease / 3
)

// work is how long a record takes.
const work = time.Millisecond

// A contestant is one way to share a topic among peers.
type contestant struct {
	tag, what string
	// run works until ctx ends, and then leaves; it calls handle for each record, before it
	// says to anybody that the record is done.
	run func(ctx context.Context, p peer, handle func(Begun)) error
	// ready is called once before the first peer.
	ready func(ctx context.Context, p peer) error
}

func contestants() []contestant {
	return []contestant{
		countoff("countoff", "countoff, progress in Redis", false),
		countoff("countoff-kafka", "countoff, progress in Kafka", true),
		group("group-cooperative", "franz-go group, cooperative-sticky", kgo.Balancers(kgo.CooperativeStickyBalancer())),
		group("group-kip848", "franz-go group, KIP-848", kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()),
	}
}

// A peer is what a process of one is told.
type peer struct {
	id, name, topic, store string
	brokers                []string
}

func (p peer) options() []kgo.Opt { return []kgo.Opt{kgo.SeedBrokers(p.brokers...)} }

// Peer is the program as a peer: args are those behind [Command]. It says each record that
// it begins, and has handled, leaves at SIGTERM, and dies with in.
func Peer(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	var p peer
	tag := flags.String("tag", "", "which contestant")
	brokers := flags.String("brokers", "", "of Kafka, host:port with commas")
	flags.StringVar(&p.id, "id", "", "of the peer")
	flags.StringVar(&p.name, "name", "", "of the task processing, and of the group")
	flags.StringVar(&p.topic, "topic", "", "whose records are worked")
	flags.StringVar(&p.store, "store", "", "host:port of Redis")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p.brokers = strings.Split(*brokers, ",")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in) // whoever held the other end is gone
		os.Exit(1)
	}()
	var mu sync.Mutex
	lines := json.NewEncoder(out)
	say := func(l Begun) {
		l.Peer, l.At = p.id, time.Now()
		mu.Lock()
		_ = lines.Encode(l) // who reads it may be gone
		mu.Unlock()
	}
	handle := func(l Begun) {
		say(l)
		time.Sleep(work)
		l.Handled = true
		say(l)
	}
	for _, c := range contestants() {
		if c.tag == *tag {
			return c.run(ctx, p, handle)
		}
	}
	return fmt.Errorf("no contestant %q", *tag)
}
