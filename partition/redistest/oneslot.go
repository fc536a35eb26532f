package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// OneSlot makes client fail the test when it sends a script whose KEYS are not all
// of one slot: a cluster would refuse it, miniredis and a single server do not.
// [New] and the others here have it installed.
func OneSlot(t testing.TB, client redis.UniversalClient) {
	client.AddHook(oneSlot{t})
}

type oneSlot struct{ t testing.TB }

func (oneSlot) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h oneSlot) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.check(cmd)
		return next(ctx, cmd)
	}
}

func (h oneSlot) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.check(cmd)
		}
		return next(ctx, cmds)
	}
}

func (h oneSlot) check(cmd redis.Cmder) {
	keys := scriptKeys(cmd)
	for _, k := range keys {
		if Slot(k) != Slot(keys[0]) {
			h.t.Errorf("redistest: %s: keys %q and %q are of the slots %d and %d: a cluster refuses that",
				cmd.Name(), keys[0], k, Slot(keys[0]), Slot(k))
			return
		}
	}
}

// scriptKeys returns the KEYS of an EVAL, EVALSHA or FCALL, in all their forms.
func scriptKeys(cmd redis.Cmder) []string {
	switch cmd.Name() {
	case "eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro":
	default:
		return nil
	}
	args := cmd.Args() // name, script, number of keys, keys, arguments
	if len(args) < 3 {
		return nil
	}
	n, err := strconv.Atoi(fmt.Sprint(args[2]))
	if err != nil || n > len(args)-3 {
		return nil
	}
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint(args[3+i])
	}
	return keys
}

// Slot returns the cluster slot of key: CRC16 (XMODEM) modulo 16384 of the part in
// braces, if there is one, else of all.
func Slot(key string) int {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}
