package envoy

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/limittext"
)

func (e *environment) unused() []string {
	e.ignored(unusedNames...)
	slices.Sort(e.ignore)
	return slices.Compact(e.ignore)
}

// ignored notes variables that have no effect, of those that are set.
func (e *environment) ignored(names ...string) {
	for _, name := range names {
		if e.values[name] != "" {
			e.ignore = append(e.ignore, name)
		}
	}
}

// set reports whether a variable is set to something.
func (e *environment) set(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return e.values[name] != "" })
}

func (e *environment) report(name, format string, args ...any) {
	e.wrong = append(e.wrong, fmt.Errorf("%s: %s", name, fmt.Sprintf(format, args...)))
}

// text returns a value as it is, even an empty one; otherwise is for a variable that is not set.
func (e *environment) text(name, otherwise string) string {
	if v, ok := e.values[name]; ok {
		return v
	}
	return otherwise
}

// choice returns a value that is one of several, in any case.
func (e *environment) choice(name string, values ...string) string {
	v := e.values[name]
	for _, want := range values {
		if v == "" || strings.EqualFold(v, want) {
			return want
		}
	}
	e.report(name, "%.60q: want one of %s", v, strings.Join(values, ", "))
	return values[0]
}

func (e *environment) boolean(name string, otherwise bool) bool {
	v := e.values[name]
	if v == "" {
		return otherwise
	}
	is, err := strconv.ParseBool(v)
	if err != nil {
		e.report(name, "%.60q: want true or false", v)
	}
	return is
}

func (e *environment) number(name string, otherwise, least, most int64) int64 {
	v := e.values[name]
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(v, 0, 64)
	if err != nil || n < least || n > most {
		e.report(name, "%.60q: want a whole number from %d to %d", v, least, most)
		return otherwise
	}
	return n
}

func (e *environment) duration(name string, otherwise, least time.Duration) time.Duration {
	v := e.values[name]
	if v == "" {
		return otherwise
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < least {
		e.report(name, "%.60q: want a duration from %v, such as 10s", v, least)
		return otherwise
	}
	return d
}

// pairs reads a list such as "key:value,key:value". separator is between key and value.
func (e *environment) pairs(name, separator string) map[string]string {
	v := e.values[name]
	if strings.TrimSpace(v) == "" {
		return nil
	}
	all := map[string]string{}
	for pair := range strings.SplitSeq(v, ",") {
		key, value, ok := strings.Cut(pair, separator)
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok || key == "" {
			e.report(name, "want a list such as key1%svalue1,key2%svalue2", separator, separator) // a value may be secret
			return nil
		}
		all[key] = value
	}
	return all
}

// asItIs is the text of a variable that is set, even an empty one.
func (e *environment) asItIs(name string) (string, bool) {
	v, ok := e.values[name]
	return v, ok
}

// notEmpty is the text of a variable, which the settings check.
func (e *environment) notEmpty(name string) (string, bool) { return e.values[name], e.set(name) }

func (e *environment) booleanText(name string) (string, bool) {
	before := len(e.wrong)
	is := e.boolean(name, false)
	return strconv.FormatBool(is), e.set(name) && len(e.wrong) == before
}

func durationFrom(least time.Duration) func(*environment, string) (string, bool) {
	return func(e *environment, name string) (string, bool) {
		before := len(e.wrong)
		d := e.duration(name, 0, least)
		return limittext.Duration(d), e.set(name) && len(e.wrong) == before
	}
}

func oneOf(values ...string) func(*environment, string) (string, bool) {
	return func(e *environment, name string) (string, bool) {
		before := len(e.wrong)
		return e.choice(name, values...), e.set(name) && len(e.wrong) == before
	}
}

func pairsBy(separator string) func(*environment, string) (string, bool) {
	return func(e *environment, name string) (string, bool) {
		all := e.pairs(name, separator)
		return inYAML(all), all != nil
	}
}

// inYAML is v in JSON, which is YAML.
func inYAML(v any) string {
	text, _ := json.Marshal(v) // of maps of texts, it cannot fail
	return string(text)
}

// address joins the host and the port of a listener or of a server.
func (e *environment) address(host, otherwiseHost, port string, otherwisePort int64) string {
	return net.JoinHostPort(e.text(host, otherwiseHost), strconv.FormatInt(e.number(port, otherwisePort, 0, 65535), 10))
}
