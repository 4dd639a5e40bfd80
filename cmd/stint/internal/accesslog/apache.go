package accesslog

import (
	"fmt"
	"strings"
)

// apacheDirectives are those without an argument. %v is the name of a virtual host, and not the host.
var apacheDirectives = map[byte]variable{
	'h': {field: field{role: client, rank: 1}, kind: word}, 'a': {field: field{role: client, rank: 1}, kind: word},
	'u': {field: field{role: user}}, 't': {field: field{role: arrived}, kind: common},
	'r': {field: field{role: request}}, 'm': {field: field{role: method}, kind: word},
	'U': {field: field{role: path}}, 'q': {field: field{role: query}}, 's': {field: field{role: status}, kind: digits},
	'V': {field: field{role: host}, kind: word},
	'l': {kind: word}, 'A': {kind: word}, 'H': {kind: word}, 'v': {kind: word}, 'X': {kind: word}, 'L': {kind: word}, 'f': {}, 'R': {},
	'b': {kind: digits}, 'B': {kind: digits}, 'O': {kind: digits}, 'I': {kind: digits}, 'S': {kind: digits}, 'D': {kind: digits},
	'T': {kind: digits}, 'k': {kind: digits}, 'p': {kind: digits}, 'P': {kind: digits},
}

func isApacheLine(format string) bool {
	return hasPrefixFold(format, "LogFormat") || hasPrefixFold(format, "CustomLog")
}

func hasPrefixFold(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}

// compileApache reads a directive LogFormat or CustomLog, or a format in its quotes, or a plain format.
func compileApache(format string) (*template, error) {
	if isApacheLine(format) {
		from := strings.IndexByte(format, '"')
		if hasPrefixFold(format, "CustomLog") { // the file may be in quotes, too
			if at := strings.Index(format, "%"); at >= 0 {
				from = strings.LastIndex(format[:at], ` "`) + 1
			}
		}
		if from <= 0 {
			return nil, fmt.Errorf("%.60q: there is no format in quotes", format)
		}
		text, n := apacheQuoted(format[from:])
		if n == 0 {
			return nil, fmt.Errorf("%.60q: no quote ends the format", format)
		}
		return percentTemplate(text)
	}
	if strings.HasPrefix(format, `"`) {
		if text, n := apacheQuoted(format); n == len(format) && strings.Contains(text, "%") {
			if t, err := percentTemplate(text); err == nil {
				return t, nil
			}
		}
	}
	return percentTemplate(strings.ReplaceAll(format, `\"`, `"`))
}

// apacheQuoted reads a quoted word and returns the length of what it read; 0: no quote ends it.
func apacheQuoted(text string) (string, int) {
	end := endOfQuoted(text, 1)
	if end < 0 {
		return "", 0
	}
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\t`, "\t").Replace(text[1:end]), end + 1
}

// percentTemplate reads a format with directives such as %>s and %{Referer}i.
func percentTemplate(format string) (*template, error) {
	var vars []variable
	texts := []string{""}
	for {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			texts[len(texts)-1] += format
			return newTemplate(vars, texts, false)
		}
		texts[len(texts)-1] += format[:i]
		whole := format[i:]
		format = strings.TrimLeft(whole[1:], "!<>,0123456789")
		argument := ""
		if strings.HasPrefix(format, "{") {
			var ok bool
			if argument, format, ok = strings.Cut(format[1:], "}"); !ok {
				return nil, fmt.Errorf("the format has no } after %.60q", whole)
			}
		}
		if format == "" {
			return nil, fmt.Errorf("the format ends within %q", whole)
		}
		letter := format[0]
		format = format[1:]
		if letter == '%' {
			texts[len(texts)-1] += "%"
			continue
		}
		v, err := apacheDirective(letter, argument)
		if err != nil {
			return nil, err
		}
		v.name = whole[:len(whole)-len(format)]
		brackets := letter == 't' && argument == ""
		if brackets {
			texts[len(texts)-1] += "["
		}
		if n := len(vars); v.role == query && n > 0 && texts[n] == "" && vars[n-1].role == path { // %U%q
			vars[n-1].role = target
			continue
		}
		vars, texts = append(vars, v), append(texts, "")
		if brackets {
			texts[len(texts)-1] = "]"
		}
	}
}

func apacheDirective(letter byte, argument string) (variable, error) {
	if argument == "" {
		v, ok := apacheDirectives[letter]
		if !ok {
			return v, fmt.Errorf("the format has %%%c, which is unknown", letter)
		}
		return v, nil
	}
	switch letter {
	case 'i':
		return variable{field: headerField(argument)}, nil
	case 'a':
		return variable{field: field{role: client}, kind: word}, nil // the peer, where a proxy is before it
	case 't':
		return apacheTime(argument)
	case 's', 'T', 'p', 'P':
		return apacheDirectives[letter], nil
	case 'h', 'u', 'U', 'q', 'r', 'm':
		return apacheDirectives[letter], nil
	}
	return variable{}, nil // a cookie, a note, a header of the response: skipped
}

// apacheTime is a time in a format of its own.
func apacheTime(argument string) (variable, error) {
	v := variable{field: field{role: arrived}}
	layout, isEnd := strings.CutPrefix(argument, "end:")
	if isEnd {
		v.role = ended
	}
	layout = strings.TrimPrefix(layout, "begin:")
	switch layout {
	case "sec", "msec", "usec", "%s":
		v.kind = digits
		return v, nil
	case "msec_frac", "usec_frac":
		return variable{kind: digits}, nil
	}
	layout = strings.NewReplacer("%F", "%Y-%m-%d", "%T", "%H:%M:%S", "T%", " %", "%z", "%z").Replace(layout)
	switch strings.TrimSuffix(strings.TrimSuffix(layout, "%z"), " ") {
	case "%d/%b/%Y:%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%SZ", "[%d/%b/%Y:%H:%M:%S":
		return v, nil
	}
	return v, fmt.Errorf("the format has a time %%{%.60s}t: want sec, msec, usec, %%d/%%b/%%Y:%%H:%%M:%%S %%z or %%Y-%%m-%%dT%%H:%%M:%%S%%z", argument)
}
