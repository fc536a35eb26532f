package framework

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
)

func TestPoolIsIdleWhileNoHandlerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		attended := make(chan bool, 1)
		b = newBench(t, benchConfig{}, func(context.Context, *Task) error {
			if b.Idle() {
				t.Error("idle while a handler runs")
			}
			attended <- b.gate.attended.Load() > 0
			return nil
		})
		defer b.stop()
		b.grant(0)
		time.Sleep(time.Second)
		if !b.Idle() || b.gate.attended.Load() > 0 {
			t.Error("not idle with an empty partition")
		}
		b.push(task("a", 0))
		if !<-attended {
			t.Error("a handler ran that the coordinator was not told of: nobody would end it after a suspend")
		}
		time.Sleep(time.Second)
		if !b.Idle() {
			t.Error("not idle after the last handler")
		}
	})
}

func TestPoolWithAUnitIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, benchConfig{}, nil)
		defer b.stop()
		g := b.grant(partition.FirstUnit)
		time.Sleep(time.Second)
		if b.Idle() {
			t.Error("idle with a unit, whose stream works by itself")
		}
		b.drain(g)
		if !b.Idle() {
			t.Error("not idle without a unit")
		}
	})
}
