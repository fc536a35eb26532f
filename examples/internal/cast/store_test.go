package cast

import (
	"errors"
	"testing"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
)

// What was typed wrong is told from a store that is away.
func TestOpenTellsWhatWasTypedWrong(t *testing.T) {
	for _, c := range []struct {
		url, name string
		want      int
	}{
		{"localhost", "play", exit.Usage},
		{"", "{play}", exit.Usage},
		{"redis://127.0.0.1:1", "play", exit.Unreachable},
	} {
		_, err := Open(t.Context(), c.url, "", c.name, partition.Config{Total: 4})
		coded, ok := errors.AsType[*exit.Error](exit.From(err))
		if !ok || coded.Code != c.want {
			t.Errorf("%q %q: %v, want the code %d", c.url, c.name, err, c.want)
		}
	}
}
