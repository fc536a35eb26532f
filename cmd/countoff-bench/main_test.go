package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--only nothing-like-this": "no contestant",
		"--only (":                 "--only",
		"--rounds -1":              "--rounds -1, --tasks 0: must not be negative",
		"--rounds -1 --only (":     "--rounds -1",
		"--transition --rounds -1": "--rounds -1",
		"extra":                    "unexpected argument",
	} {
		var errs bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &errs, &errs); code != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: %d, %s", args, code, &errs)
		}
	}
	o, err := parse(nil, &bytes.Buffer{})
	if err != nil || o.Rounds != 8 || o.Budget != 0 {
		t.Errorf("without flags: %+v, %v", o.Config, err)
	}
	if o, err = parse([]string{"--quick"}, &bytes.Buffer{}); err != nil || o.Rounds != 3 || o.Budget == 0 {
		t.Errorf("quick: %+v, %v", o.Config, err)
	}
	if o, err = parse([]string{"--only", "^asynq-c10$"}, &bytes.Buffer{}); err != nil || len(o.Contestants) != 1 {
		t.Errorf("one: %d contestants, %v", len(o.Contestants), err)
	}
}

func TestList(t *testing.T) {
	var out bytes.Buffer
	if code := run(t.Context(), []string{"--list"}, &out, &out); code != 0 || !strings.Contains(out.String(), "countoff-c100-1ms ") {
		t.Errorf("%d\n%s", code, &out)
	}
}
