package kafkafx_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/kafkafx"
	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
)

// Peers of two topics are not given one name: nobody would do the rest of each, and the larger one would
// give the other partitions that it has not got. Nor are those that keep in two places what is done.
func TestANameHasOneTopicAndOnePlaceOfProgress(t *testing.T) {
	s := newStage(t, 1)
	larger := kafkatest.Name(t)
	s.broker.Create(larger, 2)
	handle := func(context.Context, *framework.Task) error { return nil }
	works := make(chan struct{})
	begun := sync.OnceFunc(func() { close(works) })
	own := s.peer(quick, func(context.Context, *framework.Task) error { begun(); return nil })
	s.push(0, "k", 1, 0)
	<-works
	for _, c := range []struct {
		topic    string
		progress kafkafx.Progress
	}{{larger, kafkafx.InRedis}, {s.topic, kafkafx.InKafka}} {
		wrong := *s
		wrong.topic, wrong.progress = c.topic, c.progress
		other := wrong.peer(quick, handle)
		select {
		case got := <-other.Wait():
			if got.ExitCode != frameworkfx.ExitConfig {
				t.Errorf("%s with progress in %s: it ends with %d", c.topic, c.progress, got.ExitCode)
			}
		case <-time.After(patience):
			t.Errorf("%s with progress in %s: it goes on", c.topic, c.progress)
		}
		_ = other.Stop(t.Context()) // says again why it ended
	}
	if got := s.redis.HGet(t.Context(), redisconfig.Key(s.name), "total").Val(); got != "1" {
		t.Errorf("the name has %s partitions now", got)
	}
	own.RequireStop()
}

// With progress in Kafka the group is where it is: who has another one would begin anew, or at the end of the topic.
// With progress in Redis it decides nothing.
func TestANameHasOneGroupForItsProgress(t *testing.T) {
	eachProgress(t, 1, func(s *stage) {
		works, passed := make(chan struct{}), make(chan struct{})
		begun, over := sync.OnceFunc(func() { close(works) }), sync.OnceFunc(func() { close(passed) })
		own := s.peer(quick, func(context.Context, *framework.Task) error { begun(); return nil })
		s.push(0, "k", 1, 0)
		<-works
		wrong := *s
		wrong.group = s.name + "-2"
		member := make(chan struct{})
		joined := sync.OnceFunc(func() { close(member) })
		other := wrong.peer(quick, func(context.Context, *framework.Task) error { over(); return nil },
			frameworkfx.Observe(func() framework.Observer {
				return framework.ObserverFunc(func(e framework.Event) {
					if _, is := e.(framework.Started); is {
						joined()
					}
				})
			}))
		if s.progress == kafkafx.InKafka {
			select {
			case got := <-other.Wait():
				if got.ExitCode != frameworkfx.ExitConfig {
					s.Errorf("it ends with %d", got.ExitCode)
				}
			case <-member:
				s.Error("it takes part")
			case <-time.After(patience):
				s.Error("it goes on")
			}
			_ = other.Stop(s.Context()) // says again why it ended
			own.RequireStop()
			return
		}
		own.RequireStop() // which leaves the partition to the other
		s.push(0, "k", 1, 1)
		select {
		case <-passed:
		case <-time.After(patience):
			s.Error("it does not work")
		}
		other.RequireStop()
	})
}
