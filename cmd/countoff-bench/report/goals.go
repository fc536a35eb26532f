package report

// Goals are those of the whole framework: a handler that does nothing, payloads of 200
// bytes, every guard on. Each is a ratio inside a round, or a cost; never a bare rate,
// which says more about the machine.
func Goals() []Goal {
	return []Goal{
		{ID: "G1", What: "c = 10, beside asynq", Tag: "countoff-c10", Measure: TasksPerSecond, Per: "asynq-c10", Least: 80},
		{ID: "G2", What: "c = 1, beside asynq", Tag: "countoff-c1", Measure: TasksPerSecond, Per: "asynq-c1", Least: 150},
		{ID: "G2", What: "c = 100, beside asynq", Tag: "countoff-c100", Measure: TasksPerSecond, Per: "asynq-c100", Least: 80},
		{ID: "G3", What: "beside LPOP COUNT 100, no safety", Tag: "countoff-c10", Measure: TasksPerSecond, Per: "lpop100-c10", Least: 0.6},
		{ID: "G4", What: "beside redis-benchmark -P 64", Tag: "countoff-c10", Measure: TasksPerSecond, Per: "redis-benchmark", Least: 1.2},
		{ID: "G5", What: "beside LMOVE and LREM", Tag: "countoff-c10", Measure: TasksPerSecond, Per: "lmove+lrem-c10", Least: 30},
		{ID: "G6", What: "beside watermill", Tag: "countoff-c10", Measure: TasksPerSecond, Per: "watermill-c10", Least: 40},
		{ID: "G7", What: "client CPU, us a task", Tag: "countoff-c10", Measure: ClientPerTask, Most: 0.9},
		{ID: "G7", What: "client CPU, beside asynq", Tag: "countoff-c10", Measure: ClientPerTask, Per: "asynq-c10", Most: 1. / 30},
		{ID: "G8", What: "store CPU, us a task", Tag: "countoff-c10", Measure: StorePerTask, Most: 0.3},
		{ID: "G8", What: "store CPU, beside LPOP COUNT 100", Tag: "countoff-c10", Measure: StorePerTask, Per: "lpop100-c10", Most: 2.5},
		{ID: "G9", What: "allocations a task", Tag: "countoff-c10", Measure: AllocsPerTask, Most: 2},
		{ID: "G9", What: "bytes allocated a task", Tag: "countoff-c10", Measure: BytesPerTask, Most: 400},
		{ID: "G10", What: "1 partition, beside 16", Tag: "countoff-c10-p1", Measure: TasksPerSecond, Per: "countoff-c10", Least: 0.4},
		{ID: "G10", What: "256 partitions, beside 16", Tag: "countoff-c10-p256", Measure: TasksPerSecond, Per: "countoff-c10", Least: 0.9},
		{ID: "G11", What: "batches of 10, beside 100", Tag: "countoff-c10-w10", Measure: TasksPerSecond, Per: "countoff-c10-w100", Least: 0.3},
		{ID: "G12", What: "1 ms handler, of the ideal 100,000/s", Tag: "countoff-c100-1ms", Measure: TasksPerSecond, By: 100_000, Least: 0.78},
		{ID: "G12", What: "1 ms handler, beside asynq", Tag: "countoff-c100-1ms", Measure: TasksPerSecond, Per: "asynq-c100-1ms", Least: 7},
		{ID: "G13", What: "idle, push to handler, p50 ms", Tag: "countoff-latency", Measure: P50, Most: 0.4},
		{ID: "G13", What: "idle, push to handler, p99 ms", Tag: "countoff-latency", Measure: P99, Most: 2},
		{ID: "G13", What: "idle, p50, beside asynq", Tag: "countoff-latency", Measure: P50, Per: "asynq-latency", Most: 0.01},
		{ID: "G14", What: "idle, requests/s, 16 partitions", Tag: "countoff-idle-p16", Measure: RequestsPerSec, Most: 3},
		{ID: "G14", What: "idle, requests/s, 256 partitions", Tag: "countoff-idle-p256", Measure: RequestsPerSec, Most: 3},
		{ID: "G14", What: "idle, client CPU %, 256 partitions", Tag: "countoff-idle-p256", Measure: ClientShare, Most: 0.3},
		{ID: "E1", What: "enqueue in batches, beside asynq, 50 goroutines", Tag: "countoff-enqueue-batch", Measure: TasksPerSecond,
			Per: "asynq-enqueue-c50", Least: 5},
		{ID: "G15", What: "Kafka, beside a direct poll", Tag: "countoff-kafka-c10", Measure: TasksPerSecond, Per: "franz-go-direct", Least: 0.6},
		{ID: "G15", What: "Kafka, all in one of 12 partitions", Tag: "countoff-kafka-c10-hot1", Measure: TasksPerSecond,
			Per: "franz-go-direct-hot1", Least: 0.4},
		{ID: "G15", What: "Kafka, client CPU, us a record", Tag: "countoff-kafka-c10", Measure: ClientPerTask, Most: 1.2},
		{ID: "G16", What: "asynq source, 16 queues, beside asynq", Tag: "asynqsource-q16", Measure: TasksPerSecond, Per: "asynq-q16", Least: 8},
		{ID: "G16", What: "asynq source, all in one of 16 queues", Tag: "asynqsource-q16-hot1", Measure: TasksPerSecond,
			Per: "asynq-q16-hot1", Least: 25},
	}
}
