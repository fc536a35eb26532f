package kafkasource

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
)

// fault makes a kfake answer with an error until it is removed.
func (s *stage) fault(topic string, err *kerr.Error, keys ...kmsg.Key) *kfake.FaultHandle {
	s.Helper()
	if s.broker.Cluster == nil {
		s.Skip("a broker that can be told to fail")
	}
	return s.broker.Cluster.Fault(kfake.Fault{Keys: keys, Topic: topic, Err: err, Count: -1})
}

// An error of the whole topic is told to whoever waits for its tasks, and is over when the
// broker answers again: the client names no partition in it.
func TestATroubleOfTheTopicIsTold(t *testing.T) {
	s := newStage(t, 2)
	src := s.source(Config{})
	streams := []*stream{s.open(src, 0), s.open(src, 1)}
	for id, st := range streams {
		src.reader.remove(st)
		s.push(partition.ID(id), "t", 1)
	}
	refused := s.fault(s.topic, kerr.TopicAuthorizationFailed, kmsg.Metadata)
	for _, st := range streams {
		src.reader.add(st, 0)
	}
	for _, st := range streams {
		_, err := st.Fetch(s.soon(), 1)
		if !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "READ and DESCRIBE") {
			t.Errorf("fetch: %v, want what the broker says of the topic, and what to do", err)
		}
	}
	refused.Remove()
	for _, st := range streams {
		s.until("it is read again", func() bool {
			tasks, err := st.Fetch(s.soon(), 1)
			if err != nil && !errors.Is(err, kerr.TopicAuthorizationFailed) {
				t.Fatal(err)
			}
			return len(tasks) == 1
		})
	}
}

// A dead topic that takes nothing, now or ever, is told, and holds up nothing but the end of
// what is dead; who closes meanwhile waits no longer than it wants.
func TestADeadTopicThatDoesNotAnswer(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(s *stage) (over func())
	}{
		{"too few replicas", func(s *stage) func() { return s.fault(s.topic+".dead", kerr.NotEnoughReplicas, kmsg.Produce).Remove }},
		{"silence", func(s *stage) func() {
			if s.broker.Cluster == nil {
				s.Skip("a broker that can be told to fail")
			}
			over := make(chan struct{})
			s.broker.Cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				s.broker.Cluster.KeepControl()
				s.broker.Cluster.SleepControl(func() { <-over })
				return nil, nil, false
			})
			return func() { close(over) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 1)
			s.push(0, "t", 6)
			st := s.open(s.source(Config{}), 0)
			got := s.take(st, 2)
			s.settle(st, sources.Dead, got[0]) // so that there is a dead topic
			over := c.fail(s)
			defer over()
			told := make(chan error, 1)
			ctx := s.soon()
			go func() {
				told <- st.Settle(ctx, sources.Settlement{Task: &got[1], Outcome: sources.Dead, Attempt: 1})
			}()
			s.until("the letter may be written", func() bool {
				st.Mu.Lock()
				defer st.Mu.Unlock()
				for _, l := range st.letters {
					return l.admitted
				}
				return false
			})
			for n := 0; n < 4; { // goes on
				soon, cancel := context.WithTimeout(ctx, letterTimeout/2)
				tasks, err := st.Fetch(soon, 4)
				cancel()
				if err != nil {
					t.Fatalf("fetch beside the letter: %v", err)
				}
				n += len(tasks)
			}
			if err := <-told; err == nil || !strings.Contains(err.Error(), s.topic+".dead") {
				t.Errorf("settle: %v, want what is wrong with the dead topic", err)
			}
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			closed := make(chan error, 1)
			go func() { closed <- st.Close(ctx) }()
			select {
			case err := <-closed:
				if err == nil {
					t.Error("it is closed although the letter is not there")
				}
			case <-time.After(letterTimeout):
				t.Error("close waits on and on")
			}
		})
	}
}
