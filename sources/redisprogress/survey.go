package redisprogress

import (
	"context"
	_ "embed" // the script is a file
	"errors"
	"fmt"
	"slices"
	"strings"

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
// of its own, a look is at the first of them, and at one of the others, in turn. It belongs
// to one goroutine.
type Survey struct {
	client redis.UniversalClient
	place  func(partition.ID) (fence, log string)
	looks  uint64
	looked map[partition.ID]uint64 // where a look is at some: when that was, counted in looks
	away   *partition.ID           // the first of the last look, if it could not be read

	// Of the last look, since the next one is most often at the same.
	ids  []partition.ID
	out  []Fenced // without fences
	args []any    // of the script, the keys from the fourth on
}

// NewSurvey returns a survey of the partitions whose fence and log place names: keys in
// one slot, always the same for one partition. Those without a fence are left out; those
// without a log have it elsewhere.
func NewSurvey(client redis.UniversalClient, place func(partition.ID) (fence, log string)) *Survey {
	return &Survey{client: client, place: place, looked: make(map[partition.ID]uint64)}
}

// Look reads the partitions ids, or two of them. It fails if it can read none.
func (s *Survey) Look(ctx context.Context, ids []partition.ID) ([]Fenced, error) {
	s.prepare(ids)
	if len(s.out) == 0 {
		return nil, nil
	}
	look := s.some
	if _, single := s.client.(*redis.Client); single {
		look = s.all
	}
	out, err := look(ctx, slices.Clone(s.out))
	if err != nil {
		return nil, fmt.Errorf("redisprogress: fences: %w", err)
	}
	return out, nil
}

// some looks at the first of out, which whoever watches it asks for before the others each time, and at the one that was
// not looked at for longest. Where one cannot be read the other is returned alone; and a first that cannot be is left out
// of the next look, since to wait for it may take the time of both.
func (s *Survey) some(ctx context.Context, out []Fenced) (looked []Fenced, err error) {
	s.looks++
	var at []int
	if first := out[0].ID; s.away == nil || *s.away != first {
		at, s.looked[first] = []int{0}, s.looks
	}
	s.away = nil
	for _, i := range slices.Compact(append(at, s.oldest(out))) {
		if err != nil && ctx.Err() != nil {
			break // it has its turn when there is time
		}
		s.looked[out[i].ID] = s.looks
		if wrong := s.one(ctx, s.args[firstKey+2*i].(string), s.args[firstKey+2*i+1].(string), &out[i]); wrong == nil {
			looked = append(looked, out[i])
		} else if err = wrong; i == 0 {
			s.away = &out[0].ID
		}
	}
	if len(looked) > 0 {
		err = nil
	}
	return looked, err
}

// oldest is which of out was not looked at for longest. To count on from look to look would not
// do: who asks for some of all partitions each time, in turn too, could ask for the same few.
func (s *Survey) oldest(out []Fenced) (i int) {
	for k := range out {
		if s.looked[out[k].ID] < s.looked[out[i].ID] {
			i = k
		}
	}
	return i
}

// firstKey is where the keys begin in args.
const firstKey = 3

// prepare makes ready to look at ids.
func (s *Survey) prepare(ids []partition.ID) {
	if slices.Equal(ids, s.ids) {
		return
	}
	s.ids = slices.Clone(ids)
	s.out, s.args = s.out[:0], append(s.args[:0], "evalsha", surveyScript.Hash(), 0)
	for _, id := range ids {
		if fence, log := s.place(id); fence != "" {
			if log == "" {
				log = fence
			}
			s.out, s.args = append(s.out, Fenced{ID: id}), append(s.args, fence, log)
		}
	}
	s.args[2] = 2 * len(s.out)
}

func (s *Survey) all(ctx context.Context, out []Fenced) ([]Fenced, error) {
	text, err := s.client.Do(ctx, s.args...).Text()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		s.args[0], s.args[1] = "eval", surveySource
		text, err = s.client.Do(ctx, s.args...).Text()
		s.args[0], s.args[1] = "evalsha", surveyScript.Hash()
	}
	if err != nil {
		return nil, err
	}
	if n := strings.Count(text, "\n") + 1; n != 2*len(out) {
		return nil, fmt.Errorf("the script's answer has %d lines, want %d", n, 2*len(out))
	}
	for i := range out {
		var token, log string
		token, text, _ = strings.Cut(text, "\n")
		log, text, _ = strings.Cut(text, "\n")
		if err := out[i].read(token, log != "0"); err != nil {
			return nil, err
		}
	}
	return out, nil
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
