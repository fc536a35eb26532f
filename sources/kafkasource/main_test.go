package kafkasource

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is an owner in a process of its own as well.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == ownerCommand {
		if err := own(os.Stdin, os.Stdout, os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
