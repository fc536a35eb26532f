package redissource

import (
	"testing"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
)

func TestFences(t *testing.T) {
	client, name := redistest.New(t), redistest.Name(t)
	token := partition.Token{Epoch: 7, Session: "aa"}
	ctx := t.Context()
	if err := client.HSet(ctx, KeysOf(name, 1).Fence, "t", token.String()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.RPush(ctx, KeysOf(name, 2).Pending, "x").Err(); err != nil {
		t.Fatal(err)
	}
	ids := []partition.ID{0, 1, 2, partition.FirstUnit}
	got, err := Fences(ctx, client, name, ids)
	if err != nil {
		t.Fatal(err)
	}
	want := []Fenced{{ID: 0}, {ID: 1, Fence: token}, {ID: 2, Log: true}}
	if len(got) != len(want) {
		t.Fatalf("%+v, want %+v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
	// The way of a cluster, whose slots differ.
	keys := []string{KeysOf(name, 1).Fence, KeysOf(name, 1).Pending, KeysOf(name, 2).Fence, KeysOf(name, 2).Pending}
	tokens, waits := make([]string, 2), make([]bool, 2)
	if err := fencesOfCluster(ctx, client, keys, tokens, waits); err != nil {
		t.Fatal(err)
	}
	if tokens[0] != token.String() || tokens[1] != "" || waits[0] || !waits[1] {
		t.Errorf("of a cluster: %q %v", tokens, waits)
	}
}
