package frameworkfx

import (
	"cmp"
	"os"
	"runtime/debug"
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
