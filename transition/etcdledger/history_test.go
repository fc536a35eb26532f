package etcdledger_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/etcdledger/etcdtest"
	"github.com/countoff/countoff/transition/machine"
)

// TestHistoryIsBounded fills it with what stood there long ago.
func TestHistoryIsBounded(t *testing.T) {
	server := etcdtest.Start(t)
	s := newStage(t, server, "bounded")
	l, _ := s.ledger()
	const entry = `[{"what":"joined","session":"old","peer":"ann"}]`
	for i := 0; i < machine.HistoryKept; i += 100 {
		var ops []clientv3.Op
		for j := range 100 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%s/bounded/history/0-%04d", prefix, i+j), entry))
		}
		if _, err := server.Client().Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	kept := func() int64 {
		resp, err := server.Client().Get(t.Context(), prefix+"/bounded/history/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return resp.Count
	}
	changes := int64(0)
	for most := kept(); ; changes++ {
		if changes == 200 {
			t.Fatalf("%d keys after %d changes", kept(), changes)
		}
		s.sync(l, machine.Request{Session: partition.Session(fmt.Sprint("s", changes))})
		if n := kept(); n <= most {
			break
		}
		most = kept()
	}
	if n := kept(); n != machine.HistoryKept {
		t.Errorf("%d keys are kept, want the last %d", n, machine.HistoryKept)
	}
	h, err := l.History(t.Context(), 3)
	if err != nil || len(h) != 3 {
		t.Fatalf("%d entries, %v", len(h), err)
	}
	if last := h[2]; last.What != machine.Came || last.Session != partition.Session(fmt.Sprint("s", changes)) {
		t.Errorf("the last entry is %+v", last)
	}
	if ago := time.Since(h[2].At); ago < 0 || ago > time.Minute {
		t.Errorf("the last entry is of %v", h[2].At)
	}
	if _, err := l.History(t.Context(), 0); err == nil {
		t.Error("a history of nothing was given")
	}
	// One call tells more than one thing: not more of them are given than were asked for.
	s.sync(l, machine.Request{Session: "both", Claim: []partition.ID{0}})
	if h, err = l.History(t.Context(), 1); err != nil || len(h) != 1 || h[0].What != machine.Granted {
		t.Errorf("the last entry is %+v, %v", h, err)
	}
}

// TestHistoryOutlivesMemory: a name that lost a part of its memory begins anew, and what was
// told before stays.
func TestHistoryOutlivesMemory(t *testing.T) {
	server := etcdtest.Start(t)
	s := newStage(t, server, "forgetful")
	l, _ := s.ledger()
	s.sync(l, machine.Request{Session: "a"})
	del("meta")(s)
	s.sync(l, machine.Request{Session: "b"})
	h, err := l.History(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	var told []machine.Change
	for _, e := range h {
		told = append(told, e.What)
	}
	if got, want := fmt.Sprint(told), fmt.Sprint([]machine.Change{machine.Made, machine.Came, machine.Forgot, machine.Came}); got != want {
		t.Errorf("it tells %v, want %v", got, want)
	}
}

// TestHistoryThatNobodyUnderstands is told of, with its key.
func TestHistoryThatNobodyUnderstands(t *testing.T) {
	server := etcdtest.Start(t)
	s := newStage(t, server, "strange")
	l, _ := s.ledger()
	for _, value := range []string{"x", `[{"what":"granted","grants":"3"}]`, `[{"what":"granted","grants":"3@4<x"}]`} {
		if _, err := server.Client().Put(t.Context(), prefix+"/strange/history/7", value); err != nil {
			t.Fatal(err)
		}
		if _, err := l.History(t.Context(), 10); err == nil || !strings.Contains(err.Error(), "/strange/history/7: the history is not understood") {
			t.Errorf("of %s it says %v", value, err)
		}
		s.sync(l, machine.Request{Session: "a"}) // peers do not care
	}
}
