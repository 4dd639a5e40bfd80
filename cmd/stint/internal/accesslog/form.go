package accesslog

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"github.com/stintdev/stint/internal/spelling"
)

// reader reads the lines of one form. A reader is used by one goroutine at a time.
type reader interface {
	// read puts what a line says in d. errOther: the line is well formed, but about no request. Another
	// error is why it cannot be read.
	read(line string, d *draft) error
}

// form is a way in which a server writes a line.
type form struct {
	name string
	// of returns a reader, given the first line of a file; nil: the file is not of this form.
	of func(first string) reader
}

var errOfForm = errors.New("it is not of the form")

// forms are those that are recognised. Of two that read as many lines, the first is taken.
var forms = slices.Concat([]form{
	{name: "stint", of: always(stintText{})},
	{name: "stint-json", of: always(stintJSON{jsonForm("", stintKeys, "").of("")})},
	jsonForm("caddy", caddyKeys, ""),
	jsonForm("traefik-json", traefikKeys, traefikHeaders),
	jsonForm("json", wellKnown, ""),
	{name: "haproxy", of: always(haproxy{})},
}, templateForms(), []form{csvForm(nil)})

// Forms are the names of the forms that Options.Format takes.
func Forms() []string {
	names := make([]string, len(forms))
	for i := range forms {
		names[i] = forms[i].name
	}
	return names
}

func always(r reader) func(string) reader { return func(string) reader { return r } }

// formsOf are those that a file may have.
func formsOf(o Options) ([]form, error) {
	if o.Fields != "" {
		return formsByFields(o)
	}
	if o.Format == "" {
		return forms, nil
	}
	if i := slices.IndexFunc(forms, func(f form) bool { return f.name == o.Format }); i >= 0 {
		return forms[i : i+1], nil
	}
	if !strings.ContainsAny(o.Format, "$%") && !isApacheLine(o.Format) && !strings.HasPrefix(o.Format, "log_format") {
		return nil, fmt.Errorf("format %.60q is unknown%s: want one of %s, a log_format of nginx, a LogFormat of Apache, or a format of Envoy",
			o.Format, spelling.Hint(o.Format, Forms()), strings.Join(Forms(), ", "))
	}
	t, err := compile(o.Format)
	if err != nil {
		return nil, err
	}
	return []form{templateForm("template", t)}, nil
}

// formsByFields are those of lines whose fields are said.
func formsByFields(o Options) ([]form, error) {
	byName, err := parseFields(o.Fields)
	if err != nil {
		return nil, err
	}
	isJSON := strings.HasPrefix(byName[0].at, "$")
	switch {
	case o.Format == "" || isJSON && o.Format == "json" || !isJSON && o.Format == "csv":
	default:
		return nil, fmt.Errorf("fields are of json ($.name) or of csv (the name of a column), not of format %.60q", o.Format)
	}
	keys := map[string]field{}
	for _, f := range byName {
		if strings.HasPrefix(f.at, "$") != isJSON {
			return nil, fmt.Errorf("fields are either all of JSON, as $.name, or all columns: not %.60q and %.60q", byName[0].at, f.at)
		}
		if _, twice := keys[f.at]; twice {
			return nil, fmt.Errorf("fields: %.60q is there twice", f.at)
		}
		keys[f.at] = f.field
	}
	if isJSON {
		if _, err := compilePaths(keys); err != nil {
			return nil, err
		}
		return []form{jsonForm("json", keys, "")}, nil
	}
	return []form{csvForm(keys)}, nil
}

// fieldAt is a field, and where it is.
type fieldAt struct {
	field
	at string
}

// fieldNames are the fields that Options.Fields names, but for header.NAME and attrs.NAME.
var fieldNames = map[string]role{
	"time": arrived, "ip": client, "method": method, "request": request, "path": place, "query": query, "host": host,
	"status": status, "user": user, "operation": operation, "cost": cost,
}

func parseFields(text string) (all []fieldAt, err error) {
	hasTime := false
	for _, part := range splitOutsideBrackets(text) {
		name, at, ok := strings.Cut(part, "=")
		name, at = strings.TrimSpace(name), strings.TrimSpace(at)
		if !ok || at == "" {
			return nil, fmt.Errorf("fields: %.60q: want name=place, as path=$.uri of JSON or path=url of CSV", part)
		}
		f := field{role: fieldNames[name]}
		if h, ok := strings.CutPrefix(name, "header."); ok && h != "" {
			f = headerField(h)
		} else if a, ok := strings.CutPrefix(name, "attrs."); ok && a != "" {
			f = field{role: attr, name: a}
		}
		if f.role == ignored {
			names := make([]string, 0, len(fieldNames))
			for n := range fieldNames {
				names = append(names, n)
			}
			slices.Sort(names)
			return nil, fmt.Errorf("fields: %.60q is unknown%s: want one of %s, header.NAME or attrs.NAME",
				name, spelling.Hint(name, names), strings.Join(names, ", "))
		}
		hasTime = hasTime || f.role == arrived
		all = append(all, fieldAt{f, at})
	}
	if !hasTime {
		return nil, errors.New("fields: there is no time, as in time=$.ts")
	}
	return all, nil
}

// splitOutsideBrackets splits at commas that are in no brackets.
func splitOutsideBrackets(text string) (parts []string) {
	depth, from := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth <= 0 {
				parts, from = append(parts, text[from:i]), i+1
			}
		}
	}
	return append(parts, text[from:])
}

// headerField is the field for a header field of the request, by its name in any case, maybe with _ for -.
func headerField(name string) field {
	name = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
	if name == "Host" {
		return field{role: host, rank: 1}
	}
	return field{role: header, name: name}
}

// has is what lines with these fields say about requests.
func has(all map[field]bool) (h Fields) {
	for f := range all {
		switch f.role {
		case client, peer:
			h.Client = true
		case method:
			h.Method = true
		case request:
			h.Method, h.Path, h.Query = true, true, true
		case target:
			h.Path, h.Query = true, true
		case path, stintPath, place:
			h.Path = true
		case query:
			h.Query = true
		case host:
			h.Host = true
		case user:
			h.User = true
		case status:
			h.Status = true
		case operation:
			h.Operation = true
		case cost:
			h.Cost = true
		case header:
			h.Headers = append(h.Headers, f.name)
		case anyHeader:
			h.AllHeadersBut = caddyHides
		case attr:
			h.Attrs = append(h.Attrs, f.name)
		}
	}
	h.Headers, h.Attrs = sortedSet(h.Headers), sortedSet(h.Attrs)
	return h
}
