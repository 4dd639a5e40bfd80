package rules

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/yamlnode"
)

// repeatable is what may come several times in a request, by the file's word: headers
// by their canonical names, and parameters of queries. Expressions see all of it,
// joined by ", ". What is in allow is Instance.Allow.
type repeatable struct {
	headers, parameters map[string]bool
	allow               Ambiguity
}

func (p *parser) repeatable(n *yamlnode.Node) {
	may := &p.set.repeatable
	p.Mapping(n, yamlnode.Fields{
		"headers":    p.namesInto(&may.headers, "headers", headerToRepeat),
		"parameters": p.namesInto(&may.parameters, "parameters", parameterToRepeat),
	})
}

// namesInto makes a reader of a list of names, which read checks and makes canonical.
func (p *parser) namesInto(to *map[string]bool, what string, read func(string) (string, error)) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		if !p.few(n, len(*to), MaxListed, what) {
			return
		}
		p.Each(n, func(n *yamlnode.Node) {
			var name string
			yamlnode.Parsed(p.Reader, &name, read)(n)
			if *to == nil {
				*to = map[string]bool{}
			}
			(*to)[name] = true
		})
	}
}

func headerToRepeat(text string) (string, error) {
	if text == "" || strings.ContainsAny(text, " \t:,") {
		return "", fmt.Errorf("header %.60q: want a name such as x-roles", text)
	}
	name := http.CanonicalHeaderKey(text)
	if httpfield.IsList(name) {
		return "", fmt.Errorf("header %.60q: HTTP lets it repeat already, and its lines are joined", text)
	}
	return name, nil
}

func parameterToRepeat(text string) (string, error) {
	if text == "" {
		return "", fmt.Errorf("parameter %q: want a name such as tag", text)
	}
	return text, nil
}

// keyAt is the key of a rule, and where it stands.
type keyAt struct {
	rule *Rule
	node *yamlnode.Node // nil: the file gives none
	file *parser
}

// findLooseKeys looks for keys made of headers that may hold any number of values, so
// that a client has as many keys as it likes by adding one.
func (s *Set) findLooseKeys(all []keyAt) {
	for _, at := range all {
		if at.node == nil || at.rule.Mode == Off {
			continue
		}
		for _, name := range at.rule.key.headers {
			canonical := http.CanonicalHeaderKey(name)
			instead := "one that holds a single value"
			switch {
			case name == "x-forwarded-for", name == "forwarded":
				instead = "client.ip, which is the client's address behind trusted_proxies"
			case name == "cookie":
				instead = "what a token says, as in claims.sub, or by client.ip"
			case httpfield.IsList(canonical), s.repeatable.headers[canonical]:
			default:
				continue
			}
			s.Findings = append(s.Findings, Finding{CodeLooseKey, at.file.Place(at.node), fmt.Sprintf(
				"rule %q counts by the header %s, which holds a list: by adding to it, a client has another key for each request; count by %s", at.rule.Name, name, instead)})
		}
	}
}

// AmbiguousError says that a request has a header or a parameter that an expression
// needs, or that HTTP allows once, in such a way that servers read it differently. It
// wraps stint.ErrRequest.
type AmbiguousError struct {
	Is Ambiguity
	// Name is that of the header, in lower case, or of the parameter; empty: one of
	// them all.
	Name string
}

// Error says what is ambiguous, with its name.
func (e *AmbiguousError) Error() string {
	text := "the request has " + e.Is.Words()
	if e.Name != "" {
		text += ": " + clip(e.Name)
	}
	return text
}

// Unwrap returns stint.ErrRequest.
func (e *AmbiguousError) Unwrap() error { return stint.ErrRequest }

// Detail is a sentence for the client, without anything that it sent.
func (e *AmbiguousError) Detail() string {
	return "The request has " + e.Is.Words() + ", which servers read in different ways; it is not accepted here."
}

// check is an error where no expression need be asked to know that in is malformed.
func (s *Set) check(in *Input) error {
	if err := in.check(); err != nil {
		return err
	}
	r := in.Request
	if r == nil || s.repeatable.allow&RepeatedHeader != 0 {
		return nil
	}
	if name := httpfield.Repeated(r.Header); name != "" && !s.repeatable.headers[name] {
		return fmt.Errorf("rules: %w", &AmbiguousError{Is: RepeatedHeader, Name: strings.ToLower(name)})
	}
	return nil
}
