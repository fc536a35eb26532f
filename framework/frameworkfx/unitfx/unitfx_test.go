package unitfx_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/framework/frameworkfx/unitfx"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redistest"
	"github.com/countoff/countoff/sources/unitsource"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quick(peer string) unitfx.Config {
	return unitfx.Config{
		Source: unitsource.Config{Partitions: 64},
		Units: framework.UnitsConfig{
			Peer: peer, Every: 20 * time.Millisecond,
			Timing: transition.Timing{Lease: 20 * time.Second, Settle: 10 * time.Millisecond}, // not over on a slow machine
		},
	}
}

// Other clients write the list and read the table while peers work.
func TestUnitsOfRedis(t *testing.T) {
	for _, c := range []struct {
		store  string
		client func(*testing.T) redis.UniversalClient
	}{
		{"miniredis", func(t *testing.T) redis.UniversalClient { _, c := redistest.Mini(t); return c }},
		{"server", func(t *testing.T) redis.UniversalClient { return redistest.Server(t).Client() }},
	} {
		t.Run(c.store, func(t *testing.T) { shares(t, c.client(t)) })
	}
}

func shares(t *testing.T, client redis.UniversalClient) {
	t.Setenv(frameworkfx.DeploymentVariable, "blue")
	ctx, name := t.Context(), redistest.Name(t)
	if _, err := redisledger.Init(ctx, client, name, partition.Config{Total: 64}); err != nil {
		t.Fatal(err)
	}
	type note struct {
		peer, unit string
		on         bool
	}
	notes := make(chan note, 1000)
	app := func(peer string) *fxtest.App {
		return fxtest.New(t,
			fx.NopLogger,
			frameworkfx.Module,
			fx.Provide(func() redis.UniversalClient { return client }),
			unitfx.Units(name, quick(peer), func(ctx context.Context, u framework.Unit) error {
				notes <- note{peer, u.Name, true}
				<-ctx.Done()
				notes <- note{peer, u.Name, false}
				return nil
			}),
		)
	}
	owner := map[string]string{}
	until := func(what string, ok func() bool) {
		t.Helper()
		deadline := time.After(2 * time.Minute)
		for !ok() {
			select {
			case n := <-notes:
				switch {
				case n.on && owner[n.unit] != "":
					t.Errorf("%s begins with %s, which is %s's", n.peer, n.unit, owner[n.unit])
				case n.on:
					owner[n.unit] = n.peer
				default:
					delete(owner, n.unit)
				}
			case <-time.After(20 * time.Millisecond):
			case <-deadline:
				table, err := redisledger.ReadTable(ctx, client, name)
				t.Fatalf("waited for %s; %v; the table is %v %v", what, owner, table, err)
			}
		}
	}
	// The table is what the handlers are.
	agrees := func() bool {
		table, err := redisledger.ReadTable(ctx, client, name)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for peer, units := range table {
			n += len(units)
			if slices.ContainsFunc(units, func(u string) bool { return owner[u] != peer }) {
				return false
			}
		}
		return n == len(owner)
	}

	ann, bob := app("ann"), app("bob")
	ann.RequireStart()
	for i := range 24 {
		client.SAdd(ctx, "{"+name+"}:units", fmt.Sprintf("https://site-%d.example", i))
	}
	until("24 units", func() bool { return len(owner) == 24 && agrees() })
	bob.RequireStart()
	until("bob to have some", func() bool {
		for _, peer := range owner {
			if peer == "bob" {
				return len(owner) == 24 && agrees()
			}
		}
		return false
	})
	ledger, err := redisledger.New(client, name, redisledger.Config{Config: partition.Config{Total: 64}, Timing: quick("").Units.Timing})
	if err != nil {
		t.Fatal(err)
	}
	census, err := ledger.Census(ctx)
	if err != nil || len(census.Sessions) == 0 {
		t.Fatalf("%v: %v", err, census.Sessions)
	}
	for _, s := range census.Sessions {
		if s.Terms.Deployment != "blue" {
			t.Errorf("%s says that it belongs to %q, its environment that it is blue", s.Peer, s.Terms.Deployment)
		}
	}
	client.SRem(ctx, "{"+name+"}:units", "https://site-0.example", "https://site-1.example")
	client.SAdd(ctx, "{"+name+"}:units", "i")
	until("23 units", func() bool {
		return len(owner) == 23 && owner["https://site-0.example"] == "" && owner["i"] != "" && agrees()
	})
	ann.RequireStop()
	until("bob to have all", func() bool {
		for _, peer := range owner {
			if peer != "bob" {
				return false
			}
		}
		return len(owner) == 23 && agrees()
	})
	bob.RequireStop()
	until("nobody to have any", func() bool { return len(owner) == 0 })
	if table, err := redisledger.ReadTable(ctx, client, name); err != nil || len(table) != 1 || len(table[redisledger.Nobody]) != 23 {
		t.Errorf("all have left, and the table is %v %v", table, err)
	}
}

func TestWhatIsWrongIsListed(t *testing.T) {
	app := fx.New(fx.NopLogger, frameworkfx.Module,
		unitfx.Units("sites", unitfx.Config{Source: unitsource.Config{Partitions: -2}, Units: framework.UnitsConfig{Every: -1}}, nil),
		unitfx.Units("feeds", unitfx.Config{URL: "redis://127.0.0.1:1", Source: unitsource.Config{Partitions: -1}, Units: framework.UnitsConfig{Weight: -1}},
			func() framework.UnitHandler { return nil }),
		unitfx.Units("roads", unitfx.Config{URL: "redis://127.0.0.1:1", WaitReplicas: -1}, nil),
		unitfx.Units("disks", unitfx.Config{URL: "redis://127.0.0.1:1"}, func() framework.UnitHandler { return nil }),
		unitfx.Units("mints", unitfx.Config{URL: "redis://127.0.0.1:1"}, (func() framework.UnitHandler)(nil)),
		unitfx.Units("ports", unitfx.Config{URL: "redis://127.0.0.1:1"}, func() func(context.Context, framework.Unit) error { return nil }),
		unitfx.Units("mines", unitfx.Config{URL: "redis://127.0.0.1:1"}, "a text"),
		unitfx.Units("yards", unitfx.Config{URL: "redis://127.0.0.1:1"}, func() {}),
		unitfx.Units("banks", unitfx.Config{}, func(context.Context, *framework.Unit) error { return nil }),
	)
	err := app.Err()
	if err == nil || frameworkfx.ExitCode(err) != frameworkfx.ExitWrong {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{
		`units "sites": unitfx: no Redis URL`, `units "sites": partition: -2 partitions`, `units "sites": framework: no handler`, `units "sites": framework: Every -`,
		`units "feeds": partition: -1 partitions`, `units "feeds": framework: no handler`, `units "feeds": framework: weight -1`,
		`"disks": framework: no handler`, `"roads": framework: no handler`, `"roads": unitfx: WaitReplicas -1: want 0 or more`, `"mints": framework: no handler`, `"ports": framework: no handler`,
		`"yards": unitfx: func() is neither a handler`, `"mines": unitfx: string is neither a handler`, `"banks": unitfx: func(context.Context, *framework.Unit) error is neither a handler`, `"banks": unitfx: no Redis URL`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %s: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "no Redis client") {
		t.Errorf("that there is no client is said without the reason as well:\n%v", err)
	}
}
