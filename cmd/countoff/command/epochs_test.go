package command

import (
	"strings"
	"testing"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition/redistest"
)

func TestEpochsWantsMasters(t *testing.T) {
	if said := newShell(t).fails(exit.Usage, "epochs n"); !strings.Contains(said, "want --masters") {
		t.Errorf("it says %q", said)
	}
}

// What it does not look at is refused where it was said for this command. The variable is for all.
func TestEpochsLooksAtTheMastersAlone(t *testing.T) {
	epochs := func(args ...string) error {
		cmd := Root(nil)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"epochs", "n"}, args...))
		cmd.SetOut(&output{})
		return cmd.ExecuteContext(t.Context())
	}
	err := epochs("--redis", "redis://h", "--ledger", "redis", "--timeout", "1s")
	for _, want := range []string{"want --masters", "--redis: epochs looks at the masters alone", "--ledger: epochs looks", "--timeout: epochs looks", "--wait"} {
		if codeOf(err) != exit.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q: %v", want, err)
		}
	}
	if err := epochs("--masters", "redis://a:1"); codeOf(err) != exit.Usage || !strings.Contains(err.Error(), "want three or five") {
		t.Errorf("with one master: %v", err)
	}
	t.Setenv("COUNTOFF_REDIS_URL", "redis://nobody.invalid")
	var urls []string
	for range 3 {
		mini, _ := redistest.Mini(t)
		urls = append(urls, "redis://"+mini.Addr())
	}
	if err := epochs("--masters", strings.Join(urls, ","), "--admit"); err != nil && codeOf(err) != exit.Verdict { // an emulator does not tell what is at risk
		t.Errorf("with the variable: %v", err)
	}
}
