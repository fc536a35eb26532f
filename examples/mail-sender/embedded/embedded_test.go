package embedded_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/examples/mail-sender/embedded"
	"github.com/countoff/countoff/partition/redisurl"
)

func TestKeysExpire(t *testing.T) {
	defer goleak.VerifyNone(t)
	r, err := embedded.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	client, err := redisurl.Open(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := t.Context()
	if err := client.Set(ctx, "k", "v", 50*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for err := client.Get(ctx, "k").Err(); !errors.Is(err, redis.Nil); err = client.Get(ctx, "k").Err() {
		if time.Now().After(deadline) {
			t.Fatal("the key does not expire")
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestStartSaysWhyNot(t *testing.T) {
	r, err := embedded.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := embedded.Start(r.URL()[len("redis://"):]); err == nil {
		t.Error("two servers on one address")
	}
}
