package main_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/countoff/countoff/examples/mail-sender/mailbox"
)

// The probes tell what a supervisor must know: alive is not ready, and a store that
// does not answer is no reason to kill the process.
func TestProbes(t *testing.T) {
	t.Parallel()
	s := newStage(t, mailbox.Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return resp.StatusCode, string(body)
	}
	answers := func(path string, code int, want string) {
		t.Helper()
		s.until(fmt.Sprintf("%s to answer %d", path, code), func() error {
			if got, body := get(path); got != code || !strings.Contains(body, want) {
				return fmt.Errorf("%d %s", got, body)
			}
			return nil
		})
	}

	w := s.work("w", "--http", addr)
	answers("/healthz", 200, `"ok"`)
	answers("/readyz", 200, `"ok"`)
	f := s.feed(100)
	s.until("mails to arrive", func() error {
		if len(s.box.Deliveries(0)) < 20 {
			return fmt.Errorf("%d", len(s.box.Deliveries(0)))
		}
		return nil
	})
	f.stop()
	s.settled()
	for _, metric := range []string{
		`countoff_ready{consumer="mail-sender"} 1`, `countoff_index{consumer="mail-sender"} 0`, `countoff_takeover_bound_seconds{`,
		`countoff_takeover_seconds_bucket{`, `countoff_tasks_total{`, `go_goroutines`,
	} {
		answers("/metrics", 200, metric)
	}

	s.redis.Pause()
	answers("/readyz", 503, "no lease")
	answers("/healthz", 200, `"ok"`)
	s.redis.Resume()
	answers("/readyz", 200, `"ok"`)
	w.leave()
}
