package redissource

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/progress"
)

// A fetched is what a Fetch returned.
type fetched struct {
	tasks []sources.Task
	err   error
}

// waiting has a Fetch wait at the end of the log, where the next push rings.
func (w *world) waiting(s *stream) <-chan fetched {
	w.t.Helper()
	got := make(chan fetched, 1)
	go func() {
		tasks, err := s.Fetch(w.t.Context(), 4)
		got <- fetched{tasks, err}
	}()
	eventually(w.t, func() bool {
		_, idle := s.idle()
		s.Mu.Lock()
		listens := s.rings > 0 // the first is for the subscription
		s.Mu.Unlock()
		return idle && listens && w.fence("w") == "1"
	})
	return got
}

// held keeps back what reads the list, until it is let go. read gets a value for each such request.
func (w *wire) held() (read <-chan struct{}, letGo func()) {
	came, gate := make(chan struct{}, 100), make(chan struct{})
	w.set(func(cmds []redis.Cmder, send func() error) error {
		if reads(cmds[0]) {
			came <- struct{}{}
			<-gate
		}
		return send()
	})
	return came, func() { close(gate) }
}

func (w *world) producer() *Producer {
	w.t.Helper()
	p, err := NewProducer(w.t.Context(), w.client, w.name, ProducerConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { p.Close(w.t.Context()) })
	return p
}

// An owner that waits at the end is told what was pushed: the task starts before the list was
// read. Nothing is said of it before.
func TestAnnouncedStartsUnread(t *testing.T) {
	w, line := newWired(t, Config{})
	s := w.open()
	got := w.waiting(s)
	read, letGo := line.held()
	if _, err := w.producer().Enqueue(t.Context(), Message{ID: "a", Key: "k", Type: "t", Payload: []byte("p"), Headers: map[string]string{"h": "v"}}); err != nil {
		t.Fatal(err)
	}
	f := <-got
	if f.err != nil || fmt.Sprint(idsOfTasks(f.tasks)) != "[a]" {
		t.Fatalf("fetched %v, %v", idsOfTasks(f.tasks), f.err)
	}
	if a := f.tasks[0]; a.Key != "k" || a.Type != "t" || string(a.Payload) != "p" || a.Headers["h"] != "v" || a.Attempt != 1 || a.Token != s.token || a.Receipt != 0 {
		t.Errorf("the task is %+v", a)
	}
	if h := w.fence("h"); h != "1" {
		t.Errorf("it runs, and the store knows of starts below %s", h)
	}
	settled := make(chan error, 1)
	go func() {
		settled <- s.Settle(t.Context(), sources.Settlement{Task: &f.tasks[0], Outcome: sources.Done, Attempt: 1})
	}()
	<-read
	select {
	case err := <-settled:
		t.Fatalf("it is settled before it was read: %v", err)
	default:
	}
	letGo()
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	if s.heard != "" {
		t.Error("what was heard is kept")
	}
	w.close(s)
	if b := w.fence("b"); b != "1" {
		t.Errorf("the base is %s", b)
	}
	w.empty(w.keys.Pending, w.keys.Done)
}

// What is announced while a trip is under way that reads the list is read by it, or by the
// next one: it is not missing where the list was read before it was pushed.
func TestAnnouncedUnderWay(t *testing.T) {
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprintf("the list is read before: %t", before), func(t *testing.T) {
			w, line := newWired(t, Config{})
			s := w.open()
			got, p := w.waiting(s), w.producer()
			came, gate := make(chan struct{}, 100), make(chan struct{})
			line.set(func(cmds []redis.Cmder, send func() error) (err error) {
				if !slices.ContainsFunc(cmds, reads) {
					return send()
				}
				if before {
					err = send()
				}
				came <- struct{}{}
				<-gate
				if !before {
					err = send()
				}
				return err
			})
			s.Mu.Lock()
			s.due = time.Now() // so it reads
			s.Mu.Unlock()
			s.Nudge()
			<-came
			if _, err := p.Enqueue(t.Context(), Message{ID: "a"}); err != nil {
				t.Fatal(err)
			}
			f := <-got
			if f.err != nil || fmt.Sprint(idsOfTasks(f.tasks)) != "[a]" {
				t.Fatalf("fetched %v, %v", idsOfTasks(f.tasks), f.err)
			}
			next := make(chan fetched, 1)
			go func() {
				tasks, err := s.Fetch(t.Context(), 4)
				next <- fetched{tasks, err}
			}()
			eventually(t, func() bool {
				s.Mu.Lock()
				defer s.Mu.Unlock()
				return s.Waits()
			})
			w.push("b", "c", "d")
			close(gate)
			n := <-next
			ids := []string{"b", "c", "d"}
			if n.err != nil || fmt.Sprint(idsOfTasks(n.tasks)) != fmt.Sprint(ids[:len(n.tasks)]) {
				t.Fatalf("fetched %v, %v", idsOfTasks(n.tasks), n.err)
			}
			w.done(s, append(f.tasks, append(n.tasks, w.fetch(s, 4, ids[len(n.tasks):]...)...)...)...)
			w.close(s)
			w.empty(w.keys.Pending, w.keys.Done)
		})
	}
}

