// Package friend closes doors of public packages to other modules: see Of.
package friend

import "errors"

// Of is the argument of functions that only packages below this module's path may call, such as
// stint.Internal. Others cannot import this package to name the type, and no nil, constant or
// struct{}{} converts to it: the field excludes struct types of other packages. Reflection, and a
// generic function that infers the type, can still make one, but not by mistake.
type Of struct{ _ struct{} }

// ErrOverloaded is what an httplimit.Overloaded is, for packages that know no HTTP: see errors.Is.
var ErrOverloaded = errors.New("this instance is overloaded")
