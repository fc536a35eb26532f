package kafkasource

import (
	"errors"
	"testing"

	"github.com/countoff/countoff/sources"
)

// A topic that was made anew is read by whoever opens a partition of it, although another one
// of the peer still has what it read of the old one and has not noticed.
func TestATopicMadeAnewBesideAFullPartition(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	src := s.source(Config{OutOfRange: Earliest, Buffer: 4 << 10})
	st, full := s.open(src, 0), s.open(src, 1)
	s.push(1, "old", 500)
	s.until("it is paused", func() bool {
		full.Mu.Lock()
		defer full.Mu.Unlock()
		return full.buffer.paused
	})
	done, err := s.admin.DeleteTopics(s.soon(), s.topic)
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.client.PurgeTopicsFromClient(s.topic)
	s.broker.Create(s.topic, 2)
	s.push(0, "new", 1)
	s.push(1, "new", 1)
	if _, err := st.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrForgot) {
		t.Fatalf("fetch of the topic that is gone: %v, want ErrForgot", err)
	}
	s.close(st)
	s.want("the next owner", s.take(s.open(src, 0), 1)[0], "new0")
	if _, err := full.Fetch(s.soon(), 1); !errors.Is(err, sources.ErrForgot) {
		t.Errorf("fetch of the partition that was full: %v, want ErrForgot", err)
	}
	s.close(full)
	s.want("its next owner", s.take(s.open(src, 1), 1)[0], "new0")
}