// Who is told of a task asks for the next bell when it reads it, although nobody waits by then.
func TestAnnouncedAsksForABell(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	s := w.open()
	got := w.waiting(s)
	if _, err := w.producer().Enqueue(t.Context(), Message{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	f := <-got
	eventually(t, func() bool {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		return s.Log.Read() == 1
	})
	if fmt.Sprint(idsOfTasks(f.tasks)) != "[a]" || w.fence("w") != "1" {
		t.Errorf("fetched %v, %v; it asks for a bell: %q", idsOfTasks(f.tasks), f.err, w.fence("w"))
	}
	if _, err := w.producer().Enqueue(t.Context(), Message{ID: "b"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		return !s.atEnd // it has heard
	})
	s.Mu.Lock()
	announced := s.Log.Announced()
	s.Mu.Unlock()
	if announced != progress.None {
		t.Error("it takes in a task that nobody waits for")
	}
	w.done(s, append(f.tasks, w.fetch(s, 1, "b")...)...)
}

// A handler that breaks the rule and writes to its payload spoils only that.
func TestAnnouncedPayloadIsWrittenTo(t *testing.T) {
	w, line := newWired(t, Config{})
	s := w.open()
	got := w.waiting(s)
	read, letGo := line.held()
	if _, err := w.producer().Enqueue(t.Context(), Message{ID: "a", Payload: []byte("payload")}); err != nil {
		t.Fatal(err)
	}
	f := <-got
	if fmt.Sprint(idsOfTasks(f.tasks)) != "[a]" {
		t.Fatalf("fetched %v, %v", idsOfTasks(f.tasks), f.err)
	}
	<-read
	clear(f.tasks[0].Payload)
	letGo()
	if err := s.Settle(t.Context(), sources.Settlement{Task: &f.tasks[0], Outcome: sources.Done, Attempt: 1}); err != nil {
		t.Error(err)
	}
}

// What has come to the list without a bell, and was not read, is no suspect after a crash,
// whatever is pushed behind it: the wish for a bell stands since before it came.
func TestAnnouncedBehindWhatIsUnread(t *testing.T) {
	w := newWorld(t, redistest.New(t), Config{})
	s := w.open()
	got := w.waiting(s)
	for i := range 9 {
		e := envelope{born: w.born, id: fmt.Sprint(i)}
		if err := w.client.ZAdd(t.Context(), w.keys.Delayed, redis.Z{Member: appendEnvelope(nil, &e)}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s.Mu.Lock()
	s.due = time.Now()
	s.Mu.Unlock()
	s.Nudge()
	if f := <-got; fmt.Sprint(idsOfTasks(f.tasks)) != "[0 1 2 3]" || w.fence("w") != "1" {
		t.Fatalf("fetched %v, %v; it waits for a bell: %q", idsOfTasks(f.tasks), f.err, w.fence("w"))
	}
	if _, err := w.producer().Enqueue(t.Context(), Message{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	w.crash(s)
	if w.open(); w.fence("s") != "4" {
		t.Errorf("the suspects are below %s, want 4: no more was started", w.fence("s"))
	}
}

// An owner that ends does not leave behind what it was told and has done.
func TestAnnouncedIsSettledByTheLastWord(t *testing.T) {
	w, line := newWired(t, Config{})
	s := w.open()
	got := w.waiting(s)
	read, letGo := line.held()
	if _, err := w.producer().Enqueue(t.Context(), Message{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	f := <-got
	<-read
	s.Mu.Lock()
	_, err := s.Record(&sources.Settlement{Task: &f.tasks[0], Outcome: sources.Done, Attempt: 1}, f.tasks[0].Born.Time())
	s.Mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	letGo()
	w.close(s)
	if b := w.fence("b"); b != "1" {
		t.Errorf("the base is %s", b)
	}
}

// What a bell says is started only if it is said to this owner, of the next position, and can
// be read; everything else is a bell like any other.
func TestBellThatAnnouncesNothing(t *testing.T) {
	ok := string(appendEnvelope(nil, &envelope{id: "x", born: 1}))
	for what, says := range map[string]string{
		"another's":        "1:another 0 " + ok,
		"of a later owner": "2:s1 0 " + ok,
		"a position ahead": "1:s1 1 " + ok,
		"no position":      "1:s1 - " + ok,
		"no envelope":      "1:s1 0 ",
		"half a bell":      "1:s1 0",
		"a unique one":     "1:s1 0 " + string(appendEnvelope(nil, &envelope{id: "x", born: 1, unique: true})),
		"one that crashed": "1:s1 0 " + string(appendEnvelope(nil, &envelope{id: "x", born: 1, crashes: 1})),
	} {
		t.Run(what, func(t *testing.T) {
			w, line := newWired(t, Config{})
			s := w.open()
			got := w.waiting(s)
			read, letGo := line.held()
			w.client.Publish(t.Context(), w.keys.Bell, says)
			<-read // it was heard: the list is looked at
			s.Mu.Lock()
			announced := s.Log.Announced()
			s.Mu.Unlock()
			if announced != progress.None {
				t.Error("it is believed")
			}
			letGo()
			w.push("a")
			w.client.Publish(t.Context(), w.keys.Bell, "")
			if f := <-got; f.err != nil || fmt.Sprint(idsOfTasks(f.tasks)) != "[a]" {
				t.Errorf("fetched %v, %v", idsOfTasks(f.tasks), f.err)
			}
		})
	}
}

// A bell that is heard before the answer of a trip that asked for one may be for what that trip
// did not read any more: the list is read again, although the answer says that it had ended.
func TestBellBeforeTheAnswer(t *testing.T) {
	w, line := newWired(t, Config{})
	s := w.open()
	got := w.waiting(s)
	read, gate := make(chan struct{}, 100), make(chan struct{})
	line.set(func(cmds []redis.Cmder, send func() error) error {
		err := send()
		if slices.ContainsFunc(cmds, reads) {
			read <- struct{}{}
			<-gate
		}
		return err
	})
	s.Mu.Lock()
	s.due = time.Now() // so it reads
	heard := s.rings
	s.Mu.Unlock()
	s.Nudge()
	<-read
	w.client.Publish(t.Context(), w.keys.Bell, "")
	eventually(t, func() bool {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		return s.rings > heard
	})
	close(gate)
	eventually(t, func() bool { return len(read) > 0 }) // no sweep looks for it: the list is as long as it was
	w.push("a")
	w.client.Publish(t.Context(), w.keys.Bell, "")
	if f := <-got; f.err != nil || fmt.Sprint(idsOfTasks(f.tasks)) != "[a]" {
		t.Errorf("fetched %v, %v", idsOfTasks(f.tasks), f.err)
	}
}

// What is pushed after the list was read, and before the script asks for a bell, rings nobody: the
// script finds that the list is longer, and it is read again.
func TestPushBeforeTheWishForABell(t *testing.T) {
	w, line := newWired(t, Config{})
	s := w.open()
	got := w.waiting(s)
	first := sync.Once{}
	line.set(func(cmds []redis.Cmder, send func() error) error {
		if c, ok := cmds[0].(*redis.Cmd); ok && c.Args()[1] == sweepScript.Hash() {
			c.SetVal("0 9") // the sweep finds nothing
			return nil
		}
		i := slices.IndexFunc(cmds, reads)
		before := false
		if i >= 0 {
			first.Do(func() { before = true })
		}
		if !before {
			return send()
		}
		w.push("a")
		err := send()
		cmds[i].(*redis.StringSliceCmd).SetVal(nil) // as it was before the push
		return err
	})
	s.Mu.Lock()
	s.due = time.Now() // so it reads
	s.Mu.Unlock()
	s.Nudge()
	select {
	case f := <-got:
		if f.err != nil || fmt.Sprint(idsOfTasks(f.tasks)) != "[a]" {
			t.Errorf("fetched %v, %v", idsOfTasks(f.tasks), f.err)
		}
	case <-time.After(20 * time.Second):
		t.Error("nobody reads it")
	}
}

// Who was told of a task that the store does not have, or has no longer, says nothing of what
// stands in its place: the store fell back to before the push.
func TestAnnouncedIsNotThere(t *testing.T) {
	for _, instead := range []string{"", "b"} {
		t.Run("instead: "+instead, func(t *testing.T) {
			w, line := newWired(t, Config{})
			s := w.open()
			got := w.waiting(s)
			read, letGo := line.held()
			w.client.Publish(t.Context(), w.keys.Bell, "1:s1 0 "+string(appendEnvelope(nil, &envelope{id: "a", born: 1})))
			f := <-got
			if fmt.Sprint(idsOfTasks(f.tasks)) != "[a]" {
				t.Fatalf("fetched %v, %v", idsOfTasks(f.tasks), f.err)
			}
			<-read
			if instead != "" {
				w.push(instead)
			}
			letGo()
			err := s.Settle(t.Context(), sources.Settlement{Task: &f.tasks[0], Outcome: sources.Done, Attempt: 1})
			if !errors.Is(err, sources.ErrForgot) {
				t.Errorf("settled: %v", err)
			}
			if n := w.client.LLen(t.Context(), w.keys.Pending).Val(); n != int64(len(instead)) {
				t.Errorf("%d tasks are left, want %d", n, len(instead))
			}
		})
	}
}

// push.lua says to the owner that waits what it pushes, if that is one task of a size that a
// bell carries, and only to an owner whose fence is whole.
func TestPushAnnounces(t *testing.T) {
	whole := map[string]any{"w": "1", "t": "7:s", "b": "10", "h": "12", "n": "3"}
	without := func(field string) map[string]any {
		m := maps.Clone(whole)
		delete(m, field)
		return m
	}
	unread := maps.Clone(whole)
	unread["h"] = "11"
	ahead := maps.Clone(whole)
	ahead["h"] = "20"
	for what, c := range map[string]struct {
		fence  map[string]any
		bodies []string
		said   string // "none": nobody was rung
		h      string
	}{
		"one":                      {whole, []string{"x y"}, "7:s 12 x y", "13"},
		"two, known to start":      {map[string]any{"w": "1", "t": "7:s", "b": "10", "h": "20"}, []string{"x", "y"}, "", "20"},
		"two":                      {whole, []string{"x", "y"}, "", "12"},
		"two below the gate":       {ahead, []string{"x", "y"}, "", "20"},
		"as large as may":          {whole, []string{strings.Repeat("x", 4096)}, "7:s 12 " + strings.Repeat("x", 4096), "13"},
		"larger":                   {whole, []string{strings.Repeat("x", 4097)}, "", "12"},
		"nobody waits":             {without("w"), []string{"x"}, "none", "12"},
		"nobody's":                 {without("t"), []string{"x"}, "", "12"},
		"without a base":           {without("b"), []string{"x"}, "", "12"},
		"without its gate":         {without("h"), []string{"x"}, "", ""},
		"behind what was not read": {unread, []string{"x"}, "", "11"},
	} {
		ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
		k := KeysOf(name, 0)
		client.RPush(ctx, k.Pending, "first", "second")
		client.HSet(ctx, k.Fence, c.fence)
		sub := client.Subscribe(ctx, k.Bell)
		if _, err := sub.Receive(ctx); err != nil {
			t.Fatal(err)
		}
		var words []pushWord
		for _, b := range c.bodies {
			words = append(words, pushWord{body: b})
		}
		head := pushHead{era: 1, first: 1, last: int64(len(words)), total: 1}
		if got := runPush(t, client, name, head, words); got != "OK " {
			t.Errorf("%s: the answer is %q", what, got)
		}
		client.Publish(ctx, k.Bell, "none")
		m, err := sub.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m.Payload != c.said {
			t.Errorf("%s: the bell says %.50q, want %.50q", what, m.Payload, c.said)
		}
		if h := client.HGet(ctx, k.Fence, "h").Val(); h != c.h {
			t.Errorf("%s: starts are known below %q, want %q", what, h, c.h)
		}
		if log := client.LRange(ctx, k.Pending, 2, -1).Val(); !slices.Equal(log, c.bodies) {
			t.Errorf("%s: the log is %.50q", what, log)
		}
		sub.Close()
	}
}

// A start that the store knows already is not taken back by a bell.
func TestPushAnnouncesBelowTheGate(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	k := KeysOf(name, 0)
	client.HSet(ctx, k.Fence, "w", "1", "t", "7:s", "b", "10", "h", "15")
	runPush(t, client, name, pushHead{era: 1, first: 1, last: 1, total: 1}, []pushWord{{body: "x"}})
	if h := client.HGet(ctx, k.Fence, "h").Val(); h != "15" {
		t.Errorf("starts are known below %s, want 15", h)
	}
}

// A line that is moved alone is announced to the owner of its partition.
func TestIngressAnnounces(t *testing.T) {
	bothInboxes(t, 1, func(t *testing.T, b *inbox) {
		for lines, want := range []string{1: "7:s 0 ", 2: ""} {
			if lines == 0 {
				continue
			}
			b.name = redistest.Name(t) + fmt.Sprint(lines)
			b.unit.List = b.name + ":inbox"
			k := KeysOf(b.name, 0)
			sub := b.client.Subscribe(t.Context(), k.Bell)
			if _, err := sub.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.client.HSet(t.Context(), k.Fence, "w", "1", "t", "7:s", "b", "0", "h", "5")
			for n := range lines {
				b.push(inboxLine("ann", n))
			}
			b.open(1)
			m, err := sub.ReceiveMessage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			element := b.client.LIndex(t.Context(), k.Pending, 0).Val()
			if want != "" {
				want += element
			}
			if m.Payload != want {
				t.Errorf("%d lines: the bell says %q, want %q", lines, m.Payload, want)
			}
			sub.Close()
		}
	})
}
