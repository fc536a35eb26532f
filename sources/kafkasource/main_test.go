package kafkasource

import (
	"flag"
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
	// The tests wait most of the time. -parallel on the command line goes before this.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
