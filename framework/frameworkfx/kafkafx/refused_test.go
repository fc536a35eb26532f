package kafkafx_test

import (
	"context"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/redisledger"
)

// A partition that its owner may not open, as the topic has lost its position, is granted, and where the progress is in
// Kafka its state says no more than that: a finding tells whoever looks, and why.
func TestWhatIsNotOpenedIsTold(t *testing.T) {
	eachProgress(t, 2, func(s *stage) {
		works := make(chan struct{}, 64)
		handle := func(context.Context, *framework.Task) error { works <- struct{}{}; return nil }
		s.push(0, "k", 2, 0)
		first := s.peer(quick, handle)
		<-works
		<-works
		first.RequireStop()
		s.push(0, "k", 4, 2)
		var upto kadm.Offsets
		upto.AddOffset(s.topic, 0, 5, -1)
		if cut, err := kadm.NewClient(s.client).DeleteRecords(s.Context(), upto); err != nil || cut.Error() != nil {
			s.Fatal(err, cut.Error())
		}
		next := s.peer(quick, handle)
		defer next.RequireStop()
		ledger, err := redisledger.New(s.redis, s.name, redisledger.Config{Config: partition.Config{Total: 2, Hash: partition.Murmur2}})
		if err != nil {
			s.Fatal(err)
		}
		s.until("the finding", func() bool {
			is, err := ledger.Census(s.Context())
			if err != nil {
				s.Fatal(err)
			}
			for _, r := range is.Refused {
				if strings.HasPrefix(r.What, s.topic+"/0: the stored position 2 is out of range: the topic has 5 to 6; it is read no further: set OutOfRange") {
					return true
				}
			}
			return false
		})
		s.push(1, "k", 1, 0) // the other one is worked on
		<-works
	})
}
