package asynqsource

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redistest"
)

// An answering is a hook that has an error for each pipeline.
type answering struct{ error }

func (answering) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (answering) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (a answering) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			cmd.SetErr(a.error)
		}
		return a.error
	}
}

// Where the server has forgotten the scripts the next trip brings them. Any other error is told, and so is
// that one of a trip that has brought them.
func TestAnErrorOfATripIsTold(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for _, c := range []struct {
		name        string
		err         error
		source      bool
		told, after bool
	}{
		{"forgotten", noScriptError{}, false, false, true},
		{"forgotten all the same", noScriptError{}, true, true, true},
		{"another", down, false, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := bare()
			_, client := redistest.Mini(t)
			client.AddHook(answering{c.err})
			st.source.client, st.trip.source, st.keys = client, c.source, keysOf("q")
			if err := st.Trip(t.Context()); (err != nil) != c.told {
				t.Errorf("told is %v", err)
			}
			if st.trip.source != c.after {
				t.Error("the next trip brings the scripts:", st.trip.source)
			}
		})
	}
}

// What asynq's own script says of an error is told, but not that the fence refuses it: the head of the trip does.
func TestAnErrorOfAModestTripIsTold(t *testing.T) {
	answered := func(err error) *redis.Cmd { return redis.NewCmdResult(nil, err) }
	for err, told := range map[error]bool{
		redis.Nil: false, fencedError{}: false, errors.New("down"): true,
	} {
		if got := bare().takenErr(&trip{single: []*redis.Cmd{answered(redis.Nil), answered(err)}}); (got != nil) != told {
			t.Errorf("of %v is told %v", err, got)
		}
	}
}

type fencedError struct{}

func (fencedError) Error() string { return fencedReply + " the partition has another owner" }
func (fencedError) RedisError()   {}

// A task that is told again, as one that somebody has put into active a second time, is handed out once.
func TestATaskThatIsToldAgainIsHandedOutOnce(t *testing.T) {
	st := bare()
	raw := string(appendText(appendText(nil, fieldType, "t"), fieldID, "0"))
	for range 2 {
		st.take("0", raw, past{since: time.Now().UnixNano()})
	}
	if n := st.Held.Len(); len(st.items) != 1 || n != 1 {
		t.Errorf("%d are open, %d are handed out", len(st.items), n)
	}
}

// A run that is told later than one after it has the message that asynq made of it, not of the other.
func TestAMessageIsOfItsRun(t *testing.T) {
	it := item{raw: "raw"}
	for n := range 3 {
		it.say(&native{kind: kindRetry, attempt: n + 1, args: []any{"0", []byte{byte('1' + n)}}})
	}
	for attempt, want := range []string{"raw", "1", "2", "3", "3"} {
		if got := it.message(attempt); got != want {
			t.Errorf("after run %d it is %q, want %q", attempt, got, want)
		}
	}
}
