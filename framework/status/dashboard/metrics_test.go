package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework/status"
)

// What Prometheus is told, also of a name without peers; nothing that is not of now.
func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s store
		b := newBoard(t, s.config())
		_, text := get(t, b, "/metrics")
		for _, want := range []string{
			"# TYPE countoff_name_up gauge", `countoff_name_up{name="billing"} 1`, `countoff_name_peers{name="mails"} 1`,
			`countoff_name_partitions{name="billing",state="owned"} 2`, `countoff_name_partitions{name="billing",state="double"} 1`,
			`countoff_name_tasks{name="billing",state="dead"} 1`, `countoff_name_tasks{name="billing",state="in_flight"} 0`,
			`countoff_name_to_cancel{name="billing",state="waits"} 2`, `countoff_name_to_cancel{name="mails",state="runs"} 1`,
			`countoff_name_ingress_lines{name="billing"} 2`, `countoff_name_findings{name="billing",kind="unowned"} 1`,
		} {
			if strings.Count(text, want+"\n") != 1 {
				t.Errorf("the metrics lack %s:\n%s", want, text)
			}
		}
		s.change(func() { s.err = errors.New("the store is away") })
		time.Sleep(time.Second) // of fake time
		_, text = get(t, b, "/metrics")
		if strings.Count(text, `name="billing"`) != 1 || !strings.Contains(text, `countoff_name_up{name="billing"} 0`) {
			t.Errorf("while the store is away the metrics are\n%s", text)
		}
		s.change(func() { s.unlisted = true })
		time.Sleep(fresh)
		if code, text := get(t, b, "/metrics"); code != http.StatusOK || !strings.Contains(text, `countoff_name_up{name="billing"} 0`) {
			t.Errorf("while the names cannot be listed either: %d\n%s", code, text)
		}
	})
	cfg := new(store).config()
	cfg.List = func(context.Context) ([]string, error) { return nil, errors.New("the store is away") }
	if code, text := get(t, newBoard(t, cfg), "/metrics"); code != http.StatusServiceUnavailable || !strings.Contains(text, "the store is away") {
		t.Errorf("without names: %d %s", code, text)
	}
	read := cfg.Read
	cfg.Names = []string{"billing"}
	cfg.Read = func(ctx context.Context, name string) (status.Status, error) {
		s, err := read(ctx, name)
		s.TasksUnknown = true
		return s, err
	}
	if _, text := get(t, newBoard(t, cfg), "/metrics"); strings.Contains(text, "countoff_name_tasks{") || strings.Contains(text, "countoff_name_ingress_lines{") {
		t.Errorf("where nobody knows what partitions hold: %s", text)
	}
	cfg.Read = func(ctx context.Context, name string) (status.Status, error) {
		s, err := read(ctx, name)
		s.Partitions, s.Units = []status.Partition{{Unknown: true}}, []status.Unit{{Unknown: true}}
		return s, err
	}
	if _, text := get(t, newBoard(t, cfg), "/metrics"); strings.Contains(text, "countoff_name_tasks{") || strings.Contains(text, "countoff_name_ingress_lines{") ||
		!strings.Contains(text, "countoff_name_peers{") {
		t.Errorf("where some cannot be read, of which the sum would be without: %s", text)
	}
}
