package scale

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/countoff/countoff/cmd/countoff-chaos/child.Start.func1.1")) // forks for good
}

func TestSmallNames(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := Run(ctx, []Size{{Peers: 3, Partitions: 16}, {Peers: 20, Partitions: 7}}, []int{4}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n| -"); n != 3 {
		t.Errorf("%d tables, want 3:\n%s", n, &out)
	}
	if strings.Contains(out.String(), "| 0 ") || strings.Contains(out.String(), "NaN") {
		t.Errorf("something was not measured:\n%s", &out)
	}
}
