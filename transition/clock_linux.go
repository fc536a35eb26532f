package transition

import (
	"time"

	"golang.org/x/sys/unix"
)

// kernelClock reads CLOCK_BOOTTIME, or returns nil where it cannot be read.
func kernelClock() func() time.Duration {
	if _, ok := boottime(); !ok {
		return nil
	}
	return func() time.Duration {
		d, _ := boottime() // it was readable before
		return d
	}
}

func boottime() (time.Duration, bool) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
