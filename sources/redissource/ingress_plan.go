package redissource

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/logstream"
)

var (
	//go:embed ingress_plan.lua
	ingressPlanSource string
	//go:embed ingress_trim.lua
	ingressTrimSource string

	ingressPlanScript = newScript(ingressSource + ingressPlanSource)
	ingressTrimScript = newScript(ingressSource + ingressTrimSource)
)

// forceAfter is how long a target may refuse a batch because it is full. The list may
// be what fills it, and nothing leaves the list while the batch stands.
const forceAfter = 5 * time.Second

// errOldPlan means that a target has taken lines of a greater era than that of the plan which
// stands, and will take none of it any more: epochs have begun anew, and were left behind.
// What other targets have taken of it is pushed again with the next one.
var errOldPlan = errors.New("the plan is of an era that is over")

// An ingressPlan says where the oldest lines of a list go. It stands in the store
// from before the first push to a target until the lines are off the list, so that
// whoever goes on routes them the same way.
type ingressPlan struct {
	lines   int
	sum     string // of the lines
	era     int64  // of their positions
	total   int    // partitions when it was made
	targets []partition.ID
}

// parsePlan reads lines, sum, era, partitions, targets.
func (s *ingressStream) parsePlan(a []string) (*ingressPlan, error) {
	p := &ingressPlan{sum: a[1]}
	var lines, total int64
	errs := []error{parseInt(&lines, a[0]), parseInt(&p.era, a[2]), parseInt(&total, a[3])}
	p.lines, p.total = int(lines), int(total)
	for t := range strings.FieldsSeq(a[4]) {
		id, err := strconv.ParseInt(t, 10, 32)
		errs = append(errs, err)
		p.targets = append(p.targets, partition.ID(id))
	}
	if len(p.targets) != p.lines || p.lines == 0 {
		errs = append(errs, fmt.Errorf("%d targets for %d lines", len(p.targets), p.lines))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%s is no plan: %q: %w", s.plan, a, err)
	}
	if p.total != s.layout.Total {
		return nil, fmt.Errorf("%s: a batch is under way that was planned for %d partitions, and %s has %d now: %w",
			s.plan, p.total, s.name, s.layout.Total, partition.ErrConfig)
	}
	return p, nil
}

// stepPlanned moves batches by way of a plan until the list is empty, then waits for
// a line. After a failure it begins again with the plan that stands; what was pushed
// is skipped at the targets.
func (s *ingressStream) stepPlanned(ctx, batch context.Context, t *logstream.Trouble) error {
	var lines []string
	var n int
	var err error
	if s.standing != nil {
		n = s.standing.lines
		lines, err = s.read(ctx, n)
	} else {
		lines, n, err = s.next(ctx)
	}
	if err != nil {
		return err
	}
	for (len(lines) > 0 || s.standing != nil) && ctx.Err() == nil {
		if err := s.agree(batch, lines); err != nil || s.standing == nil {
			return err
		}
		p := s.standing
		if len(lines) < p.lines && n < p.lines {
			return nil // somebody else's, longer than what was read: read again
		}
		if len(lines) >= p.lines {
			lines = lines[:p.lines]
		}
		if sum(lines) != p.sum {
			return s.install(batch, true)
		}
		if err := s.push(batch, p, lines, t); errors.Is(err, errOldPlan) {
			return s.install(batch, true)
		} else if err != nil {
			return err
		}
		if lines, err = s.trim(batch, p, lines); err != nil || lines == nil {
			return err
		}
		n = s.size
		*t = logstream.Trouble{}
		if s.single {
			return nil // what an owner left is done: one script does it from here
		}
	}
	return s.wait(ctx)
}

// agree stores a plan for lines, which were read at the base, or learns of the one
// that stands. It leaves none standing if the list is not what it was taken for.
func (s *ingressStream) agree(ctx context.Context, lines []string) error {
	targets, first, last := "", "", ""
	if len(lines) > 0 {
		first, last = lines[0], lines[len(lines)-1]
		ids := make([]string, len(lines))
		for i, r := range s.route(lines, s.era) {
			ids[i] = r.to.String()
		}
		targets = strings.Join(ids, " ")
	}
	a, err := s.ask(ctx, ingressPlanScript, []string{s.fence, s.plan, s.unit.List}, s.token.String(), s.base, len(lines),
		sum(lines), targets, s.layout.Total, s.side(), first, last)
	if err != nil {
		return err
	}
	s.standing = nil
	switch {
	case a[0] == "PLAN" && len(a) == 6:
		s.standing, err = s.parsePlan(a[1:])
		return err
	case a[0] == "NONE":
		return nil
	}
	return s.settled(ctx, a)
}

