//go:build unix && !linux

package seat

import (
	"syscall"
	"time"
)

// bootNow is the wall clock: these systems have no other that all processes have in common and
// that counts suspend in the same way on each. It is used between two processes only, for as
// long as an order takes from one to the other.
func bootNow() time.Duration { return time.Duration(time.Now().UnixNano()) }

func dieWithGuard() *syscall.SysProcAttr { return nil }
