package sourcetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
)

// The suite is worth what it finds: each breach is a source that breaks one
// promise, and the clauses that must notice.
type breach struct {
	name string
	red  []string // clauses
	with func(b *bench) hooks
}

// A bench is the store that a breach works on, and what its peers share behind the
// suite's back.
type bench struct {
	t     testing.TB
	store *memsource.Store
	h     *Harness // a breach may change it

	mu   sync.Mutex
	last map[partition.ID]*inner // who opened last
	note map[string]int          // whatever the breach counts
	when map[partition.ID]int    // opens
}

// Hooks stand in for the methods of a source; a nil one is the method itself.
type hooks struct {
	layout func(cfg partition.Config) partition.Config
	open   func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error)
	fetch  func(ctx context.Context, s *inner, limit int) ([]sources.Task, error)
	settle func(ctx context.Context, s *inner, done []sources.Settlement) error
	close  func(ctx context.Context, s *inner) error
	// line says that the peer's faults hit the hooks, not the calls of the source
	// under them.
	line bool
}

// inner is the healthy stream under a broken one.
type inner struct {
	sources.Stream
	b      *bench
	src    sources.Source
	g      partition.Grant // as the suite knows it
	tok    partition.Token
	mu     sync.Mutex
	hand   []sources.Task // fetched and not settled
	ended  map[sources.Receipt]bool
	closed bool
	turn   chan struct{}
}

type broken struct {
	b    *bench
	src  sources.Source
	hook hooks
	line *Line
}

func (b *broken) Layout(ctx context.Context) (partition.Config, error) {
	cfg, err := b.src.Layout(ctx)
	if b.hook.layout != nil {
		cfg = b.hook.layout(cfg)
	}
	return cfg, err
}

// told is the context that a hook is told: what comes late over a line does not depend on its sender's.
func (b *broken) told(ctx context.Context) context.Context {
	if b.line == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// do sends a call over the breach's own line, if it has one.
func (b *broken) do(op Op, call func() error) error {
	if b.line == nil {
		return call()
	}
	answer := make(chan error, 1)
	if err := b.line.Do(func() { answer <- call() }, op); err != nil {
		return err
	}
	return <-answer
}

func (b *broken) Open(ctx context.Context, g partition.Grant, tok partition.Token) (sources.Stream, error) {
	var st sources.Stream
	err := b.do(Open, func() (err error) {
		open := b.hook.open
		if open == nil {
			open = func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
				return src.Open(ctx, g, tok)
			}
		}
		st, err = open(b.told(ctx), b.src, g, tok)
		return err
	})
	if err != nil {
		return nil, err
	}
	in := &inner{Stream: st, b: b.b, src: b.src, g: g, tok: tok, ended: make(map[sources.Receipt]bool), turn: make(chan struct{}, 1)}
	b.b.mu.Lock()
	defer b.b.mu.Unlock()
	b.b.last[g.ID] = in
	return &brokenStream{inner: in, broken: b}, nil
}

type brokenStream struct {
	*inner
	broken *broken
}

func (s *brokenStream) Fetch(ctx context.Context, limit int) (tasks []sources.Task, err error) {
	fetch := s.broken.hook.fetch
	if fetch == nil {
		fetch = func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
			return s.Stream.Fetch(ctx, limit)
		}
	}
	err = s.broken.do(Fetch, func() (err error) { tasks, err = fetch(ctx, s.inner, limit); return err })
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hand = append(s.hand, tasks...)
	return tasks, nil
}

