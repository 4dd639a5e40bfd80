package server

import (
	"fmt"
	"strconv"

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
	// any more. 0: any number. ByMemory: up
	// to 10,000.
	InFlight int64
	// Bytes bounds the bodies and headers of requests under way that this instance
	// keeps in memory, and what reading them takes. One request more than fits is
	// refused. 0: any number. ByMemory: an eighth of the memory.
	Bytes int64
}

// String tells both bounds.
func (i Instance) String() string {
	limit := "none"
	if i.Limit != nil {
		limit = i.Limit.String()
	}
	bytes := "bytes by memory"
	if i.Bytes != ByMemory {
		bytes = ByteSize(i.Bytes).String()
	}
	inFlight := "by memory"
	if i.InFlight != ByMemory {
		inFlight = strconv.FormatInt(i.InFlight, 10)
	}
	return fmt.Sprintf("%s, %s in flight, %s", limit, inFlight, bytes)
}

// defaultInFlight is far above what one instance serves in good health; where there is
// little memory, it is less.
const defaultInFlight = 10_000

// read reads the section instance of the settings.
func (i *Instance) read(r *yamlnode.Reader, n *yamlnode.Node) {
	r.Mapping(n, yamlnode.Fields{
		"limit":     yamlnode.Parsed(r, &i.Limit, stint.ParseLimit),
		"in_flight": r.Int64(&i.InFlight, 1, 1<<31),

		"in_flight_bytes": yamlnode.Parsed(r, &i.Bytes, parseByteSize),
	})
}
