// Package shape checks that a value is one that fx can take as a constructor. With another, fx would
// report an error in its own terms, or call it while the application is built.
package shape

import "reflect"

// None reports whether f is nil, also inside if it is a function.
func None(f any) bool {
	v := reflect.ValueOf(f)
	return f == nil || v.Kind() == reflect.Func && v.IsNil()
}

// Makes reports whether f is a function that returns a T.
func Makes[T any](f any) bool {
	t := reflect.TypeOf(f)
	return t.Kind() == reflect.Func && t.NumOut() > 0 && t.Out(0).AssignableTo(reflect.TypeFor[T]())
}
