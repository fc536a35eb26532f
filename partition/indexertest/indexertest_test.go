package indexertest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/indexertest"
)

const (
	lease   = time.Second
	brokenV = "COUNTOFF_INDEXERTEST_BROKEN"
)

var ids = partition.Config{Total: 10}.IDs()

// A board is an indexer in the memory of one process, simple enough to be right, with
// ways to be wrong.
type board struct {
	broken string

	mu      lock
	version uint64
	members []*member // by index
}

// A lock is a mutex that counts as blocked in a bubble, so that time goes on there.
type lock chan struct{}

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

type member struct {
	board *board
	cut   bool
	news  chan partition.View // the latest, if it was not taken yet
}

// change changes who is there and tells everybody.
func (b *board) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.members)
	f()
	b.version++
	if b.broken == "versions stand still" {
		b.version = 1
	}
	for i, m := range b.members {
		v := partition.View{Version: b.version, Index: i, Replicas: len(b.members)}
		for _, id := range ids {
			if int(id)%len(b.members) == i {
				v.Wish = append(v.Wish, id)
			}
		}
		switch b.broken {
		case "the new index with the old count":
			v.Replicas = max(n, 1)
		case "residue 0 is nobody's":
			v.Wish = slices.DeleteFunc(v.Wish, func(id partition.ID) bool { return id == 0 })
		case "two have index 0":
			v.Index = max(i-1, 0)
		case "wishes descend":
			slices.Reverse(v.Wish)
		}
		select {
		case <-m.news:
		default:
		}
		m.news <- v
	}
}

func (b *board) leave(m *member) {
	b.change(func() { b.members = slices.DeleteFunc(b.members, func(o *member) bool { return o == m }) })
}

// Index implements partition.Indexer.
func (m *member) Index(ctx context.Context, emit func(partition.View)) error {
	b := m.board
	first := false
	b.change(func() { b.members = append(b.members, m); first = len(b.members) == 1 })
	var calm <-chan time.Time
	if first && b.broken == "reshuffles in calm" {
		t := time.NewTicker(4 * lease)
		defer t.Stop()
		calm = t.C
	}
	for {
		select {
		case v := <-m.news:
			switch b.broken {
			case "emits twice at once":
				go emit(v)
				emit(v)
			case "does not wait for emit":
				emitted := make(chan struct{})
				go func() { defer close(emitted); emit(v) }()
				select {
				case <-emitted:
				case <-ctx.Done():
				}
			case "holds the store while it emits":
				b.mu.Lock()
				emit(v)
				b.mu.Unlock()
			default:
				emit(v)
			}
		case <-calm:
			// And back at once: who looks now and then sees nothing.
			b.change(func() { slices.Reverse(b.members) })
			time.AfterFunc(lease/10, func() { b.change(func() { slices.Reverse(b.members) }) })
		case <-ctx.Done():
			if b.broken == "does not end" {
				time.Sleep(200 * lease) // of the bubble
				return nil
			}
			b.mu.Lock()
			crashed := m.cut
			b.mu.Unlock()
			switch {
			case crashed && b.broken != "the dead live on":
				time.AfterFunc(lease, func() { b.leave(m) })
			case !crashed && b.broken != "leavers stay":
				b.leave(m)
			}
			switch b.broken {
			case "returns the context's error":
				return ctx.Err()
			case "fails when it is cut":
				if crashed {
					return errors.New("cut off")
				}
			case "emits after its end":
				go emit(partition.View{Version: 1 << 60, Index: -1})
			}
			return nil
		}
	}
}

func TestBoardPasses(t *testing.T) { runBoard(t, "") }

func runBoard(t *testing.T, broken string) {
	indexertest.Run(t, indexertest.Harness{
		Bubble: true,
		New: func(*testing.T) indexertest.Group {
			b := &board{broken: broken, mu: make(lock, 1)}
			return indexertest.Group{
				Settle: 3 * lease,
				IDs:    ids,
				Peer: func(string) (partition.Indexer, func()) {
					m := &member{board: b, news: make(chan partition.View, 1)}
					return m, func() {
						b.mu.Lock()
						defer b.mu.Unlock()
						m.cut = true
					}
				},
			}
		},
	})
}

// TestBroken is run by TestSuiteBites in a process of its own: it is to fail.
func TestBroken(t *testing.T) {
	broken := os.Getenv(brokenV)
	if broken == "" {
		t.Skip("for TestSuiteBites")
	}
	runBoard(t, broken)
}

// Each way to be wrong is found, by the clause that is about it.
func TestSuiteBites(t *testing.T) {
	for broken, says := range map[string]string{
		"the new index with the old count": "replicas",
		"two have index 0":                 "has index 0",
		"residue 0 is nobody's":            "0 peers wish for 0",
		"wishes descend":                   "want them ascending",
		"versions stand still":             "version 1 after 1",
		"emits twice at once":              "emit was called while it ran",
		"holds the store while it emits":   "slow_emit",
		"the dead live on":                 "crashes_is_counted_no_more",
		"leavers stay":                     "ends_is_counted_no_more",
		"reshuffles in calm":               "although nobody came or went",
		"returns the context's error":      "context canceled after its context ended",
		"fails when it is cut":             "cut off after its context ended",
		"emits after its end":              "after Index had returned",
		"does not wait for emit":           "returned while emit runs",
		"does not end":                     "does not return after its context ended",
	} {
		t.Run(broken, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBroken$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), brokenV+"="+broken)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatal("passes the suite")
			}
			if !strings.Contains(string(out), says) {
				t.Errorf("fails, but does not say %q:\n%s", says, out)
			}
		})
	}
}
