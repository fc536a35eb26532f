package frameworkfx

import (
	"cmp"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/countoff/countoff/framework"
)

// DeploymentVariable is the environment variable that tells what a peer belongs to.
const DeploymentVariable = "COUNTOFF_DEPLOYMENT"

// Deployment is what a peer says that it belongs to: configured, else what the environment
// says, else the path of the program's main package.
func Deployment(configured string) string {
	path := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		path = info.Path
	}
	return cmp.Or(configured, os.Getenv(DeploymentVariable), path)
}

// misspelt says of each variable that is nearly one that a peer reads, and none of them, which it may have
// been meant for: nothing else would. Other variables that begin alike are the command's, or somebody's own.
func misspelt(environ []string) (says []string) {
	read := []string{DeploymentVariable, framework.GraceVariable}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if value == "" || slices.Contains(read, name) {
			continue
		}
		for _, meant := range read {
			if typingErrors(name, meant) <= 2 {
				says = append(says, "the variable "+name+" is set, and no peer reads it: did you mean "+meant+"?")
			}
		}
	}
	slices.Sort(says)
	return says
}

// typingErrors is how many bytes have to be put in, left out or replaced to make b of a.
func typingErrors(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
