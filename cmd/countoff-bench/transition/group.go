package transition

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// group is a consumer group as franz-go's own example has it: a goroutine for each
// partition, which commits what it has done, and is waited for before the partition is
// given away.
func group(tag, what string, opts ...kgo.Opt) contestant {
	return contestant{
		tag: tag, what: what,
		ready: func(context.Context, peer) error { return nil },
		run: func(ctx context.Context, p peer, handle func(Begun)) error {
			m := member{handle: handle, workers: make(map[int32]*worker)}
			client, err := kgo.NewClient(append(append(p.options(), opts...),
				kgo.ConsumerGroup(p.name), kgo.ConsumeTopics(p.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
				kgo.SessionTimeout(lease), kgo.HeartbeatInterval(beat), kgo.FetchMaxWait(100*time.Millisecond),
				kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
				kgo.OnPartitionsAssigned(m.assigned), kgo.OnPartitionsRevoked(m.ended), kgo.OnPartitionsLost(m.ended),
			)...)
			if err != nil {
				return err
			}
			for ctx.Err() == nil {
				fetches := client.PollRecords(ctx, 10_000)
				fetches.EachPartition(func(f kgo.FetchTopicPartition) {
					w := m.worker(f.Partition)
					switch {
					case len(f.Records) == 0:
					case w == nil: // should they be lost, it is told how
						fmt.Fprintf(os.Stderr, "%d records of partition %d, which is not assigned, are left out\n", len(f.Records), f.Partition)
					default:
						select {
						case w.records <- f.Records:
						case <-w.quit:
						}
					}
				})
				client.AllowRebalance()
			}
			client.CloseAllowingRebalance()
			return nil
		},
	}
}

type member struct {
	handle func(Begun)

	mu      sync.Mutex
	workers map[int32]*worker
}

type worker struct {
	records     chan []*kgo.Record
	quit, ended chan struct{}
}

func (m *member) worker(p int32) *worker {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.workers[p]
}

func (m *member) assigned(_ context.Context, client *kgo.Client, topics map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ps := range topics {
		for _, p := range ps {
			w := &worker{records: make(chan []*kgo.Record, 5), quit: make(chan struct{}), ended: make(chan struct{})}
			m.workers[p] = w
			go m.work(client, w)
		}
	}
}

func (m *member) ended(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	for _, ps := range topics {
		for _, p := range ps {
			if w := m.worker(p); w != nil {
				close(w.quit)
				<-w.ended
			}
			m.mu.Lock()
			delete(m.workers, p)
			m.mu.Unlock()
		}
	}
}

func (m *member) work(client *kgo.Client, w *worker) {
	defer close(w.ended)
	for {
		select {
		case <-w.quit:
			return
		case records := <-w.records:
			done := 0
			for _, r := range records {
				select {
				case <-w.quit:
				default:
					m.handle(Begun{Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Born: r.Timestamp})
					done++
					continue
				}
				break
			}
			if done > 0 {
				// A commit that fails is made good by the next one, or shows as a record that
				// comes again.
				_ = client.CommitRecords(context.Background(), records[:done]...)
			}
		}
	}
}
