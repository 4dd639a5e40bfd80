package stint

import (
	"regexp"
	"strings"
)

// nameOf is the Guard's name for a function with this runtime name: without the marks of pointers,
// type arguments and method values, and without package main, which all programs have.
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

// isAmbiguous reports whether another program, or another version of this one, may have a
// different function with this name.
func isAmbiguous(function string) bool {
	return strings.HasPrefix(function, "main.") || closure.MatchString(function)
}

// closure matches the mark of a closure in its runtime name.
var closure = regexp.MustCompile(`\.func\d`)

// keyPrefix escapes a name so that the first colon of a key ends it: different pairs of name and key
// make different keys.
var keyPrefix = strings.NewReplacer("%", "%25", ":", "%3A")
