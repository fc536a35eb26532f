package redisledger

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition/machine"
)

func TestLine(t *testing.T) {
	for want, m := range map[string]machine.RollMember{
		"0: 0-3 7 9":     {Partitions: []partition.ID{9, 0, 1, 2, 3, 7}},
		"12:":            {Member: partition.Member{Index: 12}},
		"1: 5":           {Member: partition.Member{Index: 1}, Partitions: []partition.ID{5}},
		"2: 1-2 1048576": {Member: partition.Member{Index: 2}, Partitions: []partition.ID{1, 2, partition.FirstUnit}},
		"3: 65534-65535": {Member: partition.Member{Index: 3}, Partitions: []partition.ID{65534, 65535}},
	} {
		if got := line(m); got != want {
			t.Errorf("line %q, want %q", got, want)
		}
	}
}

func TestLineIsReadAsItWasPrinted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Int32Range(0, 40)
		m := machine.RollMember{Member: partition.Member{Index: rapid.IntRange(0, 1000).Draw(t, "index")}}
		for _, n := range rapid.SliceOfDistinct(id, rapid.ID[int32]).Draw(t, "ids") {
			m.Partitions = append(m.Partitions, partition.ID(n))
		}
		slices.Sort(m.Partitions)
		index, ids, err := parseLine(line(m))
		if err != nil || index != m.Index || !slices.Equal(ids, m.Partitions) {
			t.Fatalf("%+v was printed %q and read as %d %v %v", m, line(m), index, ids, err)
		}
	})
}

func TestMemberIsReadAsItWasPrinted(t *testing.T) {
	for _, want := range []partition.Member{
		{Weight: 1}, {Weight: 12, Peer: "a b  c", Down: true}, {Peer: "down"},
	} {
		var got partition.Member
		if err := parseAbout(about(want), &got); err != nil || got != want {
			t.Errorf("%+v was printed %q and read as %+v, error %v", want, about(want), got, err)
		}
	}
}

// What cannot be read is an error, never a wrong value.
func TestNonsenseIsRefused(t *testing.T) {
	for _, s := range []string{"", "x", "0", "x: 1", "0: x", "0: 3-1", "0: -1", "0: 1-", "0: 99999999999"} {
		if _, ids, err := parseLine(s); err == nil {
			t.Errorf("line %q was read as %v", s, ids)
		}
	}
	for _, s := range []string{"", "1", "1 up", "x up a"} {
		var m partition.Member
		if err := parseAbout(s, &m); err == nil {
			t.Errorf("member %q was read as %+v", s, m)
		}
	}
	for _, s := range []string{"", "live 1 2 3", "live x 2 3 a"} {
		if state, seat, err := parseRow(s); err == nil {
			t.Errorf("session %q was read as %q %+v", s, state, seat)
		}
	}
	good := []string{"full", "stamp", "7", "", "1", "0", "10000", "0", "0", "0", "1@2 3@4*", "2", "kind", "lists", "9", "8", "2", "0: 1"}
	if stamp, a, said, err := answer(good); err != nil || stamp != "stamp" || !slices.Equal(said, []any{"kind", "lists"}) || len(a.Mine) != 2 || !a.Mine[1].Wanted || a.Line.Index != 0 {
		t.Fatalf("%q was read as %q %+v, error %v", good, stamp, a, err)
	}
	for i := range good {
		if i == 14 {
			continue // without a line that is a whole answer
		}
		if _, a, _, err := answer(good[:max(i, 1)]); err == nil {
			t.Errorf("%q was read as %+v", good[:i], a)
		}
		bad := slices.Clone(good)
		bad[i] = "?"
		if _, a, _, err := answer(bad); err == nil && i > 1 && good[i] != "kind" && good[i] != "lists" {
			t.Errorf("%q was read as %+v", bad, a)
		}
	}
}

// A seat with tags that another build let through keeps nobody from reading the rest.
func TestChairsWithTagsThatCannotBeRead(t *testing.T) {
	var p parser
	all := p.chairs("0 0 aa gpu/a100 ann\n1 0 bb eu,gpu bob")
	if p.err != nil || len(all) != 2 || all[0].Tags != "" || all[0].Peer != "ann" || all[1].Tags != "eu gpu" {
		t.Errorf("%+v, %v", all, p.err)
	}
}
