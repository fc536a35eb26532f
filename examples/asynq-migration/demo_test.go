package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain makes the test binary a peer where the demo starts itself.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func TestTheDemoLosesNothingAndKeepsTheOrder(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out strings.Builder
	if err := demo(ctx, "", "accounts", &out); err != nil {
		t.Error(err)
	}
	t.Log("\n" + out.String())
	if strings.Count(out.String(), "400 steps: 0 lost") != 2 {
		t.Error("something was lost")
	}
}

func TestWhatItEndsWith(t *testing.T) {
	for arg, want := range map[string]int{"--help": 0, "--nonsense": 2, "nonsense": 2, "--redis=redis://127.0.0.1:1": 3} {
		if code := run([]string{arg}); code != want {
			t.Errorf("%s ends with %d, want %d", arg, code, want)
		}
	}
}
