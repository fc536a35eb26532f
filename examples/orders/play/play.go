// Package play is the demo of orders: a broker and a store, peers in processes of
// their own, and what they say they did.
package play

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/examples/internal/cast"
	"github.com/countoff/countoff/framework/frameworkfx/kafkafx"
	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources/kafkasource"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

// A Config says what is played. Zero fields but Program have defaults.
type Config struct {
	Program    string        // with the command work
	Kafka      string        // URL; default: an embedded kfake
	Redis      string        // URL; default: an embedded miniredis. Beside an embedded kfake nothing stays in it
	Progress   string        // redis or kafka: where peers keep what is done; default redis
	Name       string        // of the task processing, or how that begins; default "orders"
	Topic      string        // default "orders"
	Partitions int           // default 6
	Lease      time.Duration // default 3 s
	Takes      time.Duration // of an order; default 20 ms
	Errors     io.Writer     // what peers say on stderr; default: nothing
}

// Validate says what was typed wrong, as flags of a demo, which have no defaults here but for the servers.
func (c Config) Validate() error {
	errs := []error{partition.CheckName(c.Name)}
	if c.Kafka != "" {
		_, err := kafkasource.Options(c.Kafka)
		errs = append(errs, err)
	}
	if c.Redis != "" {
		client, err := redisurl.Open(c.Redis)
		if err == nil {
			err = client.Close()
		}
		errs = append(errs, err)
	}
	if c.Partitions < 1 || c.Partitions > partition.MaxTotal {
		errs = append(errs, fmt.Errorf("--partitions %d: want 1 to %d", c.Partitions, partition.MaxTotal))
	}
	if c.Progress != string(kafkafx.InRedis) && c.Progress != string(kafkafx.InKafka) {
		errs = append(errs, fmt.Errorf("--progress %s: want %s or %s", c.Progress, kafkafx.InRedis, kafkafx.InKafka))
	}
	if c.Lease <= 0 {
		errs = append(errs, fmt.Errorf("--lease %v: want more than 0", c.Lease))
	} else {
		errs = append(errs, transition.Timing{Lease: c.Lease}.Validate())
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Progress == "" {
		c.Progress = "redis"
	}
	if c.Name == "" {
		c.Name = "orders"
	}
	if c.Topic == "" {
		c.Topic = "orders"
	}
	if c.Partitions == 0 {
		c.Partitions = 6
	}
	if c.Lease == 0 {
		c.Lease = 3 * time.Second
	}
	if c.Takes == 0 {
		c.Takes = 20 * time.Millisecond
	}
	return c
}

// A Play is a topic with peers that work it.
type Play struct {
	cfg   Config
	opts  []kgo.Opt
	close []func()

	mu    sync.Mutex
	lines []Line
	peers []*Peer
}

// A Peer is one process of it.
type Peer struct {
	id    string
	cmd   *exec.Cmd
	leash io.WriteCloser // its stdin: when we die it ends, and the peer with it
	ended chan struct{}  // closed when it has ended and all its lines were read
}

// Start starts broker and store, unless they are there, and makes the topic.
func Start(ctx context.Context, cfg Config) (*Play, error) {
	p := &Play{cfg: cfg.withDefaults()}
	err := p.start(ctx)
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Play) start(ctx context.Context) error {
	embedded := p.cfg.Kafka == ""
	if embedded {
		c, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			return fmt.Errorf("embedded kafka: %w", err)
		}
		p.close = append(p.close, c.Close)
		p.cfg.Kafka = "kafka://" + strings.Join(c.ListenAddrs(), ",")
	}
	var err error
	if p.opts, err = kafkasource.Options(p.cfg.Kafka); err != nil {
		return err
	}
	if err := CreateTopic(ctx, p.opts, p.cfg.Topic, p.cfg.Partitions); err != nil {
		return err
	}
	cfg := partition.Config{Total: p.cfg.Partitions, Hash: partition.Murmur2}
	if embedded || p.cfg.Redis == "" {
		// What a store knows of a broker that is gone is wrong of the next one: on one that is the user's
		// the play has a name of its own.
		store, err := cast.Open(ctx, p.cfg.Redis, "", p.cfg.Name, cfg)
		if err != nil {
			return err
		}
		p.cfg.Redis, p.cfg.Name = store.URL, store.Name
		p.close = append(p.close, func() { p.raze(store) })
		return nil
	}
	client, err := redisurl.Open(p.cfg.Redis)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	defer client.Close()
	// The store is known to be new, or has the name already: nobody has to wait.
	_, err = redisledger.Init(ctx, client, p.cfg.Name, cfg)
	return err
}

// raze closes the store, and leaves nothing on one that is the user's.
func (p *Play) raze(store *cast.Store) {
	ctx, cancel := context.WithTimeout(context.Background(), p.ending())
	defer cancel()
	err := store.Close(ctx, func(ctx context.Context) error {
		_, err := redissource.Destroy(ctx, store.Client, store.Name)
		return err
	})
	if err != nil && p.cfg.Errors != nil {
		fmt.Fprintln(p.cfg.Errors, err)
	}
}

