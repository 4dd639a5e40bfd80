package server

import (
	"slices"
	"strings"

	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/config"
)

// routes are the gateway's, in the order in which they are looked at: those for one host
// before those for any, and the longest path first.
type routes []*config.Route

func newRoutes(all []config.Route) routes {
	r := make(routes, len(all))
	for i := range all {
		r[i] = &all[i]
	}
	slices.SortStableFunc(r, func(a, b *config.Route) int {
		if (a.Host == "") != (b.Host == "") {
			return len(b.Host) - len(a.Host)
		}
		return len(b.Path) - len(a.Path)
	})
	return r
}

// find is the route that a request takes, given its host and path in normal form; nil:
// there is none.
func (r routes) find(host, path string) *config.Route {
	for _, route := range r {
		if leadsTo(route, host, path) {
			return route
		}
	}
	return nil
}

func leadsTo(r *config.Route, host, path string) bool {
	if r.Host != "" && r.Host != host {
		return false
	}
	rest, ok := strings.CutPrefix(path, r.Path)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(r.Path, "/"))
}

// takeRoute is the name of the route that a request takes, which its exchange keeps, if
// it has one.
func (s *Server) takeRoute(x *exchange, host, path string) string {
	if x != nil && x.wrapped {
		return x.pattern
	}
	route := s.routes.find(host, path)
	if x != nil {
		x.route = route
	}
	if route == nil {
		return ""
	}
	return route.Name
}

// read is what is ambiguous to r: to a gateway, or to a proxy that asks, which is told
// nothing of routes but what rules make of their names.
func (r routes) read(asking bool) rules.Ambiguity {
	if asking && !slices.ContainsFunc(r, func(r *config.Route) bool { return r.Name != "" }) {
		return 0
	}
	if slices.ContainsFunc(r, looksAtPath) {
		return rules.PathAmbiguity
	}
	return 0
}

// looksAtPath reports whether what becomes of a request depends on its path.
func looksAtPath(r *config.Route) bool {
	return r.Path != "/" || strings.Trim(r.Upstream.Path, "/") != ""
}
