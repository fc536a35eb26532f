package redisledger_test

import (
	"strings"
	"testing"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// What a Sync grants counts only once the replicas have it. A lease that is only
// renewed does not wait.
func TestWaitReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	client, name := server.Client(), redistest.Name(t)
	cfg := redisledger.Config{Config: partition.Config{Total: 4}, Timing: transition.Timing{Lease: 10 * time.Second}, WaitReplicas: 1}
	makeName(t, client, name, cfg.Config)
	l := newLedger(t, client, name, cfg)
	r := transition.Request{Session: "aa", Peer: "a", State: machine.Live, Claim: []partition.ID{0}}
	if _, err := l.Sync(t.Context(), r); err == nil || !strings.Contains(err.Error(), "0 of 1 replicas have it") {
		t.Fatalf("without a replica: %v", err)
	}
	host, port, _ := strings.Cut(server.Addr(), ":")
	replica := redistest.Server(t, "--replicaof", host+" "+port)
	// A replica on a busy machine may be late: what it was late for is asked again.
	deadline := time.After(30 * time.Second)
	synced := func() transition.Answer {
		for {
			a, err := l.Sync(t.Context(), r)
			if err == nil {
				return a
			}
			select {
			case <-deadline:
				t.Fatalf("with a replica: %v", err)
			default:
			}
		}
	}
	r.Hold, r.Claim = []partition.Grant{synced().Mine[0].Grant}, nil
	synced() // in full, since the one before claimed something
	replica.Pause()
	defer replica.Resume()
	said(t, l, r) // quiet
	census, err := l.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := transition.Roll{Membership: census.Membership}
	if err := l.Seal(t.Context(), next); err == nil || !strings.Contains(err.Error(), "0 of 1 replicas have it") {
		t.Errorf("a roll that no replica has: %v", err)
	}
	if _, err := redisledger.New(client, name, redisledger.Config{WaitReplicas: -1}); err == nil {
		t.Error("-1 replicas are taken")
	}
}
