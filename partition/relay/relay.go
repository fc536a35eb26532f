// Package relay calls, for conformance suites, code that may never return: a call runs in a goroutine of its
// own, and how it ends is reported where it was made.
package relay

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Start calls call, which what names, in a goroutine of its own, and closes ended when it has ended. end is for
// after that: it returns what call returned, panics if call did, and ends its goroutine if call
// ended its own, as FailNow does, so that go test names the test that made the call. Whoever does not wait that
// long leaves the goroutine behind.
func Start[T any](what string, call func() (T, error)) (ended <-chan struct{}, end func() (T, error)) {
	var of T
	var err error
	how := runtime.Goexit
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() {
			if why := recover(); why != nil {
				how = func() { panic(fmt.Sprintf("%s: %v\n%s", what, why, debug.Stack())) }
			}
		}()
		of, err = call()
		how = func() {}
	}()
	return over, func() (T, error) {
		how()
		return of, err
	}
}
