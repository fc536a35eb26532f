package meter

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Store is what the store did in a span.
type Store struct {
	CPU    time.Duration      // user and system
	Calls  map[string]float64 // by command, those in scripts included
	Micros map[string]float64 // how long it was at them, in microseconds
}

// A Look asks the store what it has done until now.
type Look func() (Answer, error)

// Answer is what the store says: the text of INFO, read when nothing is measured any more.
type Answer string

// LookAt returns a Look by client, which has its connection already.
func LookAt(ctx context.Context, client *redis.Client) (Look, error) {
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, err
	}
	return func() (Answer, error) {
		text, err := client.Info(ctx, "cpu", "commandstats").Result()
		return Answer(text), err
	}, nil
}

// between returns what the store did from one answer to the next.
func between(before, after Answer) (Store, error) {
	a, err := before.read()
	if err != nil {
		return Store{}, err
	}
	b, err := after.read()
	if err != nil {
		return Store{}, err
	}
	b.CPU -= a.CPU
	for command, n := range a.Calls {
		b.Calls[command] -= n
		b.Micros[command] -= a.Micros[command]
		if b.Calls[command] == 0 {
			delete(b.Calls, command)
			delete(b.Micros, command)
		}
	}
	return b, nil
}

// read returns what the store did since it began.
func (a Answer) read() (Store, error) {
	s := Store{Calls: make(map[string]float64), Micros: make(map[string]float64)}
	clocks := 0
	for lines := bufio.NewScanner(strings.NewReader(string(a))); lines.Scan(); {
		field, value, _ := strings.Cut(lines.Text(), ":")
		command, isCommand := strings.CutPrefix(field, "cmdstat_")
		switch {
		case field == "used_cpu_user" || field == "used_cpu_sys":
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return Store{}, err
			}
			s.CPU += time.Duration(seconds * float64(time.Second))
			clocks++
		case isCommand && command != "info": // which is ours
			var calls, usec int64
			if _, err := fmt.Sscanf(value, "calls=%d,usec=%d,", &calls, &usec); err != nil {
				return Store{}, fmt.Errorf("the store said %q: %w", lines.Text(), err)
			}
			s.Calls[command], s.Micros[command] = float64(calls), float64(usec)
		}
	}
	if clocks != 2 {
		return Store{}, fmt.Errorf("the store does not say what it used of the CPU: %.200q", a)
	}
	return s, nil
}
