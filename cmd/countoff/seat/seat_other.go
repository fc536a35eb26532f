//go:build !unix

package seat

import (
	"context"
	"errors"
)

// Run is for systems with signals and process groups.
func Run(context.Context, context.Context, Config) error {
	return errors.New("countoff run: this system has no signals to end a command with")
}

// Guard is never started here.
func Guard([]string) int { return 1 }
