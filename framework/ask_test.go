package framework_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
)

// A control that returns no ledger is told, whoever asks it.
func TestAControlWithoutALedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		none := func(partition.Config) (transition.Ledger, partition.Indexer, error) { return nil, nil, nil }
		c, err := framework.New("test", f.store, f.handler("ann", 0), framework.WithControl(none))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the control returned none") {
			t.Errorf("run returned %v", err)
		}
	})
}

// Peers that begin on one host in the same moment do not see each other when they choose an id.
func TestPeersOfOneMomentHaveIDsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		var all []*framework.Consumer
		for range 3 {
			c := f.consumer("", f.handler("x", 0))
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		until(t, time.Minute, func() bool { return all[0].Ready() == nil && all[0].View().Replicas == 3 })
		census, err := f.ledger.Census(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if shared := census.Shared(); len(shared) > 0 {
			t.Errorf("several have one id: %v", shared)
		}
		for _, c := range all {
			if err := c.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// So do peers of units; one that was given an id keeps it, whoever else was.
func TestPeersOfUnitsOfOneMomentHaveIDsOfTheirOwn(t *testing.T) {
	for _, peer := range []string{"", "ann"} {
		synctest.Test(t, func(t *testing.T) {
			w := newTown(t, "a")
			var all []*framework.Units
			for range 3 {
				u, _ := w.enter(peer)
				all = append(all, u)
			}
			until(t, time.Minute, func() bool { return all[0].View().Replicas == 3 })
			time.Sleep(time.Minute) // for as long as one may look
			census, err := w.ledger.Census(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if shared := census.Shared(); (len(shared) == 0) != (peer == "") {
				t.Errorf("who was called %q by the configuration: several have one id: %v", peer, shared)
			}
			w.leave(all...)
		})
	}
}

// A peer that is alone on its host keeps the host's name, so that its share comes home after a
// restart: it is no namesake of itself, nor of a peer with another id.
func TestWhoIsAloneKeepsTheHostsName(t *testing.T) {
	host, err := os.Hostname()
	if err != nil || partition.CheckPeer(fmt.Sprint(host, "-", os.Getpid())) != nil {
		host = "peer"
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		ann, c := f.consumer("ann", f.handler("x", 0)), f.consumer("", f.handler("x", 0))
		for _, c := range []*framework.Consumer{ann, c} {
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		until(t, time.Minute, func() bool { return c.Ready() == nil && c.View().Replicas == 2 })
		time.Sleep(time.Minute) // for as long as it may look
		census, err := f.ledger.Census(t.Context())
		if err != nil || !slices.ContainsFunc(census.Sessions, func(s machine.Seat) bool { return s.Peer == host }) {
			t.Errorf("sessions %+v, %v: want one of %q", census.Sessions, err, host)
		}
		for _, c := range []*framework.Consumer{ann, c} {
			if err := c.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// An id that was configured is kept, whoever else has it.
func TestAConfiguredIDIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		one, two := f.consumer("ann", f.handler("x", 0)), f.consumer("ann", f.handler("x", 0))
		for _, c := range []*framework.Consumer{one, two} {
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		until(t, time.Minute, func() bool { return one.Ready() == nil && two.Ready() == nil && one.View().Replicas == 2 })
		census, err := f.ledger.Census(t.Context())
		if err != nil || len(census.Shared()["ann"]) != 2 {
			t.Errorf("sessions %+v, %v", census.Sessions, err)
		}
		for _, c := range []*framework.Consumer{one, two} {
			if err := c.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}
