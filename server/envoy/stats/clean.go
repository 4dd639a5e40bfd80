package stats

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

var ipv4 = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

// clean returns a name for statistics: with "_" for ":", "|", control characters and invalid UTF-8, and for
// the dots of IPv4 addresses. It cannot forge a line of statsd.
func clean(name string) string {
	name = withoutSyntax(name, ":|")
	return ipv4.ReplaceAllStringFunc(name, func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
}

// withoutSyntax returns s with "_" for each of chars, each control character and each byte that is
// not UTF-8.
func withoutSyntax(s, chars string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError || strings.ContainsRune(chars, r) {
			return '_'
		}
		return r
	}, s)
}

// tag is a tag of all statistics.
type tag struct{ key, value string }

// readTags returns tags by their keys. Those without a key or a value are left out, as in
// envoyproxy/ratelimit.
func readTags(from map[string]string) ([]tag, error) {
	var tags []tag
	for key, value := range from {
		if key == "" || value == "" {
			continue
		}
		if bad := withoutSyntax(key, ":|,=# "); bad != key {
			return nil, fmt.Errorf("stats: tag %.60q: a key must not have spaces, control characters or any of : | , = #", key)
		}
		tags = append(tags, tag{key, value})
	}
	slices.SortFunc(tags, func(a, b tag) int { return cmp.Compare(a.key, b.key) })
	return tags, nil
}