func (s *brokenStream) Settle(ctx context.Context, done ...sources.Settlement) error {
	err := s.broken.do(Settle, func() error {
		if s.broken.hook.settle != nil {
			return s.broken.hook.settle(s.broken.told(ctx), s.inner, done)
		}
		return s.Stream.Settle(ctx, done...)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range done {
		if d.Outcome != sources.Retry {
			s.ended[d.Task.Receipt] = true
			s.hand = slices.DeleteFunc(s.hand, func(t sources.Task) bool { return t.Receipt == d.Task.Receipt })
		}
	}
	return err
}

func (s *brokenStream) Close(ctx context.Context) error {
	err := s.broken.do(Close, func() error {
		if s.broken.hook.close != nil {
			return s.broken.hook.close(s.broken.told(ctx), s.inner)
		}
		return s.Stream.Close(ctx)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = s.closed || err == nil
	return err
}

// newest is who opened the partition last, through a stream of its own under that
// token.
func (b *bench) newest(ctx context.Context, src sources.Source, id partition.ID) (sources.Stream, error) {
	b.mu.Lock()
	in := b.last[id]
	b.mu.Unlock()
	return src.Open(ctx, in.g, in.tok)
}

// harness is that of the reference with the breach in it.
func (b breach) harness(t testing.TB) Harness {
	h, store := memory(t)
	bn := &bench{t: t, store: store, h: &h, last: make(map[partition.ID]*inner), note: make(map[string]int), when: make(map[partition.ID]int)}
	hook := b.with(bn)
	peer := h.Peer
	h.Peer = func() Peer {
		p := peer()
		src := &broken{b: bn, src: p.Source, hook: hook}
		p.Source = src
		if hook.line {
			src.line = new(Line)
			p.Inject = src.line.Inject
		}
		return p
	}
	return h
}

// A recorder is a test that may fail.
type recorder struct {
	testing.TB
	mu      sync.Mutex
	failure string
	skipped bool
}

func (r *recorder) fail(msg string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == "" {
		r.failure = msg
	}
}

func (r *recorder) Helper()                      {}
func (r *recorder) Logf(string, ...any)          {}
func (r *recorder) Errorf(f string, args ...any) { r.fail(fmt.Sprintf(f, args...)) }
func (r *recorder) Fatalf(f string, args ...any) { r.fail(fmt.Sprintf(f, args...)); runtime.Goexit() }
func (r *recorder) Skipf(string, ...any)         { r.skipped = true; runtime.Goexit() }
func (r *recorder) Failed() bool                 { r.mu.Lock(); defer r.mu.Unlock(); return r.failure != "" }

// verdict runs a clause against a harness and returns how it failed, if it did.
func verdict(t *testing.T, c clause, newHarness func(t testing.TB) Harness) (failure string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.check(newScene(r, newHarness(t)))
		}()
		<-done
		if r.skipped {
			t.Errorf("%q was skipped", c.name)
		}
		failure = r.failure
	})
	return failure
}

func TestReference(t *testing.T) {
	reference := breach{with: func(b *bench) hooks { return cancelling(b, false, false, false) }}
	for _, c := range clauses() {
		if f := verdict(t, c, reference.harness); f != "" {
			t.Errorf("%q fails on the reference: %s", c.name, f)
		}
	}
}

func TestBreachesAreFound(t *testing.T) {
	all := clauses()
	proved := make(map[string]bool)
	for _, b := range breaches() {
		t.Run(b.name, func(t *testing.T) {
			for _, red := range b.red {
				i := slices.IndexFunc(all, func(c clause) bool { return c.name == red })
				if i < 0 {
					t.Fatalf("there is no clause %q", red)
				}
				proved[red] = true
				f := verdict(t, all[i], b.harness)
				if f == "" {
					t.Errorf("%q does not notice", red)
				}
				t.Logf("%q: %s", red, f)
			}
		})
	}
	for _, c := range all {
		if !proved[c.name] && !strings.Contains(c.name, "seed") {
			t.Errorf("no breach shows that %q can fail", c.name)
		}
	}
}

// What would wait for ever is found by the first clauses, and told in their words: the others would hold up the
// suite until the test's own time is over.
func TestWhatHangsIsFoundFirst(t *testing.T) {
	for op, with := range map[Op]func(hang func()) hooks{
		Open: func(hang func()) hooks {
			return hooks{open: func(context.Context, sources.Source, partition.Grant, partition.Token) (sources.Stream, error) {
				hang()
				return nil, ErrKilled
			}}
		},
		Fetch: func(hang func()) hooks {
			return hooks{fetch: func(context.Context, *inner, int) ([]sources.Task, error) { hang(); return nil, ErrKilled }}
		},
		Settle: func(hang func()) hooks {
			return hooks{settle: func(context.Context, *inner, []sources.Settlement) error { hang(); return nil }}
		},
		Close: func(hang func()) hooks {
			return hooks{close: func(context.Context, *inner) error { hang(); return nil }}
		},
		"layout": func(hang func()) hooks {
			return hooks{layout: func(cfg partition.Config) partition.Config { hang(); return cfg }}
		},
	} {
		t.Run(string(op), func(t *testing.T) {
			for _, c := range basics() {
				r := new(recorder)
				synctest.Test(t, func(t *testing.T) {
					r.TB = t
					release := make(chan struct{})
					t.Cleanup(func() { close(release) }) // the last one
					hangs := breach{with: func(*bench) hooks { return with(func() { <-release }) }}
					clause := make(chan struct{})
					go func() { defer close(clause); c.check(newScene(r, hangs.harness(t))) }()
					<-clause
				})
				if r.failure != "" {
					if !strings.Contains(r.failure, string(op)) || !strings.Contains(r.failure, "has not returned") {
						t.Errorf("of what does not return %q said %q", c.name, r.failure)
					}
					return
				}
			}
			t.Error("none of the first clauses notices")
		})
	}
}

// A writer of a source reads what a clause waited for, and for how long: "deadline exceeded" alone says neither.
func TestATaskThatDoesNotComeIsTold(t *testing.T) {
	second := breach{with: func(*bench) hooks {
		var came atomic.Bool
		return hooks{fetch: func(ctx context.Context, s *inner, _ int) ([]sources.Task, error) {
			if came.Swap(true) {
				<-ctx.Done()
				return nil, &sources.Error{Op: "fetch", Grant: s.g, Err: ctx.Err()}
			}
			return s.Stream.Fetch(ctx, 1)
		}}
	}}
	all := clauses()
	i := slices.IndexFunc(all, func(c clause) bool { return c.name == "fetch keeps the order of the log" })
	f := verdict(t, all[i], second.harness)
	for _, want := range []string{"[t0]", "of 10 tasks that may start", "after 30s", "fetch 0@1", "deadline exceeded"} {
		if !strings.Contains(f, want) {
			t.Errorf("of a task that does not come the suite says %q, without %q", f, want)
		}
	}
}

// A source that hands out one task at a time, and takes its time for it, breaks no promise.
func TestASlowSourcePasses(t *testing.T) {
	RunSynctest(t, func(t *testing.T) Harness {
		return breach{with: func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, _ int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, 1)
				if err == nil {
					time.Sleep(400 * time.Millisecond) // of the bubble
				}
				return tasks, err
			}}
		}}.harness(t)
	})
}

