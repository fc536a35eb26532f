//go:build !race

package redisfx_test

import "time"

const dayLong = 24 * time.Hour
