package contest

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// All returns every contestant. Another store or source is one more file with a
// function like these.
func All() []Contestant {
	return slices.Concat(countoffs(), asynqs(), raws(), watermills(), benchmarks(), producers(), latencies(), idles(), queues(), kafkas())
}

func countoffs() []Contestant {
	return []Contestant{
		countoff("countoff-c1", countoffConfig{concurrency: 1}),
		countoff("countoff-c10", countoffConfig{concurrency: 10}),
		countoff("countoff-c100", countoffConfig{concurrency: 100}),
		countoff("countoff-c10-silent", countoffConfig{concurrency: 10, silent: true}),
		countoff("countoff-c10-nokey", countoffConfig{concurrency: 10, keyless: true}),
		countoff("countoff-c10-p1", countoffConfig{concurrency: 10, partitions: 1}),
		countoff("countoff-c10-p256", countoffConfig{concurrency: 10, partitions: 256}),
		countoff("countoff-c10-w10", countoffConfig{concurrency: 10, window: 10}),
		countoff("countoff-c10-w100", countoffConfig{concurrency: 10, window: 100}),
		countoff("countoff-c100-1ms", countoffConfig{concurrency: 100, work: time.Millisecond}),
		countoff("countoff-c100-1ms-p256", countoffConfig{concurrency: 100, work: time.Millisecond, partitions: 256}),
	}
}

func asynqs() []Contestant {
	return []Contestant{
		asynqDrain("asynq-c1", 1, 0),
		asynqDrain("asynq-c10", 10, 0),
		asynqDrain("asynq-c100", 100, 0),
		asynqDrain("asynq-c100-1ms", 100, time.Millisecond),
	}
}

func raws() []Contestant {
	return []Contestant{lpop(), lpopCount(), lmoveLrem()}
}

func watermills() []Contestant { return []Contestant{watermillDrain()} }

func benchmarks() []Contestant { return []Contestant{redisBenchmark()} }

func producers() []Contestant {
	return []Contestant{countoffBatches(), countoffSingles(), asynqEnqueue()}
}

func latencies() []Contestant {
	return []Contestant{
		countoffLatency(), bellLatency(), asynqLatency(), inboxLatency(), brpopLatency(),
		countoffSteady(), asynqSteady(),
	}
}

func idles() []Contestant {
	return []Contestant{
		countoffIdle("countoff-idle-p16", 16), countoffIdle("countoff-idle-p256", 256), asynqIdle(),
	}
}

func queues() []Contestant {
	return []Contestant{
		countoffQueues("asynqsource-q16", asynqQueues), countoffQueues("asynqsource-q16-hot1", 1),
		plainQueues("asynq-q16", asynqQueues), plainQueues("asynq-q16-hot1", 1),
	}
}

func kafkas() []Contestant {
	return []Contestant{
		countoffKafka("countoff-kafka-c10", "countoff's kafkasource, c = 10, 12 partitions of a kfake", kafkaPartitions),
		franzGo("franz-go-direct", "franz-go, polls and handles, nothing is committed", kafkaPartitions),
		franzGo("franz-go-group", "franz-go as a group, commits every 5 s", kafkaPartitions, kgo.ConsumerGroup("bench")),
		countoffKafka("countoff-kafka-c10-hot1", "the same, all records in one of the partitions", 1),
		franzGo("franz-go-direct-hot1", "the same", 1),
	}
}
