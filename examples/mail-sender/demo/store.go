package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countoff/countoff/examples/mail-sender/embedded"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/sources/redissource"
	"github.com/countoff/countoff/transition/redisledger"
)

// store opens the store: an embedded one that is known to be new, or the user's,
// under a name of its own that is removed again.
func (p *play) store(ctx context.Context) (func(), error) {
	p.redisURL = p.cfg.Redis
	stop := func() {}
	if p.redisURL == "" {
		r, err := embedded.Start(p.cfg.Listen)
		if err != nil {
			return nil, err
		}
		stop, p.redisURL = r.Close, r.URL()
	} else {
		p.name = fmt.Sprintf("mail-sender-demo-%d", p.began.Unix())
	}
	client, err := redisurl.Open(p.redisURL)
	if err != nil {
		stop()
		return nil, err
	}
	p.client = client
	done := func() {
		_ = client.Close()
		stop()
	}
	if err := redisurl.Reach(ctx, client, p.redisURL); err != nil {
		done()
		return nil, err
	}
	if _, err := redisledger.Init(ctx, client, p.name, partition.Config{Total: partitions}); err != nil {
		done()
		return nil, err
	}
	if p.cfg.Redis == "" {
		return done, nil
	}
	return func() {
		p.raze()
		done()
	}, nil
}

// raze removes what the play left on a store that is not its own.
func (p *play) raze() {
	ctx, cancel := context.WithTimeout(context.Background(), ending)
	defer cancel()
	err := redisledger.Idle(ctx, p.client, p.name)
	for errors.Is(err, redisledger.ErrInUse) && ctx.Err() == nil { // a lease of a killed peer ends
		time.Sleep(lease / 4)
		err = redisledger.Idle(ctx, p.client, p.name)
	}
	if err == nil {
		_, err = redissource.Destroy(ctx, p.client, p.name)
	}
	if err == nil {
		err = redisledger.Destroy(ctx, p.client, p.name)
	}
	if err != nil {
		p.say("%s was left on the store (%v): countoff destroy %s --yes", p.name, err, p.name)
	}
}
