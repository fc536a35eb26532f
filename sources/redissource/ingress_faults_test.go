package redissource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
)

// Owners come and go, earlier ones do not know it and go on, and the network loses
// answers, loses requests, delivers them late and cuts pipelines: each line is in one
// partition, once, and those of a key in order. Where the owners' code routes
// differently, each line is in one partition all the same.
func TestIngressOnceWhateverHappens(t *testing.T) {
	for seed := range uint64(24) {
		single, differ, equal := seed%2 == 0, seed%4 >= 2, seed%8 >= 4
		t.Run(fmt.Sprintf("seed=%d,single=%v,differ=%v,equal=%v", seed, single, differ, equal), func(t *testing.T) {
			t.Parallel()
			const total, n, owners = 3, 100, 4
			r := rand.New(rand.NewPCG(seed, 1))
			b := newInbox(t, redistest.New(t), total)
			var faulty []*faults
			owner := func(epoch partition.Epoch, rate float64) *ingressStream {
				client := b.another(single)
				f := newFaults(seed*100+uint64(epoch), rate)
				client.AddHook(f)
				faulty = append(faulty, f)
				if b.unit.KeyField = "to"; differ && epoch%2 == 0 {
					b.unit.KeyField = "n"
				}
				for {
					s, err := b.start(client, epoch)
					if err == nil {
						return s
					}
					if !strings.Contains(err.Error(), "unexpected EOF") {
						t.Fatal(err)
					}
				}
			}
			sent := 0
			for epoch := range partition.Epoch(owners) {
				owner(epoch+1, 0.15)
				for until := n * (int(epoch) + 1) / owners; sent < until; {
					var lines []string
					for range min(1+r.IntN(20), until-sent) {
						l := inboxLine(fmt.Sprint(r.IntN(5)), sent)
						if equal {
							l = inboxLine("ann", 0)
						}
						lines = append(lines, l)
						sent++
					}
					b.push(lines...)
				}
				// The next owner comes in the middle of the work, or after it.
				left := int64(r.IntN(n / owners))
				eventually(t, func() bool { return b.client.LLen(context.Background(), b.unit.List).Val() <= left })
			}
			owner(owners+1, 0)
			b.arrived(n)
			for _, f := range faulty {
				f.calm()
			}
			switch {
			case equal:
				b.differentIDs(n)
			case differ:
				b.exactlyOnce(n)
			default:
				b.exactlyOnceInOrder(n)
			}
		})
	}
}

// scripted lets a test act before and after a script of a stream is executed.
type scripted struct {
	before, after func(sha string, cmds []redis.Cmder) error // an error: the answer is lost
}

func (*scripted) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *scripted) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return s.do([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}
func (s *scripted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return s.do(cmds, func() error { return next(ctx, cmds) })
	}
}

func (s *scripted) do(cmds []redis.Cmder, next func() error) error {
	sha := ""
	if cmds[0].Name() == "evalsha" {
		sha = cmds[0].Args()[1].(string)
	}
	fail := func(err error) error {
		if err == errPartial {
			return err
		}
		for _, c := range cmds {
			c.SetErr(err)
		}
		return err
	}
	if s.before != nil && sha != "" {
		if err := s.before(sha, cmds); err != nil {
			return fail(err)
		}
	}
	err := next()
	if s.after != nil && sha != "" && cmds[0].Err() == nil {
		if err := s.after(sha, cmds); err != nil {
			return fail(err)
		}
	}
	return err
}

// An owner pushes half of a batch and dies; the next one, whose code routes
// otherwise, goes on by the plan that stands.
func TestIngressPlanStands(t *testing.T) {
	for _, single := range []bool{false, true} {
		b := newInbox(t, redistest.New(t), 8)
		b.learn()
		var lines []string
		for i := range 40 {
			lines = append(lines, inboxLine(fmt.Sprint(i), i))
		}
		b.push(lines...)
		dying := b.another(false)
		dying.AddHook(&scripted{before: func(sha string, cmds []redis.Cmder) error {
			if sha == pushScript.Hash() {
				// Half of the targets hear of it.
				for _, c := range again(cmds[:len(cmds)/2]) {
					_ = b.client.Process(context.Background(), c)
				}
				return errNetwork
			}
			return nil
		}})
		s, err := b.start(dying, 1)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool { return len(b.counts()) > 0 })
		s.stop()
		<-s.ended
		half := len(b.counts())
		if half == 40 || b.client.HGet(t.Context(), "{"+b.unit.List+"}:plan", "k").Val() != "40" {
			t.Fatalf("%d lines were pushed, want a part, and a plan that stands", half)
		}
		b.unit.KeyField = ""
		b.unit.Key = func(line []byte) (string, error) {
			if strings.Contains(string(line), "7") {
				return "", errors.New("this build does not like it")
			}
			return string(line), nil
		}
		if _, err := b.start(b.another(single), 2); err != nil {
			t.Fatal(err)
		}
		b.arrived(40)
		for i, n := range b.counts() {
			if n != 1 {
				t.Errorf("line %d is there %d times", i, n)
			}
		}
		if n := b.client.Exists(t.Context(), "{"+b.unit.List+"}:plan").Val(); n != 0 {
			t.Error("the plan stands")
		}
	}
}

