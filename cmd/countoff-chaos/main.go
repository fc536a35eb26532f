// Countoff-chaos breaks a deployment of real processes on a real redis-server, in an
// order that a seed decides, and checks afterwards that no word of the promise was
// broken.
//
//	go run ./cmd/countoff-chaos --faults 60
//	go run ./cmd/countoff-chaos --only kill --faults 200 --peers 12
//
// It ends with 0 if every promise was kept, 1 if one was not, 2 if the run could not
// be made. The journals of a run that failed are kept, and where is said.
package main

import (
	"os"

	"github.com/countoff/countoff/cmd/countoff-chaos/command"
)

func main() { os.Exit(command.Main(nil)) }
