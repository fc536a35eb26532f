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

// Short is what a store keeps of a first error.
func Short(reason string) string { return Cut(reason, maxError) }

// Cut is the beginning of a text, most bytes at most. It ends between two characters.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
