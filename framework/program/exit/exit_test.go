package exit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/redisledger"
)

// What stands in the store is quoted in errors, and moves no cursor. Lines of joined errors stay.
func TestMainIsNotObeyedByTheTerminal(t *testing.T) {
	root := &cobra.Command{Use: "program", RunE: exit.Run(func(*cobra.Command, []string) error {
		return errors.Join(errors.New("köln\ta\x1b[2J\u009b31m\u202e\r\xff"), errors.New("second"))
	})}
	code, said := ends(t, root)
	if want := "program: köln\ta\ufffd[2J\ufffd31m\ufffd\ufffd\ufffd\nsecond\n"; code != exit.Failed || said != want {
		t.Errorf("code %d, it says %q, want %q", code, said, want)
	}
}

// A time without a unit is what people write first, of a sub-command as well.
func TestMainSaysHowATimeIsWritten(t *testing.T) {
	root := &cobra.Command{Use: "program"}
	sub := &cobra.Command{Use: "work", Run: func(*cobra.Command, []string) {}}
	sub.Flags().Duration("lease", 0, "")
	sub.Flags().Int("peers", 0, "")
	root.AddCommand(sub)
	for args, want := range map[string]string{
		"--lease 5": `must be a duration like "30s" or "5m"` + "\n",
		"--peers x": `must be an integer` + "\n",
	} {
		if code, said := ends(t, root, append([]string{"work"}, strings.Fields(args)...)...); code != exit.Usage || !strings.Contains(said, want) {
			t.Errorf("%s: code %d, it says %s", args, code, said)
		}
	}
}

// ends runs root, and returns what it ends with and what it says on stderr.
func ends(t *testing.T, root *cobra.Command, args ...string) (code int, said string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	defer func(was *os.File) { os.Stderr = was }(os.Stderr)
	os.Stderr = file
	root.SetArgs(args)
	code = exit.Main(t.Context(), root)
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(text)
}

// What the operating system refuses is the store's fault only where it was asked for a connection.
func TestFromTellsTheStoreFromTheSystem(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		err  error
		want int
	}{
		{&os.PathError{Op: "read", Path: "/dev/stdin", Err: syscall.EIO}, exit.Failed},
		{&os.PathError{Op: "read", Path: "|0", Err: os.ErrDeadlineExceeded}, exit.Failed},
		{&os.LinkError{Op: "rename", Old: "a", New: "b", Err: syscall.EXDEV}, exit.Failed},
		{os.NewSyscallError("fork", syscall.EAGAIN), exit.Failed},
		{&exec.Error{Name: "mailer", Err: syscall.EACCES}, exit.Failed},
		{syscall.ESRCH, exit.Failed},
		{refused, exit.Unreachable},
		{&net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.ENOENT)}, exit.Unreachable},
		{&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, exit.Unreachable},
		{&net.DNSError{Err: "no such host", Name: "redis", IsNotFound: true}, exit.Unreachable},
		{&net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}, exit.Failed},
		{errors.Join(&os.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, refused), exit.Unreachable},
		{context.DeadlineExceeded, exit.Unreachable},
		{io.EOF, exit.Unreachable},
	} {
		var coded *exit.Error
		if err := exit.From(fmt.Errorf("do it: %w", c.err)); !errors.As(err, &coded) || coded.Code != c.want {
			t.Errorf("%v (%T) ends with %+v, want code %d", c.err, c.err, coded, c.want)
		}
	}
}

// A reply is an error that a server of Redis answered with.
type reply struct{}

func (reply) Error() string { return "NOAUTH Authentication required." }
func (reply) RedisError()   {}

// What an error speaks of itself is its code, and one that it has stays.
func TestFromTellsWhatAnErrorSpeaksOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{partition.ErrConfig, exit.Config},
		{redisledger.ErrInUse, exit.InUse},
		{reply{}, exit.Unreachable},
		{errors.New("no such thing"), exit.Failed},
		{exit.With(exit.Hard, partition.ErrConfig), exit.Hard},
		{exit.Coded(exit.Verdict), exit.Verdict},
	} {
		var coded *exit.Error
		if err := exit.From(fmt.Errorf("do it: %w", c.err)); !errors.As(err, &coded) || coded.Code != c.want {
			t.Errorf("%v ends with %+v, want code %d", c.err, coded, c.want)
		}
	}
	for what, err := range map[string]error{"From": exit.From(nil), "With": exit.With(exit.Usage, nil), "Coded": exit.Coded(exit.OK)} {
		if err != nil {
			t.Errorf("%s of nothing is %v", what, err)
		}
	}
}

// Who has said already why it ends is not made to say it again, and a flag that nobody knows runs nothing.
func TestMainSaysWhatIsToBeSaid(t *testing.T) {
	ran := false
	root := &cobra.Command{Use: "program", RunE: exit.Run(func(*cobra.Command, []string) error {
		ran = true
		return exit.Coded(exit.Hard)
	})}
	if code, said := ends(t, root, "--unknown"); ran || code != 2 || !strings.Contains(said, "unknown flag: --unknown\nusage: program") {
		t.Errorf("code %d, ran: %v, it says %q", code, ran, said)
	}
	if code, said := ends(t, root); !ran || code != 6 || said != "" {
		t.Errorf("code %d, ran: %v, it says %q", code, ran, said)
	}
}
