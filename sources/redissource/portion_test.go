package redissource

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
)

// slow is a connection on which a request or an answer of clearly more than readBytes does not
// arrive in the time.
type slow struct{ missed *int }

func (slow) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return s.late([]redis.Cmder{cmd}, next(ctx, cmd))
	}
}

func (s slow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return s.late(cmds, next(ctx, cmds)) }
}

func (s slow) late(cmds []redis.Cmder, err error) error {
	bytes, sent := 0, 0
	for _, cmd := range cmds {
		for _, arg := range cmd.Args() {
			body, _ := arg.([]byte)
			sent += len(body)
		}
		switch cmd := cmd.(type) {
		case *redis.StringSliceCmd:
			for _, v := range cmd.Val() {
				bytes += len(v)
			}
		case *redis.ZSliceCmd:
			for _, z := range cmd.Val() {
				v, _ := z.Member.(string)
				bytes += len(v)
			}
		case *redis.SliceCmd:
			for _, v := range cmd.Val() {
				text, _ := v.(string)
				bytes += len(text)
			}
		case *redis.MapStringStringCmd:
			for _, v := range cmd.Val() {
				bytes += len(v)
			}
		}
	}
	if max(bytes, sent) <= readBytes+2<<20 {
		return err
	}
	*s.missed++
	for _, cmd := range cmds {
		cmd.SetErr(os.ErrDeadlineExceeded)
	}
	return os.ErrDeadlineExceeded
}

// newSlowWorld returns a world whose client misses what is large, and how often it has.
func newSlowWorld(t *testing.T) (*world, *int) {
	client, missed := redistest.New(t), new(int)
	client.AddHook(slow{missed})
	return newWorld(t, client, Config{}), missed
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// heavy are tasks of a megabyte each, more of them than arrive in the time.
func heavy() (all []envelope) {
	payload := make([]byte, 1<<20)
	for i := range readBytes>>20 + 6 {
		all = append(all, envelope{id: fmt.Sprint("t", i), key: fmt.Sprint("k", i), born: 1, payload: payload})
	}
	return all
}

// Who asks for more than can be read in the time asks for less, and has all in the end.
func TestStreamReadsWhatItCan(t *testing.T) {
	w, missed := newSlowWorld(t)
	client, all, ctx := w.client, heavy(), t.Context()
	for _, e := range all {
		if err := client.RPush(ctx, w.keys.Pending, appendEnvelope(nil, &e)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := w.open()
	for n := 0; n < len(all); {
		tasks, err := s.Fetch(ctx, len(all))
		if err != nil {
			t.Fatalf("after %d tasks and %d answers that were late: %v", n, *missed, err)
		}
		n += len(tasks)
	}
	if *missed == 0 {
		t.Error("nothing was late: the test shows nothing")
	}
}

// What is large is moved, and shown to people, a few at a time.
func TestResizeReadsWhatItCan(t *testing.T) {
	w, missed := newSlowWorld(t)
	client, all, ctx := w.client, heavy(), t.Context()
	must(t, w.open().Close(ctx))
	must(t, client.HSet(ctx, w.keys.Fence, "b", len(all), "h", len(all)).Err())
	for i, e := range all {
		body := appendEnvelope(nil, &e)
		must(t, client.HSet(ctx, w.keys.Lifted, fmt.Sprint(i), body).Err())
		must(t, client.RPush(ctx, w.keys.Pending, body).Err())
		must(t, client.RPush(ctx, w.keys.Dead, encodeLetter(&letter{position: int64(i), body: string(body)})).Err())
		must(t, client.ZAdd(ctx, w.keys.Delayed, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: body}).Err())
	}
	if got, err := Resize(ctx, client, w.name, 2, ResizeConfig{Idle: idle}); err != nil ||
		got.Tasks != 2*len(all) || got.Dead != len(all) || got.Delayed != len(all) {
		t.Errorf("%+v, %v", got, err)
	}
	shown := 0
	if err := DeadLetters(ctx, client, w.name, []partition.ID{0, 1}, func(DeadLetter) bool { shown++; return true }); err != nil || shown != len(all) {
		t.Errorf("%d of %d dead letters are shown: %v", shown, len(all), err)
	}
	if *missed > 0 {
		t.Errorf("%d answers were late", *missed)
	}
}

// What is light says nothing of what comes after it: who asks for too much asks for less, and nothing
// of what came too late counts.
func TestPagesOfDifferentWeight(t *testing.T) {
	w, missed := newSlowWorld(t)
	client, large, ctx := w.client, heavy(), t.Context()
	must(t, w.open().Close(ctx))
	var all []envelope
	for i := range 32 {
		all = append(all, envelope{id: fmt.Sprint("s", i), key: fmt.Sprint("k", i), born: 1})
	}
	all = append(all, large...)
	for i, e := range all {
		body := appendEnvelope(nil, &e)
		if i < len(large) {
			must(t, client.HSet(ctx, w.keys.Lifted, fmt.Sprint(i), appendEnvelope(nil, &large[i])).Err())
		}
		must(t, client.RPush(ctx, w.keys.Pending, body).Err())
		must(t, client.RPush(ctx, w.keys.Dead, encodeLetter(&letter{position: int64(i), body: string(body)})).Err())
		must(t, client.ZAdd(ctx, w.keys.Delayed, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli() + int64(i)), Member: body}).Err())
	}
	must(t, client.HSet(ctx, w.keys.Fence, "b", len(large), "h", len(large)).Err())
	shown := make(map[string]int)
	err := DeadLetters(ctx, client, w.name, []partition.ID{0}, func(d DeadLetter) bool { shown[d.ID]++; return true })
	if err != nil || len(shown) != len(all) {
		t.Errorf("%d of %d dead letters are shown: %v", len(shown), len(all), err)
	}
	for id, n := range shown {
		if n != 1 {
			t.Errorf("the dead letter %s is shown %d times", id, n)
		}
	}
	if open, err := Peek(ctx, client, w.name, 0, 0); err != nil || len(open) != len(large)+len(all) {
		t.Errorf("%d of %d open tasks are shown: %v", len(open), len(large)+len(all), err)
	}
	var moving int
	for _, dry := range []bool{true, false} {
		got, err := Resize(ctx, client, w.name, 2, ResizeConfig{DryRun: dry, Idle: idle})
		if err != nil || got.Tasks != len(large)+len(all) || got.Dead != len(all) || got.Delayed != len(all) || !dry && got.Moving != moving {
			t.Errorf("dry %v: %+v, %v; want %d and %d tasks, and %d to move", dry, got, err, len(large), len(all), moving)
		}
		moving = got.Moving
	}
	if *missed == 0 {
		t.Error("nothing was late: the test shows nothing")
	}
}

// Only what may weigh too much is asked for again.
func TestWhatIsLate(t *testing.T) {
	for _, c := range []struct {
		n     int
		err   error
		again bool
	}{
		{5, nil, false}, {5, errNetwork, false}, {5, os.ErrDeadlineExceeded, true}, {2, fmt.Errorf("read: %w", os.ErrDeadlineExceeded), true},
		{1, os.ErrDeadlineExceeded, false},
	} {
		p := unweighed
		if got := p.late(c.n, c.err); got != c.again || got && p.of(100) != c.n/2 {
			t.Errorf("%d elements, %v: again %v, %d of them", c.n, c.err, got, p.of(100))
		}
	}
}
