package redissource

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
)

//go:embed ingress_move.lua
var ingressMoveSource string

var ingressMoveScript = newScript(bellSource + ingressSource + ingressMoveSource)

const (
	firstBatch   = 64      // lines of the first batch
	ingressLines = 512     // most lines of a batch
	ingressBytes = 1 << 20 // about the most bytes of a batch

	// ingressWait is how long one wait for a line lasts. A connection that has not answered
	// ingressLate after that died in silence; go-redis would give it 10 s.
	ingressWait = 5 * time.Second
	ingressLate = 2 * time.Second
	// ingressPoll is the same where a wait cannot be broken off: Close waits for it.
	ingressPoll = time.Second
)

// step moves batches until the list is empty, then waits for a line.
func (s *ingressStream) step(ctx, batch context.Context, t *logstream.Trouble) error {
	if !s.single || s.standing != nil {
		return s.stepPlanned(ctx, batch, t)
	}
	lines, _, err := s.next(ctx)
	if err != nil {
		return err
	}
	for len(lines) > 0 && ctx.Err() == nil {
		if lines, err = s.move(ctx, lines); err != nil {
			return err
		}
		*t = logstream.Trouble{}
		if lines == nil {
			return nil // the list is not what it was taken for: read again
		}
	}
	return s.wait(ctx)
}

// next returns the oldest lines, oldest first, and how many were asked for: the one that ended
// the last wait, or what is read now.
func (s *ingressStream) next(ctx context.Context) (lines []string, asked int, err error) {
	if lines, s.came = s.came, nil; lines != nil {
		return lines, len(lines), nil
	}
	asked = s.size
	lines, err = s.read(ctx, asked)
	return lines, asked, err
}

// read returns the oldest lines, at most n, oldest first.
func (s *ingressStream) read(ctx context.Context, n int) ([]string, error) {
	var lines *redis.StringSliceCmd
	err := readMaster(ctx, s.client, s.fence, func(pipe redis.Pipeliner) { lines = s.queueRead(ctx, pipe, n) })
	return s.inOrder(lines.Val()), err
}

func (s *ingressStream) queueRead(ctx context.Context, c redis.Pipeliner, n int) *redis.StringSliceCmd {
	if s.unit.Oldest == Left {
		return c.LRange(ctx, s.unit.List, 0, int64(n)-1)
	}
	return c.LRange(ctx, s.unit.List, -int64(n), -1)
}

// inOrder turns what was read so that the oldest comes first, and chooses the size of
// the next batch by what these lines weigh.
func (s *ingressStream) inOrder(lines []string) []string {
	if s.unit.Oldest == Right {
		slices.Reverse(lines)
	}
	bytes := 0
	for _, l := range lines {
		bytes += len(l)
	}
	if bytes > 0 {
		s.size = max(1, min(ingressLines, ingressBytes*len(lines)/bytes))
	}
	return lines
}

// side is the oldest lines' side as the scripts call it.
func (s *ingressStream) side() string {
	if s.unit.Oldest == Left {
		return "L"
	}
	return "R"
}

// A group is what goes to one partition, in the order of the lines.
type group struct {
	to         partition.ID
	live, dead []any
	positions  []int64
	lines      []routed
}

// groups sorts routed lines by partition. The first of them is at position base.
func groups(lines []routed, base int64) []*group {
	byID := make(map[partition.ID]*group)
	var out []*group
	for i, l := range lines {
		g := byID[l.to]
		if g == nil {
			g = &group{to: l.to}
			byID[l.to] = g
			out = append(out, g)
		}
		if l.dead != "" {
			g.dead = append(g.dead, l.body)
		} else {
			g.live = append(g.live, l.body)
		}
		g.positions = append(g.positions, base+int64(i))
		g.lines = append(g.lines, l)
	}
	return out
}

// route says what becomes of lines that begin at the base. No two are born at one time: a
// line that is there twice would be one element of what is delayed, and so one task.
func (s *ingressStream) route(lines []string, era int64) []routed {
	now := time.Now()
	out := make([]routed, len(lines))
	for i, line := range lines {
		out[i] = s.unit.route(line, era, s.base+int64(i), s.layout, now.Add(time.Duration(i)*time.Microsecond))
	}
	return out
}

