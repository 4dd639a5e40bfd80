package server

import (
	"fmt"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/yamlnode"
)

// Instance bounds what one instance takes at the gateway and the check API, whatever
// the rules and the store say. Healthz, readyz, metrics
// and the admin API are never bounded by it.
type Instance struct {
	// Limit is how many requests that the rules allow may pass here, each as one
	// unit, at both together. nil: any number.
	Limit *stint.Limit
	// InFlight is how many requests may be under way at once at the gateway, and as
	// many at the check API, /v1/authorize among them. One client cannot have all of
	// them: see httplimit.Middleware.MaxInFlight. A connection that was upgraded is none
	// any more. 0: any number.
	InFlight int64
}

// String tells both bounds.
func (i Instance) String() string {
	limit := "none"
	if i.Limit != nil {
		limit = i.Limit.String()
	}
	return fmt.Sprintf("%s, %d in flight", limit, i.InFlight)
}

// defaultInFlight is far above what one instance serves in good health, and what
// it holds then fits into a few hundred MiB.
const defaultInFlight = 10_000

// read reads the section instance of the settings.
func (i *Instance) read(r *yamlnode.Reader, n *yamlnode.Node) {
	r.Mapping(n, yamlnode.Fields{
		"limit":     yamlnode.Parsed(r, &i.Limit, stint.ParseLimit),
		"in_flight": r.Int64(&i.InFlight, 1, 1<<31),
	})
}
