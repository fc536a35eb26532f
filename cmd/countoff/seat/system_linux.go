package seat

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bootNow is a clock that all processes of the machine have in common, and which goes on
// while it is suspended.
func bootNow() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(ts.Nano())
}

// dieWithGuard makes the kernel end the command with its guard.
func dieWithGuard() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
