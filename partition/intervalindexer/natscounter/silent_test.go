package natscounter

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A halfMute is a bucket that does not answer the first reads, as one of whose replicas one is gone without a word.
type halfMute struct {
	jetstream.Stream
	mute atomic.Int64
}

func muteFor(reads int64) *halfMute {
	h := &halfMute{}
	h.mute.Store(reads)
	return h
}

func (h *halfMute) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	if h.mute.Add(-1) >= 0 {
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
		if n, revision, err := c.read(ctx, muteFor(3), "{mail}:7"); n != 4 || revision != 9 || err != nil {
			t.Errorf("three replicas did not answer: %d, %d, %v", n, revision, err)
		}
		began := time.Now()
		if _, _, err := c.read(ctx, muteFor(1000), "{mail}:7"); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
			t.Errorf("nobody answers: %v after %v", err, time.Since(began))
		}
	})
}

// A slow is a bucket whose replicas all take a while to answer, as those of a loaded server, or of a far one.
type slow struct {
	jetstream.Stream
	takes time.Duration
}

func (s slow) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	select {
	case <-time.After(s.takes):
		return &jetstream.RawStreamMsg{Subject: subject, Data: []byte("4"), Sequence: 9}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestSlowReplicasAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Counter{cfg: Config{}.WithDefaults()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if n, _, err := c.read(ctx, slow{takes: 300 * time.Millisecond}, "{mail}:7"); n != 4 || err != nil || time.Since(began) != 300*time.Millisecond {
			t.Errorf("replicas answer after 300ms: %d, %v after %v", n, err, time.Since(began))
		}
	})
}