// move moves lines, which were read at the base, in one script, and returns the next
// ones, read in the same round trip: they count if the base is still the new one when
// they are moved. It returns nil if the script did nothing.
func (s *ingressStream) move(ctx context.Context, lines []string) ([]string, error) {
	routes := s.route(lines, s.era)
	all := groups(routes, s.base)
	keys := []string{s.fence, s.unit.List}
	args := []any{
		s.token.String(), s.base, len(lines), s.side(), lines[0], lines[len(lines)-1],
		s.era, s.layout.Total, len(all),
	}
	for _, g := range all {
		k := KeysOf(s.name, g.to)
		keys = append(keys, k.Pending, k.Fence, k.Dead)
		args = append(args, len(g.live), len(g.dead))
	}
	for _, g := range all {
		args = append(append(args, g.live...), g.dead...)
	}
	a, next, err := s.askAndRead(ctx, ingressMoveScript, keys, args)
	if err != nil {
		return nil, err
	}
	if a[0] != "OK" || len(a) != 2 {
		return nil, s.settled(ctx, a)
	}
	s.tellBuried(routes)
	if err := parseInt(&s.base, a[1]); err != nil {
		return nil, err
	}
	lines, err = next.Result()
	return append([]string{}, s.inOrder(lines)...), err // not nil
}

// tellBuried tells of the lines at the base that have become dead letters.
func (s *ingressStream) tellBuried(lines []routed) {
	var all sources.Buried
	for i, l := range lines {
		if l.dead != "" {
			all.Add(sources.Buried{Grant: s.grant, Tasks: 1, Position: s.base + int64(i), Reason: l.dead})
		}
	}
	if all.Tasks > 0 && s.unit.buried != nil {
		s.unit.buried(all)
	}
}

// askAndRead runs a script and reads the oldest lines after it, in one round trip.
func (s *ingressStream) askAndRead(ctx context.Context, sc script, keys []string, args []any) ([]string, *redis.StringSliceCmd, error) {
	for source := false; ; source = true {
		pipe := s.client.Pipeline()
		asked := sc.queue(ctx, pipe, source, keys, args)
		next := s.queueRead(ctx, pipe, s.size)
		redisconfig.Exec(ctx, pipe)
		a, err := asked.StringSlice()
		if redis.HasErrorPrefix(err, "NOSCRIPT") && !source {
			continue
		}
		if err == nil && len(a) == 0 {
			err = s.strange(a)
		}
		return a, next, err
	}
}

// wait blocks until the list holds a line, ctx ends or some seconds are over. Moving
// the oldest line onto its own place changes nothing, whoever else does it; and it says the
// line, which need not be read then.
func (s *ingressStream) wait(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	list, side := s.unit.List, s.unit.Oldest.String()
	if s.waiter == nil {
		opt, err := s.options(ctx)
		if err != nil {
			return err
		}
		if opt == nil {
			return s.comes(s.client.BLMove(ctx, list, list, side, side, ingressPoll))
		}
		opt.PoolSize, opt.MinIdleConns, opt.MaxRetries, opt.ConnMaxIdleTime = 1, 0, -1, -1 // the pool does not count a wait as use
		s.waiter = redis.NewClient(opt)
	}
	// go-redis does not break off a read when its context ends; closing does.
	waiter := s.waiter
	ctx, cancel := context.WithTimeout(ctx, ingressWait+ingressLate)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { waiter.Close() })
	err := s.comes(waiter.BLMove(ctx, list, list, side, side, ingressWait))
	late := !stop() // and so closed, even if it has answered
	if late || err != nil {
		s.closeWaiter() // perhaps the list is on another node now
	}
	if late && errors.Is(err, redis.ErrClosed) {
		return ctx.Err() // the source's client, whose end is that of the ownership, is another
	}
	return err
}

// comes takes in what ended a wait: the oldest line, or time.
func (s *ingressStream) comes(line *redis.StringCmd) error {
	switch err := line.Err(); {
	case errors.Is(err, redis.Nil):
		return nil
	case err != nil:
		return err
	}
	s.came = s.inOrder([]string{line.Val()})
	return nil
}

// options returns those of a client of the list's server: a wait takes a connection
// for itself. They are nil if the kind of client is unknown.
func (s *ingressStream) options(ctx context.Context) (*redis.Options, error) {
	var opt *redis.Options
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		master, err := c.MasterForKey(ctx, s.unit.List)
		if err != nil {
			return nil, err
		}
		opt = master.Options()
	case interface{ Options() *redis.Options }:
		opt = c.Options()
	default:
		return nil, nil
	}
	mine := *opt
	// What hears pushes is not shared: it refuses a second client, which panics where maintenance notifications are required.
	mine.PushNotificationProcessor = nil
	return &mine, nil
}

func (s *ingressStream) closeWaiter() {
	if s.waiter != nil {
		s.waiter.Close()
		s.waiter = nil
	}
}