// Who closes in the middle of a batch ends it: a resize, or another set of lists, would be refused
// where half of one stood.
func TestIngressCloseEndsItsBatch(t *testing.T) {
	b := newInbox(t, redistest.New(t), 8)
	b.learn()
	client := b.another(false)
	pushing, closing := make(chan struct{}), make(chan struct{})
	var once sync.Once
	client.AddHook(&scripted{before: func(sha string, _ []redis.Cmder) error {
		if sha == pushScript.Hash() {
			once.Do(func() { close(pushing) })
			<-closing
		}
		return nil
	}})
	b.push(inboxLine("ann", 0), inboxLine("bob", 1))
	s, err := b.start(client, 1)
	if err != nil {
		t.Fatal(err)
	}
	stop := s.stop
	s.stop = sync.OnceFunc(func() { stop(); close(closing) })
	<-pushing
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.arrived(2)
	if n := b.client.Exists(t.Context(), "{"+b.unit.List+"}:plan").Val(); n != 0 {
		t.Error("the plan stands")
	}
	if n := b.client.LLen(t.Context(), b.unit.List).Val(); n != 0 {
		t.Errorf("%d lines of the batch are in the list", n)
	}
}

// Who loses the ownership while it closes ends no batch: nothing more is sent than what is under way.
func TestIngressCloseBreaksOffItsBatch(t *testing.T) {
	b := newInbox(t, redistest.New(t), 8)
	b.learn()
	client := b.another(false)
	pushing, aborted := make(chan struct{}), make(chan struct{})
	var once sync.Once
	client.AddHook(&scripted{before: func(sha string, _ []redis.Cmder) error {
		if sha == pushScript.Hash() {
			once.Do(func() { close(pushing) })
			<-aborted
		}
		return nil
	}})
	b.push(inboxLine("ann", 0), inboxLine("bob", 1))
	s, err := b.start(client, 1)
	if err != nil {
		t.Fatal(err)
	}
	abort := s.abort
	open := sync.OnceFunc(func() { close(aborted) })
	s.abort = func() { abort(); open() }
	<-pushing
	ctx, lose := context.WithCancel(t.Context())
	closed := make(chan error)
	go func() { closed <- s.Close(ctx) }()
	lose()
	select {
	case err := <-closed:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for its batch")
		open()
		<-closed
	}
	if n := b.client.LLen(t.Context(), b.unit.List).Val(); n != 2 {
		t.Errorf("%d lines are in the list, want 2", n)
	}
}

// A list that is filled by RPUSH is read from its other end, also where it is longer than a batch.
func TestIngressLongListFromTheLeft(t *testing.T) {
	bothInboxes(t, 4, func(t *testing.T, b *inbox) {
		b.unit.Oldest = Left
		const n = 3 * firstBatch
		for i := range n {
			b.push(inboxLine(fmt.Sprint(i%7), i))
		}
		b.open(1)
		b.arrived(n)
		b.exactlyOnceInOrder(n)
	})
}

// Lines are taken off late, after they were read again and before the plan is asked for: they are not pushed once more, at
// the positions of what comes after them.
func TestIngressTrimBetweenReadAndPlan(t *testing.T) {
	b := newInbox(t, redistest.New(t), 4)
	b.learn()
	var late []redis.Cmder
	arrived := false
	client := b.another(false)
	client.AddHook(&scripted{before: func(sha string, cmds []redis.Cmder) error {
		switch {
		case sha == ingressTrimScript.Hash() && late == nil:
			late = again(cmds[:1])
			return errNetwork
		case sha == ingressPlanScript.Hash() && late != nil && !arrived:
			arrived = true
			return b.client.Process(context.Background(), late[0])
		}
		return nil
	}})
	var lines []string
	for i := range 20 {
		lines = append(lines, inboxLine(fmt.Sprint(i), i))
	}
	b.push(lines...)
	s, err := b.start(client, 1)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return b.client.LLen(t.Context(), b.unit.List).Val() == 0 })
	b.push(inboxLine("20", 20))
	b.eachOnce(21)
	s.stop()
	<-s.ended
	if !arrived {
		t.Error("nothing came late")
	}
}

