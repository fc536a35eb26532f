package transition

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/cmd/countoff-chaos/child"
	"github.com/countoff/countoff/partition/redistest/redisserver"
)

const (
	partitions = 12
	// pace is the time between two records of a partition.
	pace = 20 * time.Millisecond
	// calm is how long everything must stay as it is to count as balanced.
	calm = 1500 * time.Millisecond
	// patience is how long an event may take.
	patience = time.Minute
)

// A Config says what is played.
type Config struct {
	Self    string   // the program that is run as a peer
	Brokers []string // of Kafka
	Only    *regexp.Regexp
	Rounds  int
	Log     io.Writer // lines of progress
}

// A Result is what one event of a play has cost one contestant.
type Result struct {
	Tag, What, Event string
	Verdict
}

// Run plays all rounds, each contestant once in each, on a store of its own.
func Run(ctx context.Context, cfg Config) ([]Result, error) {
	server, end, err := redisserver.Temporary(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var all []Result
	for round := range cfg.Rounds {
		list := contestants()
		for i := range list {
			c := list[(i+round)%len(list)]
			if !cfg.Only.MatchString(c.tag) {
				continue
			}
			name := fmt.Sprintf("bench-%s-%d-%s", c.tag, round, time.Now().Format("150405.000"))
			p := play{cfg: cfg, contestant: c, peer: peer{name: name, topic: name, store: server.Addr(), brokers: cfg.Brokers},
				handled: make(map[place]bool), produced: make(map[place]time.Time)}
			results, err := p.run(ctx)
			if err != nil {
				return all, fmt.Errorf("round %d, %s: %w", round+1, c.tag, err)
			}
			for _, r := range results {
				fmt.Fprintf(cfg.Log, "round %d of %d  %-18s %-7s %+v\n", round+1, cfg.Rounds, r.Tag, r.Event, r.Verdict)
			}
			all = append(all, results...)
		}
	}
	return all, nil
}

// A play is one contestant with its peers.
type play struct {
	cfg Config
	contestant
	peer

	mu       sync.Mutex
	lines    []Begun // but those of the ends
	handled  map[place]bool
	produced map[place]time.Time // when
	peers    []*process
}

// A process is one peer.
type process struct {
	id    string
	cmd   *exec.Cmd
	leash io.Closer
	ended chan struct{}
	err   strings.Builder
}

func (p *play) run(ctx context.Context) (results []Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, 8*patience)
	defer cancel()
	client, err := kgo.NewClient(append(p.options(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.MetadataMinAge(100*time.Millisecond))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	made, err := admin.CreateTopics(ctx, partitions, 1, nil, p.topic)
	if err == nil {
		err = made.Error()
	}
	if err == nil {
		err = p.ready(ctx, p.peer)
	}
	if err != nil {
		return nil, err
	}
	stopped := make(chan error, 1)
	producing, stop := context.WithCancel(ctx)
	go func() { stopped <- p.produce(producing, client) }()
	defer func() {
		stop()
		for _, one := range p.peers {
			_ = one.cmd.Process.Kill() // fails only if it has ended
			<-one.ended
		}
		_, _ = admin.DeleteTopics(context.WithoutCancel(ctx), p.topic) // what stays is in nobody's way
	}()
	marks, err := p.events(ctx)
	stop()
	err = errors.Join(err, <-stopped, p.end(ctx))
	return p.results(marks), err
}

// end waits until every record that was produced has been handled. That some never are is
// for the judge: it gives up after patience.
func (p *play) end(ctx context.Context) error {
	enough := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for p.open() > 0 {
		select {
		case <-tick.C:
		case <-enough:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// open is how many records are not handled yet.
func (p *play) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return lost(p.produced, p.handled, time.Time{}, time.Now())
}

// A mark says when an event began.
type mark struct {
	event string
	at    time.Time
}

// events plays what happens, one after the other, each when the one before has calmed.
func (p *play) events(ctx context.Context) (marks []mark, err error) {
	event := func(name string, live int, do func() error) {
		if err != nil {
			return
		}
		marks = append(marks, mark{name, time.Now()})
		if err = do(); err == nil {
			if err = p.settle(ctx, live); err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	signal := func(id string, s syscall.Signal) func() error {
		return func() error { return p.find(id).cmd.Process.Signal(s) }
	}
	event("start", 2, func() error { return errors.Join(p.start("a"), p.start("b")) })
	event("steady", 2, func() error { return nil })
	event("join", 3, func() error { return p.start("c") })
	event("leave", 2, signal("c", syscall.SIGTERM))
	event("again", 3, func() error { return p.start("d") })
	event("crash", 2, signal("d", syscall.SIGKILL))
	return append(marks, mark{"end", time.Now()}), err
}

// results judges the events that are compared. What was lost is told of the last of them
// before it was produced, or of the first.
func (p *play) results(marks []mark) (results []Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, row := range gaps(p.lines, p.produced, p.handled) {
		fmt.Fprintf(p.cfg.Log, "%s: %s\n", p.tag, row)
	}
	var compared []int
	for i, m := range marks[:len(marks)-1] {
		if m.event != "start" && m.event != "again" {
			compared = append(compared, i)
		}
	}
	for k, i := range compared {
		v := judge(p.lines, marks[i].at, marks[i+1].at)
		from, to := marks[i].at, time.Now()
		if k == 0 {
			from = time.Time{}
		}
		if k+1 < len(compared) {
			to = marks[compared[k+1]].at
		}
		v.Lost = lost(p.produced, p.handled, from, to)
		results = append(results, Result{p.tag, p.what, marks[i].event, v})
	}
	return results
}

// settle waits until live peers have an equal share, and stay so.
func (p *play) settle(ctx context.Context, live int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	calmSince := time.Now()
	for time.Since(calmSince) < calm {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the shares are %v: %w", p.shares(), ctx.Err())
		}
		n := p.shares()
		even := len(n) == live
		for _, share := range n {
			even = even && share == partitions/live
		}
		if !even {
			calmSince = time.Now()
		}
	}
	return nil
}

// shares are those of what was begun lately.
func (p *play) shares() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := time.Now().Add(-calm)
	i := len(p.lines)
	for i > 0 && p.lines[i-1].At.After(since) {
		i--
	}
	return shares(p.lines[i:])
}

func (p *play) find(id string) *process {
	for _, one := range p.peers {
		if one.id == id {
			return one
		}
	}
	return nil
}

// start starts a peer.
func (p *play) start(id string) error {
	one := &process{id: id, ended: make(chan struct{})}
	one.cmd = exec.Command(p.cfg.Self, Command, "--tag", p.tag, "--brokers", strings.Join(p.brokers, ","), "--id", id,
		"--name", p.name, "--topic", p.topic, "--store", p.store)
	one.cmd.Stderr = &one.err
	out, err := one.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if one.leash, err = one.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := child.Start(one.cmd); err != nil {
		return err
	}
	p.peers = append(p.peers, one)
	go func() {
		defer close(one.ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var l Begun
			if json.Unmarshal(lines.Bytes(), &l) != nil {
				continue // cut off by the kill
			}
			p.mu.Lock()
			if l.Handled {
				p.handled[place{l.Partition, l.Offset}] = true
			} else {
				p.lines = append(p.lines, l)
			}
			p.mu.Unlock()
		}
		if err := one.cmd.Wait(); err != nil && one.err.Len() > 0 {
			fmt.Fprintf(p.cfg.Log, "%s, peer %s: %s\n", p.tag, id, one.err.String())
		}
	}()
	return nil
}

// produce gives every partition a record at the pace until ctx ends, and returns when the
// broker has all of them.
func (p *play) produce(ctx context.Context, client *kgo.Client) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	failed := make(chan error, 1)
	done := func(r *kgo.Record, err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
			return
		}
		p.mu.Lock()
		p.produced[place{r.Partition, r.Offset}] = r.Timestamp
		p.mu.Unlock()
	}
	for n := 0; ; n++ {
		for id := range int32(partitions) {
			r := &kgo.Record{Topic: p.topic, Partition: id, Key: fmt.Append(nil, "key", n%10), Value: fmt.Append(nil, n)}
			client.Produce(context.WithoutCancel(ctx), r, done)
		}
		select {
		case <-tick.C:
		case err := <-failed:
			return err
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			return client.Flush(ctx)
		}
	}
}