// push pushes each line to its target, and returns nil once every target, and as many
// replicas of it as are wanted, has answered.
func (s *ingressStream) push(ctx context.Context, p *ingressPlan, lines []string, t *logstream.Trouble) error {
	routes := s.route(lines, p.era)
	for i := range routes {
		routes[i].to = p.targets[i] // whatever this build makes of the line
	}
	all := groups(routes, s.base)
	force := s.full && t.Lasted(time.Now()) >= forceAfter
	s.full = false
	pushes := make([]*push, len(all))
	for i, g := range all {
		keys, args := s.pushArguments(p, g, force)
		pushes[i] = &push{keys: keys, args: args}
	}
	s.pusher.send(ctx, pushes)
	var first error
	for _, one := range pushes {
		err := one.err
		if err == nil {
			err = s.pushed(one.answer)
		}
		if final(err) {
			return err
		}
		s.full = s.full || redis.HasErrorPrefix(err, "OOM")
		first = cmp.Or(first, err)
	}
	if first == nil {
		s.tellBuried(routes)
	}
	return first
}

// pushArguments are those of push.lua for one target of a plan.
func (s *ingressStream) pushArguments(p *ingressPlan, g *group, force bool) ([]string, []any) {
	k := KeysOf(s.name, g.to)
	positions := make([]string, len(g.positions))
	for i, x := range g.positions {
		positions[i] = strconv.FormatInt(x, 10)
	}
	head := pushHead{
		era: p.era, first: g.positions[0], last: g.positions[len(g.positions)-1],
		positions: strings.Join(positions, " "), total: s.layout.Total, force: force, each: len(g.dead) > 0,
	}
	keys, args := head.arguments(k.Mark(s.unit.List), []pushTarget{{&k, len(g.lines)}}, len(g.lines))
	for _, l := range g.lines {
		switch {
		case !head.each:
			args = append(args, l.body)
		case l.dead != "":
			args = append(args, "dead", 0, "", "", l.body)
		default:
			args = append(args, "now", 0, "", "", l.body)
		}
	}
	return keys, args
}

// pushed says whether a target has taken its lines.
func (s *ingressStream) pushed(a pushAnswer) error {
	switch {
	case a.status == "STALE":
		// A later owner has pushed, or the fence was lost and its epochs begin anew:
		// a greater epoch than that of the era settles either, at once. It finds the plan
		// that this one leaves, and makes another.
		var era int64
		if err := parseInt(&era, a.detail); err != nil {
			return s.strange([]string{a.status, a.detail})
		}
		if stored := partition.Epoch(era / eras); stored >= s.grant.Epoch {
			return &sources.FencedError{Grant: s.grant, Stored: stored}
		}
		return errOldPlan
	case a.status != "OK":
		return s.strange([]string{a.status, a.detail})
	case strings.Contains(a.detail, "r"):
		return fmt.Errorf("%s has another number of partitions than %d now: %w", s.name, s.layout.Total, partition.ErrConfig)
	case strings.Contains(a.detail, "w"):
		return errWrongType
	}
	return nil
}

// trim takes the lines of a plan off the list and returns the next ones. It returns
// nil if the list is not what it was taken for.
func (s *ingressStream) trim(ctx context.Context, p *ingressPlan, lines []string) ([]string, error) {
	a, next, err := s.askAndRead(ctx, ingressTrimScript, []string{s.fence, s.plan, s.unit.List},
		[]any{s.token.String(), s.base, p.lines, s.side(), lines[0], lines[len(lines)-1]})
	if err != nil {
		return nil, err
	}
	switch {
	case a[0] == "OK" && len(a) == 2:
		s.standing = nil
		if err := parseInt(&s.base, a[1]); err != nil {
			return nil, err
		}
		lines, err = next.Result()
		return append([]string{}, s.inOrder(lines)...), err
	case a[0] == "CHANGED":
		// What is in the list now was pushed in part: route it anew, all of it.
		return nil, s.install(ctx, true)
	}
	s.standing = nil
	return nil, s.settled(ctx, a)
}

// sum identifies lines.
func sum(lines []string) string {
	var d xxhash.Digest
	d.Reset()
	for _, l := range lines {
		_, _ = d.WriteString(strconv.Itoa(len(l)) + ":")
		_, _ = d.WriteString(l)
	}
	return strconv.FormatUint(d.Sum64(), 16)
}
