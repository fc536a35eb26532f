package logstream

import (
	"strings"

	"github.com/countoff/countoff/sources"
)

// FirstError is the first error of a task whose last run ended with reason.
func FirstError(t *sources.Task, reason string) string {
	if t.FirstError != "" {
		return t.FirstError
	}
	return reason
}

// maxError is how much of a first error a store keeps.
const maxError = 1024

// Short is what a store keeps of a first error. It ends between two characters.
func Short(reason string) string {
	if len(reason) <= maxError {
		return reason
	}
	return strings.ToValidUTF8(reason[:maxError], "")
}
