package sourcetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

func settleBreaches() []breach {
	return []breach{
		{"settle stops at what was settled before", []string{"settle is idempotent"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				s.mu.Lock()
				n := slices.IndexFunc(done, func(d sources.Settlement) bool { return s.ended[d.Task.Receipt] })
				s.mu.Unlock()
				if n >= 0 {
					done = done[:n]
				}
				return s.Stream.Settle(ctx, done...)
			}}
		}},
		{"settle of a context that has ended is no error", []string{"a settle whose context has ended has settled or says so"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				if ctx.Err() == nil {
					return s.Stream.Settle(ctx, done...)
				}
				return nil
			}}
		}},
		{"only the first retry has a delay", []string{"a retried task keeps its place"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				done = slices.Clone(done)
				for i, d := range done {
					if d.Outcome == sources.Retry && d.Attempt > 1 {
						done[i].Delay = 0
					}
				}
				return s.Stream.Settle(ctx, done...)
			}}
		}},
		{"what waits for its delay waits in the process", []string{"a requeued task comes back after its delay"}, func(b *bench) hooks {
			return delays(b, func(*bench, partition.ID, sources.Task) {})
		}},
		{"a hand-over ends all delays", []string{"a requeued task comes back after its delay"}, func(b *bench) hooks {
			return delays(b, func(b *bench, id partition.ID, t sources.Task) { _ = b.store.PushTo(id, t) })
		}},
		{"a reason that is no text is refused", []string{"a reason may be any bytes"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				for _, d := range done {
					if !utf8.ValidString(d.Reason) {
						return errors.New("invalid byte sequence for encoding UTF8")
					}
				}
				return s.Stream.Settle(ctx, done...)
			}}
		}},
		{"a dead letter does not say when its task was born", []string{"a dead letter is whole and says why"}, func(b *bench) hooks {
			return letters(b, func(list []DeadLetter) {
				for i := range list {
					list[i].Task.Born = 0
				}
			})
		}},
		{"settle does nothing", []string{"what is settled does not come back"}, func(*bench) hooks {
			return hooks{settle: func(context.Context, *inner, []sources.Settlement) error { return nil }}
		}},
		{"requeue is an append, whatever was before", []string{
			"settle is idempotent", "an old receipt does not reach the new delivery",
			"settle, and the reply is lost", "settle, and the request comes late, while its owner works",
			"settle, and the request comes late, after its owner closed",
			"settle, and the request comes late, after the next owner opened",
		}, func(b *bench) hooks {
			return hooks{line: true, settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				done = slices.Clone(done)
				for i, d := range done {
					if d.Outcome == sources.Requeue {
						t := *d.Task
						own(&t).NotBefore = time.Now().Add(d.Delay)
						if err := b.store.PushTo(s.g.ID, t); err != nil {
							return err
						}
						done[i].Outcome = sources.Done
					}
				}
				return s.Stream.Settle(ctx, done...)
			}}
		}},
		{"settle goes by the task's name", []string{"an old receipt does not reach the new delivery"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				done = slices.Clone(done)
				s.mu.Lock()
				for i, d := range done {
					for _, t := range s.hand {
						if t.ID == d.Task.ID {
							done[i].Task = &t
						}
					}
				}
				s.mu.Unlock()
				return s.Stream.Settle(ctx, done...)
			}}
		}},
		{"a request takes a hundred outcomes", []string{"a settle of many tasks is of all of them"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				return s.Stream.Settle(ctx, done[:min(len(done), 100)]...)
			}}
		}},
		{"a dead letter says another number of runs than was told", []string{"a dead letter is whole and says why"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				done = slices.Clone(done)
				for i := range done {
					done[i].Attempt = 1
				}
				return s.Stream.Settle(ctx, done...)
			}}
		}},
		{"settle wants tasks", []string{"settling no task is fine"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				if len(done) == 0 {
					return errors.New("nothing to settle")
				}
				return s.Stream.Settle(ctx, done...)
			}}
		}},
		{"only the finished head of the log is stored", []string{
			"a hand-over brings exactly what was not settled", "what is settled stays settled over many hand-overs",
			"a day without a crash: every task is done once, in order, seed 1",
		}, func(*bench) hooks {
			said := make(map[sources.Receipt]sources.Settlement)
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				s.mu.Lock()
				hand := slices.Clone(s.hand)
				s.mu.Unlock()
				var now []sources.Settlement
				for _, d := range done {
					said[d.Task.Receipt] = d
				}
				for _, t := range hand {
					d, ok := said[t.Receipt]
					if !ok {
						break
					}
					now = append(now, d)
				}
				return s.Stream.Settle(ctx, now...)
			}}
		}},
		{"settle waits for fetch", []string{"settle overlaps fetch", "what a settle sets free wakes fetch"}, func(*bench) hooks {
			turn := func(ctx context.Context, s *inner, do func() error) error {
				select {
				case s.turn <- struct{}{}:
				case <-s.b.t.Context().Done():
					return s.b.t.Context().Err()
				}
				defer func() { <-s.turn }()
				return do()
			}
			return hooks{
				fetch: func(ctx context.Context, s *inner, limit int) (tasks []sources.Task, err error) {
					err = turn(ctx, s, func() (err error) { tasks, err = s.Stream.Fetch(ctx, limit); return err })
					return tasks, err
				},
				settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
					return turn(ctx, s, func() error { return s.Stream.Settle(ctx, done...) })
				},
			}
		}},
		{"a dead letter says why its first run failed", []string{"a dead letter is whole and says why"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				done = slices.Clone(done)
				for i, d := range done {
					if d.Outcome == sources.Dead {
						done[i].Reason = cmp.Or(d.Task.FirstError, d.Reason)
					}
				}
				return s.Stream.Settle(ctx, done...)
			}}
		}},
		{"a dead letter is cut", []string{"a dead letter is whole and says why"}, func(b *bench) hooks {
			return letters(b, func(list []DeadLetter) {
				for i, l := range list {
					list[i].Task.Payload = l.Task.Payload[:min(len(l.Task.Payload), 1<<20)]
				}
			})
		}},
		{"the key of a dead letter is cut", []string{"a dead letter is whole and says why"}, func(b *bench) hooks {
			return letters(b, func(list []DeadLetter) {
				for i, l := range list {
					list[i].Task.Key = l.Task.Key[:min(len(l.Task.Key), 255)]
				}
			})
		}},
		{"dead letters stand in the order of their places", []string{"dead letters stand in the order in which they were given up"}, func(b *bench) hooks {
			return letters(b, func(list []DeadLetter) {
				slices.SortFunc(list, func(l, m DeadLetter) int { return cmp.Compare(l.Task.ID, m.Task.ID) })
			})
		}},
		{"the newest dead letter comes first", []string{"dead letters stand in the order in which they were given up"}, func(b *bench) hooks {
			return letters(b, slices.Reverse[[]DeadLetter])
		}},
		{"runs are counted in a byte", []string{
			"the attempt only rises and the first error stays", "a requeued task goes behind the others", "a run that waited is no attempt",
		}, func(*bench) hooks {
			return runsIn(func(n int) int { return int(uint8(n)) })
		}},
		{"runs are counted in two bytes", []string{
			"the attempt only rises and the first error stays", "a requeued task goes behind the others", "a run that waited is no attempt",
		}, func(*bench) hooks {
			return runsIn(func(n int) int { return int(uint16(n)) })
		}},
		{"a retry goes to the end", []string{"a retried task keeps its place", "a retried task is kept by the caller"}, func(*bench) hooks {
			return hooks{settle: outcome(sources.Retry, sources.Requeue)}
		}},
		{"a retry is not stored", []string{"a retried task keeps its place", "a suspect that ended is none any more"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				done = slices.DeleteFunc(slices.Clone(done), func(d sources.Settlement) bool { return d.Outcome == sources.Retry })
				return s.Stream.Settle(ctx, done...)
			}}
		}},
		{"waits are not stored", []string{"a run that waited is no attempt"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				done = slices.Clone(done)
				for i := range done {
					done[i].Waits = 0
				}
				return s.Stream.Settle(ctx, done...)
			}}
		}},
		{"the last attempt said is the one kept", []string{"the attempt only rises and the first error stays"}, func(b *bench) hooks {
			return hooks{
				settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
					b.mu.Lock()
					for _, d := range done {
						b.note[name(*d.Task)] = d.Attempt
					}
					b.mu.Unlock()
					return s.Stream.Settle(ctx, done...)
				},
				fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
					tasks, err := s.Stream.Fetch(ctx, limit)
					b.mu.Lock()
					defer b.mu.Unlock()
					for i := range tasks {
						own(&tasks[i]).Attempt = b.note[name(tasks[i])] + 1
					}
					return tasks, err
				},
			}
		}},
		{"the last delay said is the one kept", []string{"the attempt only rises and the first error stays"}, func(b *bench) hooks {
			return hooks{
				settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
					b.mu.Lock()
					for _, d := range done {
						if d.Outcome == sources.Retry {
							b.note[name(*d.Task)] = int(time.Now().Add(d.Delay).UnixNano())
						}
					}
					b.mu.Unlock()
					return s.Stream.Settle(ctx, done...)
				},
				fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
					tasks, err := s.Stream.Fetch(ctx, limit)
					b.mu.Lock()
					defer b.mu.Unlock()
					for i := range tasks {
						if due, ok := b.note[name(tasks[i])]; ok && !tasks[i].NotBefore.IsZero() {
							own(&tasks[i]).NotBefore = time.Unix(0, int64(due))
						}
					}
					return tasks, err
				},
			}
		}},
		{"settle writes to the task", []string{"a retried task is kept by the caller"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				for _, d := range done {
					d.Task.Attempt = d.Attempt + 1
				}
				return s.Stream.Settle(ctx, done...)
			}}
		}},
		{"a requeued task stays where it is", []string{"a requeued task goes behind the others"}, func(b *bench) hooks {
			var again []sources.Task
			return hooks{
				settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
					for _, d := range done {
						if d.Outcome == sources.Requeue {
							t := *d.Task
							own(&t).Attempt++
							again = append(again, t)
						}
					}
					return outcome(sources.Requeue, sources.Retry)(ctx, s, done)
				},
				fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
					if len(again) > 0 {
						t := again[0]
						again = again[1:]
						return []sources.Task{t}, nil
					}
					return s.Stream.Fetch(ctx, limit)
				},
			}
		}},
		{"a requeued task comes back at once", []string{"a requeued task comes back after its delay"}, func(*bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				done = slices.Clone(done)
				for i := range done {
					done[i].Delay = 0
				}
				return s.Stream.Settle(ctx, done...)
			}}
		}},
	}
}

