package exit_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
)

// What stands in the store is quoted in errors, and moves no cursor. Lines of joined errors stay.
func TestMainIsNotObeyedByTheTerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	defer func(was *os.File) { os.Stderr = was }(os.Stderr)
	os.Stderr = file
	root := &cobra.Command{Use: "program", RunE: exit.Run(func(*cobra.Command, []string) error {
		return errors.Join(errors.New("köln\ta\x1b[2J\u009b31m\u202e\r\xff"), errors.New("second"))
	})}
	root.SetArgs(nil)
	if code := exit.Main(t.Context(), root); code != exit.Failed {
		t.Errorf("code %d", code)
	}
	said, err := os.ReadFile(file.Name())
	if want := "program: köln\ta\ufffd[2J\ufffd31m\ufffd\ufffd\ufffd\nsecond\n"; err != nil || string(said) != want {
		t.Errorf("it says %q, want %q; %v", said, want, err)
	}
}
