package play

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-bench/contest"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
	"github.com/countoff/countoff/cmd/countoff-chaos/child"
	"github.com/countoff/countoff/partition/redistest/redisserver"
)

// A Config says what is run.
type Config struct {
	Self        string // the program that is run as a contestant
	Contestants []contest.Contestant
	Rounds      int
	Quick       bool
	// Budget is how long it may take in all: no round is begun that would probably
	// take longer, but the first. Default 0: no limit.
	Budget time.Duration
	// Tasks is how many tasks each run has. Default 0: what each contestant says.
	Tasks   int
	Profile string    // folder for the contestants' profiles; empty: none
	Log     io.Writer // lines of progress
}

// Run runs all rounds on a store of its own.
func Run(ctx context.Context, cfg Config) (report.Samples, error) {
	server, end, err := redisserver.Temporary(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	s := stage{cfg: cfg, addr: server.Addr(), client: client}
	return s.rounds(ctx)
}

// A stage is the store with what runs on it.
type stage struct {
	cfg    Config
	addr   string
	client *redis.Client
	absent []string // tags that cannot run here
}

func (s *stage) rounds(ctx context.Context) (report.Samples, error) {
	var all report.Samples
	began := time.Now()
	took := make(map[string]time.Duration) // by tag
	for round := 1; round <= s.cfg.Rounds; round++ {
		order := s.order(round)
		if round > 1 && s.cfg.Budget > 0 {
			next := time.Duration(0)
			for _, c := range order {
				next += took[c.Tag]
			}
			if time.Since(began)+next > s.cfg.Budget {
				break
			}
		}
		for _, c := range order {
			runBegan := time.Now()
			sample, err := s.run(ctx, c)
			took[c.Tag] = time.Since(runBegan)
			if errors.Is(err, contest.ErrAbsent) {
				s.absent = append(s.absent, c.Tag)
				fmt.Fprintf(s.cfg.Log, "%s: left out: %v\n", c.Tag, err)
				continue
			}
			if err != nil {
				return all, fmt.Errorf("round %d, %s: %w", round, c.Tag, err)
			}
			sample.Round = round
			all = append(all, sample)
			fmt.Fprintf(s.cfg.Log, "%4.0fs  round %d of %d  %-24s %s\n", time.Since(began).Seconds(), round, s.cfg.Rounds, c.Tag, brief(sample))
		}
	}
	return all, nil
}

// order is the contestants of a round: each time another one begins. In a quick run
// what takes its time whatever the machine is part of the first round only.
func (s *stage) order(round int) []contest.Contestant {
	var all []contest.Contestant
	for _, c := range s.cfg.Contestants {
		slow := c.Kind == contest.Idle || c.Kind == contest.Latency
		if !slices.Contains(s.absent, c.Tag) && (!slow || !s.cfg.Quick || round == 1) {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil
	}
	const stride = 5 // neighbours of one kind do not always begin
	k := (round - 1) * stride % len(all)
	return slices.Concat(all[k:], all[:k])
}

// brief is the first figure of a sample, for a line of progress.
func brief(s report.Sample) string {
	for _, m := range []string{report.TasksPerSecond, report.P50, report.RequestsPerSec} {
		if v, ok := s.Measures[m]; ok {
			return report.Number(v) + " " + m
		}
	}
	return ""
}

// run runs one contestant on an empty store.
func (s *stage) run(ctx context.Context, c contest.Contestant) (report.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	n := c.Tasks
	if s.cfg.Quick {
		n = c.Quick
	}
	if s.cfg.Tasks > 0 && c.Kind != contest.Idle && c.Kind != contest.Latency {
		n = s.cfg.Tasks
	}
	if err := s.client.FlushAll(ctx).Err(); err != nil {
		return report.Sample{}, err
	}
	if c.Preload != nil {
		if err := c.Preload(ctx, s.client, n); err != nil {
			return report.Sample{}, fmt.Errorf("preload: %w", err)
		}
	}
	cmd := exec.CommandContext(ctx, s.cfg.Self, Command, "--tag", c.Tag, "--addr", s.addr, "--n", strconv.Itoa(n),
		"--profile", s.cfg.Profile, "--quick="+strconv.FormatBool(s.cfg.Quick))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := child.Start(cmd); err != nil {
		return report.Sample{}, err
	}
	ended := cmd.Wait()
	result, err := heard(c, stdout.Bytes())
	if ended != nil || err != nil {
		if stderr.Len() > 0 {
			err = errors.Join(err, errors.New(stderr.String()))
		}
		return report.Sample{}, errors.Join(err, ended)
	}
	if c.Check != nil {
		if err := c.Check(ctx, s.client, n); err != nil {
			return report.Sample{}, fmt.Errorf("when it had ended: %w", err)
		}
	}
	return result, nil
}

// heard reads what a contestant has said.
func heard(c contest.Contestant, said []byte) (report.Sample, error) {
	if len(said) == 0 {
		return report.Sample{}, errors.New("it ended without its last word")
	}
	var w word
	if err := json.Unmarshal(said, &w); err != nil {
		return report.Sample{}, fmt.Errorf("it said %q: %w", said, err)
	}
	switch {
	case w.Absent:
		return report.Sample{}, fmt.Errorf("%s: %w", c.Tag, contest.ErrAbsent)
	case w.Err != "":
		return report.Sample{}, errors.New(w.Err)
	}
	return sample(c, w.Span, w.Measures), nil
}
