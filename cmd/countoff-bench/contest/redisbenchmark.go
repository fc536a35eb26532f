package contest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"

	"github.com/countoff/countoff/cmd/countoff-bench/report"
)

// ErrAbsent means that a contestant's program is not installed.
var ErrAbsent = errors.New("not installed here")

// redisBenchmark is the C client that comes with the store, with deep pipelines.
func redisBenchmark() Contestant {
	return Contestant{
		Tag: "redis-benchmark", What: "redis-benchmark -P 64 -c 50, LPOP one by one", Kind: Tool, Tasks: 1_000_000, Quick: 300_000,
		Preload: fillList, Check: emptied(rawList),
		Run: func(ctx context.Context, r *Run) (report.Measures, error) {
			program, err := exec.LookPath("redis-benchmark")
			if err != nil {
				return nil, fmt.Errorf("redis-benchmark: %w", ErrAbsent)
			}
			host, port, err := net.SplitHostPort(r.Addr)
			if err != nil {
				return nil, err
			}
			cmd := exec.CommandContext(ctx, program, "-h", host, "-p", port, "-n", strconv.Itoa(r.Meter.Tasks()),
				"-c", "50", "-P", "64", "--csv", "LPOP", rawList)
			said, err := cmd.Output()
			if err != nil {
				return nil, fmt.Errorf("redis-benchmark: %w", err)
			}
			rate, err := benchmarkRate(string(said))
			if err != nil {
				return nil, err
			}
			return report.Measures{report.TasksPerSecond: rate}, nil
		},
	}
}

// benchmarkRate reads the requests per second from the program's CSV.
func benchmarkRate(csv string) (float64, error) {
	lines := strings.Split(strings.TrimSpace(csv), "\n")
	fields := strings.Split(lines[len(lines)-1], `","`)
	if len(fields) < 2 {
		return 0, fmt.Errorf("redis-benchmark said %q", csv)
	}
	return strconv.ParseFloat(strings.Trim(fields[1], `"`), 64)
}
