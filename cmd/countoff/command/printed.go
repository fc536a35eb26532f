package command

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
)

// unread is what a command ends with whose reader has gone, as that of `countoff history n | head`:
// a shell has the same from a program that SIGPIPE ended.
const unread = 128 + int(syscall.SIGPIPE)

// printed is the output of a command. Most that is printed has nobody to return an error to: it
// keeps the first, and takes nothing after it.
type printed struct {
	to  io.Writer
	err error // what the command is to end with
}

// printing puts a printed between cmd and its output.
func printing(cmd *cobra.Command) *printed {
	p := &printed{to: cmd.OutOrStdout()}
	cmd.SetOut(p)
	return p
}

func (p *printed) Write(b []byte) (n int, err error) {
	if p.err != nil {
		return 0, p.err
	}
	n, err = p.to.Write(b)
	switch {
	case errors.Is(err, syscall.EPIPE): // the reader has had enough
		p.err = exit.Coded(unread)
	case err != nil:
		p.err = exit.With(exit.Failed, fmt.Errorf("not all of the output was written: %w", err))
	}
	return n, p.err
}

// end is what a command ends with that returned err.
func (p *printed) end(err error) error {
	switch {
	case err == nil:
		return p.err
	case p.err == nil, errors.Is(err, p.err), errors.Is(p.err, exit.ErrSaid):
		return err
	}
	return errors.Join(exit.From(err), p.err)
}
