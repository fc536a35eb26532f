// Package flagenv lets the flags of a command line be given by an environment
// variable too, and makes the help say so: flags, environment and help cannot
// disagree, because they are one list.
package flagenv

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The annotations of a flag.
const (
	names   = "countoff.env"     // its variables
	applied = "countoff.env.set" // the one that it has its value from
)

// Bind gives each of flags a variable: prefix and the flag's name, as in
// MAIL_SENDER_HTTP for --http. Where own lists variables under a flag's name, these
// are all there are for it, possibly none, and the first one that is set counts. Flags win over
// variables, variables over defaults.
func Bind(flags *pflag.FlagSet, prefix string, own map[string][]string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations[names] != nil {
			return // shared by two commands
		}
		variables, ok := own[f.Name]
		if !ok {
			variables = []string{prefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))}
		}
		if len(variables) == 0 {
			return
		}
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[names] = variables
		f.Usage += " [$" + strings.Join(variables, ", $") + "]"
	})
}

// Apply sets the flags of cmd that the command line left out from their variables.
// It says everything that cannot be read at once, for the command to tell beside what else is wrong: such a flag
// keeps its default. A variable that is set to nothing is a text
// that is empty, as --http= is; to a flag of another type, which cannot be, it is not set.
func Apply(cmd *cobra.Command) error {
	var errs []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			return
		}
		for _, name := range f.Annotations[names] {
			value, ok := os.LookupEnv(name)
			if !ok || value == "" && f.Value.Type() != "string" {
				continue
			}
			before := f.Value.String()
			if err := cmd.Flags().Set(f.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("$%s: %w", name, err))
				if f.Value.String() != before { // numbers and times are set to what could be read
					errs = append(errs, f.Value.Set(before))
				}
				return
			}
			f.Annotations[applied] = []string{name}
			return
		}
	})
	return errors.Join(errs...)
}

// ofServices are what Kubernetes sets in each container of a namespace for each of its services, behind the
// name of the service, which may be that of the program.
var ofServices = regexp.MustCompile(`^(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// Unknown says of each variable that begins with prefix, and is neither of a flag of any command of
// cmd's program nor one of others, that no command reads it, and which it may have been meant for.
func Unknown(cmd *cobra.Command, prefix string, others ...string) (says []string) {
	known := &cobra.Command{SuggestionsMinimumDistance: 2}
	is := make(map[string]bool)
	add := func(name string) {
		if !is[name] {
			is[name] = true
			known.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
		}
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			for _, name := range f.Annotations[names] {
				add(name)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cmd.Root())
	for _, name := range others {
		add(name)
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || is[name] || ofServices.MatchString(rest) {
			continue
		}
		text := fmt.Sprintf("$%s is set, and no command of %s reads it", name, cmd.Root().Name())
		if near := known.SuggestionsFor(name); len(near) > 0 {
			text += ": did you mean $" + strings.Join(near, " or $") + "?"
		}
		says = append(says, text)
	}
	slices.Sort(says)
	return says
}

// Wrong is err, which says what is wrong with the value of the flag of that name, with where the
// value came from: the variable may be one that somebody set long ago. A nil err stays nil.
func Wrong(cmd *cobra.Command, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", Where(cmd, name), err)
}

// Where is what gives the flag of that name its value: its variable, as in $MAIL_SENDER_HTTP, or itself, as in --http.
func Where(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil && f.Annotations[applied] != nil {
		return "$" + f.Annotations[applied][0]
	}
	return "--" + name
}

// Said reports whether the flag of that name stands on the command line of cmd: a variable is
// meant for all commands, also for those that the flag is nothing to.
func Said(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	return f != nil && f.Changed && f.Annotations[applied] == nil
}
