package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errGone = errors.New("connection refused")

// A master is a register behind a network that loses, delays and repeats, on a machine
// that stops and comes back.
type master struct {
	Memory
	id int

	mu   sync.Mutex
	rand *rand.Rand
	rate float64 // of calls that are disturbed
	down bool
	mute bool // it never answers
}

func (m *master) String() string { return fmt.Sprint("master ", m.id) }

func (m *master) Raise(ctx context.Context, n uint64) (uint64, error) {
	m.mu.Lock()
	down, mute := m.down, m.mute
	disturbed, kind, delay := m.rand.Float64() < m.rate, m.rand.IntN(4), time.Duration(m.rand.IntN(2000))*time.Millisecond
	m.mu.Unlock()
	if down {
		return 0, errGone
	}
	if mute {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if disturbed {
		switch kind {
		case 0: // the request is lost
			<-ctx.Done()
			return 0, ctx.Err()
		case 1: // the answer is lost
			_, _ = m.Memory.Raise(context.Background(), n)
			return 0, errGone
		case 2: // the request comes late, maybe after its caller has gone
			time.AfterFunc(delay, func() { _, _ = m.Memory.Raise(context.Background(), n) })
			<-ctx.Done()
			return 0, ctx.Err()
		case 3: // the client has repeated it
			_, _ = m.Memory.Raise(context.Background(), n)
		}
	}
	time.Sleep(delay / 1000)
	return m.Memory.Raise(ctx, n)
}

func (m *master) set(change func(*master)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

func masters(n int, seed uint64) ([]*master, []Register) {
	all, registers := make([]*master, n), make([]Register, n)
	for i := range all {
		all[i] = &master{id: i, rand: rand.New(rand.NewPCG(seed, uint64(i)))}
		registers[i] = all[i]
	}
	return all, registers
}

// A history is what callers asked and were given, to be held against the promise.
type history struct {
	mu    sync.Mutex
	given map[uint64]bool
	most  uint64 // of those given
}

func (h *history) begin() (floor uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.most
}

// end holds a number against what was given before it was asked for.
func (h *history) end(t testing.TB, floor, n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.given == nil {
		h.given = map[uint64]bool{}
	}
	if h.given[n] {
		t.Errorf("%d was given twice", n)
	}
	if n <= floor {
		t.Errorf("%d was given, although %d was given before it was asked for", n, floor)
	}
	h.given[n] = true
	h.most = max(h.most, n)
}

// Whatever minority of the masters stops, forgets and is admitted again, and whatever the
// network does: numbers rise and none is given twice.
func TestNumbersRise(t *testing.T) {
	for _, size := range []int{1, 3, 5} {
		for seed := range uint64(8) {
			t.Run(fmt.Sprintf("%d masters, seed %d", size, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { rise(t, size, seed) })
			})
		}
	}
}

func rise(t *testing.T, size int, seed uint64) {
	all, registers := masters(size, seed)
	var counters []*Counter
	for range 3 {
		c, err := New(registers, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		counters = append(counters, c)
	}
	if n, err := counters[0].Admit(t.Context()); err != nil || n != size {
		t.Fatalf("admitted %d: %v", n, err)
	}
	for _, m := range all {
		m.set(func(m *master) { m.rate = 0.1 })
	}
	over := make(chan struct{})
	var faults sync.WaitGroup
	faults.Go(func() {
		r := rand.New(rand.NewPCG(seed, 99))
		for size > 1 {
			m := all[r.IntN(size)]
			m.set(func(m *master) { m.down = true })
			time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
			if r.IntN(2) == 0 {
				m.Forget()
			}
			m.set(func(m *master) { m.down = false })
			for { // until it takes part again another must not fail: a minority
				_, err := counters[0].Admit(t.Context())
				if _, empty := m.Memory.Raise(t.Context(), 0); err == nil && empty == nil {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			select {
			case <-over:
				return
			case <-time.After(time.Duration(r.IntN(500)) * time.Millisecond):
			}
		}
	})
	var h history
	var callers sync.WaitGroup
	for i := range 12 {
		callers.Go(func() {
			for range 60 {
				floor := h.begin()
				n, err := counters[i%3].Next(t.Context())
				if err != nil {
					continue // nothing is promised but that no number is given
				}
				h.end(t, floor, n)
			}
		})
	}
	callers.Wait()
	close(over)
	faults.Wait()
	if got := len(h.given); got < 400 {
		t.Errorf("%d numbers were given of 720 asked for", got)
	}
	time.Sleep(3 * time.Second) // what comes late
}

// Less than a majority gives nothing, and says who keeps silent.
func TestWithoutAMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, registers := masters(3, 1)
		c, err := New(registers, Config{Patience: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Next(t.Context()); !errors.Is(err, ErrEmpty) || strings.Count(err.Error(), "--admit sets up") != 1 {
			t.Errorf("before they are admitted: %v", err)
		}
		if _, err := c.Admit(t.Context()); err != nil {
			t.Fatal(err)
		}
		before, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all[:2] {
			m.set(func(m *master) { m.down = true })
		}
		for what, call := range map[string]func() error{
			"next":  func() error { _, err := c.Next(t.Context()); return err },
			"read":  func() error { _, err := c.Read(t.Context()); return err },
			"raise": func() error { return c.Raise(t.Context(), 1000) },
			"admit": func() error { _, err := c.Admit(t.Context()); return err },
		} {
			err := call()
			if few, ok := errors.AsType[*MajorityError](err); !ok || few.Answered > 1 || few.Of != 3 || !errors.Is(err, errGone) || strings.Contains(err.Error(), "--admit") {
				t.Errorf("%s: %v", what, err)
			}
		}
		all[0].set(func(m *master) { m.down = false })
		after, err := c.Next(t.Context())
		if err != nil || after <= before {
			t.Errorf("after %d came %d, %v", before, after, err)
		}
		// A raise that reached no majority may or may not have left its mark.
		if n, err := c.Read(t.Context()); err != nil || n < after {
			t.Errorf("read %d, %v, after %d was given", n, err, after)
		}
	})
}

// A master that lost its memory does not count: its silence is no vote for small numbers.
// A caller who cannot wait as long as a register may take is told all the same who does not
// answer, and not only that his time is over.
func TestWithoutAMajorityInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, registers := masters(3, 1)
		c, err := New(registers, Config{Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Admit(t.Context()); err != nil {
			t.Fatal(err)
		}
		all[0].set(func(m *master) { m.down = true })
		all[1].set(func(m *master) { m.mute = true })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, errRead := c.Read(ctx)
		for what, err := range map[string]error{"read": errRead, "raise": c.Raise(ctx, 1000)} {
			few, ok := errors.AsType[*MajorityError](err)
			if !ok || few.Of != 3 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if text := errRead.Error(); !strings.Contains(text, "1 of 3 registers answer") || !strings.Contains(text, "master 0") || !strings.Contains(text, "1 silent") {
			t.Errorf("it says %q", text)
		}
	})
}

func TestAnEmptyRegisterDoesNotCount(t *testing.T) {
	all, registers := masters(3, 1)
	c, err := New(registers, Config{Patience: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Admit(t.Context()); err != nil {
		t.Fatal(err)
	}
	all[0].set(func(m *master) { m.down = true }) // it will know nothing of 500
	if err := c.Raise(t.Context(), 500); err != nil {
		t.Fatal(err)
	}
	all[0].set(func(m *master) { m.down = false })
	all[1].Forget()
	all[2].set(func(m *master) { m.down = true }) // the only one that knows
	other, err := New(registers, Config{Patience: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if n, err := other.Next(t.Context()); err == nil {
		t.Errorf("%d was given by who may not know of 500", n)
	}
	const advice = "--admit sets up those that are empty"
	if _, err := other.Read(t.Context()); err == nil || !strings.Contains(err.Error(), advice) {
		t.Errorf("who reads is told %v", err)
	}
	if _, err := other.Admit(t.Context()); err == nil || !strings.Contains(err.Error(), "none was admitted: at first all must answer") || strings.Contains(err.Error(), advice) {
		t.Errorf("the empty one was admitted by a minority, or what was just tried is advised: %v", err)
	}
	all[2].set(func(m *master) { m.down = false })
	if n, err := other.Admit(t.Context()); err != nil || n != 1 {
		t.Errorf("admitted %d, %v", n, err)
	}
	if n, err := other.Next(t.Context()); err != nil || n <= 500 {
		t.Errorf("after 500 came %d, %v", n, err)
	}
}

// Who does not wait for a number has none, and takes none from those who do.
func TestWhoLeavesHasNoNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, registers := masters(3, 1)
		c, err := New(registers, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Admit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			m.set(func(m *master) { m.mute = true })
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if n, err := c.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it left, and has %d, %v", n, err)
		}
	})
}

func TestBadRegisters(t *testing.T) {
	if _, err := New(nil, Config{}); err == nil {
		t.Error("no registers are taken")
	}
	if _, err := New(make([]Register, 2), Config{Timeout: -1}); err == nil {
		t.Error("two registers and a negative timeout are taken")
	}
	for _, cfg := range []Config{{Timeout: -1}, {Patience: -1}} {
		if _, err := New([]Register{new(Memory)}, cfg); err == nil || !strings.Contains(err.Error(), "must not be negative") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if _, err := New([]Register{new(Memory), nil, new(Memory)}, Config{}); err == nil || !strings.Contains(err.Error(), "register 2 of 3 is nil") {
		t.Errorf("a register that is nil: %v", err)
	}
}

// The numbers end where stores no longer tell them apart.
func TestUsedUp(t *testing.T) {
	all, registers := masters(3, 1)
	c, err := New(registers, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, m := range all {
		if err := m.Admit(t.Context(), Most-1); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := c.Next(t.Context()); n != Most || err != nil {
		t.Errorf("the last is %d, %v", n, err)
	}
	if n, err := c.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "used up") {
		t.Errorf("after the last came %d, %v", n, err)
	}
	if err := c.Raise(t.Context(), Most); err != nil {
		t.Errorf("raised to the last: %v", err)
	}
	if err := c.Raise(t.Context(), Most+1); err == nil {
		t.Error("raised over the last")
	}
}

func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, registers := masters(3, 1)
		c, err := New(registers, Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			m.set(func(m *master) { m.rate = 1 })
		}
		ended := make(chan error)
		go func() {
			_, err := c.Next(context.Background())
			ended <- err
		}()
		synctest.Wait()
		began := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took >= defaultTimeout {
			t.Errorf("it waited %v for registers that do not answer", took)
		}
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("who waited was told %v", err)
		}
		if _, err := c.Next(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
		if _, err := c.Read(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("read after the end: %v", err)
		}
		time.Sleep(3 * time.Second) // what comes late
	})
}

// A counting register takes a while, and counts how often it was asked.
type counting struct {
	Memory
	asked atomic.Int64
}

func (r *counting) Raise(ctx context.Context, n uint64) (uint64, error) {
	r.asked.Add(1)
	time.Sleep(time.Millisecond)
	return r.Memory.Raise(ctx, n)
}

// All who ask while a round is under way share the next one.
func TestRoundsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r counting
		c, err := New([]Register{&r}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Admit(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := r.asked.Load()
		var all sync.WaitGroup
		next := func() {
			if _, err := c.Next(t.Context()); err != nil {
				t.Error(err)
			}
		}
		all.Go(next)
		synctest.Wait() // it is asked
		for range 20 {
			all.Go(next)
		}
		all.Wait()
		if rounds := r.asked.Load() - before; rounds != 2 {
			t.Errorf("it was asked %d times, want 2", rounds)
		}
	})
}

// crowded is a register that answers when as many have asked as are awaited.
type crowded struct {
	Memory
	asked *sync.WaitGroup
}

func (r *crowded) Raise(ctx context.Context, n uint64) (uint64, error) {
	r.asked.Done()
	all := make(chan struct{})
	go func() {
		r.asked.Wait()
		close(all)
	}()
	select {
	case <-all:
		return r.Memory.Raise(ctx, n)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// A process with many consumers asks for many at once: that is no register that hangs.
func TestManyAskAtOnce(t *testing.T) {
	const callers = 16
	synctest.Test(t, func(t *testing.T) {
		var registers []Register
		for range 3 {
			r := &crowded{asked: new(sync.WaitGroup)}
			if err := r.Admit(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			r.asked.Add(callers)
			registers = append(registers, r)
		}
		c, err := New(registers, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				if err := c.Raise(t.Context(), 7); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}
