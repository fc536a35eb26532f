// Package controltest checks that the ledger of a package under frameworkfx waits for no connection
// that tasks hold.
package controltest

import (
	"context"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition"
)

// Waits fails the test if the ledger that open makes waits while call, one of the tasks', is under
// way. Tasks have a single connection at the URL that open is given.
func Waits(t *testing.T, open func(url string) (call func(context.Context) error, control framework.Control)) {
	t.Helper()
	mini, _ := redistest.Mini(t)
	held, free := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool
	armed.Store(true)
	mini.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
		if cmd != "HELLO" && cmd != "CLIENT" && armed.CompareAndSwap(true, false) {
			close(held)
			<-free
		}
		return false
	})
	one := url.Values{"pool_size": {"1"}, "pipeline_pool_size": {"-1"}, "pool_timeout": {"100ms"}, "read_timeout": {"1m"}}
	call, control := open("redis://" + mini.Addr() + "?" + one.Encode())
	called := make(chan error, 1)
	go func() { called <- call(t.Context()) }()
	defer func() { <-called }()
	defer close(free)
	select {
	case <-held:
	case err := <-called:
		called <- err
		t.Fatalf("the call does not come to the server: %v", err)
	}
	Syncs(t, control, "while a task holds the connection")
}

// Syncs fails the test if the ledger that control makes does not answer. When says what is the case.
func Syncs(t *testing.T, control framework.Control, when string) {
	t.Helper()
	ledger, _, err := control(partition.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := ledger.Sync(ctx, transition.Request{Session: transition.NewSession()}); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}

// Declares fails the test if a peer of the ledger that control makes does not say that it is of
// deployment and waits for so many replicas.
func Declares(t *testing.T, control framework.Control, deployment string, replicas int) {
	t.Helper()
	ledger, _, err := control(partition.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = ledger.Sync(t.Context(), transition.Request{Session: transition.NewSession()}) // no replica has it
	c, err := ledger.Census(t.Context())
	if err != nil || len(c.Sessions) != 1 {
		t.Fatalf("the census is %+v, %v: want one session", c, err)
	}
	if s := c.Sessions[0]; s.Terms.Deployment != deployment || s.Replicas != replicas {
		t.Errorf("it says that it is of %q and waits for %d replicas, want %q and %d", s.Terms.Deployment, s.Replicas, deployment, replicas)
	}
}

// Source returns the call and the control of the one source among options, which are closed with
// the test.
func Source(t *testing.T, options ...fx.Option) (call func(context.Context) error, control framework.Control) {
	t.Helper()
	var made []frameworkfx.Source
	app := fxtest.New(t, append(options,
		fx.Invoke(fx.Annotate(func(all []frameworkfx.Source) { made = all }, fx.ParamTags(frameworkfx.SourceGroup))))...)
	app.RequireStart()
	t.Cleanup(func() { app.RequireStop() })
	if len(made) != 1 || made[0].Err != nil {
		t.Fatalf("%+v, want one source", made)
	}
	return func(ctx context.Context) error {
		_, err := made[0].Survey(ctx, []partition.ID{0})
		return err
	}, made[0].Control(transition.Timing{})
}
