package contest

import "testing"

func TestBenchmarkRate(t *testing.T) {
	const said = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"LPOP list","1066341.12","2.5","0.5","2.4","3.9","4.5","6.1"
`
	if got, err := benchmarkRate(said); err != nil || got != 1066341.12 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := benchmarkRate("Error from server"); err == nil {
		t.Error("an error is a rate")
	}
}
