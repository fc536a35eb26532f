package store

import (
	"errors"
	"testing"
	"time"

	"github.com/countoff/countoff/partition/redistest/redisserver"
)

func TestSingle(t *testing.T) {
	ctx := t.Context()
	st, err := Single(ctx, t.TempDir(), true)
	if errors.Is(err, redisserver.ErrNone) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	client := st.single.Client()
	defer client.Close()
	if err := client.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}

	if err := st.Fill(ctx, true); err != nil {
		t.Fatal(err)
	}
	if err := client.Set(ctx, "more", "v", 0).Err(); err == nil {
		t.Error("a full store took more")
	}
	if err := st.Fill(ctx, false); err != nil {
		t.Fatal(err)
	}

	if _, err := st.Restart(ctx, 0, true); err != nil {
		t.Fatal(err)
	}
	if got := st.single.Client().Get(ctx, "k").Val(); got != "v" {
		t.Errorf("after a restart with its file: %q, want v", got)
	}
	if _, err := st.Restart(ctx, 0, false); err != nil {
		t.Fatal(err)
	}
	if n := st.single.Client().DBSize(ctx).Val(); n != 0 {
		t.Errorf("after a restart without it: %d keys", n)
	}
}

func TestClock(t *testing.T) {
	ctx := t.Context()
	st, err := Single(ctx, t.TempDir(), true)
	if errors.Is(err, redisserver.ErrNone) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.NoClock(); err != nil {
		t.Skip(err)
	}
	client := st.single.Client()
	defer client.Close()
	ahead := func() time.Duration {
		now, err := client.Time(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(now)
	}
	for _, c := range []struct{ step, want time.Duration }{{time.Hour, time.Hour}, {-10 * time.Minute, 50 * time.Minute}} {
		if err := st.Step(c.step); err != nil {
			t.Fatal(err)
		}
		// libfaketime looks at its file once a second.
		for end := time.Now().Add(10 * time.Second); (ahead() - c.want).Abs() > time.Minute; {
			if time.Now().After(end) {
				t.Fatalf("after a step of %v the store's clock is %v ahead, want %v", c.step, ahead(), c.want)
			}
			<-time.After(20 * time.Millisecond)
		}
	}
	if err := st.CatchUp(); err != nil || st.ahead != time.Hour {
		t.Errorf("CatchUp: %v ahead, %v", st.ahead, err)
	}
}
