package rules

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/yamlnode"
)

// repeatable has the names that may repeat in a request by the file: headers by canonical name, parameters
// and cookies.
type repeatable struct {
	headers, parameters, cookies map[string]bool
	allow                        Ambiguity
}

func (p *parser) repeatable(n *yamlnode.Node) {
	may := &p.set.repeatable
	p.Mapping(n, yamlnode.Fields{
		"headers":    p.namesInto(&may.headers, "headers", headerToRepeat),
		"parameters": p.namesInto(&may.parameters, "parameters", parameterToRepeat),
		"cookies":    p.namesInto(&may.cookies, "cookies", cookieToRepeat),
	})
}

func (p *parser) namesInto(to *map[string]bool, what string, read func(string) (string, error)) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		if !p.few(n, len(*to), maxListed, what) {
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

func cookieToRepeat(text string) (string, error) {
	if text == "" || strings.ContainsAny(text, " \t;,=") {
		return "", fmt.Errorf("cookie %.60q: want a name such as session", text)
	}
	return text, nil
}

func parameterToRepeat(text string) (string, error) {
	if text == "" {
		return "", fmt.Errorf("parameter %q: want a name such as tag", text)
	}
	return text, nil
}
