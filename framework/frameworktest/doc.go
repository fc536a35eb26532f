// Package frameworktest helps to test handlers: it runs a fleet of peers in one
// process, over a source and a ledger in memory.
//
//	func TestOrder(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			f := frameworktest.New(t, frameworktest.Config{})
//			ann := f.Start("ann", NewHandler())
//			f.Start("ben", NewHandler())
//			for i := range 100 {
//				f.Push(framework.Task{ID: strconv.Itoa(i), Key: customer(i)})
//			}
//			ann.Kill()
//			f.Wait(time.Minute)
//			f.Check()
//		})
//	}
//
// Inside testing/synctest time is fake: leases run out, retries come due and peers
// take over in no time at all, and a goroutine that is left behind fails the test.
// Outside of it everything works in real time. With -race give go test -cpu 1 as well:
// the race detector of Go 1.26 can crash (SIGSEGV in time.goFunc) when the timers of a
// bubble fire on two CPUs.
//
// [Handle] runs a handler once, for tests that need no peers.
package frameworktest
