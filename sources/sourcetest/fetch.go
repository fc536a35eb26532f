package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

func layout(s *scene) {
	if err := s.layout.Validate(); err != nil {
		s.Errorf("%v", err)
	}
	ctx, cancel := s.soon()
	defer cancel()
	again, err := s.peer().Source.Layout(ctx)
	if err != nil {
		s.Fatalf("layout: %v", err)
	}
	if again.Total != s.layout.Total || again.Hash != s.layout.Hash || again.UnitsHash() != s.layout.UnitsHash() {
		s.Errorf("one peer has the layout %+v and another %+v", s.layout, again)
	}
}

func fetchOrder(s *scene) {
	tasks := s.tasks(here, "t", 40)
	s.push(here, tasks[:10]...)
	o := s.owner(here)
	got := o.take(10)
	s.push(here, tasks[10:]...)
	got = append(got, o.take(30)...)
	s.expect("fetch", got, names(tasks)...)
	for _, t := range got {
		if t.Attempt != 1 || t.Crashes != 0 || t.FirstError != "" || t.NotBefore.After(time.Now()) {
			s.Errorf("%s never ran and says attempt %d, crashes %d, first error %q, not before %v", name(t), t.Attempt, t.Crashes, t.FirstError, t.NotBefore)
		}
	}
}

func fetchLimit(s *scene) {
	tasks := s.tasks(here, "t", 12)
	s.push(here, tasks...)
	o := s.owner(here)
	var got []sources.Task
	for _, limit := range []int{1, 3, 2, 5} {
		ctx, cancel := s.soon()
		some, err := o.fetch(ctx, limit) // checks the limit
		cancel()
		if err != nil {
			s.Fatalf("fetch: %v", err)
		}
		got = append(got, some...)
	}
	got = append(got, o.take(len(tasks)-len(got))...)
	s.expect("fetch", got, names(tasks)...)

	const most = 1024 // framework.Consumer asks for no more at once
	s.push(here, s.tasks(here, "u", 1)...)
	ctx, cancel := s.soon()
	defer cancel()
	some, err := o.fetch(ctx, most)
	if err != nil {
		s.Fatalf("fetch of up to %d tasks: %v; a source that cannot give so many at once gives fewer", most, err)
	}
	s.expect("fetch", some, "u0")
}

// fetched is what a Fetch on another goroutine returned.
type fetched struct {
	tasks []sources.Task
	err   error
}

// fetching starts a Fetch that may wait.
func (o *owner) fetching(ctx context.Context, limit int) <-chan fetched {
	answer := make(chan fetched, 1)
	go func() {
		tasks, err := o.fetch(ctx, limit)
		answer <- fetched{tasks, err}
	}()
	return answer
}

// waits watches a Fetch that has to wait, so that it surely does.
func (s *scene) waits(answer <-chan fetched) {
	s.Helper()
	select {
	case a := <-answer:
		s.Fatalf("fetch returned %v, %v, and nothing was pushed", names(a.tasks), a.err)
	case <-time.After(s.h.Moment):
	}
}

// In some rounds the Fetch surely waits when the task comes, in others the two meet
// somehow.
func fetchWaits(s *scene) {
	o := s.owner(here)
	for i, task := range s.tasks(here, "t", 20) {
		ctx, cancel := s.soon()
		answer := o.fetching(ctx, 5)
		if i < 3 {
			s.waits(answer)
		}
		s.push(here, task)
		a := <-answer
		cancel()
		if a.err != nil {
			s.Fatalf("fetch while %s was pushed: %v", task.ID, a.err)
		}
		s.expect("fetch", a.tasks, task.ID)
		o.end(sources.Done, a.tasks...)
	}
}

func fetchEnds(s *scene) {
	o := s.owner(here)
	ctx, cancel := context.WithCancel(s.Context())
	answer := o.fetching(ctx, 1)
	cancel()
	if a := <-answer; !errors.Is(a.err, context.Canceled) {
		s.Fatalf("fetch of a cancelled context: got %v, %v, want context.Canceled", names(a.tasks), a.err)
	}
	o.nothing("nothing was pushed") // and a deadline is as good
	task := s.tasks(here, "t", 1)
	s.push(here, task...)
	s.expect("fetch afterwards", o.take(1), task[0].ID)
}

// The trap is a source that reads ahead on behalf of the call and drops what came
// just as the context ended.
func fetchEndsEmpty(s *scene) {
	o := s.owner(here)
	for _, task := range s.tasks(here, "t", 30) {
		ctx, cancel := context.WithCancel(s.Context())
		answer := o.fetching(ctx, 1)
		go cancel()
		s.push(here, task)
		a := <-answer
		if a.err != nil {
			s.expect("fetch after one that ended", o.take(1), task.ID)
		} else {
			s.expect("fetch", a.tasks, task.ID)
		}
	}
}

