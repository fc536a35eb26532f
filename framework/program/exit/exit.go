// Package exit has the exit codes of the programs, so that scripts and people can tell why
// one ended without reading logs.
package exit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/redisledger"
)

// The exit codes.
const (
	OK          = 0
	Failed      = 1 // something else, said on stderr
	Usage       = 2 // a flag, a variable or an argument is wrong
	Unreachable = 3 // the store cannot be reached or refuses us
	Config      = 4 // the name is in use with another configuration
	InUse       = 5 // refused while peers live under the name
	Hard        = 6 // stopped before everything was handed over, enqueued or done
	Verdict     = 7 // what was to be shown does not hold, or a danger was found
)

// Help lists the codes for the help of a program.
const Help = `Exit codes: 0 done; 1 failed, stderr says why; 2 a flag, variable or argument is
wrong; 3 Redis cannot be reached or refuses us; 4 the name is in use with another
configuration; 5 refused while peers are alive under it; 6 stopped before
everything was handed over, enqueued or done; 7 the demo's numbers do not hold, or
doctor or epochs found a danger.`

// An Error is an error with its code.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// With gives err a code. A nil err stays nil.
func With(code int, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Err: err}
}

// From gives err the code that it speaks of itself; one that it has stays.
func From(err error) error {
	var coded *Error
	var reply redis.Error
	switch {
	case err == nil || errors.As(err, &coded):
		return err
	case errors.Is(err, partition.ErrConfig):
		return With(Config, err)
	case errors.Is(err, redisledger.ErrInUse):
		return With(InUse, err)
	case ofNetwork(err), errors.Is(err, io.EOF), errors.As(err, &reply): // the end of a context's time is a net.Error
		return With(Unreachable, err)
	}
	return With(Failed, err)
}

// ofNetwork reports whether err came over the network. A net.Error alone says little: each number of
// the operating system is one, of a file or a process as well as of a connection, where an OpError
// is around it; so it is where nobody was called, but an address of our own cannot be listened at.
func ofNetwork(err error) bool {
	var connection *net.OpError
	var file *fs.PathError
	var number syscall.Errno
	var network net.Error
	switch {
	case errors.As(err, &connection):
		return connection.Op != "listen"
	case errors.As(err, &file), errors.As(err, &number):
		return false
	}
	return errors.As(err, &network)
}

// ErrSaid is the error of a program that has said on stderr already why it ends.
var ErrSaid = errors.New("said already")

// Coded returns what makes Main end with code and say nothing; nil for OK.
func Coded(code int) error {
	if code == OK {
		return nil
	}
	return &Error{Code: code, Err: ErrSaid}
}

// Run makes run a cobra command's: what it returns has a code, so that every other
// error of cobra is one of usage.
func Run(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return From(run(cmd, args)) }
}

// shown is text as a terminal may have it. Errors quote what other programs have put in the
// store: an escape sequence in it would move the cursor. Lines stay, of errors that were joined.
func shown(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// Main executes root, prints its error and returns the code to end with.
func Main(ctx context.Context, root *cobra.Command) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return OK
	}
	if !errors.Is(err, ErrSaid) {
		fmt.Fprintf(os.Stderr, "%s: %s\n", cmd.CommandPath(), shown(err.Error()))
	}
	if coded, ok := errors.AsType[*Error](err); ok {
		return coded.Code
	}
	if cmd.Runnable() {
		fmt.Fprintf(os.Stderr, "usage: %s\n", cmd.UseLine())
	}
	fmt.Fprintf(os.Stderr, "%s --help says what there is\n", cmd.CommandPath())
	return Usage
}
