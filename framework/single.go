package framework

import (
	"context"
	"fmt"

	"github.com/countoff/countoff/partition"
)

// A Job runs on one peer of its name at a time. It should return soon after ctx has ended.
// The token is to be given to what the job writes to: it can refuse older epochs.
type Job func(ctx context.Context, t partition.Token) error

// Single runs job on one peer of name at a time, whichever that is. It stays there until that
// peer leaves or dies; then another takes it over, after a death within
// [transition.Timing.Takeover]. The context of the job ends when it is to run elsewhere; nobody
// else begins before the job has returned, unless its peer is dead or its lease ran out.
//
// A job that returns while it is this peer's runs again after a pause, which grows from 20 ms to
// 2 s. A panic of it is an error, and so is runtime.Goexit, which testing's FailNow calls. What
// it returns is told to observe, if that is not nil.
//
// Single returns nil when ctx has ended and the job was handed over, otherwise why it could not
// go on or hand over. By default a peer that comes back stands by. With cfg.Strategy
// partition.First{} the job has a home, the peer that was there first, and is handed back when
// that one returns under the same cfg.Peer within machine.Reservation (10 min); all peers must
// say the same.
//
// cfg.Partitions must be one partition, which is the default here.
func Single(ctx context.Context, name string, cfg ShareConfig, job Job, observe func(error)) error {
	if cfg.Partitions.Total == 0 {
		cfg.Partitions.Total = 1
	}
	if job == nil {
		return fmt.Errorf("single %q: no job", name)
	}
	if n := cfg.Partitions.Total; n != 1 {
		return fmt.Errorf("single %q: %d partitions: want 1, since one peer is to run the job", name, n)
	}
	share, err := newShare(name, cfg, false) // partition 0 is in every layout, whatever the ledger's is
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	defer stop() // also where observe panics: the job is another peer's then
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- share.Run(run)
	}()
	var again backoff
	for {
		a, err := share.Await(run, "0") // any key, of one partition; this one suits every hash
		if err != nil {
			stop()
			return <-ended
		}
		err = <-apart("the job", func() error { return job(a.Context(), a.Token) })
		handed := a.Context().Err() != nil
		a.Release()
		if observe != nil {
			observe(err)
		}
		if handed {
			again = backoff{}
		} else {
			sleep(run, again.next())
		}
	}
}