func fetchOnce(s *scene) {
	s.push(here, s.tasks(here, "t", 6)...)
	o := s.owner(here)
	got := o.take(6)
	o.nothing("everything was handed out")
	o.end(sources.Done, got[1], got[4])
	o.nothing("some of it was settled, the rest is with the caller")
	s.push(here, s.tasks(here, "u", 1)...)
	s.expect("fetch", o.take(1), "u0")
	o.nothing("everything was handed out")
}

// A handler, or a task that waits for its retry, may take longer than a broker waits for an ack.
func fetchNotAgain(s *scene) {
	if s.h.Redelivery == 0 {
		s.Skipf("the harness says of no Redelivery that the broker hands out by itself again what is not settled")
	}
	s.push(here, s.tasks(here, "t", 5)...)
	o := s.owner(here)
	got := o.take(5)
	o.end(sources.Retry, got[3]) // and it waits
	long := 3 * s.h.Redelivery
	ctx, cancel := context.WithTimeout(s.Context(), long)
	defer cancel()
	if again, err := o.fetch(ctx, 100); !errors.Is(err, context.DeadlineExceeded) {
		s.Fatalf("fetch returned %v, %v, want nothing: the caller has had them all for less than %v", names(again), err, long)
	}
	s.push(here, s.tasks(here, "u", 1)...)
	s.expect("fetch", o.take(1), "u0")
	o.end(sources.Done, got[0], got[3])
	o.close()
	rest := s.owner(here).take(4)
	s.expect("the next owner", rest, "t1", "t2", "t4", "u0")
	for _, t := range rest {
		if t.Attempt != 1 || t.Crashes != 0 {
			s.Errorf("%s never ran and says attempt %d, crashes %d: a redelivery is no run", name(t), t.Attempt, t.Crashes)
		}
	}
}

// whereabouts tells, of tasks that their owner did not get, whether they are there.
func (s *scene) whereabouts(missing map[string]bool) string {
	next := s.owner(here)
	ctx, cancel := s.soon()
	defer cancel()
	for {
		tasks, err := next.fetch(ctx, 100)
		for _, t := range tasks {
			if missing[name(t)] {
				return fmt.Sprintf("%s came to a new owner: has a fetch read on past places whose tasks could be read only later?", name(t))
			}
		}
		if err != nil {
			return "nor to a new owner: has another push, or a settle, written over them what it had read before?"
		}
	}
}

// A place that is taken before its task can be read, as by a sequence of a database, is
// passed by a fetch that reads on from the last place it has seen.
func fetchBesidePushes(s *scene) {
	const producers, each = 8, 40
	o := s.owner(here)
	errs := make([]error, producers)
	missing := make(map[string]bool)
	var all sync.WaitGroup
	defer all.Wait() // also where a fetch fails
	for p := range producers {
		tasks := s.tasks(here, fmt.Sprint("p", p, "-"), each)
		for i := range tasks {
			tasks[i].Delivery = &sources.Delivery{}
			missing[name(tasks[i])] = true
		}
		all.Go(func() {
			for at := 0; at < each; { // of different numbers, so that they are not in step
				n := min(1+(p+at)%5, each-at)
				ctx, cancel := s.soon()
				errs[p] = errors.Join(errs[p], s.h.Push(ctx, here, tasks[at:at+n]...))
				cancel()
				at += n
			}
		})
	}
	var came []string
	for len(missing) > 0 {
		ctx, cancel := s.soon()
		got, err := o.fetch(ctx, 7)
		cancel()
		if err != nil {
			all.Wait()
			s.Fatalf("of %d tasks that were pushed side by side %d never came, as %s: %v; push: %v; %s",
				producers*each, len(missing), slices.Min(slices.Collect(maps.Keys(missing))), err, errors.Join(errs...), s.whereabouts(missing))
		}
		for _, t := range got {
			if !missing[name(t)] {
				s.Fatalf("fetch returned %s, which was not pushed or came before", name(t))
			}
			delete(missing, name(t))
			came = append(came, name(t))
		}
		o.end(sources.Done, got...) // some brokers hand out only so many that are not settled
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Fatalf("push: %v", err)
	}
	var last [producers]int
	for n, task := range came {
		var p, i int
		if _, err := fmt.Sscanf(task, "p%d-%d", &p, &i); err != nil {
			s.Fatalf("%v", err)
		}
		if i < last[p] {
			s.Errorf("%s came after p%d-%d, which the same producer had pushed after it: %v", task, p, last[p], came[:n+1])
		}
		last[p] = i
	}
}

func taskNamesGrant(s *scene) {
	s.push(here, s.tasks(here, "t", 5)...)
	o := s.owner(here)
	receipts := make(map[sources.Receipt]bool)
	for _, t := range o.take(5) {
		if t.Grant != o.g || t.Token != o.tok {
			s.Errorf("%s says grant %v and token %v, want %v and %v", name(t), t.Grant, t.Token, o.g, o.tok)
		}
		if receipts[t.Receipt] {
			s.Errorf("%s has a receipt that another task has, too", name(t))
		}
		receipts[t.Receipt] = true
	}
}

