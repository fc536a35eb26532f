package redisprogress

import (
	"context"
	_ "embed" // the script is a file
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
)

var (
	//go:embed survey.lua
	surveySource string
	surveyScript = redis.NewScript(surveySource)
)

// A Fenced says who may fetch and settle in a partition.
type Fenced struct {
	ID    partition.ID
	Fence partition.Token // zero while nobody may
	// Log says that its log is not empty; never where the log is elsewhere.
	Log bool
}

// A Survey reads who may fetch and settle, for whoever looks often: on one node it is
// one request whatever the number of partitions; on a cluster, where each costs requests
// of its own, a look is at one of them, in turn. It belongs to one goroutine.
type Survey struct {
	client redis.UniversalClient
	place  func(partition.ID) (fence, log string)
	turn   int
}

// NewSurvey returns a survey of the partitions whose fence and log place names: keys in
// one slot. Those without a fence are left out; those without a log have it elsewhere.
func NewSurvey(client redis.UniversalClient, place func(partition.ID) (fence, log string)) *Survey {
	return &Survey{client: client, place: place}
}

// Look reads the partitions ids, or one of them.
func (s *Survey) Look(ctx context.Context, ids []partition.ID) ([]Fenced, error) {
	var out []Fenced
	var keys []string
	for _, id := range ids {
		if fence, log := s.place(id); fence != "" {
			if log == "" {
				log = fence
			}
			out, keys = append(out, Fenced{ID: id}), append(keys, fence, log)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	var err error
	if _, single := s.client.(*redis.Client); single {
		err = s.all(ctx, keys, out)
	} else {
		s.turn++
		i := s.turn % len(out)
		out = out[i : i+1]
		err = s.one(ctx, keys[2*i], keys[2*i+1], &out[0])
	}
	if err != nil {
		return nil, fmt.Errorf("redisprogress: fences: %w", err)
	}
	return out, nil
}

func (s *Survey) all(ctx context.Context, keys []string, out []Fenced) error {
	reply, err := surveyScript.Run(ctx, s.client, keys).StringSlice()
	if err == nil && len(reply) != len(keys) {
		err = errors.New("the script's answer is too short")
	}
	for i := range out {
		if err == nil {
			err = out[i].read(reply[2*i], reply[2*i+1] != "0")
		}
	}
	return err
}

func (s *Survey) one(ctx context.Context, fence, log string, out *Fenced) error {
	token, err := s.client.HGet(ctx, fence, "t").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	n := int64(0)
	if log != fence {
		if n, err = s.client.LLen(ctx, log).Result(); err != nil {
			return err
		}
	}
	return out.read(token, n > 0)
}

func (f *Fenced) read(token string, log bool) (err error) {
	f.Log = log
	if token != "" {
		f.Fence, err = partition.ParseToken(token)
	}
	return err
}
