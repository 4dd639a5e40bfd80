package rules

import (
	"errors"
	"strings"
)

// ReadMethod tells what is ambiguous in the method of an HTTP request: a lower-case
// letter. Methods are case-sensitive, and rules see them as they were sent; but many
// servers take post for POST. An error is a method with characters that none has.
func ReadMethod(method string) (Ambiguity, error) {
	var a Ambiguity
	for i := range len(method) {
		switch c := method[i]; {
		case 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case 'a' <= c && c <= 'z':
			a |= MethodCase
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0:
			return 0, errors.New("a method has letters, digits and any of !#$%&'*+-.^_`|~ only")
		}
	}
	return a, nil
}
