//go:build unix && !linux

package seat

import (
	"syscall"
	"time"
)

func bootNow() time.Duration { return time.Duration(time.Now().UnixNano()) }

func dieWithGuard() *syscall.SysProcAttr { return nil }