// A source that hands out nothing more until some of what it has handed out is settled breaks no promise, as long as it
// can be told as many outcomes at once as a clause of its own asks for.
func TestASourceWithAWindowPasses(t *testing.T) {
	const window = 120
	RunSynctest(t, func(t *testing.T) Harness {
		return breach{with: func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				for {
					s.mu.Lock()
					room := window - len(s.hand)
					s.mu.Unlock()
					if room > 0 {
						return s.Stream.Fetch(ctx, min(limit, room))
					}
					select {
					case <-ctx.Done():
						return nil, &sources.Error{Op: "fetch", Grant: s.g, Err: ctx.Err()}
					case <-time.After(time.Millisecond): // of the bubble
					}
				}
			}}
		}}.harness(t)
	})
}

// A source that makes a dead letter of what keeps killing its owners only when it reads that far, beside what it hands
// out, breaks no promise.
func TestASourceThatBuriesLatePasses(t *testing.T) {
	late := breach{with: func(b *bench) hooks {
		dead := b.h.Dead
		b.h.Dead = func(ctx context.Context, id partition.ID) ([]DeadLetter, error) {
			if b.note["fetched"] < 3 { // by the owner that finds it dead, which has the other two to do
				return nil, nil
			}
			return dead(ctx, id)
		}
		return hooks{
			open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
				b.note["fetched"] = 0
				return src.Open(ctx, g, tok)
			},
			fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				b.note["fetched"]++
				return s.Stream.Fetch(ctx, limit)
			},
		}
	}}
	all := clauses()
	i := slices.IndexFunc(all, func(c clause) bool { return strings.HasPrefix(c.name, "a task that keeps killing its owner") })
	if f := verdict(t, all[i], late.harness); f != "" {
		t.Error(f)
	}
}

