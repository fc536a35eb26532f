package redisprogress_test

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // miniredis makes a state of Lua for each script: a third of the time went to their garbage
	goleak.VerifyTestMain(m)
}
