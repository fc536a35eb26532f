package scale

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

const name = "scale"

// A Size is how many peers and partitions a name has.
type Size struct{ Peers, Partitions int }

// Sizes are those that are measured.
func Sizes() []Size {
	return []Size{
		{10, 256}, {10, 2048}, {10, 16384},
		{100, 256}, {100, 2048}, {100, 16384},
		{1000, 2048}, {1000, 16384},
		{10000, 16384},
	}
}

// A Cost is what one call costs on average.
type Cost struct {
	Calls   int
	Took    time.Duration // of the server, in the scripts
	In, Out int           // bytes that the server received and sent
}

// A Plane is the control plane of a name.
type Plane struct {
	Size
	Join   Cost // the first Sync of a session
	Gain   Cost // the Sync that takes what a roll gives
	Full   Cost // a Sync that says all it holds and is answered in full
	Quiet  Cost // a Sync of a session for which nothing has changed
	Seal   Cost
	Census Cost
	Memory int // bytes of all keys of the ledger
}

// least takes over q, and of each time the lesser.
func (p *Plane) least(q Plane) {
	was := *p
	*p = q
	for _, c := range [][2]*Cost{{&p.Join, &was.Join}, {&p.Gain, &was.Gain}, {&p.Full, &was.Full},
		{&p.Quiet, &was.Quiet}, {&p.Seal, &was.Seal}, {&p.Census, &was.Census}} {
		if c[1].Calls > 0 {
			c[0].Took = min(c[0].Took, c[1].Took)
		}
	}
}

// Measure makes a name of this size in an empty store and measures its calls.
func Measure(ctx context.Context, client *redis.Client, size Size) (Plane, error) {
	p := plane{client: client, Plane: Plane{Size: size}}
	err := p.measure(ctx)
	return p.Plane, err
}

type plane struct {
	Plane
	client *redis.Client
	ledger *redisledger.Ledger
}

func (p *plane) measure(ctx context.Context) error {
	layout := partition.Config{Total: p.Partitions}
	err := p.client.FlushAll(ctx).Err()
	if err == nil {
		_, err = redisledger.Init(ctx, p.client, name, layout)
	}
	if err == nil {
		// Nobody's lease ends while the others are called one after the other.
		timing := transition.Timing{Lease: 10 * time.Minute}
		p.ledger, err = redisledger.New(p.client, name, redisledger.Config{Config: layout, Timing: timing})
	}
	if err == nil {
		err = p.calls(ctx)
	}
	if err == nil {
		p.Memory, err = keysMemory(ctx, p.client, "{"+name+"}*")
	}
	return err
}

func (p *plane) calls(ctx context.Context) error {
	sessions := make([]transition.Request, p.Peers)
	join := func(i int) transition.Request {
		s := partition.Session(fmt.Sprintf("session%07d", i))
		return transition.Request{Session: s, Peer: "host-" + string(s), Weight: 1, State: machine.Live}
	}
	err := p.each(ctx, &p.Join, func(i int) error {
		sessions[i] = join(i)
		_, err := p.ledger.Sync(ctx, sessions[i])
		return err
	})
	if err != nil {
		return err
	}
	roll, err := p.roll(ctx)
	if err != nil {
		return err
	}
	shares := make(map[partition.Session][]partition.ID, p.Peers)
	for _, m := range roll.Members {
		shares[m.Session] = m.Partitions
	}
	err = p.each(ctx, &p.Gain, func(i int) error {
		r := &sessions[i]
		r.View, r.Claim = roll.Version, shares[r.Session]
		a, err := p.ledger.Sync(ctx, *r)
		for _, held := range a.Mine {
			r.Hold = append(r.Hold, held.Grant)
		}
		r.Claim, r.Top = nil, a.Count
		if err == nil && len(r.Hold) != len(shares[r.Session]) {
			err = fmt.Errorf("%s was granted %d of %d partitions", r.Session, len(r.Hold), len(shares[r.Session]))
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, cost := range []*Cost{&p.Full, &p.Quiet} { // what was answered in full is quiet the next time
		err := p.each(ctx, cost, func(i int) error {
			_, err := p.ledger.Sync(ctx, sessions[i])
			return err
		})
		if err != nil {
			return err
		}
	}
	return p.span(ctx, &p.Census, 3, func(int) error {
		_, err := p.ledger.Census(ctx)
		return err
	})
}

// roll seals the first roll.
func (p *plane) roll(ctx context.Context) (machine.Roll, error) {
	census, err := p.ledger.Census(ctx)
	if err != nil {
		return machine.Roll{}, err
	}
	roll, _, ok := machine.NextRoll(census, partition.Sticky{})
	if !ok {
		return roll, errors.New("no roll is due")
	}
	return roll, p.span(ctx, &p.Seal, 1, func(int) error { return p.ledger.Seal(ctx, roll) })
}

// each calls do for every session.
func (p *plane) each(ctx context.Context, cost *Cost, do func(i int) error) error {
	return p.span(ctx, cost, p.Peers, do)
}

// span calls do n times and notes what the server had of it on average.
func (p *plane) span(ctx context.Context, cost *Cost, n int, do func(i int) error) error {
	before, err := countersOf(ctx, p.client)
	if err != nil {
		return err
	}
	for i := range n {
		if err := do(i); err != nil {
			return err
		}
	}
	after, err := countersOf(ctx, p.client)
	if err != nil {
		return err
	}
	*cost = Cost{
		Calls: n,
		Took:  (after.took - before.took) / time.Duration(n),
		In:    (after.in - before.in) / n,
		Out:   (after.out - before.out - before.own) / n,
	}
	return nil
}

// keysMemory is what the keys that match take.
func keysMemory(ctx context.Context, client *redis.Client, match string) (bytes int, err error) {
	all := client.Scan(ctx, 0, match, 1000).Iterator()
	for all.Next(ctx) {
		n, err := client.MemoryUsage(ctx, all.Val(), 0).Result()
		if err != nil {
			return 0, err
		}
		bytes += int(n)
	}
	return bytes, all.Err()
}

// counters are what the server has done. own is what it has sent to answer this
// question, which the next one counts.
type counters struct {
	took         time.Duration
	in, out, own int
}

func countersOf(ctx context.Context, client *redis.Client) (c counters, err error) {
	text, err := client.Info(ctx, "stats", "commandstats").Result()
	if err != nil {
		return c, err
	}
	c.own = len(text)
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch key {
		case "total_net_input_bytes":
			c.in, err = strconv.Atoi(value)
		case "total_net_output_bytes":
			c.out, err = strconv.Atoi(value)
		case "cmdstat_eval", "cmdstat_evalsha", "cmdstat_eval_ro", "cmdstat_evalsha_ro":
			var calls, micros int64
			if _, err := fmt.Sscanf(value, "calls=%d,usec=%d,", &calls, &micros); err != nil {
				return c, err
			}
			c.took += time.Duration(micros) * time.Microsecond
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}
