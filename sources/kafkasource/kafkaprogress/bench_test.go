package kafkaprogress

import (
	"testing"

	"github.com/countoff/countoff/sources/kafkasource/kafkatest"
	"github.com/countoff/countoff/sources/progress"
)

// One settlement after the other in one partition: what a round trip to this store costs.
func BenchmarkSettle(b *testing.B) {
	broker := kafkatest.New(b)
	st, err := NewStore(kafkatest.Name(b), Config{Topic: broker.Topic(2), Options: broker.Options()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = st.Disconnect() }()
	g, tok := owns(1)
	if _, err := st.Open(b.Context(), g, tok, 0); err != nil {
		b.Fatal(err)
	}
	for n := int64(1); b.Loop(); n++ {
		if _, err := st.Settle(b.Context(), g, tok, &progress.Request{Base: n, Gate: n + 10, Read: n, Alone: progress.None}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
