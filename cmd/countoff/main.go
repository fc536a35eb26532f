// Command countoff shows and controls the services that share work through countoff: their
// peers, which of them owns which partition, what waits, what failed. `countoff --help` lists
// its commands.
package main

import (
	"os"

	"github.com/countoff/countoff/cmd/countoff/command"
)

func main() { os.Exit(command.Main(nil)) }
