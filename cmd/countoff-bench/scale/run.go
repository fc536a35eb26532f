package scale

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/cmd/countoff-bench/report"
	"github.com/countoff/countoff/partition/redistest/redisserver"
	"github.com/countoff/countoff/transition"
)

// rounds is how often each size is measured. What counts is the least time: all that
// disturbs a script makes it longer.
const rounds = 3

// Run measures names of all sizes and idle peers on a store of its own, and writes what
// it saw as tables.
func Run(ctx context.Context, sizes []Size, idle []int, out, log io.Writer) error {
	server, end, err := redisserver.Temporary(ctx)
	if err != nil {
		return err
	}
	defer end()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: time.Minute})
	defer client.Close()

	planes := make([]Plane, len(sizes))
	for i, size := range sizes {
		for range rounds {
			p, err := Measure(ctx, client, size)
			if err != nil {
				return fmt.Errorf("%d peers, %d partitions: %w", size.Peers, size.Partitions, err)
			}
			planes[i].least(p)
		}
		fmt.Fprintf(log, "%d peers, %d partitions: a quiet Sync takes %v\n", size.Peers, size.Partitions, planes[i].Quiet.Took)
	}
	control(out, planes)
	footprints := make([]Footprint, len(idle))
	for i, partitions := range idle {
		if footprints[i], err = Idle(ctx, client, partitions); err != nil {
			return fmt.Errorf("an idle peer with %d partitions: %w", partitions, err)
		}
	}
	footprint(out, footprints)
	return nil
}

func control(out io.Writer, planes []Plane) {
	calls := [][]string{{"peers", "partitions", "join us", "gain us", "full us", "quiet us", "full bytes in, out", "quiet bytes in, out", "seal ms, KB", "census ms, KB", "keys KB"}}
	rates := [][]string{{"peers", "partitions", "Syncs/s", "core, quiet", "KB/s, quiet", "core, all join in 1 s"}}
	beat := transition.Timing{}.WithDefaults().Beat()
	for _, p := range planes {
		size := []string{strconv.Itoa(p.Peers), strconv.Itoa(p.Partitions)}
		calls = append(calls, append(size, micros(p.Join), micros(p.Gain), micros(p.Full), micros(p.Quiet),
			traffic(p.Full), traffic(p.Quiet), large(p.Seal), large(p.Census), kilo(p.Memory)))
		perSecond := float64(p.Peers) / beat.Seconds()
		rates = append(rates, append(size, report.Number(perSecond),
			percent(perSecond*p.Quiet.Took.Seconds()), report.Number(perSecond*float64(p.Quiet.In+p.Quiet.Out)/1000),
			percent(float64(p.Peers)*(p.Join.Took+p.Gain.Took).Seconds())))
	}
	report.Markdown(out, calls)
	report.Markdown(out, rates)
}

func footprint(out io.Writer, all []Footprint) {
	rows := [][]string{{"idle partitions of a peer", "heap KB", "stacks KB", "goroutines", "store KB"}}
	for _, f := range all {
		rows = append(rows, []string{strconv.Itoa(f.Partitions), kilo(f.Heap), kilo(f.Stacks), strconv.Itoa(f.Goroutines), kilo(f.Store)})
	}
	report.Markdown(out, rows)
}

func micros(c Cost) string     { return report.Number(float64(c.Took) / float64(time.Microsecond)) }
func kilo(bytes int) string    { return report.Number(float64(bytes) / 1000) }
func traffic(c Cost) string    { return strconv.Itoa(c.In) + ", " + strconv.Itoa(c.Out) }
func percent(f float64) string { return report.Number(100*f) + " %" }

func large(c Cost) string {
	return report.Number(float64(c.Took)/float64(time.Millisecond)) + ", " + kilo(max(c.In, c.Out))
}
