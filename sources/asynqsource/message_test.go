package asynqsource

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// What asynq has encoded is read, and what is appended here is what asynq reads.
func TestMessagesAreThoseOfAsynq(t *testing.T) {
	s := newStore(t)
	queue := QueueOf(s.name, 0)
	info := s.enqueue(t, 0, asynq.NewTask("mail", []byte("\x00\xffbinary")),
		asynq.TaskID("größe"), asynq.MaxRetry(9), asynq.Retention(time.Hour), asynq.Unique(time.Minute))
	k := keysOf(queue)
	raw := s.HGet(t.Context(), k.task+info.ID, "msg").Val()
	m, err := parseMessage(raw)
	if err != nil {
		t.Fatal(err)
	}
	if m.id != "größe" || m.typ != "mail" || m.queue != queue || string(m.payload) != "\x00\xffbinary" || m.retention != 3600 || m.uniqueKey == "" || m.retried != 0 {
		t.Errorf("the message is %+v", m)
	}
	at := time.Unix(1_700_000_000, 0)
	if err := s.HSet(t.Context(), k.task+info.ID, "msg", failed(raw, 4, "no \xff luck", at)).Err(); err != nil {
		t.Fatal(err)
	}
	got, err := s.inspector().GetTaskInfo(queue, info.ID)
	if err != nil || got.Retried != 4 || got.LastErr != "no ? luck" || !got.LastFailedAt.Equal(at) || got.MaxRetry != 9 {
		t.Errorf("asynq reads %+v, %v", got, err)
	}
}

// However often a task fails, its message says so once: it does not grow. What is broken in it stays.
func TestAMessageThatFailsDoesNotGrow(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	raw := string(appendHeader(appendNumber(appendText(appendText(nil, fieldID, "id"), fieldPayload, "\xff"), 99, 7), "a", "b"))
	once := failed(raw, 1, "why", at)
	if again := failed(failed(once, 2, "another", at), 1, "why", at); again != once {
		t.Errorf("it is %q, and %q when it has failed three times", once, again)
	}
	if dead := archived(once, "why", at); dead != archived(archived(dead, "no", at), "why", at) || len(dead) != len(once) {
		t.Errorf("it is %q, and %q in the archive", once, dead)
	}
	if m, err := parseMessage(once); err != nil || m.retried != 1 || string(m.payload) != "\xff" || !strings.HasPrefix(once, raw) {
		t.Errorf("it is %q: %+v, %v", once, m, err)
	}
	for _, broken := range []string{"\xff\xff", raw + "\x0f", raw[:len(raw)-1], ""} {
		if got := archived(broken, "why", at); !strings.HasPrefix(got, broken) {
			t.Errorf("%q is archived as %q", broken, got)
		}
	}
}

func TestMessagesThatCannotBeRead(t *testing.T) {
	whole := string(appendHeader(appendText(appendText(nil, fieldID, "id"), fieldType, "t"), "a", "b"))
	if m, err := parseMessage(whole); err != nil || !maps.Equal(m.headers, map[string]string{"a": "b"}) {
		t.Fatalf("%+v, %v", m, err)
	}
	// A later version of asynq may have other fields, also of bytes that are no text.
	if m, err := parseMessage(string(appendText([]byte(whole), 99, "\xff"))); err != nil || m.id != "id" {
		t.Errorf("with a field that is not known: %+v, %v", m, err)
	}
	for n := range len(whole) {
		if m, err := parseMessage(whole[:n]); err == nil && m.id != "id" {
			t.Errorf("the first %d bytes are read as %+v", n, m)
		}
	}
	for _, raw := range []string{
		"", "\xff", string(appendText(nil, fieldType, "no id")), string(appendText(appendText(nil, fieldID, "id"), fieldType, "\xff")),
		string(appendHeader(appendText(nil, fieldID, "id"), "\xff", "")), "\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", "\x0f",
		whole + "\x00\x00", string(appendNumber([]byte(whole), 0, 0)), string(appendNumber([]byte(whole), 1<<29, 0)),
		string(appendText([]byte(whole), fieldGroup, "\xff")), string(appendText([]byte(whole), fieldError, "\xff")),
	} {
		if m, err := parseMessage(raw); err == nil {
			t.Errorf("%q is read as %+v", raw, m)
		}
	}
}

// A task nobody can read is archived, whole, and holds up nothing.
func TestWhatCannotBeReadIsArchived(t *testing.T) {
	s := newStore(t)
	k := keysOf(QueueOf(s.name, 0))
	ctx := t.Context()
	if err := s.HSet(ctx, k.task+"bad", "msg", "\xff\xff", "state", "pending").Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.LPush(ctx, k.pending, "bad").Err(); err != nil {
		t.Fatal(err)
	}
	s.enqueue(t, 0, asynq.NewTask("t", nil), asynq.TaskID("good"))
	st := s.open(t, s.source(t), 0, 1)
	if tasks, err := st.Fetch(ctx, 1); err != nil || tasks[0].ID != "good" {
		t.Fatalf("fetched %v, %v", tasks, err)
	}
	until(t, "the other is archived", func() bool { return s.HGet(ctx, k.task+"bad", "state").Val() == "archived" })
}

func FuzzMessage(f *testing.F) {
	f.Add(string(appendHeader(appendText(nil, fieldID, "id"), HeaderKey, "key")))
	f.Fuzz(func(t *testing.T, raw string) {
		if m, err := parseMessage(raw); err == nil && m.id == "" {
			t.Errorf("%q is read as a message without an id", raw)
		}
	})
}
