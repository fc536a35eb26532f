package sourcetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/memsource"
)

func ownerBreaches() []breach {
	// abandoned is called by Open for the stream before that was never closed.
	abandoned := func(b *bench, ctx context.Context, id partition.ID, do func(old *inner)) {
		b.mu.Lock()
		old := b.last[id]
		b.mu.Unlock()
		if old != nil && !old.closed {
			do(old)
		}
	}
	return []breach{
		{"close finishes what is in hand", []string{"close gives back in order"}, func(*bench) hooks {
			return hooks{close: func(ctx context.Context, s *inner) error {
				_ = s.Stream.Settle(ctx, settlements(sources.Done, s.hand...)...)
				return s.Stream.Close(ctx)
			}}
		}},
		{"close gives back, but to the end", []string{"close gives back in order"}, func(*bench) hooks {
			return hooks{close: func(ctx context.Context, s *inner) error {
				_ = s.Stream.Settle(ctx, settlements(sources.Requeue, s.hand...)...)
				return s.Stream.Close(ctx)
			}}
		}},
		{"close does nothing", []string{"closing is no crash", "a closed stream does nothing"}, func(*bench) hooks {
			return hooks{close: func(context.Context, *inner) error { return nil }}
		}},
		{"the tenth delivery is the last", []string{"closing is no crash"}, func(b *bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				b.mu.Lock()
				defer b.mu.Unlock()
				return slices.DeleteFunc(tasks, func(t sources.Task) bool {
					b.note[name(t)]++
					return b.note[name(t)] > 10
				}), err
			}}
		}},
		{"close does not look at its context", []string{"a close whose context has ended leaves the fence"}, func(*bench) hooks {
			return hooks{close: func(ctx context.Context, s *inner) error { return s.Stream.Close(context.WithoutCancel(ctx)) }}
		}},
		{"a goroutine outlives its stream", []string{"close leaves no goroutine"}, func(b *bench) hooks {
			return hooks{open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
				go func() { <-b.t.Context().Done() }()
				return src.Open(ctx, g, tok)
			}}
		}},
		{"a goroutine outlives an ownership that was lost", []string{noGoroutine}, func(b *bench) hooks {
			return runs(b, func(ctx context.Context, _ *inner) bool { return ctx.Err() == nil })
		}},
		{"a goroutine outlives an ownership that is another's", []string{noGoroutine}, func(b *bench) hooks {
			return runs(b, func(_ context.Context, s *inner) bool { return b.last[s.g.ID] == s })
		}},
		{"a goroutine outlives an open that was refused", []string{noGoroutine}, func(b *bench) hooks {
			return hooks{open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
				st, err := src.Open(ctx, g, tok)
				if err != nil {
					go func() { <-b.t.Context().Done() }()
				}
				return st, err
			}}
		}},
		{"what a dead owner had in hand is gone", []string{"a crash loses nothing", "a day with crashes: no task is lost, none is out of order, seed 1"}, func(b *bench) hooks {
			return hooks{open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
				abandoned(b, ctx, g.ID, func(old *inner) {
					if st, err := src.Open(ctx, old.g, old.tok); err == nil {
						_ = st.Settle(ctx, settlements(sources.Done, old.hand...)...)
					}
				})
				return src.Open(ctx, g, tok)
			}}
		}},
		{"a crash is taken for a hand-over", []string{
			"what was started at a crash is handed out alone",
			"a task that keeps killing its owner becomes a dead letter, and no other does",
		}, func(b *bench) hooks {
			return hooks{open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
				abandoned(b, ctx, g.ID, func(old *inner) {
					if st, err := src.Open(ctx, old.g, old.tok); err == nil && old.tok != tok {
						_ = st.Close(ctx)
					}
				})
				return src.Open(ctx, g, tok)
			}}
		}},
		{"all that was in flight is blamed", []string{
			"a task that keeps killing its owner becomes a dead letter, and no other does",
			"a suspect that ended is none any more",
			"a suspect is not charged if a retry may have run beside it",
			"a suspect that could not be handed out is not accused",
			"a fetch that comes late accuses nobody",
		}, func(b *bench) hooks {
			return hooks{
				open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
					abandoned(b, ctx, g.ID, func(old *inner) {
						for _, t := range old.hand {
							b.note[name(t)]++
						}
					})
					return src.Open(ctx, g, tok)
				},
				fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
					tasks, err := s.Stream.Fetch(ctx, limit)
					for i := range tasks {
						own(&tasks[i]).Crashes = b.note[name(tasks[i])]
					}
					return tasks, err
				},
			}
		}},
		{"what ran before is taken for a suspect", []string{"a suspect that went to the end is none any more"}, func(*bench) hooks {
			return hooks{fetch: blocked(func(hand []sources.Task) bool {
				return len(hand) > 1 && slices.ContainsFunc(hand, func(t sources.Task) bool { return t.Attempt > 1 })
			})}
		}},
		{"nothing passes what waits for its retry", []string{
			"what waits for its retry holds up nothing after a crash",
			"what waits for an hour holds up no suspect that waited for a moment",
		}, func(*bench) hooks {
			return hooks{fetch: blocked(func(hand []sources.Task) bool {
				return slices.ContainsFunc(hand[:len(hand)-1], func(t sources.Task) bool { return t.NotBefore.After(time.Now()) })
			})}
		}},
		{"what waits behind a retry is taken for one that runs", []string{"what waits behind a retry of its key holds up no suspect"}, func(*bench) hooks {
			return hooks{fetch: blocked(func(hand []sources.Task) bool {
				n := len(hand) - 1
				return hand[n].Grant.Epoch > 1 && name(hand[n]) == "t1" && slices.ContainsFunc(hand[:n], func(t sources.Task) bool { return name(t) == "t3" })
			})}
		}},
		{"nothing passes what was in flight", []string{"a suspect behind an open task of its key steps aside"}, func(*bench) hooks {
			return hooks{fetch: blocked(func(hand []sources.Task) bool { return hand[0].Grant.Epoch > 1 && len(hand) > 1 })}
		}},
		{"what kills its owners takes another task with it", []string{"a task that keeps killing its owner becomes a dead letter, and no other does"}, func(b *bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				killed := slices.ContainsFunc(b.store.Dead(s.g.ID), func(d memsource.DeadLetter) bool { return strings.Contains(d.Reason, "crashed") })
				b.mu.Lock()
				gone := killed && len(tasks) > 0 && b.note["gone"] == 0
				if gone {
					b.note["gone"]++
				}
				b.mu.Unlock()
				if !gone {
					return tasks, err
				}
				if err := s.Stream.Settle(ctx, settlements(sources.Done, tasks[0])...); err != nil {
					return nil, err
				}
				return s.Stream.Fetch(ctx, limit)
			}}
		}},
		{"a run that failed acquits", []string{"a crash that was charged stays charged"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				for i := range tasks {
					if tasks[i].Attempt > 1 {
						own(&tasks[i]).Crashes = 0
					}
				}
				return tasks, err
			}}
		}},
		{"a hand-over acquits", []string{"a crash that was charged stays charged"}, func(b *bench) hooks {
			return hooks{
				fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
					tasks, err := s.Stream.Fetch(ctx, limit)
					b.mu.Lock()
					defer b.mu.Unlock()
					for i := range tasks {
						if b.note["closed"] > 0 {
							own(&tasks[i]).Crashes = 0
						}
					}
					return tasks, err
				},
				close: func(ctx context.Context, s *inner) error {
					b.mu.Lock()
					b.note["closed"]++
					b.mu.Unlock()
					return s.Stream.Close(ctx)
				},
			}
		}},
		{"the head of the log is blamed for every crash", []string{"a crash while nothing was started blames nobody"}, func(b *bench) hooks {
			return hooks{
				open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
					abandoned(b, ctx, g.ID, func(*inner) { b.note["crashes"]++ })
					return src.Open(ctx, g, tok)
				},
				fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
					tasks, err := s.Stream.Fetch(ctx, limit)
					for i := range tasks {
						own(&tasks[i]).Crashes = b.note["crashes"]
					}
					return tasks, err
				},
			}
		}},
	}
}

