package progresstest

import (
	"flag"
	"testing"
)

var (
	seeds = flag.Uint64("progress.seeds", 200, "how many seeds each mix runs")
	seed  = flag.Uint64("progress.seed", 0, "the one seed to run, with its transcript; 0: all")
)

func TestReference(t *testing.T) {
	for _, list := range []bool{true, false} {
		for _, mix := range Mixes {
			if mix == Failover && !list {
				continue
			}
			name := string(mix)
			if !list {
				name += ", log elsewhere"
			}
			t.Run(name, func(t *testing.T) {
				for n := uint64(1); n <= *seeds; n++ {
					if *seed != 0 {
						n = *seed
					}
					transcript, violated := Run(mix, n, NewMemory(list), list)
					if violated != "" {
						t.Fatalf("%s\n%s\nagain with -progress.seed=%d", transcript, violated, n)
					}
					if *seed != 0 {
						t.Log(transcript)
						return
					}
				}
			})
		}
	}
}
