package simulation

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"reflect"
	"time"

	"github.com/countoff/countoff/transition/memledger"
)

// A digest is the hash of values of all kinds: the same for those that are the same to the last field, behind
// pointers too.
type digest struct {
	seed  maphash.Seed
	bytes []byte
}

func (d *digest) reset() { d.bytes = d.bytes[:0] }

func (d *digest) sum() uint64 { return maphash.Bytes(d.seed, d.bytes) }

func (d *digest) add(values ...any) {
	for _, v := range values {
		d.write(reflect.ValueOf(v))
	}
}

// addStore adds all of a store that decides something.
func (d *digest) addStore(s *memledger.Store) {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "history" && name != "notes" {
			d.write(v.Field(i))
		}
	}
}

func (d *digest) write(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			d.length(1)
		} else {
			d.length(0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.bytes = binary.AppendVarint(d.bytes, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.bytes = binary.AppendUvarint(d.bytes, v.Uint())
	case reflect.String:
		d.length(v.Len())
		d.bytes = append(d.bytes, v.String()...)
	case reflect.Slice:
		d.length(v.Len())
		for i := range v.Len() {
			d.write(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			d.write(v.Field(i))
		}
	case reflect.Pointer:
		switch {
		case v.IsNil():
			d.length(0)
		case v.Type() == reflect.TypeFor[*time.Location](): // all times are of one
			d.length(1)
		default:
			d.length(1)
			d.write(v.Elem())
		}
	case reflect.Map:
		d.writeMap(v)
	default:
		panic(fmt.Sprintf("simulation: no digest of a %v", v.Type()))
	}
}

// writeMap writes the sum of the hashes of all entries, which is the same in every order.
func (d *digest) writeMap(v reflect.Value) {
	var sum uint64
	begin := len(d.bytes)
	for entries := v.MapRange(); entries.Next(); {
		d.write(entries.Key())
		d.write(entries.Value())
		sum += maphash.Bytes(d.seed, d.bytes[begin:])
		d.bytes = d.bytes[:begin]
	}
	d.length(v.Len())
	d.bytes = binary.LittleEndian.AppendUint64(d.bytes, sum)
}

func (d *digest) length(n int) { d.bytes = binary.AppendUvarint(d.bytes, uint64(n)) }
