package sourcetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

func breaches() []breach {
	return slices.Concat(fetchBreaches(), fenceBreaches(), settleBreaches(), cancelBreaches(), ownerBreaches(), faultBreaches())
}

func fetchBreaches() []breach {
	return []breach{
		{"the source keeps what it opens in a field", []string{"partitions are opened side by side"}, func(b *bench) hooks {
			var g partition.Grant
			var tok partition.Token
			return hooks{open: func(ctx context.Context, src sources.Source, of partition.Grant, with partition.Token) (sources.Stream, error) {
				b.mu.Lock()
				g, tok = of, with
				b.mu.Unlock()
				time.Sleep(time.Millisecond) // of the bubble: others come meanwhile
				b.mu.Lock()
				now, by := g, tok
				b.mu.Unlock()
				return src.Open(ctx, now, by)
			}}
		}},
		{"an open waits for the fetches of other partitions", []string{"partitions do not disturb each other"}, func(*bench) hooks {
			turn := make(chan struct{}, 1)
			return hooks{
				open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
					select {
					case turn <- struct{}{}:
						defer func() { <-turn }()
						return src.Open(ctx, g, tok)
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				},
				fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
					turn <- struct{}{}
					defer func() { <-turn }()
					return s.Stream.Fetch(ctx, limit)
				},
			}
		}},
		{"a receipt reaches the same place of other partitions", []string{"partitions do not disturb each other"}, func(b *bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				b.mu.Lock()
				others := maps.Clone(b.last)
				b.mu.Unlock()
				for id, other := range others {
					if id != s.g.ID {
						_ = other.Stream.Settle(ctx, done...)
					}
				}
				return s.Stream.Settle(ctx, done...)
			}}
		}},
		{"a task that ran has lost its headers", []string{"a task that comes again is whole"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				for i := range tasks {
					if tasks[i].Attempt > 1 {
						own(&tasks[i]).Headers = nil
					}
				}
				return tasks, err
			}}
		}},
		{"peers see different layouts", []string{"the layout is valid and the same for every peer"}, func(b *bench) hooks {
			return hooks{layout: func(cfg partition.Config) partition.Config {
				b.note["asked"]++
				cfg.Total += b.note["asked"]
				return cfg
			}}
		}},
		{"fetch ignores the limit", []string{"fetch returns at most the limit"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				return s.Stream.Fetch(ctx, limit+1)
			}}
		}},
		{"fetch returns the newest first", []string{"fetch keeps the order of the log"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				slices.Reverse(tasks)
				return tasks, err
			}}
		}},
		{"fetch says that there is nothing", []string{"fetch waits for a task"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				ctx, cancel := context.WithTimeout(ctx, time.Microsecond)
				defer cancel()
				tasks, err := s.Stream.Fetch(ctx, limit)
				if errors.Is(err, context.DeadlineExceeded) {
					return nil, nil
				}
				return tasks, err
			}}
		}},
		{"fetch does not look at its context", []string{"fetch ends with its context"}, func(b *bench) hooks {
			return hooks{fetch: func(_ context.Context, s *inner, limit int) ([]sources.Task, error) {
				return s.Stream.Fetch(b.t.Context(), limit)
			}}
		}},
		{"fetch drops what comes after its context has ended", []string{"a fetch that ended took nothing with it"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				if ctx.Err() != nil {
					late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Microsecond)
					defer cancel()
					_, _ = s.Stream.Fetch(late, limit)
					return nil, ctx.Err()
				}
				return tasks, err
			}}
		}},
		{"fetch returns again what is in hand", []string{"fetch returns a task once", "a retried task is kept by the caller"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				short, cancel := context.WithTimeout(ctx, time.Microsecond)
				defer cancel()
				tasks, err := s.Stream.Fetch(short, limit)
				s.mu.Lock()
				defer s.mu.Unlock()
				if errors.Is(err, context.DeadlineExceeded) && len(s.hand) > 0 {
					return s.hand[:1:1], nil
				}
				return tasks, err
			}}
		}},
		{"what is not settled in time comes again", []string{"what is in hand for long is not handed out again"}, func(*bench) hooks {
			fetched := make(map[*inner]time.Time)
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				if len(s.hand) == 0 {
					fetched[s] = time.Now()
				}
				short, cancel := context.WithDeadline(ctx, fetched[s].Add(redelivery))
				defer cancel()
				tasks, err := s.Stream.Fetch(short, limit)
				if len(s.hand) > 0 && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
					return s.hand[:1:1], nil
				}
				return tasks, err
			}}
		}},
		{"what is handed out again counts as a run", []string{"what is in hand for long is not handed out again"}, func(b *bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				began := time.Now()
				tasks, err := s.Stream.Fetch(ctx, limit)
				b.mu.Lock()
				defer b.mu.Unlock()
				if time.Since(began) > redelivery {
					b.note["again"]++
				}
				for i := range tasks {
					own(&tasks[i]).Attempt += b.note["again"]
				}
				return tasks, err
			}}
		}},
		{"an ack that comes after the broker's time has no effect", []string{"what is in hand for long is not handed out again"}, func(*bench) hooks {
			fetched := make(map[*inner]time.Time)
			return hooks{
				fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
					tasks, err := s.Stream.Fetch(ctx, limit)
					if fetched[s].IsZero() && err == nil {
						fetched[s] = time.Now()
					}
					return tasks, err
				},
				settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
					if time.Since(fetched[s]) > redelivery {
						return nil
					}
					return s.Stream.Settle(ctx, done...)
				},
			}
		}},
		{"a place is taken before its task can be read", []string{"what is pushed side by side is all handed out"}, func(b *bench) hooks {
			places := make(map[string]int)
			push := b.h.Push
			b.h.Push = func(ctx context.Context, id partition.ID, tasks ...sources.Task) error {
				b.mu.Lock()
				b.note["place"]++
				place := b.note["place"]
				for _, t := range tasks {
					places[name(t)] = place
				}
				b.mu.Unlock()
				if place%2 == 1 {
					time.Sleep(time.Millisecond) // of the bubble: others are pushed meanwhile
				}
				return push(ctx, id, tasks...)
			}
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) (tasks []sources.Task, err error) {
				for len(tasks) == 0 && err == nil {
					tasks, err = s.Stream.Fetch(ctx, limit)
					b.mu.Lock()
					tasks = slices.DeleteFunc(tasks, func(t sources.Task) bool {
						passed := places[name(t)] < b.note[s.tok.String()]
						b.note[s.tok.String()] = max(b.note[s.tok.String()], places[name(t)])
						return passed
					})
					b.mu.Unlock()
				}
				return tasks, err
			}}
		}},
		{"each fetch fills the slice of the one before", []string{"fetch keeps the order of the log"}, func(*bench) hooks {
			buf := make([]sources.Task, 0, 64)
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				buf = append(buf[:0], tasks...)
				return buf, err
			}}
		}},
		{"each fetch fills the payloads of the one before", []string{
			"fetch keeps the order of the log",
			"a day without a crash: every task is done once, in order, seed 3",
			"a day with crashes: no task is lost, none is out of order, seed 3",
		}, func(b *bench) hooks {
			var buf []byte
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				b.mu.Lock()
				defer b.mu.Unlock()
				if buf == nil {
					buf = make([]byte, 1<<20)
				}
				to := buf
				for i := range tasks {
					n := copy(to, tasks[i].Payload)
					tasks[i].Payload, to = to[:n:n], to[n:]
				}
				return tasks, err
			}}
		}},
		{"a limit that is more than the broker gives is an error", []string{"fetch returns at most the limit"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				if limit > 256 {
					return nil, errors.New("at most 256 at once")
				}
				return s.Stream.Fetch(ctx, limit)
			}}
		}},
		{"tasks share one map of headers", []string{"a task arrives byte for byte"}, func(*bench) hooks {
			shared := make(map[string]string)
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				for i := range tasks {
					if tasks[i].Headers != nil {
						clear(shared)
						maps.Copy(shared, tasks[i].Headers)
						own(&tasks[i]).Headers = shared
					}
				}
				return tasks, err
			}}
		}},
		{"tasks do not carry the token", []string{"a task says whose it is"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				for i := range tasks {
					own(&tasks[i]).Token = partition.Token{}
				}
				return tasks, err
			}}
		}},
		{"tasks have no Delivery", []string{"a task says whose it is", "fetch keeps the order of the log", "a retried task keeps its place"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				for i := range tasks {
					tasks[i].Delivery = nil
				}
				return tasks, err
			}}
		}},
		{"payloads are taken for text", []string{"a task arrives byte for byte"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				for i := range tasks {
					tasks[i].Payload = []byte(strings.ToValidUTF8(string(tasks[i].Payload), "?"))
				}
				return tasks, err
			}}
		}},
		{"keys are cut", []string{"a task arrives byte for byte", "a task that comes again is whole"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				for i, t := range tasks {
					tasks[i].Key = t.Key[:min(len(t.Key), 255)]
				}
				return tasks, err
			}}
		}},
		{"the key of what comes again is cut", []string{"a task that comes again is whole"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				for i, t := range tasks {
					if t.Attempt > 1 {
						tasks[i].Key = t.Key[:min(len(t.Key), 255)]
					}
				}
				return tasks, err
			}}
		}},
		{"payloads are cut at a mebibyte", []string{"a task arrives byte for byte"}, func(*bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				for i, t := range tasks {
					tasks[i].Payload = t.Payload[:min(len(t.Payload), 1<<20)]
				}
				return tasks, err
			}}
		}},
		{"one fetch at a time for all partitions", []string{"partitions do not disturb each other"}, func(*bench) hooks {
			turn := make(chan struct{}, 1)
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				select {
				case turn <- struct{}{}:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				defer func() { <-turn }()
				return s.Stream.Fetch(ctx, limit)
			}}
		}},
	}
}

