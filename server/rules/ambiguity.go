package rules

import (
	"fmt"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// Ambiguity is a set of things in a request that servers read in different ways, so that a
// rule may see one path and the application behind it another. The zero Ambiguity is empty.
type Ambiguity uint32

// If you add one, name it in ambiguities, describe it in doc.go, and add targets that
// have it to slippery in server/differential_test.go.
const (
	// DotSegments are "." and ".." between slashes, in any spelling.
	DotSegments Ambiguity = 1 << iota
	// EncodedSlash is %2F: a slash to some servers, a letter like others to most.
	EncodedSlash
	// Backslash is \ or %5C, which some servers take for a slash.
	Backslash
	// Semicolon is ; or %3B in a path. Java's servers drop it with what follows it in
	// the segment.
	Semicolon
	// DoubleEncoding is an escape that is an escape again after decoding, such as
	// %252F.
	DoubleEncoding
	// LeadingSlashes are two or more at the beginning. To many libraries a host
	// follows them: new URL(target, base) in JavaScript, urlsplit in Python.
	LeadingSlashes
	// NotUTF8 are bytes in a path, or in a header that an expression needs, that are not UTF-8. Servers that
	// read Latin-1, as WSGI does, take some of them for spaces.
	NotUTF8
	// QuerySemicolon is a ; in a query, where some servers take it for an &.
	QuerySemicolon
	// QueryNUL is %00 in a query. C code ends the parameter there.
	QueryNUL
	// MethodCase is a lower-case letter in the method. Many servers take post for POST.
	MethodCase
	// RepeatedHeader is a header in several lines that is not a list. Some servers
	// take the first line, some the last.
	RepeatedHeader
	// TwinHeader is a header that some servers take for another, as X_User for X-User.
	TwinHeader
	// RepeatedParameter is a parameter that comes several times in a query.
	RepeatedParameter
	// TwinParameter is a parameter that some servers take for another, as user[] or
	// User for user.
	TwinParameter
	// RepeatedCookie is a cookie that comes several times with different values.
	RepeatedCookie
	// TwinCookie is a cookie that some servers take for another, or whose value they read in different ways.
	TwinCookie
	// UnclearCredential is a credential that servers read in different ways, or one of two in different
	// headers.
	UnclearCredential

	// AnyAmbiguity is all of them.
	AnyAmbiguity = 1<<iota - 1
	// PathAmbiguity is what makes a path ambiguous, QueryAmbiguity a query.
	PathAmbiguity  = QuerySemicolon - 1
	QueryAmbiguity = QuerySemicolon | QueryNUL
)

var ambiguities = []struct {
	is          Ambiguity
	name, words string
}{
	{DotSegments, "dot_segments", `a segment "." or ".." in its path`},
	{EncodedSlash, "encoded_slash", "an encoded slash in its path"},
	{Backslash, "backslash", "a backslash in its path"},
	{Semicolon, "semicolon", "a semicolon in its path"},
	{DoubleEncoding, "double_encoding", "an escape within an escape in its path"},
	{LeadingSlashes, "leading_slashes", "several slashes at the beginning of its path"},
	{NotUTF8, "not_utf8", "bytes that are not UTF-8 in its path or in a header"},
	{QuerySemicolon, "query_semicolon", "a semicolon in its query"},
	{QueryNUL, "query_nul", "an encoded NUL in its query"},
	{MethodCase, "method_case", "lower-case letters in its method"},
	{RepeatedHeader, "repeated_header", "a header in several lines"},
	{TwinHeader, "twin_header", "a header under a name that some servers take for another's"},
	{RepeatedParameter, "repeated_parameter", "a parameter several times in its query"},
	{TwinParameter, "twin_parameter", "a parameter under a name that some servers take for another's"},
	{RepeatedCookie, "repeated_cookie", "a cookie several times"},
	{TwinCookie, "twin_cookie", "a cookie that some servers take for another, or read in another way"},
	{UnclearCredential, "unclear_credential", "several credentials, or one in an unusual form"},
}

// String is the names in a, separated by commas.
func (a Ambiguity) String() string {
	var names []string
	for _, x := range ambiguities {
		if a&x.is != 0 {
			names = append(names, x.name)
		}
	}
	return strings.Join(names, ",")
}

// ParseAmbiguity reads the name of one kind, such as encoded_slash. Any other text
// is an error.
func ParseAmbiguity(name string) (Ambiguity, error) {
	names := make([]string, len(ambiguities))
	for i, x := range ambiguities {
		if x.name == name {
			return x.is, nil
		}
		names[i] = x.name
	}
	return 0, fmt.Errorf("unknown ambiguity %.60q%s (one of %s)", name, spelling.Hint(name, names), strings.Join(names, ", "))
}

// words describe a, without any text of the request.
func (a Ambiguity) words() string {
	var words []string
	for _, x := range ambiguities {
		if a&x.is != 0 {
			words = append(words, x.words)
		}
	}
	return strings.Join(words, " and ")
}

// AmbiguousError means that servers read a header, a parameter or a cookie of a request in different ways,
// and that an expression needs it or HTTP allows it once. It wraps stint.ErrRequest.
type AmbiguousError struct {
	Is Ambiguity
	// Name is the name of the header, in lower case, of the parameter or of the cookie; empty: any of them.
	Name string
}

// Error describes the ambiguity, with Name.
func (e *AmbiguousError) Error() string {
	text := "the request has " + e.Is.words()
	if e.Name != "" {
		text += ": " + expr.Clip(e.Name)
	}
	return text
}

// Unwrap returns stint.ErrRequest.
func (e *AmbiguousError) Unwrap() error { return stint.ErrRequest }

// Detail is a sentence for the client, without anything that it sent.
func (e *AmbiguousError) Detail() string {
	return "The request has " + e.Is.words() + ", which servers read in different ways; it is not accepted here."
}
