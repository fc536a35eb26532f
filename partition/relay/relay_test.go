package relay_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/countoff/countoff/partition/relay"
)

func TestWhatItReturns(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	ended, end := relay.Start("Seal", func() (int, error) { return 7, failed })
	<-ended
	if n, err := end(); n != 7 || !errors.Is(err, failed) {
		t.Errorf("%d, %v", n, err)
	}
}

func TestAPanicIsTheCallers(t *testing.T) {
	t.Parallel()
	ended, end := relay.Start("Seal", func() (int, error) { panic("no") })
	<-ended
	defer func() {
		if why := fmt.Sprint(recover()); !strings.HasPrefix(why, "Seal: no\n") {
			t.Errorf("the panic is %s", why)
		}
	}()
	_, _ = end()
	t.Error("it returns")
}

func TestTheEndOfAGoroutineIsTheCallers(t *testing.T) {
	t.Parallel()
	returned, over := false, make(chan struct{})
	go func() {
		defer close(over)
		ended, end := relay.Start("Seal", func() (int, error) {
			runtime.Goexit()
			return 0, nil
		})
		<-ended
		_, _ = end()
		returned = true
	}()
	<-over
	if returned {
		t.Error("the caller goes on")
	}
}
