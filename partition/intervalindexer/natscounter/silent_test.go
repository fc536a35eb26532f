package natscounter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A halfMute is a bucket that does not answer the first reads, as one of whose replicas one is gone without a word.
type halfMute struct {
	jetstream.Stream
	mute int
}

func (h *halfMute) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	if h.mute--; h.mute >= 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &jetstream.RawStreamMsg{Subject: subject, Data: []byte("4"), Sequence: 9}, nil
}

func TestAReplicaIsGoneWithoutAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Counter{cfg: Config{}.WithDefaults()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n, revision, err := c.read(ctx, &halfMute{mute: 3}, "{mail}:7"); n != 4 || revision != 9 || err != nil {
			t.Errorf("three replicas did not answer: %d, %d, %v", n, revision, err)
		}
		began := time.Now()
		if _, _, err := c.read(ctx, &halfMute{mute: 1000}, "{mail}:7"); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
			t.Errorf("nobody answers: %v after %v", err, time.Since(began))
		}
	})
}
