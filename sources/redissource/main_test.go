package redissource

import (
	"flag"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The tests wait most of the time. -parallel on the command line goes before this.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	debug.SetGCPercent(400) // miniredis makes a state of Lua for each script: a fifth of the time went to their garbage
	goleak.VerifyTestMain(m)
}
