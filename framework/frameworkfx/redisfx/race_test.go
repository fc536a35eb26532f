//go:build race

package redisfx_test

import "time"

// dayLong is shorter where each step costs several times as much.
const dayLong = 4 * time.Hour
