package redisledger_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/transition/machine"
	"github.com/countoff/countoff/transition/redisledger"
)

// on runs test on miniredis, and on a real server.
func on(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Run("miniredis", func(t *testing.T) {
		_, client := redistest.Mini(t)
		test(t, client)
	})
	t.Run("server", func(t *testing.T) { test(t, redistest.Server(t).Client()) })
}

func TestTable(t *testing.T) {
	on(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, name := t.Context(), redistest.Name(t)
		cfg := partition.Config{Total: 16, Hash: partition.XXHash64}
		makeName(t, client, name, cfg)
		l := newLedger(t, client, name, redisledger.Config{Config: cfg})
		units := []string{"a b", `c"d`, "öl", "free"}
		list := "{" + name + "}:units"
		of := func(unit string) partition.ID { return partition.Of(unit, cfg.Total) }
		if of("free") == of("öl") || of("free") == of("a b") || of(`c"d`) == of("öl") || of("a b") == of("öl") {
			t.Fatal("choose other units: these share partitions")
		}
		say := func(s int, peer string, state machine.State, hold []partition.Grant, claim ...partition.ID) []partition.Grant {
			a, err := l.Sync(ctx, machine.Request{Session: session(s), Peer: peer, Weight: 1, State: state, Hold: hold, Claim: claim})
			if err != nil {
				t.Fatal(err)
			}
			var mine []partition.Grant
			for _, h := range a.Mine {
				mine = append(mine, h.Grant)
			}
			return mine
		}
		write := func(all []string, want bool) {
			t.Helper()
			slices.Sort(all)
			if written, err := redisledger.WriteTable(ctx, client, name, list, cfg, all); err != nil || written != want {
				t.Fatalf("written %v, %v", written, err)
			}
		}
		shows := func(want map[string][]string) {
			t.Helper()
			got, err := redisledger.ReadTable(ctx, client, name)
			if err != nil || !maps.EqualFunc(got, want, slices.Equal[[]string]) {
				t.Fatalf("%v %v, want %v", got, err, want)
			}
		}
		if got, err := redisledger.ReadTable(ctx, client, name); err != nil || got != nil {
			t.Fatal(got, err)
		}

		client.RPush(ctx, list, "free", "öl", `c"d`, "a b", "a b") // a list, with one twice
		ann := say(1, "ann", machine.Live, nil, of("a b"), of(`c"d`))
		say(2, "bob", machine.Live, nil, of("öl"))
		say(3, "idle", machine.Live, nil)
		write(slices.Clone(units), true)
		shows(map[string][]string{"ann": {"a b", `c"d`}, "bob": {"öl"}, "idle": {}, redisledger.Nobody: {"free"}})

		// Somebody who does not know of the newest unit writes nothing, and one who knows
		// of units that were removed writes those that are there.
		client.RPush(ctx, list, "new")
		write(slices.Clone(units), false)
		client.LRem(ctx, list, 0, "new")
		client.Del(ctx, list)
		client.SAdd(ctx, list, "öl", "a b") // now a set
		write(slices.Clone(units), true)
		shows(map[string][]string{"ann": {"a b"}, "bob": {"öl"}, "idle": {}})

		// What can be no unit is known to nobody, and keeps nobody from writing.
		client.SAdd(ctx, list, "", "two\nlines", "cr\r", "nul\x00", strings.Repeat("x", 1<<16+1))
		write(slices.Clone(units), true)
		shows(map[string][]string{"ann": {"a b"}, "bob": {"öl"}, "idle": {}})

		// Two that live under one id are two.
		other := machine.Request{Session: partition.Session(strings.Repeat("fedcba98", 4)), Peer: "ann", Weight: 1, State: machine.Live}
		mustSync(t, l, other)
		write(slices.Clone(units), true)
		shows(map[string][]string{"ann#00000000": {"a b"}, "ann#fedcba98": {}, "bob": {"öl"}, "idle": {}})
		other.State = machine.Gone
		mustSync(t, l, other)

		// A peer that has handed over writes, late, whose the units are now.
		say(1, "ann", machine.Gone, ann)
		say(2, "bob", machine.Live, nil, of("a b"))
		write(slices.Clone(units), true)
		shows(map[string][]string{"bob": {"a b", "öl"}, "idle": {}})
		// A dead session is removed when its lease has ended; its grants are free then.
		for _, dead := range []func(){
			func() { client.HSet(ctx, "{"+name+"}:sessions", string(session(2)), "expired 1 7 2 bob") }, // it held something
			func() { client.HDel(ctx, "{"+name+"}:sessions", string(session(2))) },
		} {
			dead()
			write(slices.Clone(units), true)
			shows(map[string][]string{"idle": {}, redisledger.Nobody: {"a b", "öl"}})
		}
		client.Del(ctx, list)
		write(nil, true)
		shows(map[string][]string{"idle": {}})

		key := redisledger.TableKey(name)
		if err := client.Set(ctx, key, "no hash", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := redisledger.ReadTable(ctx, client, name); err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "another program") {
			t.Errorf("of another program's key it says %v", err)
		}
	})
}
