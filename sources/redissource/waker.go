package redissource

import (
	"context"
	_ "embed"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
)

//go:embed sweep.lua
var sweepSource string

var sweepScript = redis.NewScript(sweepSource)

const (
	// sweepEvery is how often the lists are looked at for pushes whose bell was
	// lost, and for a store that forgot. A bell is lost while the subscription is
	// broken, or when somebody pushes without ringing.
	sweepEvery = time.Second
	// listenFor is how long the subscription may be silent before a bell is rung
	// to hear whether it arrives; after twice as long it is made anew.
	listenFor = 15 * time.Second
	// trial is what such a bell says: nothing was pushed.
	trial = "?"
)

// A waker wakes the streams of one peer that wait at the end of their lists, so
// that an empty partition does not cost a poll each: producers ring a bell, and a
// slow sweep finds what rang nobody. On one node the sweep is one script over all
// lists that wait, every second. On a cluster their slots differ, and it is one list
// a second, in turn: the worst wake-up without a bell is as many seconds as there
// are open partitions.
//
// The sweep looks at the number of writes, too. After a fail-over a list may be as
// long as its owner knows it, with other tasks in it, or with an end lost that was
// settled beside it: an owner that has nothing to say would never hear of that.
//
// It runs while a stream is open.
type waker struct {
	client  redis.UniversalClient
	cancels *cancels

	mu      sync.Mutex
	streams map[string][]*stream // by the bell's channel
	deaf    bool                 // to cancellations: a channel is forbidden, and a refusal is of all that are asked for
	kick    chan struct{}
	silent  atomic.Pointer[redis.PubSub] // what has heard nothing for so long that the next sweep rings
	stop    context.CancelFunc
	ended   chan struct{}
}

// add starts to listen for s.
func (w *waker) add(s *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.streams) == 0 {
		w.streams, w.deaf = make(map[string][]*stream), false
		ctx, cancel := context.WithCancel(context.Background())
		w.kick, w.stop, w.ended = make(chan struct{}, 1), cancel, make(chan struct{})
		go w.run(ctx, w.kick, w.ended)
	}
	w.streams[s.keys.Bell] = append(w.streams[s.keys.Bell], s)
	nudge(w.kick)
}

// remove forgets s, and waits for the waker's goroutines if it was the last.
func (w *waker) remove(s *stream) {
	w.mu.Lock()
	bell := s.keys.Bell
	w.streams[bell] = slices.DeleteFunc(w.streams[bell], func(o *stream) bool { return o == s })
	if len(w.streams[bell]) == 0 {
		delete(w.streams, bell)
	}
	last, stop, ended := len(w.streams) == 0, w.stop, w.ended
	nudge(w.kick)
	w.mu.Unlock()
	if last {
		stop()
		<-ended
	}
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ring wakes the streams of a bell, with what it says.
func (w *waker) ring(bell, says string) {
	if bell == w.cancels.key {
		nudge(w.cancels.kick)
		return
	}
	w.mu.Lock()
	streams := slices.Clone(w.streams[bell])
	w.mu.Unlock()
	for _, s := range streams {
		s.ring(says)
	}
}

// bells returns the channels to be subscribed.
func (w *waker) bells() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	want := make(map[string]bool, len(w.streams)+1)
	if len(w.streams) > 0 && !w.deaf {
		want[w.cancels.key] = true
	}
	for bell := range w.streams {
		want[bell] = true
	}
	return want
}

// How long the waker waits before it subscribes again.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
)

// run keeps the subscription and sweeps. ctx ends with the last stream.
func (w *waker) run(ctx context.Context, kick, ended chan struct{}) {
	defer close(ended)
	var sweeper sync.WaitGroup
	sweeper.Go(func() { w.sweepEach(ctx) })
	sweeper.Go(func() { w.cancels.run(ctx) })
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		began := time.Now()
		w.subscribe(ctx, kick)
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		sleep(ctx, pause/2+rand.N(pause))
	}
	sweeper.Wait()
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// subscribe listens on one connection until it breaks or ctx ends.
func (w *waker) subscribe(ctx context.Context, kick chan struct{}) {
	ps := w.client.Subscribe(ctx)
	broken := make(chan struct{})
	var listener sync.WaitGroup
	defer listener.Wait()
	defer ps.Close() // makes the listener return
	listening := false
	have := make(map[string]bool)
	for {
		want := w.bells()
		var more, less []string
		for bell := range want {
			if !have[bell] {
				more = append(more, bell)
			}
		}
		for bell := range have {
			if !want[bell] {
				less = append(less, bell)
			}
		}
		if len(more) > 0 && ps.Subscribe(ctx, more...) != nil || len(less) > 0 && ps.Unsubscribe(ctx, less...) != nil {
			return
		}
		have = want
		if !listening && len(have) > 0 {
			listening = true
			listener.Go(func() {
				defer close(broken)
				w.listen(ctx, ps)
			})
		}
		select {
		case <-kick:
		case <-broken:
			return
		case <-ctx.Done():
			return
		}
	}
}

