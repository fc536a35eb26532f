package command

import (
	"cmp"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/countoff/countoff/framework/program/exit"
	"github.com/countoff/countoff/partition"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Example: `  countoff version`,
		Short:   "print the version of the program and of the protocol it speaks",
		Args:    cobra.NoArgs,
		RunE: exit.Run(func(cmd *cobra.Command, _ []string) error {
			out := printing(cmd)
			_, err := fmt.Fprintf(out, "countoff %s, protocol %d\n", buildVersion(), partition.Protocol)
			return out.end(err)
		}),
	}
}

// buildVersion is what the build recorded: a module version, or a commit.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := cmp.Or(info.Main.Version, "(devel)")
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && version == "(devel)" {
			version += " " + s.Value
		}
	}
	return version + " " + info.GoVersion
}
