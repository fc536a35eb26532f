package partition

import "testing"

// The vectors are those that Kafka tests its own with, negative where they are.
func TestMurmur2IsKafkas(t *testing.T) {
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "abc": 479470107,
		"a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
	} {
		if got := murmur2(key); got != uint32(want)&0x7fffffff {
			t.Errorf("%q: %d, want %d without its sign", key, got, want)
		}
		id, err := Murmur2.Of(key, 6)
		if err != nil || id != ID(uint32(want)&0x7fffffff%6) {
			t.Errorf("%q: partition %v, %v", key, id, err)
		}
		var f Filter
		f.Publish(Config{Total: 6, Hash: Murmur2}, []ID{id})
		if !f.Admit(key) {
			t.Errorf("%q is in partition %v, which the filter owns, and is not admitted", key, id)
		}
	}
}
