package rules

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/stintdev/stint/internal/yamlnode"
)

const maxCredentialHeaders = 10

// credentialHeaders reads the names of the headers that have a client's credential.
func (p *parser) credentialHeaders(n *yamlnode.Node) {
	if !p.few(n, 0, maxCredentialHeaders, "headers") {
		return
	}
	all := []string{} // not nil: there may be none
	p.Each(n, func(n *yamlnode.Node) {
		var name string
		yamlnode.Parsed(p.Reader, &name, credentialHeader)(n)
		if name != "" && slices.Contains(all, name) {
			p.Report(n, "the header %s is given twice", strings.ToLower(name))
		}
		all = append(all, name)
	})
	p.set.credentialHeaders = all
}

func credentialHeader(text string) (string, error) {
	switch name := http.CanonicalHeaderKey(text); {
	case !httpguts.ValidHeaderFieldName(text):
		return "", fmt.Errorf("header %.60q: want a name such as x-api-key", text)
	case name == "Cookie":
		return "", fmt.Errorf("header %.60q: count by a cookie, as in request.cookies.session", text)
	case name == "Host":
		return "", fmt.Errorf("header %.60q: it names no client", text)
	default:
		return name, nil
	}
}
