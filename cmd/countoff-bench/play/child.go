package play

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-bench/contest"
	"github.com/countoff/countoff/cmd/countoff-bench/meter"
	"github.com/countoff/countoff/cmd/countoff-bench/report"
	"github.com/countoff/countoff/partition/redisurl"
)

// Command is the word with which the program runs itself as a contestant.
const Command = "contestant"

// A word is what a contestant's process says on its standard output when it has ended.
type word struct {
	Span     *meter.Span     `json:"span,omitempty"` // of whoever does not measure itself
	Measures report.Measures `json:"measures,omitempty"`
	Absent   bool            `json:"absent,omitempty"` // what it takes is not installed
	Err      string          `json:"err,omitempty"`
}

// runTimeout is how long one run may take.
const runTimeout = 3 * time.Minute

// Part plays the part that the program was run again for, if args, its command line, say
// so, and reports whether it has.
func Part(args []string, in io.Reader, out io.Writer) (done bool, err error) {
	if len(args) < 2 {
		return false, nil
	}
	switch args[1] {
	case Command:
		return true, Contestant(args[2:], out)
	case contest.BrokerCommand:
		return true, contest.Broker(in, out)
	}
	return false, nil
}

// Contestant is the program as a contestant: args are those behind [Command]. It says how
// it went when it has ended.
func Contestant(args []string, out io.Writer) error {
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	var (
		tag     = flags.String("tag", "", "which one")
		addr    = flags.String("addr", "", "host:port of the store")
		n       = flags.Int("n", 0, "how many tasks there are")
		quick   = flags.Bool("quick", false, "a quick run")
		profile = flags.String("profile", "", "folder for profiles")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, ok := contest.Find(*tag)
	if !ok {
		return fmt.Errorf("no contestant %q", *tag)
	}
	redisurl.Quiet()
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: *addr})
	defer client.Close()
	look, err := meter.LookAt(ctx, client)
	if err != nil {
		return err
	}
	m := meter.New(*n, look)
	runtime.GC() // the next one is not far into the run for some and near for others
	profiled := make(chan error, 1)
	go func() {
		<-m.Began()
		profiled <- record(*profile, c.Tag, m.Ended())
	}()
	var w word
	w.Measures, err = c.Run(ctx, &contest.Run{Addr: *addr, Meter: m, Quick: *quick})
	if err == nil && c.Kind != contest.Tool {
		var span meter.Span
		span, err = m.Span()
		w.Span, err = &span, errors.Join(err, m.Check(), <-profiled)
	}
	w.Absent = errors.Is(err, contest.ErrAbsent)
	if err != nil {
		w.Err = err.Error()
	}
	return json.NewEncoder(out).Encode(w)
}

// record writes a profile of the CPU until ended, and one of the allocations. Without a
// folder it does nothing.
func record(dir, tag string, ended <-chan struct{}) error {
	if dir == "" {
		return nil
	}
	cpu, err := os.Create(filepath.Join(dir, tag+".cpu.pprof"))
	if err != nil {
		return err
	}
	defer cpu.Close()
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return err
	}
	<-ended
	pprof.StopCPUProfile()
	allocs, err := os.Create(filepath.Join(dir, tag+".allocs.pprof"))
	if err != nil {
		return err
	}
	defer allocs.Close()
	return pprof.Lookup("allocs").WriteTo(allocs, 0)
}
