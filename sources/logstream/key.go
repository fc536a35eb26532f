package logstream

import "github.com/cespare/xxhash/v2"

// KeyHash is what package progress knows of a key: 0 is no key.
func KeyHash[K string | []byte](key K) uint64 {
	if len(key) == 0 {
		return 0
	}
	if b, ok := any(key).([]byte); ok {
		return max(1, xxhash.Sum64(b))
	}
	return max(1, xxhash.Sum64String(string(key)))
}