// ending is how long it may take to remove what was played with, once the leases of peers that were killed have ended.
func (p *Play) ending() time.Duration { return p.cfg.Lease + 40*time.Second }

// Kafka is the URL of the broker.
func (p *Play) Kafka() string { return p.cfg.Kafka }

// Redis is the URL of the store.
func (p *Play) Redis() string { return p.cfg.Redis }

// Name is the name of the task processing.
func (p *Play) Name() string { return p.cfg.Name }

// Close ends the peers that are left, and what was embedded.
func (p *Play) Close() {
	p.mu.Lock()
	peers := p.peers
	p.mu.Unlock()
	for _, peer := range peers {
		peer.Kill()
	}
	for i := len(p.close) - 1; i >= 0; i-- {
		p.close[i]()
	}
	p.close = nil
}

// Peer starts a process called id.
func (p *Play) Peer(id string) (*Peer, error) {
	cmd := exec.Command(p.cfg.Program, "work", "--exit-with-stdin", "--kafka", p.cfg.Kafka, "--redis", p.cfg.Redis,
		"--topic", p.cfg.Topic, "--name", p.cfg.Name, "--id", id, "--lease", p.cfg.Lease.String(), "--takes", p.cfg.Takes.String(), "--look", "1s",
		"--progress", p.cfg.Progress)
	// The flags are all: no variable of the user's shell may change the play.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "COUNTOFF_GRACE=60s", "COUNTOFF_DEPLOYMENT=orders"}
	cmd.Stderr = p.cfg.Errors
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	leash, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start peer %s: %w", id, err)
	}
	peer := &Peer{id: id, cmd: cmd, leash: leash, ended: make(chan struct{})}
	p.mu.Lock()
	p.peers = append(p.peers, peer)
	p.mu.Unlock()
	go func() {
		defer close(peer.ended)
		read(out, id, p.take)
		_ = cmd.Wait() // how it ended is whoever's business who told it to
	}()
	return peer, nil
}

// Ended says which peer has ended, if one has; what it said of that is on Config.Errors.
func (p *Play) Ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, peer := range p.peers {
		select {
		case <-peer.ended:
			return fmt.Errorf("peer %s has ended by itself", peer.id)
		default:
		}
	}
	return nil
}

func (p *Play) take(l Line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, l)
}

// Lines are those of all peers so far.
func (p *Play) Lines() []Line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Line(nil), p.lines...)
}

// Send sends a load.
func (p *Play) Send(ctx context.Context, l Load) error { return l.Send(ctx, p.opts, p.cfg.Topic) }

// Done is how many different orders the peers say are done.
func (p *Play) Done() int {
	done := make(map[Order]bool)
	for _, line := range p.Lines() {
		if line.What == End {
			done[line.Order] = true
		}
	}
	return len(done)
}

// Await waits until so many orders are done and, if all is true, the group says that
// nothing is left.
func (p *Play) Await(ctx context.Context, orders int, all bool) error {
	return Until(ctx, func() (bool, error) {
		if p.Done() < orders || !all {
			return p.Done() >= orders, nil
		}
		lag, err := Lag(ctx, p.opts, p.cfg.Name, p.cfg.Topic)
		return lag == 0, err
	})
}

// Until looks again and again whether something is so.
func Until(ctx context.Context, so func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := so(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(errors.New("what was waited for did not come in time"), ctx.Err())
		}
	}
}

// Report judges what was played. killed is who was killed at an instant; nil: nobody.
func (p *Play) Report(ctx context.Context, l Load, killed *Peer, at time.Time) (Report, error) {
	id := ""
	if killed != nil {
		id = killed.id
	}
	r := judge(p.Lines(), l, id, at)
	// What an owner said of a partition before it gave it away may reach the broker after
	// what the next one said, who then says it again.
	patience, cancel := context.WithTimeout(ctx, lagPatience)
	defer cancel()
	err := Until(patience, func() (bool, error) {
		var err error
		r.Lag, err = Lag(ctx, p.opts, p.cfg.Name, p.cfg.Topic)
		return r.Lag == 0, err
	})
	if patience.Err() != nil {
		err = ctx.Err() // the report tells of the lag
	}
	return r, err
}

// lagPatience is how long the group may say something old.
const lagPatience = 15 * time.Second

// Signal sends the peer a signal.
func (p *Peer) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the peer without goodbye and returns when it is dead and all that it said
// was read.
func (p *Peer) Kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.ended
	_ = p.leash.Close()
}

// Leave tells the peer to hand over and end, and waits for it.
func (p *Peer) Leave(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("tell %s to leave: %w", p.id, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s did not leave: %w", p.id, ctx.Err())
	}
}
