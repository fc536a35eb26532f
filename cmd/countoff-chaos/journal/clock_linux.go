package journal

import "golang.org/x/sys/unix"

// Now reads CLOCK_MONOTONIC.
func Now() Time {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every Linux has it
	}
	return Time(t.Nano())
}
