package simulation_test

import (
	"os"
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // worlds are copied all the time, and few live at once: a third of the time went to their garbage
	os.Exit(m.Run())
}