// runs is a source whose streams have a goroutine, which a close ends only if ends says so.
func runs(b *bench, ends func(ctx context.Context, s *inner) bool) hooks {
	quits := make(map[partition.Token]chan struct{})
	return hooks{
		open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
			st, err := src.Open(ctx, g, tok)
			if err != nil {
				return nil, err
			}
			quit := make(chan struct{})
			b.mu.Lock()
			quits[tok] = quit
			b.mu.Unlock()
			go func() {
				select {
				case <-quit:
				case <-b.t.Context().Done():
				}
			}()
			return st, nil
		},
		close: func(ctx context.Context, s *inner) error {
			if quit := quits[s.tok]; quit != nil && ends(ctx, s) {
				close(quit)
				delete(quits, s.tok)
			}
			return s.Stream.Close(ctx)
		},
	}
}

// blocked is a fetch that waits if the caller, with what was fetched now, would have
// tasks that must not be together.
func blocked(together func(hand []sources.Task) bool) func(context.Context, *inner, int) ([]sources.Task, error) {
	return func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
		tasks, err := s.Stream.Fetch(ctx, min(limit, 1))
		if err == nil && together(append(slices.Clone(s.hand), tasks...)) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return tasks, err
	}
}

func faultBreaches() []breach {
	return []breach{
		{"requests do not have the context of their call", []string{
			"open, and no answer comes", "fetch, and no answer comes", "settle, and no answer comes", "close, and no answer comes",
		}, func(*bench) hooks {
			return hooks{
				open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
					return src.Open(context.WithoutCancel(ctx), g, tok)
				},
				fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
					return s.Stream.Fetch(context.WithoutCancel(ctx), limit)
				},
				settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
					return s.Stream.Settle(context.WithoutCancel(ctx), done...)
				},
				close: func(ctx context.Context, s *inner) error { return s.Stream.Close(context.WithoutCancel(ctx)) },
			}
		}},
		{"nobody notices that the store forgot", []string{"a store that lost what it answered is noticed"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				err := s.Stream.Settle(ctx, done...)
				if !errors.Is(err, sources.ErrForgot) {
					return err
				}
				st, err := s.src.Open(ctx, s.g, s.tok)
				if err != nil {
					return err
				}
				return st.Settle(ctx, done...)
			}}
		}},
		{"a settle that failed counts as settled", []string{"settle, and the request fails"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				if err := s.Stream.Settle(ctx, done...); errors.Is(err, sources.ErrFenced) {
					return err
				}
				return nil
			}}
		}},
		{"a late open goes by the context of its sender", []string{"a request that comes late does come"}, func(b *bench) hooks {
			peer := b.h.Peer
			b.h.Peer = func() Peer {
				p, line := peer(), new(Line)
				p.Source = b.store.Via(func(ctx context.Context, op string, execute func()) error {
					return line.Do(func() {
						if ctx.Err() == nil {
							execute()
						}
					}, Op(op))
				})
				p.Inject = line.Inject
				return p
			}
			return hooks{}
		}},
		{"a token is refused the second time, by a source that reads its configuration before its first open", []string{"open, and the reply is lost"}, func(b *bench) hooks {
			type opening struct{}
			peer := b.h.Peer
			b.h.Peer = func() Peer {
				p, line, read := peer(), new(Line), false
				p.Source = b.store.Via(func(ctx context.Context, op string, execute func()) error {
					tok, ok := ctx.Value(opening{}).(partition.Token)
					if !ok {
						return line.Do(execute, Op(op))
					}
					b.mu.Lock()
					defer b.mu.Unlock()
					if !read {
						if err := line.Do(func() {}, Open); err != nil {
							return err
						}
						read = true
					}
					if b.note[tok.String()]++; b.note[tok.String()] > 1 {
						return sources.ErrFenced
					}
					return line.Do(execute, Open)
				})
				p.Inject = line.Inject
				return p
			}
			return hooks{open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
				return src.Open(context.WithValue(ctx, opening{}, tok), g, tok)
			}}
		}},
		{"a configuration that could not be read is never read again", []string{"open, and the reply is lost", "open, and the request fails"}, func(b *bench) hooks {
			peer := b.h.Peer
			b.h.Peer = func() Peer {
				p, line := peer(), new(Line)
				read := sync.OnceValue(func() error { return line.Do(func() {}, Open) })
				p.Source = b.store.Via(func(_ context.Context, op string, execute func()) error {
					if op == string(Open) {
						if err := read(); err != nil {
							return err
						}
					}
					return line.Do(execute, Op(op))
				})
				p.Inject = line.Inject
				return p
			}
			return hooks{}
		}},
		{"an open that failed is not said again", []string{"open, and the reply is lost", "open, and the request fails"}, func(b *bench) hooks {
			return hooks{open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
				if b.note[tok.String()]++; b.note[tok.String()] > 1 {
					return nil, &sources.FencedError{Grant: g, Stored: g.Epoch}
				}
				return src.Open(ctx, g, tok)
			}}
		}},
		{"fetch takes for good", []string{
			"fetch, and the reply is lost", "fetch, and the request comes late, while its owner works",
			"fetch, and the request comes late, after the next owner opened",
		}, func(b *bench) hooks {
			return hooks{line: true, fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				st, err := b.newest(ctx, s.src, s.g.ID)
				if err != nil {
					return nil, err
				}
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Millisecond)
				defer cancel()
				tasks, err := st.Fetch(ctx, limit)
				if err == nil {
					err = st.Settle(ctx, settlements(sources.Done, tasks...)...)
				}
				return tasks, err
			}}
		}},
		{"what a closed stream fetches late is under suspicion", []string{"fetch, and the request comes late, after its owner closed"}, func(b *bench) hooks {
			return hooks{line: true, fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				if s.closed {
					b.note["crashes"]++
					return nil, sources.ErrClosed
				}
				tasks, err := s.Stream.Fetch(ctx, limit)
				for i := range tasks {
					own(&tasks[i]).Crashes = b.note["crashes"]
				}
				return tasks, err
			}}
		}},
		{"an open without a close is a crash", []string{"open, and the request comes late, after its owner closed"}, func(b *bench) hooks {
			return hooks{
				line: true,
				open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
					b.note["open"]++
					return src.Open(ctx, g, tok)
				},
				fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
					tasks, err := s.Stream.Fetch(ctx, limit)
					for i := range tasks {
						own(&tasks[i]).Crashes = b.note["open"] - 1
					}
					return tasks, err
				},
				close: func(ctx context.Context, s *inner) error {
					b.note["open"]--
					return s.Stream.Close(ctx)
				},
			}
		}},
		{"a fetch that failed is skipped", []string{"fetch, and the request fails"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				if err != nil {
					_, _ = s.Stream.Fetch(ctx, limit)
				}
				return tasks, err
			}}
		}},
		{"a close that failed counts as closed", []string{"close, and the request fails"}, func(*bench) hooks {
			return hooks{close: func(ctx context.Context, s *inner) error {
				_ = s.Stream.Close(ctx)
				return nil
			}}
		}},
		{"close works once", []string{"close, and the reply is lost"}, func(b *bench) hooks {
			return hooks{close: func(ctx context.Context, s *inner) error {
				if b.note[s.tok.String()]++; b.note[s.tok.String()] > 1 {
					return errors.New("closed already")
				}
				return s.Stream.Close(ctx)
			}}
		}},
		{"settle goes through whoever owns the partition", []string{"a settle that nobody repeated changes nothing after close"}, func(b *bench) hooks {
			return hooks{line: true, settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				st, err := b.newest(ctx, s.src, s.g.ID)
				if err != nil {
					return err
				}
				return st.Settle(ctx, done...)
			}}
		}},
	}
}