func fenceBreaches() []breach {
	return []breach{
		{"fetch is not fenced", []string{"a newer owner fences fetch", "a store that lost an open does not take one owner for another"}, func(b *bench) hooks {
			return hooks{fetch: func(ctx context.Context, s *inner, limit int) ([]sources.Task, error) {
				tasks, err := s.Stream.Fetch(ctx, limit)
				if !errors.Is(err, sources.ErrFenced) {
					return tasks, err
				}
				st, err := b.newest(ctx, s.src, s.g.ID)
				if err != nil {
					return nil, err
				}
				return st.Fetch(ctx, limit)
			}}
		}},
		{"settle is not fenced", []string{"a newer owner fences settle", "a newer epoch of the same session fences the older"}, func(b *bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				st, err := b.newest(ctx, s.src, s.g.ID)
				if err != nil {
					return err
				}
				return st.Settle(ctx, done...)
			}}
		}},
		{"settle looks at the fence first", []string{"a newer owner fences settle in the moment in which it comes"}, func(b *bench) hooks {
			return hooks{settle: func(ctx context.Context, s *inner, done []sources.Settlement) error {
				b.mu.Lock()
				mine := b.last[s.g.ID].tok == s.tok
				b.mu.Unlock()
				if !mine {
					return s.Stream.Settle(ctx, done...)
				}
				time.Sleep(time.Millisecond) // of the bubble: the new owner comes meanwhile
				st, err := b.newest(ctx, s.src, s.g.ID)
				if err != nil {
					return err
				}
				return st.Settle(ctx, done...)
			}}
		}},
		{"close ends whoever is there", []string{"closing a fenced stream changes nothing", "close, and the request comes late, after the next owner opened"}, func(b *bench) hooks {
			return hooks{line: true, close: func(ctx context.Context, s *inner) error {
				st, err := b.newest(ctx, s.src, s.g.ID)
				if errors.Is(err, sources.ErrFenced) {
					return nil // there is nobody
				}
				if err != nil {
					return err
				}
				return st.Close(ctx)
			}}
		}},
		{"there is one fence for all partitions", []string{"the fence is of one partition"}, func(*bench) hooks {
			return hooks{open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
				for id := range partition.ID(4) {
					if id != g.ID {
						if _, err := src.Open(ctx, partition.Grant{ID: id, Epoch: g.Epoch}, tok); err != nil {
							return nil, err
						}
					}
				}
				return src.Open(ctx, g, tok)
			}}
		}},
		{"every open installs a new fence", []string{
			"opening again with the token that stands changes nothing",
			"open, and the request comes late, while its owner works",
		}, func(b *bench) hooks {
			return b.anew(func(last *inner, tok partition.Token) bool {
				return last == nil || tok.Epoch > last.tok.Epoch || tok == last.tok
			})
		}},
		{"a smaller epoch may open", []string{"a smaller epoch is refused and told which one stands", "open, and the request comes late, after the next owner opened"}, func(b *bench) hooks {
			return b.anew(func(*inner, partition.Token) bool { return true })
		}},
		{"the token is compared by its epoch", []string{"the same epoch of another session is refused"}, func(b *bench) hooks {
			return b.anew(func(last *inner, tok partition.Token) bool { return last == nil || tok.Epoch >= last.tok.Epoch })
		}},
		{"a refusal names no epoch", []string{"a smaller epoch is refused and told which one stands"}, func(*bench) hooks {
			return hooks{open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
				st, err := src.Open(ctx, g, tok)
				var fenced *sources.FencedError
				if errors.As(err, &fenced) {
					fenced.Stored = 0
				}
				return st, err
			}}
		}},
		{"what was closed may be opened again", []string{"an epoch that was closed is over"}, func(b *bench) hooks {
			return b.anew(func(last *inner, tok partition.Token) bool {
				return last == nil || tok.Epoch > last.tok.Epoch || last.closed && tok.Epoch == last.tok.Epoch
			})
		}},
	}
}

// anew is an open that numbers the fences by itself: each that is allowed is new.
func (b *bench) anew(allowed func(last *inner, tok partition.Token) bool) hooks {
	return hooks{
		line: true,
		open: func(ctx context.Context, src sources.Source, g partition.Grant, tok partition.Token) (sources.Stream, error) {
			b.mu.Lock()
			ok := allowed(b.last[g.ID], tok)
			b.when[g.ID]++
			epoch := partition.Epoch(b.when[g.ID])
			b.mu.Unlock()
			if !ok {
				return nil, &sources.FencedError{Grant: g, Stored: b.last[g.ID].tok.Epoch}
			}
			return src.Open(ctx, partition.Grant{ID: g.ID, Epoch: epoch}, partition.Token{Epoch: epoch, Session: tok.Session})
		},
	}
}
