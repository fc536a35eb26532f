package redissource

import (
	"strings"
	"testing"

	"github.com/countoff/countoff/partition/redistest"
)

// A server that evicts keys is told of once, at the start, and no other is.
func TestWarnsOfEviction(t *testing.T) {
	p := redistest.Server(t)
	var told []error
	layouts := func() {
		t.Helper()
		told = nil
		s, err := New(p.Client(), "n", Config{Warn: func(err error) { told = append(told, err) }})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := s.Layout(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.Config("maxmemory-policy", "allkeys-lru")
	if layouts(); len(told) != 0 {
		t.Errorf("of a server without a limit it says %v", told)
	}
	p.Config("maxmemory", "100mb")
	if layouts(); len(told) != 1 || !strings.Contains(told[0].Error(), "allkeys-lru") || !strings.Contains(told[0].Error(), "noeviction, and") {
		t.Errorf("of one that evicts it says %v", told)
	}
	if err := evicting(t.Context(), redistest.Hidden(p.Client(), 2)); err == nil {
		t.Error("of one of a cluster that is hidden it says nothing")
	}
	p.Config("maxmemory-policy", "volatile-lru")
	if layouts(); len(told) != 1 || !strings.Contains(told[0].Error(), "what expires") || strings.Contains(told[0].Error(), "ledger") {
		t.Errorf("of one that evicts what expires it says %v", told)
	}
	p.Config("maxmemory-policy", "noeviction")
	if layouts(); len(told) != 0 {
		t.Errorf("of one that does not it says %v", told)
	}
}