func taskIntact(s *scene) {
	binary := make([]byte, 512)
	for i := range binary {
		binary[i] = byte(i)
	}
	key := s.key(here, 0)
	const born sources.Moment = 1_700_000_000_123_000
	headers := map[string]string{"a": "", "": "b", "naïve": "line\nline\x00", "long": strings.Repeat("h", 5000)}
	tasks := []sources.Task{
		{ID: "plain", Key: key, Payload: []byte(`{"to":"ann"}`), Born: born},
		{ID: "empty", Key: key, Born: born},
		{ID: "binary", Key: key, Payload: binary, Born: born},
		{ID: "big", Key: key, Payload: s.largest(), Born: born},
		{ID: long, Type: long, Key: s.longKey(here), Payload: []byte("long"), Born: born},
		{ID: "id with \"quotes\", {braces}\r\n and \x00", Type: "a type, \n too; größer", Key: key, Payload: []byte("\x00\n"), Born: born},
		{ID: "headers", Type: "mail", Key: key, Payload: []byte("x"), Born: born, Delivery: &sources.Delivery{Headers: headers}},
		{ID: "headers of another", Key: key, Payload: []byte("z"), Born: born, Delivery: &sources.Delivery{Headers: map[string]string{"a": "other"}}},
		{ID: "unkeyed", Payload: []byte("y"), Born: born},
	}
	s.push(here, tasks...)
	for i, got := range s.owner(here).take(len(tasks)) {
		want := tasks[i]
		if !bytes.Equal(got.Payload, want.Payload) {
			s.Errorf("%.40q: the payload of %d bytes arrived changed, with %d", want.ID, len(want.Payload), len(got.Payload))
		}
		if !s.can(KeepBytes) {
			continue
		}
		if got.ID != want.ID || got.Type != want.Type || got.Key != want.Key {
			s.Errorf("%s: arrived as %s of type %s (want %s), key %s (want %s)",
				brief(want.ID), brief(got.ID), brief(got.Type), brief(want.Type), brief(got.Key), brief(want.Key))
		}
		if want.Delivery == nil && got.Headers != nil || want.Delivery != nil && !maps.Equal(got.Headers, want.Headers) {
			s.Errorf("%q: headers %q, want those that were pushed", want.ID, got.Headers)
		}
		if got.Born != want.Born {
			s.Errorf("%q: born %v, want %v", want.ID, got.Born, want.Born)
		}
	}
}

func partitionsApart(s *scene) {
	p := s.peer()
	a := s.ownerOn(p, here)
	ctx, cancel := s.soon()
	defer cancel()
	waiting := a.fetching(ctx, 10)
	s.waits(waiting)
	b := s.ownerOn(p, there)
	s.push(there, s.tasks(there, "b", 6)...)
	got := b.take(6)
	s.expect("fetch of one partition", got, "b0", "b1", "b2", "b3", "b4", "b5")
	b.end(sources.Done, got[:3]...)
	if s.can(RetryInPlace) { // else it may come behind b5
		b.end(sources.Retry, got[3])
	}
	s.push(here, s.tasks(here, "a", 6)...)
	answer := <-waiting
	if answer.err != nil {
		s.Fatalf("fetch of the other partition: %v", answer.err)
	}
	in := append(answer.tasks, a.take(6-len(answer.tasks))...)
	s.expect("fetch of the other partition", in, "a0", "a1", "a2", "a3", "a4", "a5")
	b.end(sources.Done, got[4]) // its receipt may well be that of a4, too
	a.end(sources.Done, in[5])
	b.close()
	a.close()
	s.expect("the next owner of one partition", s.owner(there).take(2), "b3", "b5")
	s.expect("the next owner of the other partition", s.owner(here).take(5), "a0", "a1", "a2", "a3", "a4")
}

// A peer is granted many partitions at once.
func opensAtOnce(s *scene) {
	p := s.peer()
	owners := make([]*owner, s.layout.Total)
	errs := make([]error, len(owners))
	var all sync.WaitGroup
	for i := range owners {
		g, tok := s.grant(partition.ID(i))
		owners[i] = &owner{s: s, peer: p, g: g, tok: tok}
		all.Go(func() { errs[i] = s.insist("open", owners[i].tryOpen) })
	}
	all.Wait()
	for i, o := range owners {
		if errs[i] != nil || o.stream == nil { // none: it had no answer, which is said already
			s.Fatalf("open %v beside the others: %v", o.g, errs[i])
		}
		id := partition.ID(i)
		s.push(id, s.tasks(id, fmt.Sprint("of-", id, "-"), 1)...)
	}
	for _, o := range owners {
		got := o.take(1)
		s.expect(fmt.Sprint("fetch of ", o.g), got, fmt.Sprint("of-", o.g.ID, "-0"))
		o.end(sources.Done, got...)
	}
}
