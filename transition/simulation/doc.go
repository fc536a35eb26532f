// Package simulation runs many peers against one ledger in virtual time and checks
// what really happened, not what the peers believe.
//
// The decisions are the real ones: machine.Machine for each peer, machine.NextRoll
// for the sealer, memledger.Store for the ledger. Around them a [World] has what is
// bad: clocks that drift and jump, calls that are lost, late or carried out twice,
// peers that pause, crash and come back, a store that restarts, falls back to an
// older state or forgets everything. It keeps the ground truth: which handlers of
// which peer run, which fence stands at the data, who asked for what.
//
// Everything follows from a [Mix] and a seed. To see what happened under one:
//
//	go test ./transition/simulation -run TestSeeds -mix lossy -seed 17 -v
//
// An [Exploration] leaves nothing to chance: it looks at every order of what happens
// at one instant and at every fault at every point of a small world, and says how many
// states that were. A violation comes with the way to it:
//
//	go test ./transition/simulation -run TestExplore/pause$ -v -way 0.0.3.1
//
// Its bounds are what [Explorations] says: peers, partitions, time, faults. The times
// that the machines choose at random are those of one seed.
//
// The invariants, by the letters that a violation is reported under:
//
//	S  two honest handlers on one partition never
//	E  an epoch is worked once, and the fence at the data only rises
//	U  a partition that stays wished by a peer whose lease stands is never paused, and
//	   a lease stands where nothing keeps a peer from renewing it
//	D  nobody drains for a successor that died before it asked
//	L  after calm every partition is served by the peer that the newest roll names,
//	   the roll names the living, who left is gone, and nobody stands as who waits for
//	   what another is to have
//	P  then nothing moves
//	M  a roll moves the least possible
//	B  with the barrier nobody works under one roll while another works under another
//	O  a drained peer is left with nothing that anybody else can have, and gains nothing
//	R  while the name is paused nothing begins, and what runs ends
//	H  with the barrier work goes on again within a bound, however often rolls come
package simulation
