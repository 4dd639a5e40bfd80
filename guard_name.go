package stint

import (
	"regexp"
	"strings"
)

// nameOf is the name of a Guard of a function that the runtime calls function: without the marks of
// pointers, of type arguments and of method values, and without package main, which all programs have.
func nameOf(function string) string {
	slash := strings.LastIndexByte(function, '/') + 1
	dot := slash + strings.IndexByte(function[slash:], '.') + 1
	// In symbols, dots of the last part of an import path are escaped.
	pkg := strings.ReplaceAll(function[:dot], "%2e", ".")
	if pkg == "main." {
		pkg = ""
	}
	return pkg + marks.Replace(strings.TrimSuffix(function[dot:], "-fm"))
}

var marks = strings.NewReplacer("(*", "", ")", "", "[...]", "")

// isAmbiguous tells whether a function of another program, or another function of another
// version of this one, may have the name of function.
func isAmbiguous(function string) bool {
	return strings.HasPrefix(function, "main.") || closure.MatchString(function)
}

// closure matches what the compiler puts into the name of a closure.
var closure = regexp.MustCompile(`\.func\d`)

// keyPrefix escapes a name so that the first colon of a key ends it: no two pairs of a name and a key
// are one key.
var keyPrefix = strings.NewReplacer("%", "%25", ":", "%3A")
