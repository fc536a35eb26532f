package redissource

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources"
)

// What Stats counts follows a partition through its life: queued, started, finished
// out of order, dead, given up by its owner.
func TestStats(t *testing.T) {
	ctx := t.Context()
	client, name := redistest.New(t), redistest.Name(t)
	stat := func() Stat {
		t.Helper()
		all, err := Stats(ctx, client, name, []partition.ID{0})
		if err != nil {
			t.Fatal(err)
		}
		return all[0]
	}
	open := func() (ids []string) {
		t.Helper()
		queued, err := Peek(ctx, client, name, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range queued {
			ids = append(ids, q.ID)
		}
		return ids
	}
	if s := stat(); s != (Stat{}) {
		t.Errorf("of nothing: %+v", s)
	}

	p := newProducer(t, client, name, ProducerConfig{Partitions: 1})
	for i := range 5 {
		if _, err := p.Enqueue(ctx, Message{ID: "m" + strconv.Itoa(i), Key: "k" + strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Enqueue(ctx, Message{ID: "later", Delay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if s := stat(); s.Pending != 5 || s.InFlight != 0 || s.Delayed != 1 || !s.Fence.IsZero() {
		t.Errorf("queued: %+v", s)
	}

	source, err := New(client, name, Config{})
	if err != nil {
		t.Fatal(err)
	}
	tok := partition.Token{Epoch: 7, Session: "aa"}
	stream, err := source.Open(ctx, partition.Grant{ID: 0, Epoch: 7}, tok)
	if err != nil {
		t.Fatal(err)
	}
	var got []sources.Task
	for len(got) < 3 {
		tasks, err := stream.Fetch(ctx, 3-len(got))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, tasks...)
	}
	s := stat()
	if s.Fence != tok || s.Epoch != 7 || s.InFlight < 3 || s.InFlight+s.Pending != 5 {
		t.Errorf("three started: %+v", s)
	}
	if err := stream.Settle(ctx,
		sources.Settlement{Task: &got[1], Outcome: sources.Done, Attempt: 1},
		sources.Settlement{Task: &got[2], Outcome: sources.Dead, Attempt: 1, Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	if s := stat(); s.InFlight+s.Pending != 3 || s.Dead != 1 || s.InFlight < 1 {
		t.Errorf("the second done and the third dead: %+v", s)
	}
	if ids := open(); len(ids) != 3 || ids[0] != "m0" || ids[1] != "m3" || ids[2] != "m4" {
		t.Errorf("open: %v", ids)
	}
	if err := stream.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if s := stat(); s.Pending != 3 || s.InFlight != 0 || !s.Fence.IsZero() || s.Epoch != 7 {
		t.Errorf("closed: %+v", s)
	}
}

// A partition that cannot be read keeps nobody from being told of the others; of none of all there is nothing to tell.
func TestStatsWithoutOne(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	newProducer(t, client, name, ProducerConfig{Partitions: 2})
	for _, id := range []partition.ID{1, 0} {
		if err := client.Set(t.Context(), KeysOf(name, id).Dead, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		all, err := Stats(t.Context(), client, name, []partition.ID{0, 1})
		switch {
		case id == 1 && (err != nil || all[0].Err != nil || all[1].Err == nil || !strings.Contains(all[1].Err.Error(), "another program")):
			t.Errorf("without the second: %+v, %v", all, err)
		case id == 0 && err == nil:
			t.Errorf("without both: %+v", all)
		}
	}
}

// A node of a cluster that stands still costs what is there, and not the answers of the others.
func TestANodeStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		direct, client := redistest.Frozen(t)
		const name = "n"
		var ids, there, away []partition.ID
		for id := range partition.ID(8) {
			k := KeysOf(name, id)
			ids = append(ids, id)
			if redistest.Slot(k.Fence) > 8191 {
				away = append(away, id)
				continue
			}
			there = append(there, id)
			for _, list := range []string{k.Pending, k.Dead} {
				if err := direct.RPush(t.Context(), list, "x").Err(); err != nil {
					t.Fatal(err)
				}
			}
			if err := direct.HSet(t.Context(), k.jobsKey(), "job", (jobRecord{upto: 1, Spec: "@daily"}).String()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if len(there) == 0 || len(away) == 0 {
			t.Fatal("all partitions are on one node")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		which := "partitions " + partition.Ranges(away) + ": "
		stats, err := Stats(ctx, client, name, ids)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range stats {
			if lost := redistest.Slot(KeysOf(name, s.ID).Fence) > 8191; lost != (s.Err != nil) || lost == (s.Pending == 1 && s.Dead == 1) {
				t.Errorf("partition %v: %+v", s.ID, s)
			}
		}
		if all, err := Jobs(ctx, client, name, ids); len(all) != len(there) || err == nil || !strings.Contains(err.Error(), which) {
			t.Errorf("jobs %v, %v", all, err)
		}
		letters := 0
		err = DeadLetters(ctx, client, name, ids, func(DeadLetter) bool { letters++; return true })
		if letters != len(there) || err == nil || !strings.Contains(err.Error(), which) {
			t.Errorf("%d dead letters, %v", letters, err)
		}
		found, err := ForgetJob(ctx, client, name, "job", ids)
		if !found || err == nil || !strings.Contains(err.Error(), which) {
			t.Errorf("forgot %v, %v", found, err)
		}
		for _, id := range there {
			if n := direct.Exists(t.Context(), KeysOf(name, id).jobsKey()).Val(); n != 0 {
				t.Errorf("partition %v knows the job still", id)
			}
		}
		if ctx.Err() != nil {
			t.Error("nothing is left of the time")
		}
	})
}
