package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countoff/countoff/examples/mail-sender/queue"
	"github.com/countoff/countoff/sources/redissource"
)

// feed enqueues the mails, spread over the pace.
func (p *play) feed(ctx context.Context) (err error) {
	producer, err := redissource.NewProducer(ctx, p.store.Client, p.store.Name, redissource.ProducerConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, producer.Close(context.WithoutCancel(ctx))) }()
	const rounds = 220 // every 100 ms, at the pace for people
	start, n := time.Now(), 0
	var batch []redissource.Message
	for m, err := range queue.Generate(p.cfg.Mails, recipients, p.cfg.Seed) {
		if err != nil {
			return err
		}
		message, err := queue.Message(m)
		if err != nil {
			return err
		}
		batch = append(batch, message)
		n++
		round := n * rounds / p.cfg.Mails
		if round == (n-1)*rounds/p.cfg.Mails && n < p.cfg.Mails {
			continue
		}
		if err := p.enqueue(ctx, producer, batch); err != nil {
			return err
		}
		batch = batch[:0]
		if err := sleep(ctx, time.Until(start.Add(time.Duration(round)*p.cfg.Pace/rounds))); err != nil {
			return err
		}
	}
	return nil
}

// enqueue puts one batch into the queue and notes it.
func (p *play) enqueue(ctx context.Context, producer *redissource.Producer, batch []redissource.Message) error {
	now := time.Now()
	results, err := producer.Enqueue(ctx, batch...)
	if err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range results {
		p.mails = append(p.mails, sent{id: r.ID, key: batch[i].Key, at: r.Partition, when: now})
	}
	return nil
}
