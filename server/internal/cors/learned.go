package cors

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"

	"github.com/stintdev/stint/httplimit"
)

const (
	// maxOrigins is how many origins are remembered for an upstream, and longestOrigin how long they may be:
	// an upstream may allow every origin that it gets.
	maxOrigins    = 64
	longestOrigin = 255
)

// upstream has the origins that a route's upstream has allowed.
type upstream struct {
	mu      sync.Mutex
	any     *httplimit.CORS // nil: * was not allowed
	origins []allowance     // at most maxOrigins
}

// allowance is an origin that was allowed, and how often.
type allowance struct {
	origin string
	policy *httplimit.CORS
	times  int
}

var everybody = &httplimit.CORS{Origins: []string{"*"}}

// allowed returns what the upstream last allowed to an origin; nil: nothing.
func (u *upstream) allowed(origin string) *httplimit.CORS {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.origins {
		if u.origins[i].origin == origin {
			return u.origins[i].policy
		}
	}
	return u.any
}

// answered remembers what a response to r allows, and reports whether the page that sent r may read it. A
// response that allows nothing changes nothing: many upstreams leave the headers out of errors, so any client
// could otherwise keep the upstream's pages from reading refusals.
func (u *upstream) answered(r *http.Request, response http.Header) (readable bool) {
	origin, allowed := internal.Origin(r), response["Access-Control-Allow-Origin"]
	credentials := slices.Equal(response["Access-Control-Allow-Credentials"], []string{"true"})
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case origin == "":
		return len(allowed) > 0 // the exposed headers cannot depend on the page
	case slices.Equal(allowed, []string{"*"}):
		u.any = everybody
		return true
	case slices.Equal(allowed, []string{origin}):
		if len(origin) <= longestOrigin {
			u.allow(origin, credentials)
		}
		return true
	}
	return false
}

// allow remembers an origin, if necessary instead of the one allowed least often. So a client that sends many
// origins to an upstream that allows them all displaces origins of single requests, not those in use.
func (u *upstream) allow(origin string, credentials bool) {
	i := slices.IndexFunc(u.origins, func(a allowance) bool { return a.origin == origin })
	if i >= 0 && u.origins[i].policy.Credentials == credentials {
		u.origins[i].times++
		return
	}
	a := allowance{origin, &httplimit.CORS{Origins: []string{origin}, Credentials: credentials}, 1}
	switch {
	case i >= 0:
		a.times += u.origins[i].times
	case len(u.origins) < maxOrigins:
		u.origins = append(u.origins, a)
		return
	default:
		i = u.leastAllowed()
	}
	u.origins[i] = a
}

// leastAllowed is the index of an origin that was allowed least often: of several, any, so that a new one
// has time to be allowed again.
func (u *upstream) leastAllowed() int {
	least := slices.MinFunc(u.origins, func(a, b allowance) int { return cmp.Compare(a.times, b.times) }).times
	from := rand.IntN(len(u.origins))
	for u.origins[from].times > least {
		from = (from + 1) % len(u.origins)
	}
	return from
}
