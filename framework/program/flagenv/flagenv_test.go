package flagenv_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/flagenv"
)

// command returns a root with a sub-command, and where their flags end up.
func command() (root *cobra.Command, redis *string, lease *time.Duration) {
	root = &cobra.Command{Use: "app", SilenceErrors: true, SilenceUsage: true}
	redis = root.PersistentFlags().String("redis", "default", "where")
	sub := &cobra.Command{Use: "work", PreRunE: func(cmd *cobra.Command, _ []string) error { return flagenv.Apply(cmd) }, Run: func(*cobra.Command, []string) {}}
	lease = sub.Flags().Duration("lease-time", time.Second, "how long")
	root.AddCommand(sub)
	flagenv.Bind(sub.Flags(), "APP_", nil)
	flagenv.Bind(root.PersistentFlags(), "APP_", map[string][]string{"redis": {"SHARED_REDIS_URL"}})
	return root, redis, lease
}

func TestFlagsWinOverVariablesOverDefaults(t *testing.T) {
	for _, c := range []struct {
		args  string
		env   map[string]string
		redis string
		lease time.Duration
	}{
		{"work", nil, "default", time.Second},
		{"work", map[string]string{"SHARED_REDIS_URL": "env", "APP_LEASE_TIME": "3s"}, "env", 3 * time.Second},
		{"work --redis flag --lease-time 4s", map[string]string{"SHARED_REDIS_URL": "env", "APP_LEASE_TIME": "3s"}, "flag", 4 * time.Second},
		{"work", map[string]string{"APP_REDIS": "not this one"}, "default", time.Second},
		{"work", map[string]string{"SHARED_REDIS_URL": "", "APP_LEASE_TIME": ""}, "", time.Second}, // none, as --redis= says
	} {
		t.Run(c.args, func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			root, redis, lease := command()
			root.SetArgs(strings.Fields(c.args))
			if err := root.Execute(); err != nil {
				t.Fatal(err)
			}
			if *redis != c.redis || *lease != c.lease {
				t.Errorf("%q %v, want %q %v", *redis, *lease, c.redis, c.lease)
			}
		})
	}
}

// What a flag is nothing to may refuse it, but not the variable.
func TestSaidIsOnTheCommandLine(t *testing.T) {
	t.Setenv("SHARED_REDIS_URL", "env")
	for args, want := range map[string]bool{"work": false, "work --redis env": true} {
		root, _, _ := command()
		root.SetArgs(strings.Fields(args))
		cmd, err := root.ExecuteC()
		if err != nil || flagenv.Said(cmd, "redis") != want || flagenv.Said(cmd, "lease-time") || flagenv.Said(cmd, "no-such-flag") {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// What is wrong with a value names where it came from, also to whom it is wrong only later.
func TestWrongNamesWhereTheValueCameFrom(t *testing.T) {
	t.Setenv("SHARED_REDIS_URL", "")
	for args, want := range map[string]string{"work": "$SHARED_REDIS_URL: it is empty", "work --redis=": "--redis: it is empty"} {
		root, _, _ := command()
		root.SetArgs(strings.Fields(args))
		cmd, err := root.ExecuteC()
		if err != nil {
			t.Fatal(err)
		}
		if got := flagenv.Wrong(cmd, "redis", errors.New("it is empty")); got == nil || got.Error() != want || flagenv.Wrong(cmd, "redis", nil) != nil {
			t.Errorf("%s: it says %v, want %s", args, got, want)
		}
	}
}

func TestBadVariableIsNamed(t *testing.T) {
	t.Setenv("APP_LEASE_TIME", "soon")
	root, _, _ := command()
	root.SetArgs([]string{"work"})
	if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "$APP_LEASE_TIME") {
		t.Error(err)
	}
}

// What else is wrong is told beside it, and of a flag that keeps its default there is nothing else to tell.
func TestWhatCannotBeReadKeepsItsDefault(t *testing.T) {
	for text, want := range map[string]time.Duration{"soon": time.Second, "-1d": time.Second, "-1s": -time.Second} {
		t.Setenv("APP_LEASE_TIME", text)
		root, _, lease := command()
		root.SetArgs([]string{"work"})
		cmd, err := root.ExecuteC()
		where := "$APP_LEASE_TIME"
		if want > 0 {
			where = "--lease-time"
		}
		if *lease != want || (err == nil) != (want < 0) || flagenv.Where(cmd, "lease-time") != where {
			t.Errorf("%s: %v, %v, of %s", text, *lease, err, flagenv.Where(cmd, "lease-time"))
		}
	}
}

// A time without a unit is what people write first.
func TestATimeWithoutAUnitSaysWhatToWrite(t *testing.T) {
	t.Setenv("APP_LEASE_TIME", "5")
	root, _, _ := command()
	root.SetArgs([]string{"work"})
	if err := root.Execute(); err == nil || !strings.HasSuffix(err.Error(), `must be a duration like "30s" or "5m"`) {
		t.Error(err)
	}
}

// A variable that is misspelt is one that nothing reads, and nothing else would say so.
func TestUnknownVariablesAreSaid(t *testing.T) {
	for name, want := range map[string]string{
		"APP_LEASE_TIMES":      "$APP_LEASE_TIMES is set, and no command of app reads it: did you mean $APP_LEASE_TIME?",
		"APP_LEASE":            "$APP_LEASE is set, and no command of app reads it: did you mean $APP_LEASE_TIME?",
		"APP_VERBOSE":          "$APP_VERBOSE is set, and no command of app reads it",
		"APP_LEASE_TIME":       "",
		"APP_OWN":              "",
		"APPLE":                "",
		"APP_SERVICE_HOST":     "", // Kubernetes sets these for a service app, and one app-http
		"APP_PORT":             "",
		"APP_PORT_80_TCP_ADDR": "",
		"APP_HTTP_PORT_80_TCP": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "5s")
			root, _, _ := command()
			for _, cmd := range []*cobra.Command{root, root.Commands()[0]} { // also of a command that the flag is nothing to
				if got := strings.Join(flagenv.Unknown(cmd, "APP_", "APP_OWN"), "\n"); got != want {
					t.Errorf("it says %q, want %q", got, want)
				}
			}
		})
	}
}

func TestHelpNamesThem(t *testing.T) {
	root, _, _ := command()
	var out strings.Builder
	root.SetOut(&out)
	root.SetArgs([]string{"work", "--help"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"[$APP_LEASE_TIME]", "[$SHARED_REDIS_URL]"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("help does not say %s once:\n%s", want, out.String())
		}
	}
}
