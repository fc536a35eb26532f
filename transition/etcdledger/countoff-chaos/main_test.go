package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/countoff/countoff/cmd/countoff-chaos/play"
)

// TestMain lets this test be the program, and with it the peers and the etcd that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (strings.HasPrefix(os.Args[1], "_") || os.Getenv(playV) != "") {
		main()
	}
	os.Exit(m.Run())
}

const playV = "COUNTOFF_TEST_CHAOS"

// TestEtcdIsBroken is the short form: peers on real tasks whose etcd is killed, stopped and
// cut off, and who are killed themselves. All lose their ledger at once there: nobody gains
// anything meanwhile, and no clock goes on by which a lease would end.
func TestEtcdIsBroken(t *testing.T) {
	shows(t, []string{play.LedgerRestart, play.LedgerPause, play.LedgerCut, play.Kill}, "--faults", "5", "--seed", "95")
}

// TestOnePeerLosesEtcd cuts off one peer at a time for longer than its lease, and gives it
// tasks that take longer than that: others have its partitions, and it ends its handlers
// before. Short ones would have ended by themselves.
func TestOnePeerLosesEtcd(t *testing.T) {
	shows(t, []string{play.CutControl, play.SilentControl}, "--faults", "4", "--seed", "7", "--long", "6s")
}

// shows runs faults of all kinds, and wants no word of the promise broken.
func shows(t *testing.T, kinds []string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server in PATH: install it, as in: apt-get install redis-server")
	}
	args = append(args, "--json", "--peers", "4", "--partitions", "16", "--rate", "80", "--only", strings.Join(kinds, ","))
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	cmd.Env = append(os.Environ(), playV+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.Output()
	var sum play.Summary
	if bad := json.Unmarshal(out, &sum); bad != nil || err != nil || !sum.OK {
		t.Fatalf("%v, %v: %s\n%s", err, bad, out, errs.String())
	}
	if sum.Completed == 0 || sum.Lost+sum.StaleSettles+sum.Overlaps+sum.OutOfOrder != 0 {
		t.Errorf("%s", out)
	}
	done := map[string]bool{}
	for _, row := range sum.Rows {
		done[row.Kind] = row.Count > 0
	}
	for _, kind := range kinds {
		if !done[kind] {
			t.Errorf("no %s was done: another seed: %s", kind, out)
		}
	}
}
