// Command countoff shows and tends the names of task processings in Redis: who takes
// part, who owns which partition, what waits, what died. `countoff --help` lists its
// commands.
package main

import (
	"os"

	"github.com/countoff/countoff/cmd/countoff/command"
)

func main() { os.Exit(command.Main(nil)) }
