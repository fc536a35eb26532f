package service

import (
	"testing"
	"time"

	"github.com/countoff/countoff/framework"
)

// What a flag sets is what the consumer is told.
func TestTheConsumerHasItsRate(t *testing.T) {
	rate := framework.Rate{Tasks: 500, Per: time.Hour}
	if got := (Config{Rate: rate}).numbers(time.Second).Rate; got != rate {
		t.Errorf("the consumer's rate is %v, want %v", got, rate)
	}
}
