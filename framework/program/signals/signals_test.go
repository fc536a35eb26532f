package signals

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestSignalsThatComeTogetherAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := make(chan os.Signal, 3)
		out := Apart(t.Context(), in)
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 1}, {time.Millisecond, 1}, {Together - 2*time.Millisecond, 1}, {time.Millisecond, 2}, {time.Hour, 3}, {0, 3}} {
			time.Sleep(step.after)
			in <- syscall.SIGTERM
			synctest.Wait()
			if len(out) != step.want {
				t.Errorf("%v after the one before: %d signals, want %d", step.after, len(out), step.want)
			}
		}
		time.Sleep(time.Hour)
		in <- os.Interrupt // nobody takes them
		synctest.Wait()
		if <-out != syscall.SIGTERM || len(out) != 2 {
			t.Errorf("another signal, or %d left, want 2", len(out))
		}
	})
}