// A plan is for the lines at its base: one that arrives after they are gone is void.
func TestIngressLatePlan(t *testing.T) {
	b := newInbox(t, redistest.New(t), 4)
	b.learn()
	var late []redis.Cmder
	client := b.another(false)
	client.AddHook(&scripted{before: func(sha string, cmds []redis.Cmder) error {
		if sha == ingressPlanScript.Hash() && late == nil {
			late = again(cmds)
			return errNetwork
		}
		return nil
	}})
	s, err := b.start(client, 1)
	if err != nil {
		t.Fatal(err)
	}
	b.push(inboxLine("ann", 0), inboxLine("bob", 1))
	b.arrived(2)
	s.stop()
	<-s.ended
	b.push(inboxLine("ann", 2), inboxLine("bob", 3))
	for _, c := range late {
		if err := b.client.Process(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.start(b.another(false), 2); err != nil {
		t.Fatal(err)
	}
	b.arrived(4)
	b.exactlyOnceInOrder(4)
}

// A trim is for the lines at its base: one that arrives late, when a plan for equal
// lines stands, takes nothing.
func TestIngressLateTrim(t *testing.T) {
	b := newInbox(t, redistest.New(t), 4)
	b.learn()
	equal := inboxLine("ann", 0)
	var late []redis.Cmder
	step := 0
	died := make(chan struct{})
	client := b.another(false)
	client.AddHook(&scripted{
		before: func(sha string, cmds []redis.Cmder) error {
			switch {
			case sha == ingressTrimScript.Hash() && step == 0:
				late, step = again(cmds[:1]), 1
				return errNetwork
			case sha == pushScript.Hash() && step == 2: // the second batch is planned
				step = 3
				if err := b.client.Process(context.Background(), late[0]); err != nil {
					t.Error(err)
				}
				close(died)
			}
			if step == 3 {
				return errNetwork
			}
			return nil
		},
		after: func(sha string, _ []redis.Cmder) error {
			if sha == ingressTrimScript.Hash() && step == 1 {
				step = 2
				b.push(equal) // the next batch: as many lines as the first, and the same; it is what ends the wait
			}
			return nil
		},
	})
	b.push(equal)
	s, err := b.start(client, 1)
	if err != nil {
		t.Fatal(err)
	}
	<-died
	s.stop()
	<-s.ended
	if _, err := b.start(b.another(false), 2); err != nil {
		t.Fatal(err)
	}
	b.arrived(1)
	b.differentIDs(2)
}

// A move arrives once more when an equal line stands where its own was: it is at another base.
func TestIngressLateMove(t *testing.T) {
	b := newInbox(t, redistest.New(t), 1)
	equal := inboxLine("ann", 0)
	var late []redis.Cmder
	step := 0
	client := b.another(true)
	client.AddHook(&scripted{
		before: func(sha string, cmds []redis.Cmder) error {
			switch {
			case sha == ingressMoveScript.Hash() && step == 0:
				late, step = again(cmds[:1]), 1
			case sha == ingressMoveScript.Hash() && step == 2:
				step = 3
				if err := client.Process(context.Background(), late[0]); err != nil {
					t.Error(err)
				}
			}
			return nil
		},
		after: func(sha string, _ []redis.Cmder) error {
			if sha == ingressMoveScript.Hash() && step == 1 {
				step = 2
				b.push(equal)
			}
			return nil
		},
	})
	b.learn()
	b.push(equal)
	if _, err := b.start(client, 1); err != nil {
		t.Fatal(err)
	}
	b.arrived(2)
	b.differentIDs(2)
}

// Lines leave the list only after every target has answered, whatever the others did.
func TestIngressTrimsLast(t *testing.T) {
	b := newInbox(t, redistest.New(t), 4)
	b.learn()
	var refused atomic.Int64
	client := b.another(false)
	client.AddHook(&scripted{before: func(sha string, cmds []redis.Cmder) error {
		if sha == pushScript.Hash() && refused.Load() < 3 {
			refused.Add(1)
			// One target hears nothing and the others answer.
			cmds[0].SetErr(errNetwork)
			for _, c := range cmds[1:] {
				if err := b.client.Process(context.Background(), c); err != nil {
					t.Error(err)
				}
			}
			if n := b.client.LLen(context.Background(), b.unit.List).Val(); n != 8 {
				t.Errorf("%d lines are left before every target answered", n)
			}
			return errPartial
		}
		return nil
	}})
	var lines []string
	for i := range 8 {
		lines = append(lines, inboxLine(fmt.Sprint(i), i))
	}
	b.push(lines...)
	if _, err := b.start(client, 1); err != nil {
		t.Fatal(err)
	}
	b.arrived(8)
	b.exactlyOnceInOrder(8)
	if refused.Load() != 3 {
		t.Errorf("refused %d times", refused.Load())
	}
}

// errPartial is returned by a hook that has set the answers itself.
var errPartial = errors.New("answers are set")

// Nothing is pushed before the plan was answered to stand, however often it is lost:
// the next owner would know nothing of it.
func TestIngressPlansFirst(t *testing.T) {
	b := newInbox(t, redistest.New(t), 4)
	b.learn()
	var lost, pushed atomic.Int64
	client := b.another(false)
	client.AddHook(&scripted{before: func(sha string, _ []redis.Cmder) error {
		switch {
		case sha == ingressPlanScript.Hash() && lost.Add(1) <= 3:
			return errNetwork
		case sha == pushScript.Hash():
			pushed.Add(1)
			if b.client.Exists(context.Background(), "{"+b.unit.List+"}:plan").Val() == 0 {
				t.Error("pushed while no plan stands")
			}
		}
		return nil
	}})
	b.push(inboxLine("ann", 0), inboxLine("bob", 1))
	if _, err := b.start(client, 1); err != nil {
		t.Fatal(err)
	}
	b.arrived(2)
	if lost.Load() <= 3 || pushed.Load() == 0 {
		t.Errorf("%d plans were sent, and %d pushes", lost.Load(), pushed.Load())
	}
}