// letters is a source that does something with its dead letters.
func letters(b *bench, do func(list []DeadLetter)) hooks {
	dead := b.h.Dead
	b.h.Dead = func(ctx context.Context, id partition.ID) ([]DeadLetter, error) {
		list, err := dead(ctx, id)
		do(list)
		return list, err
	}
	return hooks{}
}

// runsIn is a source that keeps the numbers of runs as kept does.
func runsIn(kept func(n int) int) hooks {
	return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
		done = slices.Clone(done)
		for i, d := range done {
			done[i].Attempt, done[i].Waits = kept(d.Attempt), kept(d.Waits)
		}
		return s.Stream.Settle(ctx, done...)
	}}
}

// outcome settles with one outcome as if it were another.
func outcome(said, done sources.Outcome) func(context.Context, *inner, []sources.Settlement) error {
	return func(ctx context.Context, s *inner, list []sources.Settlement) error {
		list = slices.Clone(list)
		for i := range list {
			if list[i].Outcome == said {
				list[i].Outcome = done
			}
		}
		return s.Stream.Settle(ctx, list...)
	}
}

// delays is a source whose process keeps what waits for its delay, and does something with it at a close.
func delays(b *bench, atClose func(b *bench, id partition.ID, t sources.Task)) hooks {
	type wait struct {
		t     sources.Task
		timer *time.Timer
	}
	waits := make(map[*inner][]wait)
	return hooks{
		settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
			done = slices.Clone(done)
			for i, d := range done {
				if d.Outcome == sources.Requeue && d.Delay > 0 {
					done[i].Outcome = sources.Done
					t := *d.Task
					own(&t)
					waits[s] = append(waits[s], wait{t, time.AfterFunc(d.Delay, func() { _ = b.store.PushTo(s.g.ID, t) })})
				}
			}
			return s.Stream.Settle(ctx, done...)
		},
		close: func(ctx context.Context, s *inner) error {
			for _, w := range waits[s] {
				if w.timer.Stop() {
					atClose(b, s.g.ID, w.t)
				}
			}
			return s.Stream.Close(ctx)
		},
	}
}
