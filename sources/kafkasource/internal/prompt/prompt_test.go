package prompt

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A call that does not look at its ctx, and brokers that never answer, are given up when it ends.
func TestWhatIsAskedEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(ctx context.Context, never chan struct{}) error{
		"a call": func(ctx context.Context, never chan struct{}) error {
			_, err := Call(ctx, func() (int, error) { <-never; return 0, nil })
			return err
		},
		"brokers": func(ctx context.Context, never chan struct{}) error {
			_, err := first(ctx, []asking{deaf(never), deaf(never)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				never := make(chan struct{})
				defer close(never)
				if err := ask(ctx, never); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("it ends with %v", err)
				}
			})
		})
	}
}

// A broker that does not answer has a head start, one that refuses none. If nobody answers the last one says why.
func TestTheNextIsAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		never, began := make(chan struct{}), time.Now()
		defer close(never)
		refused := func(err error) asking { return func(context.Context) (kmsg.Response, error) { return nil, err } }
		reply := kmsg.NewPtrMetadataResponse()
		answers := func(context.Context) (kmsg.Response, error) { return reply, nil }
		last := errors.New("last")
		is, err := first(t.Context(), []asking{deaf(never), refused(errors.New("first")), answers, refused(last)})
		if is != kmsg.Response(reply) || err != nil || time.Since(began) != headStart {
			t.Errorf("%v, %v after %v, want an answer after %v", is, err, time.Since(began), headStart)
		}
		if _, err := first(t.Context(), []asking{refused(errors.New("first")), refused(last)}); !errors.Is(err, last) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// deaf is a broker that does not answer.
func deaf(never chan struct{}) asking {
	return func(context.Context) (kmsg.Response, error) {
		<-never
		return nil, errors.New("too late")
	}
}