// A panic in a call is one of the clause, so that go test names it and cleans up, and FailNow there is not waited for.
func TestWhatEndsACallEndsItsClause(t *testing.T) {
	for want, end := range map[string]func(){"settle 0@1: own fault\n": func() { panic("own fault") }, "<nil>": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			r := &recorder{TB: t}
			ends := breach{with: func(*bench) hooks {
				return hooks{settle: func(context.Context, *inner, []sources.Settlement) error { end(); return nil }}
			}}
			h := ends.harness(t)
			began, clause := time.Now(), make(chan any)
			go func() {
				defer func() { clause <- recover() }()
				settleNothing(newScene(r, h))
				t.Error("the clause goes on")
			}()
			if why := fmt.Sprint(<-clause); !strings.HasPrefix(why, want) || r.failure != "" || time.Since(began) != 0 {
				t.Errorf("after %v it panicked with %s, and said %q", time.Since(began), why, r.failure)
			}
		})
	}
}

func TestAHarnessOfUnknownWordsIsRefused(t *testing.T) {
	h, _ := memory(t)
	h.Lacks = []Ability{CountCrashes, "count crashes"}
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { defer close(done); newScene(r, h) }()
	<-done
	if !strings.Contains(r.failure, `"count crashes"`) {
		t.Errorf("of an ability that nothing has the name of was said %q", r.failure)
	}
}

// Where one clause goes red for mistakes of two kinds it says which one was made.
func TestWhatIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		clause, want string
		with         func(b *bench) hooks
	}{
		"a push writes over one that came meanwhile": {
			"what is pushed side by side is all handed out", "nor to a new owner", func(b *bench) hooks {
				push := b.h.Push
				b.h.Push = func(ctx context.Context, id partition.ID, tasks ...sources.Task) error {
					b.mu.Lock()
					b.note["pushes"]++
					mine := b.note["pushes"]
					b.mu.Unlock()
					time.Sleep(time.Millisecond) // of the bubble: others come meanwhile
					b.mu.Lock()
					defer b.mu.Unlock()
					if mine < b.note["pushes"] {
						return nil
					}
					return push(ctx, id, tasks...)
				}
				return hooks{}
			},
		},
		"a fetch passes a place whose task comes later": {
			"what is pushed side by side is all handed out", "came to a new owner: has a fetch read on", func(b *bench) hooks {
				return hooks{fetch: func(ctx context.Context, s *inner, limit int) (tasks []sources.Task, err error) {
					for len(tasks) == 0 && err == nil {
						tasks, err = s.Stream.Fetch(ctx, limit)
						tasks = slices.DeleteFunc(tasks, func(t sources.Task) bool { return s.g.Epoch == 1 && name(t) == "p3-7" })
					}
					return tasks, err
				}}
			},
		},
		"a harness whose fault hits what is read before a fence is installed": {
			"a request that comes late does come", "no Open", func(b *bench) hooks {
				peer := b.h.Peer
				b.h.Peer = func() Peer {
					p, line := peer(), new(Line)
					p.Source = b.store.Via(func(_ context.Context, op string, execute func()) error {
						if op == string(Open) {
							if err := line.Do(func() {}, Open); err != nil {
								return err
							}
						}
						return line.Do(execute, Op(op))
					})
					p.Inject = line.Inject
					return p
				}
				return hooks{}
			},
		},
		"a cursor that moves though its reply is lost": {
			"fetch, and the reply is lost", "fetch, said again since the reply is lost, when [t4 t5] had come of t0 to t3", func(*bench) hooks {
				return hooks{line: true}
			},
		},
		"an epoch that loses digits": {
			"a smaller epoch is refused and told which one stands", "open 0@999999, where 1099511627777 stands: got error <nil>", func(b *bench) hooks {
				return hooks{open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
					st, err := src.Open(ctx, g, tok)
					if err != nil && tok.Epoch == 999_999 {
						return src.Open(ctx, partition.Grant{ID: g.ID, Epoch: 1<<40 + 1}, partition.Token{Epoch: 1<<40 + 1, Session: b.last[g.ID].tok.Session})
					}
					return st, err
				}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := clauses()
			i := slices.IndexFunc(all, func(of clause) bool { return of.name == c.clause })
			if f := verdict(t, all[i], breach{with: c.with}.harness); !strings.Contains(f, c.want) {
				t.Errorf("it says %q, want %q", f, c.want)
			}
		})
	}
}
