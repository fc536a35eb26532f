// Package embedded is a Redis inside the process, for the demo and for whoever has
// none at hand. It speaks to other processes over TCP, keeps nothing on disk and
// is slow under scripts (a few thousand a second): for looking, not for measuring.
package embedded

import (
	"cmp"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// tick is how often keys may expire.
const tick = 100 * time.Millisecond

// A Redis is a running server.
type Redis struct {
	mini *miniredis.Miniredis
	stop chan struct{}
	done chan struct{}
}

// Start listens on addr, host:port; an empty one is a free port of 127.0.0.1.
//
// Keys expire by a ticker that moves miniredis' clock for expiry. Its own following of the
// clock (ClockTTL) sorts all keys at every command and does not stand the load.
func Start(addr string) (*Redis, error) {
	r := &Redis{mini: miniredis.NewMiniRedis(), stop: make(chan struct{}), done: make(chan struct{})}
	if err := r.mini.StartAddr(cmp.Or(addr, "127.0.0.1:0")); err != nil {
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	go r.expire()
	return r, nil
}

func (r *Redis) expire() {
	defer close(r.done)
	t := time.NewTicker(tick)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-t.C:
			now := time.Now()
			r.mini.FastForward(now.Sub(last))
			last = now
		case <-r.stop:
			return
		}
	}
}

// URL returns where it listens, as redis://host:port.
func (r *Redis) URL() string { return "redis://" + r.mini.Addr() }

// Close ends the server and forgets everything in it. It must be called once.
func (r *Redis) Close() {
	close(r.stop)
	<-r.done
	r.mini.Close()
}
