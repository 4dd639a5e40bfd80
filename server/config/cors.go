package config

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// CORS says which pages of other origins may read the gateway's answers, and the refusals that a proxy
// gets at /v1/authorize.
type CORS struct {
	// Upstream leaves that to the upstreams: the gateway's own answers allow what the upstream of the
	// same route last allowed to the same origin, and preflights pass. Policy is zero then. Otherwise
	// Policy has the origins, and the gateway answers preflights.
	Upstream bool
	Policy   httplimit.CORS
}

// readCORS makes a reader of "cors".
func readCORS(r *yamlnode.Reader, to **CORS) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		before, c := r.Problems(), new(CORS)
		p := &c.Policy
		fields := r.Mapping(n, yamlnode.Fields{
			"origins":     func(n *yamlnode.Node) { c.readOrigins(r, n) },
			"credentials": r.Bool(&p.Credentials),
			"max_age":     r.Period(&p.MaxAge),
			"methods": yamlnode.List(r, &p.Methods, func(text string) (string, error) {
				return text, (&httplimit.CORS{Methods: []string{text}}).Check()
			}),
			"headers": yamlnode.List(r, &p.Headers, func(text string) (string, error) {
				return text, (&httplimit.CORS{Headers: []string{text}}).Check()
			}),
		})
		if fields == nil {
			return
		}
		if fields["origins"] == nil {
			r.Report(n, `cors needs origins, such as origins: ["https://app.example.com"], or origins: upstream`)
		}
		for name, field := range fields {
			if c.Upstream && name != "origins" {
				r.Report(field, "%s is for origins that are listed: with origins: upstream, the upstream says it", name)
			}
		}
		if err := p.Check(); err != nil && r.Problems() == before {
			r.Report(n, "cors: %v", err)
		}
		*to = c
	}
}

func (c *CORS) readOrigins(r *yamlnode.Reader, n *yamlnode.Node) {
	if n.Kind == yaml.ScalarNode {
		yamlnode.Parsed(r, &c.Upstream, func(text string) (bool, error) {
			if text != "upstream" {
				return false, fmt.Errorf(`origins %.60q: want upstream, or a list such as ["https://app.example.com"]`, text)
			}
			return true, nil
		})(n)
		return
	}
	before := r.Problems()
	yamlnode.List(r, &c.Policy.Origins, func(text string) (string, error) {
		return text, (&httplimit.CORS{Origins: []string{text}}).Check()
	})(n)
	if len(c.Policy.Origins) == 0 && r.Problems() == before {
		r.Report(n, "origins must have at least one, or be upstream")
	}
}

// corsInVain finds that there are no upstreams whose CORS could be learned.
func (s *Settings) corsInVain() (f rules.Finding, found bool) {
	return rules.Finding{Code: rules.CodeCORS, Text: "cors has origins: upstream, and there are no routes: nobody answers here whose CORS headers could be repeated, " +
		"so that pages cannot read a refusal; list the origins"}, s.CORS != nil && s.CORS.Upstream && len(s.Routes) == 0
}
