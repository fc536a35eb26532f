package countertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/intervalindexer"
)

// hung is a counter one of whose methods does not return, whatever its context does, until it is released.
type hung struct {
	intervalindexer.Memory
	what    string
	release chan struct{}
}

func (h *hung) Incr(ctx context.Context, key string, expiry time.Duration) (int64, error) {
	if h.what == "Incr" {
		<-h.release
	}
	return h.Memory.Incr(ctx, key, expiry)
}

func (h *hung) Get(ctx context.Context, keys ...string) ([]int64, error) {
	if h.what == "Get" {
		<-h.release
	}
	return h.Memory.Get(ctx, keys...)
}

type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Error(args ...any) { r.failure = fmt.Sprint(args...) }

// A call that does not return is told, and holds up no peer that is to end.
func TestWhatHangsIsTold(t *testing.T) {
	for _, what := range []string{"Incr", "Get"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hung{what: what, release: make(chan struct{})}
				defer close(h.release)
				r := &recorder{TB: t}
				config := intervalindexer.Config{Interval: time.Second}
				x, _ := Group(r, h, "mails", config).Peer("a")
				ctx, cancel := context.WithTimeout(t.Context(), 4*config.Interval)
				defer cancel()
				if err := x.Index(ctx, func(partition.View) {}); err != nil {
					t.Error(err)
				}
				if want := what + " of "; !strings.Contains(r.failure, want) || !strings.Contains(r.failure, "has not returned") {
					t.Errorf("it says %q", r.failure)
				}
			})
		})
	}
}