// listen rings for what is heard until the connection breaks or is closed.
func (w *waker) listen(ctx context.Context, ps *redis.PubSub) {
	asked := false
	for {
		m, err := ps.ReceiveTimeout(ctx, listenFor)
		var timeout net.Error
		switch {
		case err == nil:
			asked = false
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = true
			w.silent.Store(ps)
			continue
		case redisconfig.Forbidden(err):
			w.mu.Lock()
			w.deaf = true
			w.mu.Unlock()
			return
		default:
			return
		}
		switch m := m.(type) {
		case *redis.Message:
			if m.Payload == trial {
				continue
			}
			w.ring(m.Channel, m.Payload)
		case *redis.Subscription:
			// What was pushed before this rang nobody.
			if m.Kind == "subscribe" {
				w.ring(m.Channel, "")
			}
		}
	}
}

// sweepEach sweeps until ctx ends.
func (w *waker) sweepEach(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	var s sweep
	_, single := w.client.(*redis.Client)
	for turn := 0; ; turn++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s.idle = w.idle(s.idle[:0])
		idle := s.idle
		if len(idle) > 0 && !single {
			i := turn % len(idle)
			idle = idle[i : i+1]
		}
		// A server that left its cluster, or was cut off from the others, answers, and will never say anything
		// again. So a bell is rung where producers ring, by a call that is made anyway. Where none is, or nobody may
		// ring, the server is asked itself: a connection that is lost ends the silence.
		ps := w.silent.Swap(nil)
		if rang := s.look(ctx, w.client, idle, ps != nil); ps != nil && !rang {
			_ = ps.Ping(ctx)
		}
	}
}

type idler struct {
	s      *stream
	length int64 // of its list, as far as it knows
	writes int64 // of its log, at least
	// delayed says that it waits for a delayed task, by its own clock: the store's may be set, and makes it due then.
	delayed bool
}

// idle returns the streams that wait at the end of their lists, in a stable order, in the
// memory of idle, which is empty.
func (w *waker) idle(idle []idler) []idler {
	w.mu.Lock()
	for _, streams := range w.streams {
		for _, s := range streams {
			idle = append(idle, idler{s: s})
		}
	}
	w.mu.Unlock()
	all := idle
	idle = idle[:0]
	for _, i := range all {
		if i, ok := i.s.idle(); ok {
			idle = append(idle, i)
		}
	}
	clear(all[len(idle):])
	slices.SortFunc(idle, func(a, b idler) int { return int(a.s.Grant.ID) - int(b.s.Grant.ID) })
	return idle
}

// A sweep is the call that looks at lists. Its words and its memory serve for the next
// one too: who has nothing to do asks the same again and again.
type sweep struct {
	idle  []idler
	args  []any
	says  int     // where in args it is what a bell is to say
	of    []idler // whose keys are in args
	found []int64

	failed time.Time // when one that failed was told of
}

// look rings for those of the streams whose logs are not as they know them. If aloud, the first of the bells is rung at the
// server, too; rang says that it was.
func (s *sweep) look(ctx context.Context, client redis.UniversalClient, idle []idler, aloud bool) (rang bool) {
	s.ask(idle)
	if len(idle) == 0 {
		return false
	}
	says := ""
	if aloud {
		says = trial
	}
	s.args[s.says] = says
	text, err := client.Do(ctx, s.args...).Text()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		s.args[0], s.args[1] = "eval", sweepSource
		text, err = client.Do(ctx, s.args...).Text()
		s.args[0], s.args[1] = "evalsha", sweepScript.Hash()
	}
	if err != nil {
		// The ledger may be on a node that is there: nothing else would tell of one that is
		// not, for as long as nobody can push. A stream that is rung asks it until it answers,
		// and says so; one more a minute is enough.
		if now := time.Now(); now.Sub(s.failed) >= time.Minute {
			s.failed = now
			idle[0].s.ring("")
		}
		return false
	}
	if !s.read(text, len(idle)) {
		return false
	}
	for i := range idle {
		if s.found[2*i] != idle[i].length || s.found[2*i+1] < idle[i].writes {
			idle[i].s.ring("")
		}
	}
	return s.found[2*len(idle)] == 1
}

// ask makes the call's words.
func (s *sweep) ask(idle []idler) {
	if slices.EqualFunc(s.of, idle, func(was, i idler) bool { return was.s == i.s && was.delayed == i.delayed }) {
		return
	}
	clear(s.of)
	clear(s.args)
	s.of = append(s.of[:0], idle...)
	s.args = append(s.args[:0], "evalsha", sweepScript.Hash(), 0)
	for i := range idle {
		s.args = append(s.args, idle[i].s.keys.Pending)
	}
	for i := range idle {
		s.args = append(s.args, idle[i].s.keys.Fence)
	}
	for i := range idle {
		if idle[i].delayed {
			s.args = append(s.args, idle[i].s.keys.Delayed)
		}
	}
	s.args[2] = len(s.args) - 3
	s.args = append(s.args, len(idle), "")
	s.says = len(s.args) - 1
	for i := range idle {
		if idle[i].delayed {
			s.args = append(s.args, i+1)
		}
	}
}

// read reads two numbers for each of n lists, and whether a bell was rung.
func (s *sweep) read(text string, n int) (ok bool) {
	s.found = s.found[:0]
	for word := range strings.SplitSeq(text, " ") {
		x, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return false
		}
		s.found = append(s.found, x)
	}
	return len(s.found) == 2*n+1
}
