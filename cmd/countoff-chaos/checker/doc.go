// Package checker joins what a chaos run's processes wrote down with what was
// enqueued and with what the store holds in the end, and says where the promise of
// the design was broken. It is pure and knows nothing of the product: what it
// believes is what handlers, clients and signals really did.
//
// The rules, each with the promise it holds to:
//
//	lost        a push that was acknowledged is handled, or a dead letter
//	stuck       in the end nothing is left over
//	invented    nothing runs that was never sent
//	overlap     one handler at a time for a key, among peers that can act
//	order       a key's tasks end for the first time in their order, and none starts before that
//	doubled     a second run takes a crash, a lost lease, or a store that forgot
//	stale       after a newer owner was let in, an older one neither settles nor starts
//	epoch       an epoch is worked by one session, and is not let in after a newer one
//	buried      a task becomes a dead letter only if its handler said so or crashes did
//	takeover    each partition has an owner again within the bound
//	table       with a barrier, nobody works under one roll while another works under another
//	peer        a peer ends when it is told to, and only then
package checker
