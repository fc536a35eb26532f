// Package sourcetest is the contract of package sources as a test suite, for those
// who write a source.
//
// [Run] takes a function that makes a [Harness]: an empty store, a way to push
// tasks into it, and handles on it as different peers would have them. Every clause
// is one sentence of the contract and gets a harness of its own. What a source or a
// harness cannot do is declared in the harness; the clauses that need it are
// skipped and say why. The first clauses are what all others need: while one of them
// fails the others are not run.
//
// A test of a source is then:
//
//	func TestContract(t *testing.T) {
//		sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
//			store := newEmptyStore(t)
//			return sourcetest.Harness{
//				Peer: func() sourcetest.Peer { return sourcetest.Peer{Source: mysource.New(store)} },
//				Push: store.Append,
//			}
//		})
//	}
//
// Faults make the suite worth much more: a reply that is lost, a request that comes
// late. A [Line] carries them out for every source whose requests can be wrapped.
//
// The random clauses run seeds 1 to 5; -sourcetest.seeds=N runs more, and
// -sourcetest.seed=N one of them.
package sourcetest
