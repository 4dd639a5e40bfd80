package config

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// CORS says which pages of other origins may read the gateway's answers, and a proxy's refusals at
// /v1/authorize.
type CORS struct {
	// Upstream leaves that to the upstreams: the gateway's own answers allow an origin what the route's
	// upstream last allowed it, and preflights pass. Policy is zero then. Otherwise Policy has the origins,
	// and the gateway answers preflights.
	Upstream bool
	Policy   httplimit.CORS
}

func (c *CORS) rows(r *yamlnode.Reader) schema.Rows {
	p := &c.Policy
	origin := schema.Scalar("origin", `^(\*|null|[^A-Z/]+://[^A-Z/]+)$`)
	return schema.Rows{
		{Name: "origins", Value: schema.Custom(schema.Shape{Kind: schema.KindList, Item: &origin}.OrElse(schema.Words("upstream")), func(n *yamlnode.Node) { c.readOrigins(r, n) }), Required: true, Example: `["https://app.example.com"]`,
			Says: "Origins that may read answers, or upstream: those that the route's upstream last allowed."},
		{Name: "credentials", Value: schema.Bool(r, &p.Credentials), Default: "false", Not: []string{"origins=upstream"},
			Says: "Lets pages send cookies and credentials."},
		{Name: "max_age", Value: schema.Custom(schema.Shape{Kind: schema.KindDuration, What: "duration"}, r.Period(&p.MaxAge)), Computed: "the browsers' default, 5s", Example: "10m", Not: []string{"origins=upstream"},
			Says: "How long a browser may cache a preflight."},
		{Name: "methods", Value: schema.List(r, &p.Methods, func(text string) (string, error) {
			return text, (&httplimit.CORS{Methods: []string{text}}).Check()
		}, schema.Scalar("method", schema.Token)), Computed: "GET, HEAD, POST, PUT, PATCH, DELETE", Example: "[GET, POST]", Not: []string{"origins=upstream"},
			Says: "The methods that pages may use."},
		{Name: "headers", Value: schema.List(r, &p.Headers, func(text string) (string, error) {
			return text, (&httplimit.CORS{Headers: []string{text}}).Check()
		}, schema.Scalar("header", schema.Token)), Computed: "those that a preflight asks for", Example: "[Authorization, Content-Type]", Not: []string{"origins=upstream"},
			Says: "The request headers that pages may set."},
	}
}

// readCORS is the section cors of the settings.
func readCORS(r *yamlnode.Reader, to **CORS) schema.Value {
	before := 0
	v := schema.Optional(r, to, func(c *CORS) schema.Rows { return c.rows(r) }, func(c *CORS, n *yamlnode.Node, fields map[string]*yamlnode.Node) {
		if fields["origins"] == nil {
			r.Report(n, `cors needs origins, such as origins: ["https://app.example.com"], or origins: upstream`)
		}
		for name, field := range fields {
			if c.Upstream && name != "origins" {
				r.Report(field, "%s is for listed origins: with origins: upstream, the upstream decides it", name)
			}
		}
		if err := c.Policy.Check(); err != nil && r.Problems() == before {
			r.Report(n, "cors: %v", err)
		}
	})
	return schema.Custom(v.Shape, func(n *yamlnode.Node) {
		before = r.Problems()
		v.Read(n)
	})
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
	return rules.Finding{Code: rules.CodeCORS, Text: "cors has origins: upstream, but there are no routes: no upstream's CORS headers can be repeated here, " +
		"so pages cannot read a refusal; list the origins"}, s.CORS != nil && s.CORS.Upstream && len(s.Routes) == 0
}
