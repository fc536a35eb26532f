package redissource

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// What ends while somebody looks moves the rest to the front of the list: no page is passed over, and
// what was lifted meanwhile is seen.
func TestPeekWhileTasksEnd(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	k := KeysOf(name, 0)
	const n, first, gone = 3 * 16, 100, 5
	for i := range n {
		body := appendEnvelope(nil, &envelope{id: strconv.Itoa(first + i), born: 1})
		if err := client.RPush(ctx, k.Pending, body).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.HSet(ctx, k.Fence, "b", first).Err(); err != nil {
		t.Fatal(err)
	}
	looker := redistest.Another(t, client)
	if _, err := Peek(ctx, looker, name, 0, 1); err != nil { // it has a connection
		t.Fatal(err)
	}
	looker.AddHook(&pause{at: 2, then: func() { // one is done, and the next ones are lifted
		for i := range gone {
			body := client.LPop(ctx, k.Pending).Val()
			if i > 0 {
				client.HSet(ctx, k.Lifted, strconv.Itoa(first+i), body)
			}
		}
		client.HSet(ctx, k.Fence, "b", first+gone)
	}})
	for limit, want := range []int{n, 16, 2 * 16} {
		limit *= 16
		queued, err := Peek(ctx, looker, name, 0, limit)
		if err != nil || len(queued) < want-1 || len(queued) > want+gone {
			t.Errorf("limit %d: %d tasks, %v", limit, len(queued), err)
		}
		for i, q := range queued {
			if q.ID != strconv.FormatInt(q.Position, 10) || i > 0 && q.Position != queued[i-1].Position+1 {
				t.Errorf("limit %d: place %d has the task %s at %d", limit, i, q.ID, q.Position)
			}
		}
	}
}

// What has ended out of order does not count: the tasks behind it are seen.
func TestPeekPastWhatHasEnded(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	k := KeysOf(name, 0)
	const n = 100
	for i := range n {
		if err := client.RPush(ctx, k.Pending, appendEnvelope(nil, &envelope{id: strconv.Itoa(i), born: 1})).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i := 1; i < 60; i++ {
		client.ZAdd(ctx, k.Done, redis.Z{Score: float64(i), Member: i})
	}
	for limit, last := range map[int]string{1: "0", 2: "60", 20: "78", 41: "99", 90: "99"} {
		queued, err := Peek(ctx, client, name, 0, limit)
		if err != nil || len(queued) != min(limit, n-59) || queued[len(queued)-1].ID != last {
			t.Errorf("limit %d: %v, %v", limit, queued, err)
		}
	}
}

// Of a partition no more is in memory than is read at once, however much it holds.
func TestOpenTasksOfHeavyOnes(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	k := KeysOf(name, 0)
	const n, size = 96, 1 << 20
	body := make([]byte, size)
	for i := range n {
		element := appendEnvelope(nil, &envelope{id: strconv.Itoa(i), typ: "mail", key: "ann", firstError: "no", tries: 1, born: 1, payload: body})
		if i < n/2 {
			client.HSet(ctx, k.Lifted, i, element)
		} else {
			client.RPush(ctx, k.Pending, element)
		}
	}
	if err := client.HSet(ctx, k.Fence, "b", n/2).Err(); err != nil {
		t.Fatal(err)
	}
	held := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := held()
	var told []Open
	if err := OpenTasks(ctx, client, name, []partition.ID{0}, 0, func(o Open) bool {
		if len(o.Payload) != size {
			t.Errorf("position %d: %d bytes", o.Position, len(o.Payload))
		}
		o.Payload = nil
		told = append(told, o)
		if len(told) == n {
			if more := held() - before; more > n*size/2 {
				t.Errorf("%d MB are held of %d", more>>20, n*size>>20)
			}
		}
		return true
	}); err != nil || len(told) != n {
		t.Errorf("%d tasks, %v", len(told), err)
	}
	queued, err := Peek(ctx, client, name, 0, 0)
	if more := held() - before; err != nil || len(queued) != n || more > n*size/2 {
		t.Errorf("%d tasks, %v, %d MB are held of %d", len(queued), err, more>>20, n*size>>20)
	}
	runtime.KeepAlive(told)
}

// A task is told whole, with what its past was before it was put into this log and in it.
func TestOpenTasks(t *testing.T) {
	ctx, client, name := t.Context(), redistest.New(t), redistest.Name(t)
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	push := func(id partition.ID, elements ...any) {
		if err := client.RPush(ctx, KeysOf(name, id).Pending, elements...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	envelopeOf := func(e envelope) string { return string(appendEnvelope(nil, &e)) }
	push(0,
		envelopeOf(envelope{id: "a", typ: "mail", key: "ann", born: 1, payload: []byte("hi"), headers: map[string]string{"h": "v"}}),
		envelopeOf(envelope{id: "b", key: "ben", born: 1, tries: 1, crashes: 1, firstError: "first"}),
		"garbage",
		envelopeOf(envelope{id: "d", key: "ann", born: 1}), envelopeOf(envelope{typ: "mail", key: "ann", born: 1}))
	push(2, envelopeOf(envelope{id: "e", born: 1}))
	k := KeysOf(name, 0)
	client.HSet(ctx, k.Fence, "t", "1:s", "e", 1, "b", 7, "h", 9, "s", 8, "a", "")
	client.HSet(ctx, k.Lifted, "3", envelopeOf(envelope{id: "z", born: 1}))
	client.HSet(ctx, k.Tries, "8", fmt.Sprintf("2 1 %d again", due.UnixMilli()), "3", "3-1 0 0 broken")
	client.ZAdd(ctx, k.Done, redis.Z{Score: 10, Member: "10"})

	var got []string
	look := func(depth, most int, ids ...partition.ID) error {
		got = nil
		return OpenTasks(ctx, client, name, ids, depth, func(o Open) bool {
			got = append(got, fmt.Sprintf("%v/%d %s %s %s %q %v started=%t suspect=%t %d+%d+%d %q unread=%t behind=%t", o.Partition, o.Position, o.ID, o.Type, o.Key, o.Payload, o.Headers,
				o.Started, o.Suspect, o.Tries, o.Waits, o.Crashes, o.FirstError, o.Unread, o.Behind))
			if o.ID == "b" && !o.NotBefore.Equal(due) || o.ID != "b" && !o.NotBefore.IsZero() {
				t.Errorf("%s runs not before %v", o.ID, o.NotBefore)
			}
			if !o.Unread && !o.Born.Equal(sources.Moment(1).Time()) {
				t.Errorf("%s was born %v", o.ID, o.Born)
			}
			return len(got) < most
		})
	}
	all := []string{
		`0/3 z   "" map[] started=false suspect=true 2+1+0 "broken" unread=false behind=false`,
		`0/7 a mail ann "hi" map[h:v] started=false suspect=true 0+0+0 "" unread=false behind=false`,
		`0/8 b  ben "" map[] started=true suspect=false 2+0+2 "first" unread=false behind=false`,
		`0/9    "garbage" map[] started=false suspect=false 0+0+0 "" unread=true behind=false`,
		`0/11  mail ann "" map[] started=false suspect=false 0+0+0 "" unread=false behind=true`,
		`2/0 e   "" map[] started=false suspect=false 0+0+0 "" unread=false behind=false`,
	}
	check := func(want []string) {
		t.Helper()
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("told of\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if err := look(0, 99, 0, 1, 2); err != nil {
		t.Fatal(err)
	}
	check(all)
	if err := look(1, 99, 0, 2); err != nil { // of the log: what is lifted stands before it
		t.Fatal(err)
	}
	check([]string{all[0], all[1], all[5]})
	if err := look(0, 2, 0, 2); err != nil {
		t.Fatal(err)
	}
	check(all[:2])
	client.Set(ctx, KeysOf(name, 1).Pending, "no list", 0)
	client.HSet(ctx, KeysOf(name, 3).Fence, "h", "x")
	push(3, envelopeOf(envelope{id: "f", born: 1}))
	if err := look(0, 99, 1, 3, 2); err == nil || !strings.Contains(err.Error(), "partition 1") || !strings.Contains(err.Error(), "partition 3: start gate") {
		t.Errorf("of a partition that cannot be read: %v", err)
	}
	check(all[5:])
}
