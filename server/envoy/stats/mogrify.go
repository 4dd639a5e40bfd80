package stats

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stintdev/stint/server/config"
)

// mogrifier turns a name into a name with tags.
type mogrifier struct {
	pattern *regexp.Regexp
	name    string
	tags    []tag
}

func newMogrifiers(from []config.Mogrifier) ([]mogrifier, error) {
	var all []mogrifier
	for i, f := range from {
		pattern, err := regexp.Compile(f.Pattern)
		switch {
		case f.Pattern == "":
			return nil, fmt.Errorf("stats: mogrifier %d has no pattern", i+1)
		case f.Name == "":
			return nil, fmt.Errorf("stats: mogrifier %d has no name", i+1)
		case err != nil:
			return nil, fmt.Errorf("stats: mogrifier %d: %w", i+1, err)
		}
		m := mogrifier{pattern: pattern, name: f.Name}
		for key, value := range f.Tags {
			if key == "" || value == "" {
				return nil, fmt.Errorf("stats: mogrifier %d: tag %.60q needs a key and a value", i+1, key)
			}
			m.tags = append(m.tags, tag{key, value})
		}
		slices.SortFunc(m.tags, func(a, b tag) int { return cmp.Compare(a.key, b.key) })
		all = append(all, m)
	}
	return all, nil
}

// mogrified returns the name that the first match among all gives, and its tags, each after a comma. If none
// matches, it returns name.
func mogrified(all []mogrifier, name string) (mogrified, tags string) {
	for i := range all {
		m := &all[i]
		found := m.pattern.FindStringSubmatch(name)
		if found == nil {
			continue
		}
		var b strings.Builder
		for _, t := range m.tags {
			b.WriteString("," + t.key + ":" + withoutSyntax(expand(t.value, found), "|,"))
		}
		return withoutSyntax(expand(m.name, found), ":|"), b.String()
	}
	return name, ""
}

var placeholder = regexp.MustCompile(`\$\d+`)

// expand replaces $0, $1 and so on by the texts found. Others stay.
func expand(template string, found []string) string {
	return placeholder.ReplaceAllStringFunc(template, func(s string) string {
		if i, err := strconv.Atoi(s[1:]); err == nil && i < len(found) {
			return found[i]
		}
		return s
	})
}
