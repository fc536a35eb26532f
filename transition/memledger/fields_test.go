package memledger

import (
	"reflect"
	"testing"
)

// What a seat or a grant is given is given to its State too.
func TestStateHasAllFields(t *testing.T) {
	for _, c := range []struct{ of, kept any }{{seat{}, Seat{}}, {grant{}, Grant{}}} {
		if n, kept := reflect.TypeOf(c.of).NumField(), reflect.TypeOf(c.kept).NumField(); n != kept {
			t.Errorf("%T has %d fields, %T %d: Restore and State have to take the new one over", c.of, n, c.kept, kept)
		}
	}
}
